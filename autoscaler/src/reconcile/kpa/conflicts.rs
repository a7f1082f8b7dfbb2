//! Targets whose replicas somebody else changes back.

use crate::reconcile::records::Subjects;
use crate::reconcile::stores::facts::Target;
use autoscaler_core::scale_conflict::{Attempt, REASSERT_EVERY, ScaleConflict};
use common::RevisionKey as Key;
use common_api::PodAutoscaler;
use common_controller::Severity;
use dashmap::DashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Page on which users find the settings of GitOps tools.
const RECIPE: &str = "deploy/docs/gitops.md";

/// The conflict about each target, where there is one.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    revisions: DashMap<Key, Conflict>,
}

#[derive(Debug, Default)]
struct Conflict {
    scale: ScaleConflict,
    /// Field manager that had set the replicas before they were last written. After that write they are ours.
    writer: Option<String>,
}

impl Conflicts {
    /// Returns how long to wait before looking again whether to write `to` replicas; none: they are due. A request may
    /// come meanwhile, so that is [`REASSERT_EVERY`] at most.
    pub(super) fn pause(&self, key: &Key, to: i32, is_awaited: bool) -> Option<Duration> {
        let conflict = self.revisions.get(key).map(|conflict| conflict.scale).unwrap_or_default();
        match conflict.attempt(to, is_awaited, Instant::now().into_std()) {
            Attempt::Now => None,
            Attempt::After(left) => Some(left.min(REASSERT_EVERY)),
        }
    }

    /// Returns how another writer keeps changing the replicas of the target, and the remedy; none: nobody does.
    pub(super) fn explain(&self, key: &Key, object: &PodAutoscaler) -> Option<String> {
        let now = Instant::now().into_std();
        let conflict = self.revisions.get(key).filter(|conflict| conflict.scale.is_contested(now))?;
        let reference = &object.spec.scale_target_ref;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let writer = conflict.writer.as_deref().map_or("Another writer".into(), |name| format!("{name:?}"));
        Some(format!(
            "{writer} keeps setting spec.replicas of {} {}, which should be {}: leave replicas out of its manifest, or \
             have it ignore this field ({RECIPE})",
            text(&reference.kind),
            text(&reference.name),
            conflict.scale.wanted()?,
        ))
    }

    /// Notes that `to` replicas were written to a target that was `before`. The conflict is reported once.
    pub(super) fn written(&self, key: &Key, object: &PodAutoscaler, before: &Target, to: i32, subjects: &dyn Subjects) {
        let is_new = {
            let mut conflict = self.revisions.entry(key.clone()).or_default();
            conflict.writer.clone_from(&before.replicas_writer);
            conflict.scale.written(to, Instant::now().into_std())
        };
        if let Some(message) = self.explain(key, object).filter(|_| is_new) {
            tracing::warn!(revision = %key, to, message, "another writer keeps changing the replicas");
            subjects.say(object, Severity::Warning, "ReplicasContested", message);
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        self.revisions.remove(key);
    }
}
