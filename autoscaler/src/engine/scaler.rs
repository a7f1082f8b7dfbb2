//! The replicas patch, and its listeners.

use super::refusals::Refusals;
use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use crate::cluster::target_key::TargetKey;
use crate::cluster::writes::Writes;
use crate::cluster::{FrontEndQueues, Stores};
use crate::scale::{OnScale, ScaleEvent};
use common::RevisionKey as Key;
use common::write_rate::WriteClass;
use common_controller::{BoundedApi, WriteError};
use dashmap::DashMap;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation};
use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, Request};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time from giving up a write until it can no longer take effect.
const CANCEL_MARGIN: Duration = Duration::from_millis(500);

pub(crate) struct Scaler {
    pub(crate) writes: Writes,
    pub(crate) stores: Arc<Stores>,
    pub(crate) front_end_queues: Arc<dyn FrontEndQueues>,
    pub(crate) leaving: LastPodRemovals,
    pub(crate) refusals: Refusals,
    /// Callback for every patch that was accepted.
    pub(crate) on_scale: Option<OnScale>,
}

/// Intended change of replicas.
pub(crate) struct Change<'a> {
    pub(crate) to: i32,
    /// Reason, for an operator.
    pub(crate) why: &'a str,
    /// Returns true if the change is still wanted when it may be sent, which may be a while after the decision.
    pub(crate) is_still_due: &'a (dyn Fn() -> bool + Sync),
}

/// Completed change of replicas, or several merged into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scaled {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) from: i32,
    pub(crate) to: i32,
    pub(crate) why: String,
}

impl Scaled {
    pub(crate) const REASON: &str = "Scaled";

    /// Merges this change with an earlier one.
    pub(crate) fn after(self, earlier: Option<&Self>) -> Self {
        Self { from: earlier.map_or(self.from, |earlier| earlier.from), ..self }
    }
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, from, to, why } = self;
        write!(f, "Scaled {kind} {name} from {from} to {to}: {why}")
    }
}

impl Scaler {
    /// Patches the target's replicas. `kind` is the target's kind. Returns the change once the API server has accepted
    /// it. Fails with [`WriteError::Outdated`] if the change is no longer wanted.
    pub(crate) async fn patch(
        &self,
        key: &Key,
        kind: &str,
        target_key: &TargetKey,
        target: &Target,
        Change { to, why, is_still_due }: Change<'_>,
    ) -> Result<Scaled, Error> {
        let from = target.current();
        // A target that was refused recently must not delay patches that may be accepted.
        let wakes = from == 0 && !self.refusals.is_refused(key);
        let class = if wakes { WriteClass::Wake } else { WriteClass::Scale };
        let name = target_key.object.name();
        let doing = format!("failed to apply scale {to} to scale target {name}");
        let path = DynamicObject::url_path(&target_key.resource.resource(), Some(key.namespace()));
        let patch = async |api: BoundedApi| {
            if !is_still_due() {
                return Err(WriteError::Outdated { doing: doing.clone() });
            }
            if to == 0 {
                self.leaving.begin(key, api.within);
            }
            let patch = Request::new(path).patch_subresource("scale", name, &PatchParams::default(), &replicas(to));
            api.send(patch).await.map_err(WriteError::api(doing.as_str()))
        };
        let sent = self.writes.writer_of(class).write(key, &doing, patch).await;
        if to == 0
            && let Some(over) = self.leaving.end(key, !sent.as_ref().is_err_and(WriteError::is_unanswered))
        {
            self.front_end_queues.queue_path_after(key, over);
        }
        match &sent {
            Err(error) if to > from => self.reroute_if(key, self.refusals.record(key, error)),
            Err(_) => {}
            Ok(_) => self.clear_refusal(key),
        }
        let scaled: DynamicObject = sent?;
        let at = Instant::now();
        let version = scaled.metadata.resource_version.unwrap_or_default();
        self.stores.targets.offer(target_key, &version, Target { replicas: Some(to), ..Target::clone(target) });
        tracing::info!(revision = %key, target = name, from, to, why, "scaled");
        if let Some(on_scale) = &self.on_scale {
            on_scale(&ScaleEvent { key: key.clone(), from, to, reason: why.to_owned(), at });
        }
        Ok(Scaled { kind: kind.to_owned(), name: name.to_owned(), from, to, why: why.to_owned() })
    }

    /// Clears a reported refusal, because no pods need to be added any more.
    pub(crate) fn clear_refusal(&self, key: &Key) {
        self.reroute_if(key, self.refusals.clear(key));
    }

    /// Requests a check of the path if the report has changed, so that activators receive it.
    fn reroute_if(&self, key: &Key, is_changed: bool) {
        if is_changed {
            self.front_end_queues.queue_path_after(key, Duration::ZERO);
        }
    }
}

/// Deadlines until which the last pod of a target may still be removed.
///
/// Traffic must not be routed back to pods that are about to end. A patch to zero is therefore recorded before it is
/// sent. If it gets no response, it may still take effect for a while.
#[derive(Debug, Default)]
pub(crate) struct LastPodRemovals {
    until: DashMap<Key, Instant>,
}

impl LastPodRemovals {
    /// Records that a write removes the last pod, and may take up to `within`.
    pub(crate) fn begin(&self, key: &Key, within: Duration) {
        self.until.insert(key.clone(), Instant::now() + within + CANCEL_MARGIN);
    }

    /// Records the end of that write. Without a response it may still take effect for a while. Returns the time until
    /// it cannot; none: no such write was recorded.
    pub(crate) fn end(&self, key: &Key, answered: bool) -> Option<Duration> {
        let left = self.until.get(key).map(|until| until.saturating_duration_since(Instant::now()))?;
        if answered {
            self.until.remove(key);
            return Some(Duration::ZERO);
        }
        Some(left)
    }

    /// Returns whether the last pod may be removed at any moment.
    pub(crate) fn is_leaving(&self, key: &Key) -> bool {
        self.until.get(key).is_some_and(|until| Instant::now() < *until)
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.until.remove(key);
    }
}

/// Returns the patch that upstream sends. It has no precondition, so it needs no right to read.
fn replicas(to: i32) -> Patch<()> {
    let path = PointerBuf::from_tokens(["spec", "replicas"]);
    Patch::Json(JsonPatch(vec![PatchOperation::Add(AddOperation { path, value: to.into() })]))
}
