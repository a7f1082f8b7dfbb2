//! The front end beside ordinary Deployments.
//!
//! Users write ZeroScalers, so each is validated here; its target is taken up as it is found, and given back at the end.
//! No object of Knative's groups is read or written: the PodAutoscalers, ServerlessServices and Metrics that the shared
//! passes work on are values in memory ([`scalers`]). Services and EndpointSlices follow from them ([`serverless`]), and
//! hosts have a controller, too ([`hosts`]). The activators are our own, hence silence counts only where all of them attest
//! it.

mod admission;
mod adoption;
pub(crate) mod choice;
mod claims;
pub(crate) mod cluster;
mod confinements;
pub(crate) mod fallbacks;
pub(crate) mod finalizer;
pub(crate) mod handover;
pub(crate) mod horizontals;
mod hosts;
mod hpa;
pub(crate) mod ledger;
pub(crate) mod lifecycle;
mod path_proof;
mod policies;
pub(crate) mod ports;
mod protocols;
pub(crate) mod reasons;
mod retire;
pub(crate) mod scalers;
mod schedules;
pub(crate) mod serverless;
pub(crate) mod service_ports;
pub(crate) mod settings;
mod shown;
pub(crate) mod unread;
pub(crate) mod validation;

pub use hpa::Hpa;

use crate::decisions::{Buckets, Decisions};
use crate::pods::PodScope;
use crate::reconcile::parts::Parts;
use crate::reconcile::stores::{Queues, Stores};
use crate::reconcile::writes::Writes;
use crate::reconcile::{OwnController, Pass, Reconcilers, Wiring};
use cluster::Cluster;
use common::config::{ConfigError, LeaderElectionConfig, PortsConfig};
use common::write_rate::Rate;
use common_runtime::config_map::{Refusals, RefusedMap};
use common_runtime::lease::Timing;
use common_runtime::namespaces::Namespaces;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use kube::runtime::watcher;
use lifecycle::Autoscalers;
use ports::Numbers;
use scalers::Scalers;
use scalers::keeper;
use scalers::publication::Publisher;
use shown::Shown;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use unread::Unread;
use validation::Validation;

/// Owner buckets: enough for four replicas to share the work, few enough that leases cost next to nothing.
const BUCKETS: u32 = 4;

/// Decisions of our own.
#[derive(Debug)]
pub(crate) struct Standalone {
    pub(crate) hpa: Hpa,
    /// Where workloads are.
    pub(crate) namespaces: Namespaces,
}

impl Decisions for Standalone {
    fn kind(&self) -> &'static str {
        "ZeroScaler"
    }

    /// This process also does what upstream's ServerlessService controller does.
    fn api_rate(&self) -> Rate {
        Rate::WITH_CONTROLLER
    }

    fn account(&self) -> &'static str {
        "autoscaler"
    }

    /// The process starts with the defaults, and the refusal has been told loudly.
    fn judge(&self, _: &Refusals) -> Result<(), RefusedMap> {
        Ok(())
    }

    fn election(&self, map: &BTreeMap<String, String>) -> Result<LeaderElectionConfig, ConfigError> {
        let secs = |duration: Duration| format!("{}s", duration.as_secs());
        let defaults = [
            ("lease-duration", "leaseDuration", secs(Timing::STANDALONE.lease_duration)),
            ("renew-deadline", "renewDeadline", secs(Timing::STANDALONE.renew_deadline)),
            ("retry-period", "retryPeriod", secs(Timing::STANDALONE.retry_period)),
            ("buckets", "buckets", BUCKETS.to_string()),
        ];
        let mut map = map.clone();
        for (key, alias, value) in defaults {
            if !map.contains_key(alias) {
                map.entry(key.to_owned()).or_insert(value);
            }
        }
        LeaderElectionConfig::from_map(&map)
    }

    fn balances_leases(&self) -> bool {
        true
    }

    fn traces(&self) -> bool {
        true
    }

    /// An activator that has not spoken yet is not one that never will.
    fn has_upstream_activators(&self) -> bool {
        false
    }

    fn has_own_rules(&self) -> bool {
        true
    }

    fn numbers_ports(&self) -> bool {
        true
    }

    fn shows_objects(&self) -> bool {
        true
    }

    /// All, with all labels: those are their owner's business, and any of them may be selected by.
    fn pods(&self) -> PodScope {
        PodScope {
            namespaces: self.namespaces.clone(),
            watched: watcher::Config::default(),
            keeps: |_| true,
            judges: true,
        }
    }

    /// Replicas find each other by the leases alone.
    fn bucket_domain(&self, _: &str, _: &str) -> Option<String> {
        None
    }

    fn keep_bucket_services(&self, _: Buckets, _: CancellationToken) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    fn reconcilers(&self, wiring: Wiring, shutdown: &CancellationToken) -> Reconcilers {
        let (hpa, queues) = (self.hpa, Queues::default());
        let numbers = Numbers::new(&wiring.system_namespace, queues.autoscalers.clone());
        let scalers = Scalers::new(wiring.ports.leadership.clone(), numbers.clone());
        let range = wiring.ports_config.clone();
        let cluster = Cluster::new(
            &wiring.system_namespace,
            &wiring.cluster_domain,
            queues.autoscalers.clone(),
            numbers.clone(),
            scalers.clone(),
        );
        let cluster = Arc::new(cluster.within(self.namespaces.clone()));
        let records = |stores: &Stores, writes: &Writes| keeper::records(&scalers, stores, writes);
        let parts = Parts::new(wiring, queues, cluster.clone(), records, shutdown);
        let validation = Arc::new(Validation::new(hpa, parts.configs.autoscaler.clone(), scalers.clone()));
        let autoscalers = Arc::new(Autoscalers::new(&parts, hpa, validation.clone(), cluster.clone()));
        let serverless = serverless::Controller::new(&parts, validation.clone(), cluster.clone(), scalers.clone());
        let serverless = Arc::new(serverless);
        let pass: Pass = Arc::new(move |key, _| {
            let serverless = serverless.clone();
            Box::pin(async move { serverless.reconcile(&key).await })
        });
        let paths = OwnController { kind: "ServerlessService", queue: cluster.queue(), pass };
        let unread = Arc::new(Unread::new(parts.writes.client.clone(), self.namespaces.clone()));
        let (hosts, writes) = (cluster.hosts.clone(), parts.writes.clone());
        let ledger = Arc::new(ledger::Controller { hosts, writes, unread: unread.clone() });
        let queue = cluster.hosts.queue();
        let pass: Pass = Arc::new(move |key, _| {
            let ledger = ledger.clone();
            Box::pin(async move { ledger.reconcile(&key).await })
        });
        let hosts = OwnController { kind: "hosts", queue, pass };
        let allocator = Arc::new(ports::Controller {
            numbers: numbers.clone(),
            autoscalers: parts.stores.autoscalers.clone(),
            slices: cluster.slices.clone(),
            writes: parts.writes.clone(),
            unread,
            config: range.clone(),
            start: rand::random(),
        });
        let pass: Pass = Arc::new(move |key, _| {
            let allocator = allocator.clone();
            Box::pin(async move { allocator.reconcile(&key).await })
        });
        let ports = OwnController { kind: "ports", queue: numbers.queue(), pass };
        let publisher = Arc::new(Publisher::new(&parts, scalers.clone(), cluster.clone(), validation));
        let shown = Arc::new(Shown { scalers: scalers.clone(), publisher: publisher.clone() });
        let pass: Pass = Arc::new(move |key, _| {
            let publisher = publisher.clone();
            Box::pin(async move { publisher.reconcile(&key).await })
        });
        let statuses = OwnController { kind: "ZeroScaler", queue: scalers.queue(), pass };
        let (enabled, writes) = (scalers.enabled.clone(), parts.writes.clone());
        let queue = enabled.queue();
        let pass: Pass = Arc::new(move |key, _| {
            let (enabled, scalers, writes) = (enabled.clone(), scalers.clone(), writes.clone());
            Box::pin(async move { enabled.reconcile(&key, &scalers, &writes).await })
        });
        let labels = OwnController { kind: "label zeroscale.dev/enabled", queue, pass };
        tokio::spawn(look_with_each_leader(cluster, parts.ports.leadership.changes(), range, shutdown.clone()));
        Reconcilers::new(parts, autoscalers, vec![paths, hosts, ports, statuses, labels]).showing(shown)
    }
}

/// Whoever leads the ledgers, or workloads that ask by a label, from now on looks at them, as does everybody when the range
/// of numbers is another.
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
                cluster.scalers.enabled.look();
            }
            Ok(()) = range.changed() => cluster.numbers.look(),
            () = shutdown.cancelled() => return,
        }
    }
}
