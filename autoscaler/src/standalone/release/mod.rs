//! Gives a target back: if its ZeroScaler is deleted, names another target, or must give up its Service.
//!
//! 1. Scale decisions stop. The replicas become max(1, min-scale, replicas at adoption).
//! 2. The activators stay in the path until a pod is ready, so they hold requests as before. This wait is bounded by
//!    [`READY_WAIT_MAX`], because pods that never become ready must not block the deletion of an object.
//! 3. The path leads to the pods, and an adopted Service gets its selector back. [`super::traffic`] does both, and
//!    the return waits for them. The wait for the path is bounded by [`RETURN_WAIT_MAX`]. The wait for the selector is
//!    unbounded, because nothing would restore the selector after the end of the ZeroScaler. Our slices stay until
//!    those of Kubernetes are there. A ZeroScaler that is being deleted stays until clients with connections to
//!    activators have reconnected ([`handover`]).
//! 4. The path is forgotten. If the ZeroScaler is deleted, Kubernetes deletes the objects made for it; if it stays, we
//!    delete them.
//! 5. The finalizer of the ZeroScaler is removed.
//!
//! Each step is visible in the cluster's state, so another process can continue after a crash.

pub(crate) mod handover;

use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use crate::cluster::target_key::{TargetError, TargetKey};
use crate::engine::scaler::{Change, Scaled};
use crate::engine::workload::Path;
use crate::standalone::finalizer::{self, adopted_replicas, adopted_target, has_finalizer};
use crate::standalone::release::handover::RECONNECT_TIME;
use crate::standalone::scalers::COMPONENT;
use crate::standalone::traffic::adopt::{is_borrowed_by, is_controlled_by};
use crate::standalone::traffic::paths::PathRequest;
use crate::standalone::workloads::Workloads;
use autoscaler_core::path_mode::PathMode;
use common::RevisionKey as Key;
use common::names;
use common_api::ZeroScaler;
use common_api::zeroscaler;
use common_controller::Severity;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum wait for the first ready pod.
const READY_WAIT_MAX: Duration = Duration::from_secs(60);
/// Maximum wait for pods and path together.
const RETURN_WAIT_MAX: Duration = Duration::from_secs(90);
/// Interval between two checks of a Service that is not given back yet; its watch usually reports earlier.
const BORROWED_RECHECK: Duration = Duration::from_secs(10);

impl Workloads {
    /// Runs one reconcile of a return; each change that it waits for triggers another reconcile. Scale decisions have
    /// stopped.
    pub(super) async fn release_target(&self, key: &Key, object: &Arc<ZeroScaler>) -> Result<(), Error> {
        // An older version may be in force.
        let in_force = self.cluster.scalers.former_version(key).unwrap_or_else(|| object.clone());
        let target = adopted_target(object.annotations()).unwrap_or_else(|| in_force.spec.target.clone());
        let restored = self.restore(key, object, &in_force, &target).await?;
        let since = *self.release_began.entry(key.clone()).or_insert_with(Instant::now);
        if self.cluster.path(object).is_none() && has_finalizer(object) {
            // A former process owned the path.
            let path = Path { mode: PathMode::Proxy, activators: 0 };
            self.cluster.request_path(object, PathRequest { path, target: target.clone() });
        }
        if let Some(path) = self.cluster.path(object) {
            if restored && self.parts.ports.pods.counts(key).ready == 0 && !self.is_over(key, since, READY_WAIT_MAX) {
                return Ok(());
            }
            let to_pods = Path { mode: PathMode::Serve, ..path.request.path };
            self.cluster.request_path(object, PathRequest { path: to_pods, target });
            let uid = object.uid().unwrap_or_default();
            if self.cluster.borrowed_by(key.namespace(), &uid).iter().any(|service| is_borrowed_by(service, &uid)) {
                self.parts.writes.decisions.add_after(key.clone(), BORROWED_RECHECK);
                return Ok(());
            }
            if !path.leads_to_pods() && !self.is_over(key, since, RETURN_WAIT_MAX) {
                return Ok(());
            }
            let mut services = self.cluster.public_services(key);
            let served = Some(path.service.as_str()).filter(|service| !service.is_empty());
            services.extend(served.map(|service| Key::new(key.namespace(), service)));
            let left = services.iter().filter_map(|service| self.cluster.remaining_slice_time(service, key)).max();
            if let Some(left) = left {
                self.parts.writes.decisions.add_after(key.clone(), left);
                return Ok(());
            }
            let may_hold_connections =
                || services.iter().any(|service| self.cluster.may_hold_connections(service, key));
            if object.metadata.deletion_timestamp.is_some() && may_hold_connections() {
                let since = *self.handed_over.entry(key.clone()).or_insert_with(Instant::now);
                if !self.is_over(key, since, RECONNECT_TIME) {
                    return Ok(());
                }
            }
        }
        self.end_release(key, object).await
    }

    /// Runs steps 4 and 5, after which nothing of ours remains. These steps suffice if the Service turned out to belong
    /// to another owner.
    pub(super) async fn end_release(&self, key: &Key, object: &Arc<ZeroScaler>) -> Result<(), Error> {
        self.cluster.forget_path(key);
        if object.metadata.deletion_timestamp.is_none() {
            self.delete_made_objects(key, object).await?; // Kubernetes does not delete them, because their owner stays.
        }
        finalizer::remove((&self.parts, &self.cluster), object).await?;
        self.parts.ports.pods.untrack(key);
        self.handed_over.remove(key);
        if self.release_began.remove(key).is_some() {
            tracing::info!(revision = %key, "restored the target");
        }
        Ok(())
    }

    /// Deletes the Services and slices that were made for a ZeroScaler.
    async fn delete_made_objects(&self, key: &Key, object: &ZeroScaler) -> Result<(), Error> {
        let (services, slices) = (&self.cluster.services, &self.cluster.slices);
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let public = self.cluster.public_services(key);
        for slice in public.iter().flat_map(|public| self.cluster.slices_of(public)) {
            if is_controlled_by(&slice.metadata, uid) {
                let slice = Key::new(key.namespace(), slice.name_any());
                self.parts.writes.delete(key, slices, &slice, "failed to delete EndpointSlice").await?;
            }
        }
        let private = Key::new(key.namespace(), names::private_service(key.name()));
        for service in public.into_iter().chain([private]) {
            let is_ours = |service: Arc<Service>| is_controlled_by(&service.metadata, uid);
            if services.get(&service).is_some_and(is_ours) {
                self.parts.writes.delete(key, services, &service, "failed to delete Service").await?;
            }
        }
        Ok(())
    }

    /// Cancels a return that may have begun: a later return gets the full time again.
    pub(super) fn cancel_release(&self, key: &Key) {
        self.release_began.remove(key);
        self.handed_over.remove(key);
    }

    /// Reports whether a wait is over. If not, the key is queued for the end of the wait.
    fn is_over(&self, key: &Key, since: Instant, bound: Duration) -> bool {
        let left = bound.saturating_sub(since.elapsed());
        if !left.is_zero() {
            self.parts.writes.decisions.add_after(key.clone(), left);
        }
        left.is_zero()
    }

    /// Runs step 1. Returns false if there is nothing to restore: the target is gone or unreadable.
    async fn restore(
        &self,
        key: &Key,
        object: &Arc<ZeroScaler>,
        in_force: &ZeroScaler,
        reference: &zeroscaler::Target,
    ) -> Result<bool, Error> {
        let Ok(target_key) = TargetKey::from_target(key.namespace(), reference) else { return Ok(false) };
        let target = match self.parts.stores.targets.get(&target_key) {
            Ok(target) => target,
            Err(error @ TargetError::NotListed(_)) => return Err(error.into()),
            Err(_) => return Ok(false),
        };
        if let Some(pods) = target.selector.pods() {
            self.parts.ports.pods.track(key, pods, Some(target_key.owner(&target)));
        }
        let bounds = in_force.spec.scale.bounds(&self.parts.configs.autoscaler.borrow());
        let replicas = restored_replicas(object, &target, bounds.min);
        if target.current() != replicas {
            let change = Change { to: replicas, why: "the target is being restored", is_still_due: &|| true };
            let scaled = self.parts.scaler.patch(key, &reference.kind, &target_key, &target, change).await?;
            match object.metadata.deletion_timestamp {
                None => self.cluster.scalers.scaled(key, scaled),
                // The object is being deleted, so no status will report the change.
                Some(_) => {
                    let recorder = &self.parts.writes.recorder;
                    recorder.record(COMPONENT, &**object, Severity::Normal, Scaled::REASON, scaled.to_string());
                }
            }
        }
        Ok(true)
    }
}

pub(crate) fn restored_replicas(object: &ZeroScaler, target: &Target, min_scale: i32) -> i32 {
    adopted_replicas(object, target).max(min_scale).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standalone::finalizer::ADOPTED_REPLICAS;

    #[test]
    fn a_target_gets_its_replicas_back_and_at_least_one() {
        let rows = [
            (Some("0"), 0, 0, 1),
            (Some("4"), 0, 0, 4),
            (Some("1"), 3, 0, 3),
            (None, 0, 0, 1),
            (None, 0, 5, 5),
            (Some("no number"), 0, 2, 2),
        ];
        for (found, min_scale, now, expected) in rows {
            let target = Target { replicas: Some(now), ..Target::default() };
            let mut object = ZeroScaler::new("hello", Default::default());
            object.metadata.annotations = found.map(|n| [(ADOPTED_REPLICAS.to_owned(), n.to_owned())].into());
            assert_eq!(restored_replicas(&object, &target, min_scale), expected, "{found:?}, {min_scale}");
        }
    }
}
