//! Targets whose replicas somebody else changes back.

use crate::reconcile::records::Subjects;
use autoscaler_core::scale_conflict::{Attempt, ScaleConflict};
use common::RevisionKey as Key;
use common_api::PodAutoscaler;
use common_controller::Severity;
use dashmap::DashMap;
use std::time::Duration;
use tokio::time::Instant;

/// The conflict about each target, where there is one.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    revisions: DashMap<Key, ScaleConflict>,
}

impl Conflicts {
    /// How long to wait before `to` replicas are asked for again; none: not at all.
    pub(super) fn pause(&self, key: &Key, to: i32) -> Option<Duration> {
        let conflict = self.revisions.get(key).map(|conflict| *conflict).unwrap_or_default();
        match conflict.attempt(to, Instant::now().into_std()) {
            Attempt::Now => None,
            Attempt::After(left) => Some(left),
        }
    }

    /// That many replicas were written. That somebody else keeps changing them is told once.
    pub(super) fn written(&self, key: &Key, object: &PodAutoscaler, to: i32, subjects: &dyn Subjects) {
        let is_contested = self.revisions.entry(key.clone()).or_default().written(to, Instant::now().into_std());
        if is_contested {
            tracing::warn!(revision = %key, to, "somebody else keeps changing the replicas");
            let message = format!(
                "Somebody else keeps changing the replicas, which should be {to}: they are asked for less and less often"
            );
            subjects.say(object, Severity::Warning, "ReplicasContested", message);
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        self.revisions.remove(key);
    }
}
