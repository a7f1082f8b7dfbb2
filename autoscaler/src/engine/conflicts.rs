//! Targets whose replicas another writer keeps changing back.

use super::workload::Workload;
use autoscaler_core::scale_conflict::{REASSERT_EVERY, ScaleConflict};
use common::RevisionKey as Key;
use dashmap::DashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Page that documents the settings of GitOps tools.
const RECIPE: &str = "deploy/docs/gitops.md";

/// Current conflict of each contested target.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    revisions: DashMap<Key, Conflict>,
}

#[derive(Debug, Default)]
struct Conflict {
    scale: ScaleConflict,
    /// Field manager that had set the replicas before our last write. After that write the field is ours.
    writer: Option<String>,
}

impl Conflicts {
    /// Returns the time until `to` replicas may be written; none: they may be written now. The pause is at most
    /// [`REASSERT_EVERY`], because a request may arrive meanwhile.
    pub(super) fn pause(&self, key: &Key, to: i32, is_awaited: bool) -> Option<Duration> {
        let conflict = self.revisions.get(key).map(|conflict| conflict.scale).unwrap_or_default();
        conflict.pause(to, is_awaited, Instant::now().into_std()).map(|left| left.min(REASSERT_EVERY))
    }

    /// Describes the writer that keeps changing the target's replicas, and the remedy; none: there is no conflict.
    pub(super) fn explain(&self, key: &Key, workload: &Workload) -> Option<String> {
        let now = Instant::now().into_std();
        let conflict = self.revisions.get(key).filter(|conflict| conflict.scale.is_contested(now))?;
        let writer = conflict.writer.as_deref().map_or("Another writer".into(), |name| format!("{name:?}"));
        let (kind, name, wanted) = (&workload.kind, workload.target_key.object.name(), conflict.scale.wanted()?);
        Some(format!(
            "{writer} keeps changing spec.replicas of {kind} {name}, which the autoscaler sets to {wanted}. Remove replicas from \
             the manifest, or configure the other writer to ignore this field: see {RECIPE}"
        ))
    }

    /// Records that `to` replicas were written. Returns the message to report if the conflict is new.
    pub(super) fn written(&self, key: &Key, workload: &Workload, to: i32) -> Option<String> {
        let is_new = {
            let mut conflict = self.revisions.entry(key.clone()).or_default();
            conflict.writer.clone_from(&workload.target.replicas_writer);
            conflict.scale.written(to, Instant::now().into_std())
        };
        if is_new { self.explain(key, workload) } else { None }
    }

    pub(super) fn forget(&self, key: &Key) {
        self.revisions.remove(key);
    }
}
