//! Follows the path of a ZeroScaler ([`paths`]): maintains a private Service, the public Services, and endpoints
//! that lead to activators or pods.
//!
//! # Steps; the first error ends the reconcile
//!
//! 1. Choose the public Services ([`super::services::choice`]). The ownership of each Service decides what may be done
//!    with it ([`adopt`]).
//! 2. Determine who may connect, by the NetworkPolicies that select the pods, and restrict the numbers accordingly
//!    ([`super::policies`]). This comes before all other writes, because a failed write must not keep a number open. It
//!    is left out until all policies are known. If a policy cannot be written, steps 3 and 4 follow nevertheless.
//! 3. Determine how activators reach the pods ([`mod@backend`]); the ZeroScaler's status passes this on to them.
//!    Maintain the private Service, which selects the pods ([`services`]), unless labels alone do not identify them
//!    ([`pod_slices`]).
//! 4. Create, correct or borrow the public Services, and give up former ones.
//! 5. Write their EndpointSlices ([`slice_writer`], [`slice_plan`]). Once our slices of a borrowed Service lead
//!    somewhere, the remains of Kubernetes' controllers are deleted: the slices, and the Endpoints object, which the
//!    mirroring controller would otherwise keep turning into slices. If no activator is ready, our slices lead to the
//!    pods. This does not apply while the last pod is being removed, because that relies on the proof that activators
//!    are in the path. If no pod is ready either, our slices keep leading to activators that are not ready at the
//!    moment.
//! 6. Report which Service is served, and whether activators have all of the traffic. The report describes what was
//!    written, not what was requested: it starts the grace period, which must not run while pods have the traffic. (In
//!    upstream it runs even if no activator is ready.)
//!
//! An event triggers each reconcile: a change of mode, pods or activators, an edit, a changed Service or slice, or a
//! wake that the API server rejects. Timers only end waits.
//!
//! # Giving back
//!
//! The Service gets its selector back if the mode is Serve and the ZeroScaler is being deleted, or its former target is
//! given back. Our slices stay, with the pods in them, until those of Kubernetes exist ([`super::release::handover`]),
//! and are deleted with the ZeroScaler. The same holds for a former public Service with another name.
//!
//! Every borrowed Service is also given back if its target is gone or unreadable, or a required Service belongs to
//! another owner.
//!
//! # Not here
//!
//! In a Knative installation, Knative's own controller does all this.

pub(crate) mod adopt;
pub(crate) mod backend;
pub(crate) mod path_proof;
pub(crate) mod paths;
mod pod_slices;
pub(crate) mod services;
pub(crate) mod slice_plan;
mod slice_writer;
pub(crate) mod slices;

#[cfg(test)]
pub(crate) use slice_writer::SUCCEEDED_WITHIN;

use crate::cluster::error::Error;
use crate::cluster::facts::{Selector, Target};
use crate::cluster::target_key::{TargetError, TargetKey};
use crate::engine::parts::Parts;
use crate::standalone::admission::traffic_port;
use crate::standalone::admission::validation::Validation;
use crate::standalone::cluster::{Cluster, RequestedService};
use crate::standalone::policies::Guard;
use crate::standalone::services::service_ports::{TcpPort, tcp_ports};
use crate::standalone::traffic::paths::PathProgress;
use adopt::{Claimant, ServiceOwnership, ownership};
use autoscaler_core::path_mode::PathMode;
use common::RevisionKey as Key;
use common::backend::Backend;
use common::names;
use common_api::ZeroScaler;
use common_api::zeroscaler::ServicePath;
use common_controller::objects::controller_reference;
use common_controller::{Failure, WriteError};
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use services::Common;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Maximum number of concurrent creations of Services with a cluster IP. Kubernetes assigns cluster IPs one by one,
/// each with a write of its own. If fifty are requested at once from a busy API server, all of them time out and start
/// again.
const ALLOCATIONS: usize = 4;

/// Controller that follows paths.
pub(crate) struct Controller {
    parts: Parts,
    cluster: Arc<Cluster>,
    validation: Arc<Validation>,
    /// Start of the wait of a workload's Service for one more activator, or for the successor of a terminating one.
    waiting: DashMap<(Key, Key), Instant>,
    /// Former public Services of each ZeroScaler that still have slices of ours.
    former: DashMap<Key, BTreeSet<Key>>,
    /// Limits concurrent creations to [`ALLOCATIONS`].
    allocations: Semaphore,
}

impl Controller {
    pub(crate) fn new(parts: &Parts, cluster: Arc<Cluster>, validation: Arc<Validation>) -> Self {
        let (waiting, former, allocations) = (DashMap::new(), DashMap::new(), Semaphore::new(ALLOCATIONS));
        Self { parts: parts.clone(), cluster, validation, waiting, former, allocations }
    }

    /// Runs one reconcile of the path of one ZeroScaler. If a step fails, the completed ones are reported nevertheless.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let object = self.cluster.scalers.objects.get(key);
        let Some((object, path)) = object.and_then(|object| Some((object.clone(), self.cluster.path(&object)?))) else {
            self.waiting.retain(|(of, _), _| of != key);
            self.former.remove(key);
            let is_void = !self.cluster.scalers.objects.holds(key) || self.cluster.policies.lacks_general();
            if is_void && self.parts.writes.leadership.owns(key) {
                self.cluster.policies.enforce(&self.parts.writes, key, None).await?;
            }
            return Ok(());
        };
        if !self.parts.writes.leadership.owns(key) {
            return Ok(());
        }
        if self.cluster.policies.lacks_general() {
            self.cluster.policies.enforce(&self.parts.writes, key, None).await?;
        }
        let (version, is_valid) = match self.validation.accepted(key, &object) {
            Ok(accepted) => (accepted.original, true),
            // Borrowed Services are given back even if the requested settings are unknown.
            Err(_) if object.metadata.deletion_timestamp.is_some() => (object.clone(), false),
            Err(_) => return Ok(()), // The status reports the fault.
        };
        let (service, in_path) = (path.service.clone(), path.in_path_since.is_some());
        let mut pass = Pass { controller: self, key, object, version, path, service, in_path, is_guarded: false };
        let outcome = if is_valid { pass.run().await } else { pass.restore_services_only().await };
        if let Err(error) = &outcome {
            if error.is_temporary() {
                return outcome;
            }
            tracing::debug!(object = %key, %error, "failed to reconcile the path");
        }
        let Pass { path, service, in_path, .. } = &pass;
        self.cluster.report_path(key, path, (service, *in_path), self.parts.writes.clock.now());
        outcome
    }
}

struct Pass<'a> {
    controller: &'a Controller,
    key: &'a Key,
    /// Newest version.
    object: Arc<ZeroScaler>,
    /// Version in force.
    version: Arc<ZeroScaler>,
    /// Path as it was read.
    path: PathProgress,
    /// First served public Service in precedence; empty if none is served.
    service: String,
    /// Set if activators have all of the traffic.
    in_path: bool,
    /// Set once it was determined who may connect.
    is_guarded: bool,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        let leads = match self.lead().await {
            // A private Service of another owner blocks the path, but not the return.
            Err(Error::Write(WriteError::NotOwned { .. })) if self.is_retiring() => false,
            led => led?,
        };
        if !leads {
            self.restore_services_only().await?;
            self.guard_unserved().await?;
        }
        Ok(())
    }

    /// Follows policies if no Service is served: numbers allocated before may still be open.
    async fn guard_unserved(&self) -> Result<(), Error> {
        let cluster = &self.controller.cluster;
        let Some(target) = self.target().ok().filter(|_| !self.is_guarded) else { return Ok(()) };
        let requested = cluster.requested_services(&self.version, &target, self.claimant());
        let services: Vec<_> = requested.into_iter().filter_map(|(_, existing)| existing).collect();
        let counted = tcp_ports(&self.version, &services, Some(&target));
        let Some(guard) = self.guard(&counted, &target) else { return Ok(()) };
        cluster.port_allocator.restrict(self.key, self.uid(), guard.access());
        cluster.policies.enforce(&self.controller.parts.writes, self.key, Some((self.uid(), &guard))).await
    }

    fn guard(&self, ports: &[TcpPort], target: &Target) -> Option<Guard> {
        let Controller { cluster, parts, .. } = self.controller;
        cluster.guard((self.key, self.uid()), ports, target, &*parts.ports.pods)
    }

    /// Leads clients to activators or pods. Returns false if there is nothing to lead to, or nothing may be led.
    async fn lead(&mut self) -> Result<bool, Error> {
        let target = match self.target() {
            Ok(target) if target.selector != Selector::Missing => target,
            Ok(_) | Err(TargetError::Missing(_)) => return Ok(false), // The status reports it.
            // The target may stay unknown forever: its kind is no longer served, or a role is missing.
            Err(error) if self.is_retiring() && !matches!(error, TargetError::NotListed(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let protocol = backend::protocol(&self.version);
        let common = self.common();
        let requested = self.controller.cluster.requested_services(&self.version, &target, self.claimant());
        let existing: Vec<_> = requested.iter().map_while(|(_, existing)| existing.clone()).collect();
        let leads_to = traffic_port(&self.version, &existing, &target);
        let Ok(port) = backend::port(&target, leads_to.as_ref(), protocol) else {
            return Ok(false); // The status reports it.
        };
        let Some((first, found)) = requested.first() else {
            return Ok(false); // The status reports it.
        };
        let first = first.name.clone();
        let why_not = |found: &Service| services::why_not_adoptable(found, &port, &target);
        if found.as_deref().filter(|found| self.is_borrowed(found)).and_then(why_not).is_some() {
            return Ok(false); // The status reports it.
        }
        let made = |name: &str| services::public(&common, name, &port);
        let as_served = |(choice, existing): &RequestedService| match existing {
            Some(existing) if self.is_borrowed(existing) => existing.clone(),
            _ => Arc::new(made(&choice.name)),
        };
        let as_served: Vec<_> = requested.iter().map(as_served).collect();
        let served = services::served_ports(&self.version, &as_served, &port, &target, protocol);
        let names: Vec<_> = requested.iter().map(|(choice, _)| choice.name.as_str()).collect();
        let policies = &self.controller.cluster.policies;
        let mut enforced = Ok(());
        let counted = tcp_ports(&self.version, &as_served, Some(&target));
        if let Some(guard) = self.guard(&counted, &target) {
            self.is_guarded = true;
            self.want_numbers(&names, &served.ports, guard.access());
            // Services are written and given back even if policies cannot be written.
            enforced = policies.enforce(&self.controller.parts.writes, self.key, Some((self.uid(), &guard))).await;
        }
        let mut affinities = existing.iter().filter_map(|service| service.spec.as_ref()?.session_affinity.as_deref());
        self.record_backend(&first, affinities.any(|affinity| affinity == "ClientIP"), &target, &port);
        let private_name = names::private_service(self.key.name());
        let selector = match &target.selector {
            Selector::Labels(labels) if self.labels_suffice(&private_name) => Some(labels),
            _ => None,
        };
        let (traffic, extra) = ((&*served.traffic, &port), &served.extra);
        let private = services::private(&common, &private_name, selector, traffic, &target, extra);
        let private = self.private(&private).await?;
        let led = self.pod_slices(&private, &common, &target).await?;
        let mut public = Vec::new();
        for (choice, existing) in &requested {
            let ownership = self.ownership(existing.as_deref());
            match self.public(ownership, existing.clone(), made(&choice.name)).await? {
                None if choice.name == first => return Ok(false),
                taken => public.push(taken),
            }
        }
        self.release_former(&names).await?;
        self.service.clone_from(&first);
        enforced?;
        let port_names: BTreeSet<_> = served.ports.iter().flatten().map(|port| port.workload.name.as_str()).collect();
        let mut paths = Vec::new();
        for (public, ports) in public.iter().zip(&served.ports) {
            let Some(public) = public else { continue };
            let (names, led) = (&port_names, led.as_deref());
            let of = slice_writer::ByPort { public, ports, names, common: &common, target: &target, led };
            paths.push(self.endpoints_by_port(&of).await?.map(|path| (public.name_any(), path)));
        }
        // Reported once the path of each Service is known.
        if let Some(paths) = paths.into_iter().collect::<Option<Vec<_>>>() {
            self.in_path = paths.iter().all(|(_, path)| path.is_in_path);
            let led = paths.into_iter().filter(|(_, path)| path.is_led).map(|(name, _)| name).collect();
            self.controller.cluster.scalers.set_ready_services(self.key, led);
        }
        Ok(true)
    }

    /// Records how activators reach the pods.
    fn record_backend(&self, service: &str, client_affinity: bool, target: &Target, port: &backend::BackendPort) {
        let controller = self.controller;
        let backend = Backend {
            service: service.into(),
            client_affinity,
            // The newest version decides, whichever is in force.
            paused: self.object.spec.paused && target.current() == 0,
            wake_refused: controller.parts.scaler.refusals.reported(self.key).map(|words| words.to_string().into()),
            ..backend::backend(&self.version, target, port)
        };
        controller.parts.ports.pods.require_listening(self.key, backend::unprobed_port(target, &backend, port));
        controller.cluster.scalers.set_backend(self.key, backend);
    }

    fn is_borrowed(&self, service: &Service) -> bool {
        matches!(self.ownership(Some(service)), ServiceOwnership::Adoptable | ServiceOwnership::Adopted)
    }

    fn target(&self) -> Result<Arc<Target>, TargetError> {
        let target_key = TargetKey::from_target(self.key.namespace(), &self.path.request.target)?;
        self.controller.parts.stores.targets.get(&target_key)
    }

    fn common(&self) -> Common {
        let mut labels = self.version.labels().clone();
        labels.insert(names::WORKLOAD.to_owned(), self.key.name().to_owned());
        let (namespace, owner) = (self.key.namespace().to_owned(), controller_reference(&*self.object));
        Common { namespace, labels, owner, protocol: backend::protocol(&self.version) }
    }

    fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    fn claimant(&self) -> Claimant<'_> {
        Claimant { name: self.key.name(), uid: self.uid() }
    }

    fn ownership(&self, service: Option<&Service>) -> ServiceOwnership {
        ownership(service, self.claimant())
    }

    /// Reports whether the workload must not adopt anything any more: the ZeroScaler is being deleted, or names another
    /// target.
    fn is_leaving(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some() || self.controller.cluster.scalers.is_releasing(self.key)
    }

    /// Reports whether borrowed Services must be given back now.
    fn is_retiring(&self) -> bool {
        self.is_leaving() && self.path.request.path.mode == PathMode::Serve
    }

    async fn private(&self, want: &Service) -> Result<Service, Error> {
        let (controller, store) = (self.controller, &self.controller.cluster.services);
        let name = want.name_any();
        let Some(have) = store.get(&Key::new(self.key.namespace(), name.as_str())) else {
            return controller.parts.writes.create(self.key, store, want, "failed to create private K8s Service").await;
        };
        if !self.owns(&have.metadata) {
            return Err(self.not_owned(name));
        }
        self.corrected(&have, want).await
    }

    /// Corrects a Service of ours.
    async fn corrected(&self, have: &Service, want: &Service) -> Result<Service, Error> {
        let (writes, store) = (&self.controller.parts.writes, &self.controller.cluster.services);
        match services::corrected(have, want) {
            Some(next) => writes.replace(self.key, store, &next, "failed to update K8s Service").await,
            None => Ok(have.clone()),
        }
    }

    fn owns(&self, meta: &ObjectMeta) -> bool {
        adopt::is_controlled_by(meta, self.uid())
    }

    fn not_owned(&self, name: String) -> Error {
        WriteError::NotOwned { owner: format!("ZeroScaler: {}", self.key.name()), kind: "Service", name }.into()
    }

    /// Creates, corrects, borrows or gives back a public Service. Returns `None` if the Service belongs to another
    /// owner.
    async fn public(
        &mut self,
        ownership: ServiceOwnership,
        existing: Option<Arc<Service>>,
        want: Service,
    ) -> Result<Option<Service>, Error> {
        let (controller, key) = (self.controller, self.key);
        let (writes, store) = (&controller.parts.writes, &controller.cluster.services);
        let Some(have) = existing else {
            let _place = controller.allocations.acquire().await; // The semaphore is never closed.
            return Ok(Some(writes.create(key, store, &want, "failed to create public K8s Service").await?));
        };
        match ownership {
            ServiceOwnership::Foreign(_) => {
                // The status gives the reason.
                if !self.is_retiring() {
                    self.service.clear(); // While retiring, it may name a Service that is still to be given back.
                }
                Ok(None)
            }
            ServiceOwnership::Outgoing => {
                self.service.clear();
                Ok(None) // Its deletion triggers another reconcile.
            }
            ServiceOwnership::Absent | ServiceOwnership::Ours => Ok(Some(self.corrected(&have, &want).await?)),
            ServiceOwnership::Adopted if self.is_retiring() => Ok(Some(self.restore_service(&have).await?)),
            ServiceOwnership::Adopted | ServiceOwnership::Adoptable => {
                let is_adopted = ownership == ServiceOwnership::Adopted && !adopt::needs_adoption(&have);
                if is_adopted || self.is_leaving() {
                    return Ok(Some(Service::clone(&have))); // While leaving it has been given back already.
                }
                let adopted = adopt::adopt(&have, self.uid());
                let adopted = writes.replace(key, store, &adopted, "failed to adopt Service").await?;
                tracing::info!(revision = %key, service = %adopted.name_any(), "adopted the Service");
                Ok(Some(adopted))
            }
        }
    }

    /// Restores a borrowed Service to its original state.
    async fn restore_service(&self, service: &Service) -> Result<Service, Error> {
        let (writes, services) = (&self.controller.parts.writes, &self.controller.cluster.services);
        let released = adopt::release(service);
        let released = writes.replace(self.key, services, &released, "failed to restore Service").await?;
        tracing::info!(revision = %self.key, service = %released.name_any(), "restored the Service");
        Ok(released)
    }

    /// Deletes former public Services, or gives them back.
    async fn release_former(&mut self, names: &[&str]) -> Result<(), Error> {
        let key_of = |name: &str| Key::new(self.key.namespace(), name);
        let (known, mut left) = (&self.controller.former, BTreeSet::new());
        let mut all = known.get(self.key).map(|known| known.clone()).unwrap_or_default();
        if !self.service.is_empty() {
            all.insert(key_of(&self.service));
        }
        let borrowed = self.controller.cluster.borrowed_by(self.key.namespace(), self.uid());
        all.extend(borrowed.iter().map(|service| key_of(&service.name_any())));
        let reported = self.version.status.iter().flat_map(|status| &status.services);
        all.extend(reported.filter(|service| service.path == ServicePath::Served).map(|service| key_of(&service.name)));
        all.retain(|former| !names.contains(&former.name()));
        for former in all {
            if let Some(stays) = self.give_up(&former).await? {
                left.insert(former);
                self.controller.cluster.path_queue.add_after(self.key.clone(), stays);
            }
        }
        known.insert(self.key.clone(), left);
        known.remove_if(self.key, |_, left| left.is_empty());
        Ok(())
    }

    /// Gives up a former public Service. Returns how much longer our slices must stay.
    async fn give_up(&self, former: &Key) -> Result<Option<Duration>, Error> {
        let (cluster, writes) = (&self.controller.cluster, &self.controller.parts.writes);
        match cluster.services.get(former) {
            Some(service) if self.owns(&service.metadata) => {
                let doing = "failed to delete former public K8s Service";
                writes.delete(self.key, &cluster.services, former, doing).await?;
            }
            Some(service) if adopt::is_borrowed_by(&service, self.uid()) => drop(self.restore_service(&service).await?),
            _ => {} // Our slices must not remain for a later Service of this name.
        }
        if let Some(left) = cluster.remaining_slice_time(former, self.key) {
            return Ok(Some(left));
        }
        // Another ZeroScaler may have taken the Service since, and lead its clients by its own slices.
        let is_own = |slice: &&Arc<EndpointSlice>| slices::is_ours(slice) && self.owns(&slice.metadata);
        for slice in cluster.slices_of(former).iter().filter(is_own) {
            let slice = Key::new(former.namespace(), slice.name_any());
            writes.delete(self.key, &cluster.slices, &slice, "failed to delete former EndpointSlice").await?;
        }
        Ok(None)
    }

    /// Gives back all borrowed Services if nothing can be led: the target is gone or unreadable, the requested Service
    /// has another owner, or the ZeroScaler is invalid.
    async fn restore_services_only(&mut self) -> Result<(), Error> {
        if !self.is_retiring() {
            return Ok(());
        }
        for service in self.controller.cluster.borrowed_by(self.key.namespace(), self.uid()) {
            if adopt::is_borrowed_by(&service, self.uid()) {
                self.restore_service(&service).await?;
            }
        }
        self.in_path = false;
        Ok(())
    }
}
