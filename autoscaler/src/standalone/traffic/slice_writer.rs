//! Step 5 of a reconcile of a ZeroScaler: the EndpointSlices of its Services, by port numbers.
//!
//! # Preconditions of a write
//!
//! Slices are built from the objects that the store had when they were read, and replaced under that version. A write
//! first waits for its token. Then everything is evaluated again, and the write is omitted if the slices would now be
//! different. Therefore no address is written whose proof was withdrawn meanwhile.
//!
//! # Changes of activators
//!
//! Each change is one write for each workload. Ten thousand workloads need ten thousand writes: 46 s at 220 writes a
//! second, the rate limit of an installation ([`common::write_rate`]). Therefore:
//!
//! - Awake workloads come first ([`super::super::cluster`]).
//! - Writes that remove an address, or give a workload its first one, have the class of a scale; wakes come before
//!   them, statuses after.
//! - A second address is written without delay, in the class of a status: if the only activator died, clients would be
//!   refused.
//! - A further address beside two waits for [`MERGED_WITHIN`], in the same class. Activators that start within a second
//!   are then one write, and so are one that starts and one that ends, as in a rollout with a surge. Such a rollout of
//!   two activators costs 20 000 writes, 91 s, instead of 60 000. Without a surge it costs at most 40 000: if a write
//!   has not reached a workload when the next change comes, both changes are one write.
//! - A terminating activator is removed if another is ready, so its end is not a second write.
//! - An activator that terminates in order and its successor are one write: the successor has [`SUCCEEDED_WITHIN`] to
//!   respond. There is no wait for a successor of an activator that died, because its clients are refused.
//!
//! A terminating activator serves until no slice lists it any more, so no client meets a closed port meanwhile.

use super::services::Common;
use super::slice_plan::{self, ServedPort};
use super::slices::{self, Write};
use super::{Pass, adopt};
use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use autoscaler_core::ports::slices::{Listed, Port, is_urgent, may_wait_for_successor};
use autoscaler_core::ports::{Access, PortOutcome, Serving, Wanted};
use common::RevisionKey as Key;
use common::names;
use common::write_rate::WriteClass;
use common_controller::{BoundedApi, Priority, WriteError};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time that a further activator beside several waits for other changes.
const MERGED_WITHIN: Duration = Duration::from_secs(1);
/// Time for which the removal of an activator that terminates in order waits for the response of its successor. The
/// response takes milliseconds, unless thousands of queries are pending: their writes take longer than that.
pub(crate) const SUCCEEDED_WITHIN: Duration = Duration::from_millis(250);

/// Inputs of a Service's slices that do not change during a reconcile.
pub(super) struct ByPort<'a> {
    pub(super) public: &'a Service,
    pub(super) ports: &'a [ServedPort],
    /// Names of the workload's ports.
    pub(super) names: &'a BTreeSet<&'a str>,
    pub(super) common: &'a Common,
    pub(super) target: &'a Target,
    /// Slices of the private Service, if we write them.
    pub(super) led: Option<&'a [Arc<EndpointSlice>]>,
}

/// Snapshot of the existing and the desired slices.
struct SliceSnapshot {
    existing: Vec<Arc<EndpointSlice>>,
    /// Present destinations of the ports.
    before: BTreeMap<String, Vec<Listed>>,
    outcome: slice_plan::SlicePlan,
    /// Set if an activator that is not in the slices yet is being queried.
    is_queried: bool,
    /// Priority of the next evaluation, unless an event comes first: sleeping workloads with slices wait for others.
    priority: Priority,
    /// Set if this process has planned the numbers of the workload.
    is_planned: bool,
}

impl Pass<'_> {
    /// Writes the slices and returns their effect. Returns `None` if the present slices stay for now.
    pub(super) async fn endpoints_by_port(&mut self, of: &ByPort<'_>) -> Result<Option<slice_plan::SlicePlan>, Error> {
        let (controller, key) = (self.controller, self.key);
        let waits = (key.clone(), self.public_key(of));
        let snapshot = self.snapshot(of, true);
        if !snapshot.is_planned && !snapshot.before.is_empty() && of.ports.iter().any(|port| port.is_carried) {
            // A new leader does not know the numbers before its plan, which triggers another reconcile. The slices of
            // the former leader stay valid meanwhile.
            self.in_path = true;
            return Ok(None);
        }
        let SliceSnapshot { existing, before, outcome, is_queried, .. } = &snapshot;
        let mut writes = slices::writes(existing, outcome.slices.clone());
        if adopt::needs_adoption(of.public) {
            // The slices of a Service that has its selector back belong to Kubernetes again.
            writes.retain(|write| !matches!(write, Write::Delete(_)));
        } else if !outcome.is_led {
            // The slices of Kubernetes stay until ours lead somewhere.
            let is_ours = |name: &str| existing.iter().any(|slice| slice.name_any() == name && slices::is_ours(slice));
            writes.retain(|write| !matches!(write, Write::Delete(name) if !is_ours(name)));
        }
        let after = slice_plan::listed(&outcome.slices, self.uid());
        let port_allocator = &controller.cluster.port_allocator;
        let carried = of.ports.iter().filter(|port| port.is_carried).map(|port| &port.id.name);
        let changes: Vec<_> = slice_plan::changes(carried, before, &after).collect();
        let reached = |at: &Listed| port_allocator.reached(self.uid(), at);
        let serves = |at: &Listed| reached(at) == Some(Serving::Ready);
        let answers = |at: &Listed| reached(at).is_some_and(Serving::takes_requests);
        let is_urgent = changes.is_empty() || changes.iter().any(|(before, after)| is_urgent(before, after, serves));
        let may_be_succeeded = || changes.iter().all(|(before, after)| may_wait_for_successor(before, after, answers));
        let ready =
            |listed: &[Listed], is_v6| listed.iter().filter(|at| at.ready && at.address.is_ipv6() == is_v6).count();
        let adds_second = |(before, after): &(&[Listed], &[Listed])| {
            after.iter().any(|at| !before.contains(at) && ready(before, at.address.is_ipv6()) == 1)
        };
        let wait_max = match () {
            () if !is_urgent && !changes.iter().any(adds_second) => MERGED_WITHIN,
            () if *is_queried && may_be_succeeded() => SUCCEEDED_WITHIN,
            () => Duration::ZERO,
        };
        if writes.is_empty() {
            controller.waiting.remove(&waits);
        } else if !wait_max.is_zero() {
            let since = *controller.waiting.entry(waits.clone()).or_insert_with(Instant::now);
            let left = wait_max.saturating_sub(since.elapsed());
            if !left.is_zero() {
                controller.cluster.path_queue.add_after_with_priority(key.clone(), snapshot.priority, left);
                return Ok(None);
            }
        }
        let class = if is_urgent { WriteClass::Scale } else { WriteClass::Object };
        let still = || self.snapshot(of, false).outcome == *outcome;
        self.write_slices(&of.public.name_any(), existing, writes, class, still).await?;
        controller.waiting.remove(&waits);
        Ok(Some(snapshot.outcome))
    }

    /// Records the ports of all Services that need numbers, and who may connect. Each Service's slices may reveal the
    /// present number of a port, since another Service may have come first before.
    pub(super) fn want_numbers(&self, services: &[&str], ports: &[Vec<ServedPort>], access: Access) {
        let reported = self.version.status.iter().flat_map(|status| &status.ports);
        let leads = |(service, ports): (&&str, &Vec<ServedPort>)| {
            let slices = self.controller.cluster.slices_of(&Key::new(self.key.namespace(), *service));
            let listed = slice_plan::listed(slices.iter().map(|slice| &**slice), self.uid());
            let number = |port: &ServedPort| Some(listed.get(&port.id.name)?.first()?.number);
            ports.iter().map(|port| (port.workload.clone(), number(port))).collect::<Vec<_>>()
        };
        let leads: Vec<_> = services.iter().zip(ports).flat_map(leads).collect();
        let mut wanted: Vec<Wanted> = Vec::new();
        for port in ports.iter().flatten().filter(|port| port.is_carried) {
            if wanted.iter().all(|wanted| wanted.port != port.workload) {
                let in_slices = leads.iter().find_map(|(of, number)| number.filter(|_| *of == port.workload));
                let in_status = reported.clone().find(|status| status.port == port.workload.port);
                let in_status = in_status.and_then(|status| status.number);
                wanted.push(Wanted { port: port.workload.clone(), in_slices, in_status });
            }
        }
        wanted.shrink_to_fit(); // The list is kept and usually has one element.
        self.controller.cluster.port_allocator.set_wanted(self.key, self.uid(), wanted, access);
    }

    fn public_key(&self, of: &ByPort<'_>) -> Key {
        Key::new(self.key.namespace(), of.public.name_any())
    }

    /// Evaluates the desired slices from the present state. `asks`: also sends missing queries.
    fn snapshot(&self, of: &ByPort<'_>, asks: bool) -> SliceSnapshot {
        let (controller, key, uid) = (self.controller, self.key, self.uid());
        let (cluster, port_allocator) = (&controller.cluster, &controller.cluster.port_allocator);
        let existing = cluster.slices_of(&self.public_key(of));
        let before = slice_plan::listed(existing.iter().map(|slice| &**slice), uid);
        let given = port_allocator.given(key, uid);
        let outcomes = |port: &ServedPort| {
            let (given, led) = (given.as_ref()?, before.get(&port.id.name).and_then(|listed| listed.first()));
            // A port renamed since the plan is identified by the number that its slices lead to.
            let outcome = given.find(&port.workload, |_| true).or_else(|| given.with_number(led?.number));
            let outcome = outcome.or_else(|| given.find(&port.workload, |name| of.names.contains(name)));
            outcome.filter(|_| port.is_carried)
        };
        let none = (PortOutcome { number: None, former: Vec::new(), problem: None }, Vec::new());
        let needed: Vec<Port<'_>> = of
            .ports
            .iter()
            .map(|port| {
                let outcome = outcomes(port).unwrap_or(&none.0);
                // A port that was just renamed is identified by its present number.
                let by_number = |listed: &&Vec<Listed>| listed.first().map(|led| led.number) == outcome.number;
                let listed = before.get(&port.id.name).or_else(|| before.values().find(by_number)).unwrap_or(&none.1);
                let listed: &[Listed] = if port.is_carried { listed } else { &[] };
                Port { uid, number: outcome.number, former: &outcome.former, listed }
            })
            .collect();
        let need = usize::try_from(self.path.request.path.activators).ok().and_then(NonZeroUsize::new);
        let is_asleep = of.target.current() == 0 || controller.parts.scaler.leaving.is_leaving(key);
        let priority = if is_asleep && !before.is_empty() { Priority::Slow } else { Priority::Normal };
        let found = port_allocator.endpoints(key, &needed, need, asks.then_some(priority));
        let private_key = Key::new(key.namespace(), names::private_service(key.name()));
        let private = of.led.map_or_else(|| cluster.slices_of(&private_key), <[_]>::to_vec);
        let mode = self.path.request.path.mode;
        let pods_serve = slice_plan::pods_serve(&private, mode, is_asleep);
        let is_led = |port: &Port<'_>, address: IpAddr| port.listed.iter().any(|at| at.address == address);
        let is_queried =
            found.iter().zip(&needed).any(|(found, port)| found.to_probe.iter().any(|(at, _)| !is_led(port, *at)));
        let led = found.into_iter().map(|found| if pods_serve { found.listed } else { found.with_unready() });
        let ports: Vec<_> = of.ports.iter().cloned().zip(led).collect();
        let families = of.public.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
        let outcome = slice_plan::desired(&slice_plan::Inputs {
            namespace: key.namespace(),
            service: &of.public.name_any(),
            families: &families,
            ports: &ports,
            mode,
            is_asleep,
            private: &private,
            activators: &cluster.activators(),
            labels: of.common.labels_of(names::SERVICE_TYPE_PUBLIC),
            owner: of.common.owner.clone(),
        });
        SliceSnapshot { existing, before, outcome, is_queried, priority, is_planned: given.is_some() }
    }

    /// Writes slices of a Service. Each update and creation takes place only if `still` returns true once the write has
    /// its token.
    pub(super) async fn write_slices(
        &self,
        service: &str,
        existing: &[Arc<EndpointSlice>],
        writes: Vec<Write>,
        class: WriteClass,
        still: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let (controller, key) = (self.controller, self.key);
        let (writer, store) = (controller.parts.writes.writer_of(class), &controller.cluster.slices);
        for write in writes {
            match write {
                Write::Update(slice) => {
                    writer.replace(key, store, &*slice, "failed to update EndpointSlice", &still).await?;
                }
                Write::Create(slice) => {
                    writer.create(key, store, &*slice, "failed to create EndpointSlice", &still).await?;
                    controller.cluster.record_new_slice(&slice);
                }
                Write::Delete(slice) => {
                    if existing.iter().any(|e| e.name_any() == slice && !slices::is_ours(e)) {
                        self.delete_endpoints(service).await?;
                    }
                    let slice = Key::new(key.namespace(), slice);
                    controller.parts.writes.delete(key, store, &slice, "failed to delete EndpointSlice").await?;
                }
            }
        }
        Ok(())
    }

    /// Deletes the Endpoints object that Kubernetes left behind of a Service without its selector. Kubernetes writes it
    /// anew once the selector is back.
    async fn delete_endpoints(&self, name: &str) -> Result<(), Error> {
        let (doing, key) = (format!("failed to delete Endpoints {name}"), Key::new(self.key.namespace(), name));
        let delete =
            async |api: BoundedApi| api.delete::<Endpoints>(&key, None).await.map_err(WriteError::api(doing.as_str()));
        self.controller.parts.writes.writer().write(self.key, &doing, delete).await?;
        Ok(())
    }
}
