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
mod multi_map;
mod policies;
pub(crate) mod ports;
pub(crate) mod reasons;
pub(crate) mod release;
pub(crate) mod scalers;
pub(crate) mod services;
pub(crate) mod traffic;
pub(crate) mod unlisted;
pub(crate) mod workloads;

pub use admission::hpa::Hpa;

use crate::decisions::{Decisions, Profile};
use crate::engine::Wiring;
use crate::engine::parts::Parts;
use crate::pods::PodScope;
use crate::reconcile::{OwnController, Reconcilers, passes};
use admission::validation::Validation;
use cluster::Cluster;
use common::config::PortsConfig;
use common::write_rate::Rate;
use common_controller::WorkQueue;
use common_runtime::lease::Timing;
use common_runtime::namespaces::Namespaces;
use kube::runtime::watcher;
use policies::Concerned;
use ports::Numbers;
use scalers::Scalers;
use scalers::publication::Publisher;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use unlisted::UnlistedNamespaces;
use workloads::Workloads;

/// Number of owner buckets: enough for four replicas to share the work, and few enough to keep the cost of leases low.
const BUCKETS: u32 = 4;

/// Front end for ordinary Deployments.
#[derive(Debug)]
pub(crate) struct Standalone {
    pub(crate) hpa: Hpa,
    /// Namespaces to watch for workloads.
    pub(crate) namespaces: Namespaces,
}

impl Standalone {
    const PROFILE: Profile = Profile {
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
}

impl Decisions for Standalone {
    fn profile(&self) -> &'static Profile {
        &Self::PROFILE
    }

    /// Selects all pods, with all their labels: owners choose the labels, and any label may appear in a selector.
    fn pods(&self) -> PodScope {
        PodScope {
            namespaces: self.namespaces.clone(),
            watched: watcher::Config::default(),
            keeps: |_| true,
            tracks_failures: true,
        }
    }

    fn reconcilers(&self, wiring: Wiring, shutdown: &CancellationToken) -> Reconcilers {
        let (hpa, queue) = (self.hpa, WorkQueue::new());
        let numbers = Numbers::new(&wiring.system_namespace, queue.clone(), wiring.clock.clone());
        let scalers = Scalers::new(wiring.ports.leadership.clone(), numbers.clone());
        let range = wiring.ports_config.clone();
        let (namespace, domain) = (&wiring.system_namespace, &wiring.cluster_domain);
        let (watched, config) = (self.namespaces.clone(), range.clone());
        let cluster = Cluster::new(namespace, domain, watched, queue.clone(), scalers.clone(), config);
        let parts = Parts::new(wiring, queue, (cluster.clone(), self.namespaces.clone()), shutdown);
        let writes = || parts.writes.clone();
        let validation = Arc::new(Validation::new(hpa, parts.configs.autoscaler.clone(), scalers.clone()));
        let workloads = Arc::new(Workloads::new(&parts, validation.clone(), cluster.clone()));
        let unread = Arc::new(UnlistedNamespaces::new(parts.writes.client.clone(), self.namespaces.clone()));
        let own = |kind, queue, pass| OwnController { kind, queue, pass };
        let paths = traffic::Controller::new(&parts, cluster.clone(), validation.clone());
        let paths = passes(paths, |paths, key, _| async move { paths.reconcile(&key).await });
        let ledger =
            hosts::ledger_writer::Controller { hosts: cluster.hosts.clone(), writes: writes(), unread: unread.clone() };
        let hosts = passes(ledger, |ledger, key, _| async move { ledger.reconcile(&key).await });
        let allocator = ports::Controller {
            cluster: cluster.clone(),
            writes: writes(),
            unread,
            config: range.clone(),
            start: rand::random(),
        };
        let ports = passes(allocator, |allocator, key, _| async move { allocator.reconcile(&key).await });
        let publisher = Arc::new(Publisher::new(&parts, cluster.clone(), validation));
        let statuses = passes(publisher.clone(), |publisher, key, _| async move { publisher.reconcile(&key).await });
        let labels = passes((scalers.clone(), writes()), |labels, key, _| async move {
            let (scalers, writes) = &*labels;
            scalers.enabled.reconcile(&key, scalers, writes).await
        });
        let controllers = vec![
            own("path", cluster.queue(), paths),
            own("hosts", cluster.hosts.queue.clone(), hosts),
            own("ports", numbers.queue.clone(), ports),
            own("status", scalers.queue.clone(), statuses),
            own("label zeroscale.dev/enabled", scalers.enabled.queue.clone(), labels),
        ];
        tokio::spawn(look_with_each_leader(cluster.clone(), parts.ports.leadership.changes(), range, shutdown.clone()));
        Reconcilers::new(parts, cluster, (Self::PROFILE.kind, workloads), controllers).showing(publisher)
    }
}

/// Queues shared work again: both ledgers and all labels after a change of leadership, and the ports after a change of
/// the port range.
async fn look_with_each_leader(
    cluster: Arc<Cluster>,
    mut changes: watch::Receiver<u64>,
    mut range: watch::Receiver<Arc<PortsConfig>>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            Ok(()) = changes.changed() => {
                cluster.hosts.look();
                cluster.numbers.look();
                cluster.queue_leftover_guards();
                cluster.scalers.look_at_labels();
            }
            Ok(()) = range.changed() => {
                cluster.numbers.look();
                cluster.queue_guards(Concerned::All);
            }
            () = shutdown.cancelled() => return,
        }
    }
}

/// Lists names in a message: `a, b and c`, or `a, b and 4 more` if there are more than `max`.
fn list_names(names: &[String], max: usize) -> String {
    let mut parts: Vec<String> = names.iter().take(max).cloned().collect();
    if names.len() > max {
        parts.push(format!("{} more", names.len() - max));
    }
    match parts.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => parts.concat(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_lists_some_names_and_counts_the_rest() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let lists = [(0, ""), (1, "a"), (2, "a and b"), (3, "a, b and c"), (4, "a, b, c and 1 more")];
        for (count, expected) in lists {
            assert_eq!(super::list_names(&names[..count], 3), expected);
        }
    }
}
