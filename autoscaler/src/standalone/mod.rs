//! Front end for ordinary Deployments and other scalable targets.
//!
//! Users write ZeroScalers, so this front end validates each one, adopts its target in the state it finds, and gives
//! the target back at the end. It neither reads nor writes objects of Knative's API groups.
//!
//! - A ZeroScaler becomes a [`Workload`], which the reconcilers of both front ends share ([`workloads`]).
//! - The findings of a reconcile become the status of the ZeroScaler ([`scalers`]).
//! - Services and EndpointSlices follow the requested path ([`traffic`]).
//! - Hosts have a controller of their own ([`hosts`]).
//!
//! The activators belong to the same installation. Missing reports therefore count as zero load only if all activators
//! attest it.
//!
//! [`Workload`]: crate::engine::workload::Workload

pub(crate) mod admission;
pub(crate) mod cluster;
pub(crate) mod finalizer;
pub(crate) mod hosts;
pub(crate) mod hpa_conflicts;
mod policies;
pub(crate) mod ports;
pub(crate) mod reasons;
pub(crate) mod release;
pub(crate) mod scalers;
pub(crate) mod services;
pub(crate) mod traffic;
pub(crate) mod unlisted;
pub(crate) mod workloads;

pub use admission::validation::Hpa;

use crate::engine::Wiring;
use crate::engine::parts::Parts;
use crate::pods::PodScope;
use crate::profile::Profile;
use crate::reconcile::Reconcilers;
use admission::validation::Validation;
use cluster::Cluster;
use common::config::PortsConfig;
use common::write_rate::Rate;
use common_controller::WorkQueue;
use common_runtime::lease::Timing;
use common_runtime::namespaces::Namespaces;
use kube::runtime::watcher;
use policies::Concerned;
use ports::PortAllocator;
use scalers::Scalers;
use scalers::publication::Publisher;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use unlisted::UnlistedNamespaces;
use workloads::Workloads;

/// Number of owner buckets: enough for four replicas to share the work, and few enough to keep the cost of leases low.
const BUCKETS: u32 = 4;

/// Values of this install.
pub(crate) const PROFILE: Profile = Profile {
    kind: "ZeroScaler",
    api_rate: Rate::WITH_CONTROLLER, // This process also does the work of upstream's ServerlessService controller.
    account: "autoscaler",
    leases: Some((Timing::STANDALONE, BUCKETS)),
    balances_leases: true,
    has_bucket_services: false, // Replicas find each other by leases alone.
    defaults_replace_maps: true,
    owns_activators: true,
    has_own_rules: true,
    numbers_ports: true,
    traces: true,
    has_page: true,
};

/// Selects all pods of these namespaces, with all their labels: owners choose the labels, and any label may appear in a
/// selector.
pub(crate) fn pods(namespaces: &Namespaces) -> PodScope {
    let (namespaces, watched) = (namespaces.clone(), watcher::Config::default());
    PodScope { namespaces, watched, keeps: |_| true, tracks_failures: true }
}

/// Controllers of this front end.
pub(crate) struct Controllers {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) paths: traffic::Controller,
    pub(crate) ledger: hosts::ledger_writer::Controller,
    pub(crate) allocator: ports::Controller,
    pub(crate) publisher: Arc<Publisher>,
}

impl Controllers {
    /// Builds the controllers and the parts that they share, which end with `shutdown`. `start` is the start of the
    /// search for free port numbers.
    pub(crate) fn new(
        hpa: Hpa,
        namespaces: &Namespaces,
        wiring: Wiring,
        start: u16,
        shutdown: &CancellationToken,
    ) -> (Parts, Self) {
        let queue = WorkQueue::new();
        let port_allocator = PortAllocator::new(&wiring.system_namespace, queue.clone(), wiring.clock.clone());
        let scalers = Scalers::new(wiring.ports.leadership.clone(), port_allocator);
        let (system, domain, config) = (&wiring.system_namespace, &wiring.cluster_domain, wiring.ports_config.clone());
        let cluster = Cluster::new(system, domain, namespaces.clone(), queue.clone(), scalers.clone(), config.clone());
        let parts = Parts::new(wiring, queue, (cluster.clone(), namespaces.clone()), shutdown);
        let validation = Arc::new(Validation::new(hpa, parts.configs.autoscaler.clone(), scalers));
        let unlisted = Arc::new(UnlistedNamespaces::new(parts.writes.client.clone(), namespaces.clone()));
        let (hosts, writes) = (cluster.hosts.clone(), parts.writes.clone());
        let controllers = Self {
            workloads: Arc::new(Workloads::new(&parts, validation.clone(), cluster.clone())),
            paths: traffic::Controller::new(&parts, cluster.clone(), validation.clone()),
            ledger: hosts::ledger_writer::Controller { hosts, writes: writes.clone(), unlisted: unlisted.clone() },
            allocator: ports::Controller { cluster: cluster.clone(), writes, unlisted, config, start },
            publisher: Arc::new(Publisher::new(&parts, cluster.clone(), validation)),
            cluster,
        };
        (parts, controllers)
    }
}

pub(crate) fn reconcilers(
    hpa: Hpa,
    namespaces: &Namespaces,
    wiring: Wiring,
    shutdown: &CancellationToken,
) -> Reconcilers {
    let range = wiring.ports_config.clone();
    let (parts, controllers) = Controllers::new(hpa, namespaces, wiring, rand::random(), shutdown);
    let Controllers { cluster, workloads, paths, ledger, allocator, publisher } = controllers;
    let Cluster { scalers, port_allocator, .. } = &*cluster;
    let labels = (scalers.clone(), parts.writes.clone());
    tokio::spawn(queue_shared_work(cluster.clone(), parts.ports.leadership.changes(), range, shutdown.clone()));
    let mut all = Reconcilers::new(parts, cluster.clone(), PROFILE.kind, workloads)
        .with("path", cluster.path_queue.clone(), paths, |paths, key| async move { paths.reconcile(&key).await })
        .with("hosts", cluster.hosts.queue.clone(), ledger, |ledger, key| async move { ledger.reconcile(&key).await })
        .with("ports", port_allocator.queue.clone(), allocator, |ports, key| async move { ports.reconcile(&key).await })
        .with(
            "status",
            scalers.queue.clone(),
            publisher.clone(),
            |status, key| async move { status.reconcile(&key).await },
        )
        .with("label zeroscale.dev/enabled", scalers.enabled.queue.clone(), labels, |labels, key| async move {
            let (scalers, writes) = &*labels;
            scalers.enabled.reconcile(&key, scalers, writes).await
        });
    all.displayed = Some(publisher);
    all
}

/// Queues shared work again: both ledgers and all labels after a change of leadership, and the ports after a change of
/// the port range.
async fn queue_shared_work(
    cluster: Arc<Cluster>,
    mut changes: watch::Receiver<u64>,
    mut range: watch::Receiver<Arc<PortsConfig>>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            Ok(()) = changes.changed() => {
                cluster.hosts.queue_reconcile();
                cluster.port_allocator.queue_plan();
                cluster.queue_leftover_guards();
                cluster.scalers.enabled.queue_all(cluster.scalers.objects.keys());
            }
            Ok(()) = range.changed() => {
                cluster.port_allocator.queue_plan();
                cluster.queue_guards(Concerned::All);
            }
            () = shutdown.cancelled() => return,
        }
    }
}
