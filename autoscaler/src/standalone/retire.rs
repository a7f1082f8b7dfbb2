//! Giving a target back: when its ZeroScaler is deleted, names another, or may not keep its Service any more.
//!
//! 1. No more decisions. Replicas become max(1, min-scale, replicas at adoption).
//! 2. Until a pod is ready the activators stay in the path: requests of that moment are held as ever. Bounded by
//!    [`READY_WAIT_MAX`], since pods that never become ready must not keep an object from being deleted.
//! 3. The path leads to the pods, and an adopted Service gets its selector back: done by [`super::serverless`], waited
//!    for here. The wait for the path is bounded by [`RETURN_WAIT_MAX`]; the one for the selector is
//!    not, since nobody would ever give it back once the ZeroScaler is gone. Our slices stay until Kubernetes' own are
//!    there, and a ZeroScaler that is being deleted until clients who keep connections to activators have come anew
//!    ([`super::handover`]).
//! 4. The path is forgotten. Kubernetes deletes what was made for it together with the ZeroScaler; of one that stays, we
//!    do.
//! 5. The finalizer that kept the ZeroScaler is removed.
//!
//! Each step is seen in the cluster's state, so a process that dies in between is followed by one that goes on.

use super::cluster::Cluster;
use super::finalizer::{Finalizers, adopted_replicas, adopted_target, has_finalizer};
use super::handover::COME_ANEW;
use super::paths::{Followed, Wish};
use super::scalers::{COMPONENT, translation};
use super::serverless::adopt::is_borrowed_by;
use crate::cluster::Stores;
use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use crate::cluster::target_key::{TargetError, TargetKey};
use crate::cluster::writes::Writes;
use crate::engine::parts::Parts;
use crate::engine::scaler::{Change, Scaled, Scaler};
use crate::engine::workload::Path;
use crate::scale::Pods;
use autoscaler_core::path_mode::PathMode;
use common::RevisionKey as Key;
use common::config::AutoscalerConfig;
use common::names;
use common_api::{ObjectReference, ZeroScaler};
use common_controller::objects::controller;
use common_controller::{Severity, WorkQueue};
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a first ready pod is waited for.
const READY_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long pods and path are waited for.
const RETURN_WAIT_MAX: Duration = Duration::from_secs(90);
/// Time between two looks at a Service that is not given back yet; its watch tells earlier.
const BORROWED_LOOK: Duration = Duration::from_secs(10);

/// Gives targets and Services back.
pub(crate) struct Retirement {
    stores: Arc<Stores>,
    cluster: Arc<Cluster>,
    pods: Arc<dyn Pods>,
    writes: Writes,
    scaler: Arc<Scaler>,
    finalizers: Finalizers,
    config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// Where a ZeroScaler comes back when a wait is over.
    queue: WorkQueue<Key>,
    /// When each return began.
    began: DashMap<Key, Instant>,
    /// When each Service was first seen to be handed over.
    handed_over: DashMap<Key, Instant>,
}

impl Retirement {
    pub(super) fn new(parts: &Parts, cluster: Arc<Cluster>, finalizers: Finalizers) -> Self {
        Self {
            stores: parts.stores.clone(),
            cluster,
            pods: parts.ports.pods.clone(),
            writes: parts.writes.clone(),
            scaler: parts.scaler.clone(),
            finalizers,
            config: parts.configs.autoscaler.clone(),
            queue: parts.writes.decisions.clone(),
            began: DashMap::new(),
            handed_over: DashMap::new(),
        }
    }

    /// One pass; each change that it waits for leads to another. No decisions are made any more.
    ///
    /// # Errors
    /// The API server's.
    pub(super) async fn give_back(&self, key: &Key, object: &Arc<ZeroScaler>) -> Result<(), Error> {
        let (in_force, target) = self.in_force(key, object);
        let restored = self.restore(key, object, &in_force, &target).await?;
        let since = *self.began.entry(key.clone()).or_insert_with(Instant::now);
        if self.cluster.path(object).is_none() && has_finalizer(object) {
            // A former process held it.
            let path = Path { mode: PathMode::Proxy, activators: 0 };
            self.cluster.ask_path(object, Wish { path, target: target.clone() });
        }
        if let Some(path) = self.cluster.path(object) {
            if restored && self.pods.counts(key).ready == 0 && !self.is_over(key, since, READY_WAIT_MAX) {
                return Ok(());
            }
            self.cluster.ask_path(object, Wish { path: Path { mode: PathMode::Serve, ..path.wish.path }, target });
            let uid = object.uid().unwrap_or_default();
            if self.cluster.borrowed_by(key.namespace(), &uid).iter().any(|service| is_borrowed_by(service, &uid)) {
                self.queue.add_after(key.clone(), BORROWED_LOOK);
                return Ok(());
            }
            if !path.leads_to_pods() && !self.is_over(key, since, RETURN_WAIT_MAX) {
                return Ok(());
            }
            let services = self.services_of(key, &path);
            if let Some(left) = services.iter().filter_map(|service| self.cluster.stays_for(service, key)).max() {
                self.queue.add_after(key.clone(), left);
                return Ok(());
            }
            let strands = || services.iter().any(|service| self.cluster.strands(service, key));
            if object.metadata.deletion_timestamp.is_some() && strands() {
                let since = *self.handed_over.entry(key.clone()).or_insert_with(Instant::now);
                if !self.is_over(key, since, COME_ANEW) {
                    return Ok(());
                }
            }
        }
        self.let_go(key, object).await
    }

    /// Steps 4 and 5: nothing of ours stays. All that is done where the Service turned out to be somebody else's; and
    /// the end of an opt-out, where the Service is somebody else's as soon as it is given back.
    ///
    /// # Errors
    /// The API server's.
    pub(super) async fn let_go(&self, key: &Key, object: &Arc<ZeroScaler>) -> Result<(), Error> {
        self.cluster.forget_path(key);
        if object.metadata.deletion_timestamp.is_none() {
            self.clear_away(key, object).await?; // What owns it stays.
        }
        self.finalizers.remove(object).await?;
        self.pods.untrack(key);
        self.handed_over.remove(key);
        if self.began.remove(key).is_some() {
            tracing::info!(revision = %key, "given back");
        }
        Ok(())
    }

    /// Takes away Services and slices that were made for a ZeroScaler.
    async fn clear_away(&self, key: &Key, object: &ZeroScaler) -> Result<(), Error> {
        let (services, slices) = (&self.cluster.services, &self.cluster.slices);
        let public = self.cluster.public_services(key);
        for slice in public.iter().flat_map(|public| self.cluster.slices_of(public)) {
            if controlled_by(controller(&slice.metadata), object) {
                let slice = Key::new(key.namespace(), slice.name_any());
                self.writes.delete(key, slices, &slice, "error deleting EndpointSlice").await?;
            }
        }
        let private = Key::new(key.namespace(), names::private_service(key.name()));
        for service in public.into_iter().chain([private]) {
            let is_ours = |service: Arc<Service>| controlled_by(controller(&service.metadata), object);
            if services.get(&service).is_some_and(is_ours) {
                self.writes.delete(key, services, &service, "error deleting Service").await?;
            }
        }
        Ok(())
    }

    /// Ends a return that may have begun: a later one has all its time again.
    pub(super) fn call_off(&self, key: &Key) {
        self.began.remove(key);
        self.handed_over.remove(key);
    }

    /// Forgets one.
    pub(super) fn forget(&self, key: &Key) {
        self.call_off(key);
        self.cluster.handovers.forget(key);
    }

    /// Whether the wait is over; if not, the key comes back when it is.
    fn is_over(&self, key: &Key, since: Instant, bound: Duration) -> bool {
        let left = bound.saturating_sub(since.elapsed());
        if !left.is_zero() {
            self.queue.add_after(key.clone(), left);
        }
        left.is_zero()
    }

    /// The version in force, a former one perhaps, and the target that was taken up.
    fn in_force(&self, key: &Key, object: &Arc<ZeroScaler>) -> (Arc<ZeroScaler>, ObjectReference) {
        let in_force = self.cluster.scalers.kept(key).unwrap_or_else(|| object.clone());
        let target = adopted_target(object.annotations()).unwrap_or_else(|| translation::target(&in_force));
        (in_force, target)
    }

    /// Step 1. False if there is nothing to restore: the target is gone, or cannot be looked at.
    async fn restore(
        &self,
        key: &Key,
        object: &Arc<ZeroScaler>,
        in_force: &ZeroScaler,
        reference: &ObjectReference,
    ) -> Result<bool, Error> {
        let Ok(target_key) = TargetKey::of(key.namespace(), reference) else { return Ok(false) };
        let target = match self.stores.targets.get(&target_key) {
            Ok(target) => target,
            Err(error @ TargetError::NotListed(_)) => return Err(error.into()),
            Err(_) => return Ok(false),
        };
        if let Some(pods) = target.selector.pods() {
            self.pods.track(key, pods, Some(target_key.owner(&target)));
        }
        let replicas = restored_replicas(object, &target, in_force.spec.scale.bounds(&self.config.borrow()).min);
        if target.current() != replicas {
            let change = Change { to: replicas, why: "the target is given back", still: &|| true };
            let kind = reference.kind.as_deref().unwrap_or_default();
            let scaled = self.scaler.patch(key, kind, &target_key, &target, change).await?;
            match object.metadata.deletion_timestamp {
                None => self.cluster.scalers.scaled(key, scaled),
                // There will be no status to report it with.
                Some(_) => {
                    let recorder = &self.writes.recorder;
                    recorder.say(COMPONENT, &**object, Severity::Normal, Scaled::REASON, scaled.to_string());
                }
            }
        }
        Ok(true)
    }

    /// The Services that clients call.
    fn services_of(&self, key: &Key, path: &Followed) -> Vec<Key> {
        let mut services = self.cluster.public_services(key);
        if !path.service.is_empty() && services.iter().all(|service| service.name() != path.service) {
            services.push(Key::new(key.namespace(), path.service.as_str()));
        }
        services
    }
}

fn restored_replicas(object: &ZeroScaler, target: &Target, min_scale: i32) -> i32 {
    adopted_replicas(object, target).max(min_scale).max(1)
}

fn controlled_by(owner: Option<&OwnerReference>, object: &ZeroScaler) -> bool {
    owner.is_some_and(|owner| Some(&owner.uid) == object.metadata.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use super::super::finalizer::ADOPTED_REPLICAS;
    use super::*;
    use crate::cluster::facts::Selector;

    #[test]
    fn a_target_gets_back_what_it_had_and_at_least_one_pod() {
        let target = Target {
            uid: "d".into(),
            replicas: Some(0),
            selector: Selector::Missing,
            containers: vec![],
            ..Target::default()
        };
        for (found, min_scale, expected) in [(Some("0"), 0, 1), (Some("4"), 0, 4), (Some("1"), 3, 3), (None, 0, 1)] {
            let mut object = ZeroScaler::new("hello", Default::default());
            object.metadata.annotations = found.map(|n| [(ADOPTED_REPLICAS.to_owned(), n.to_owned())].into());
            assert_eq!(restored_replicas(&object, &target, min_scale), expected, "{found:?}, {min_scale}");
        }
    }
}
