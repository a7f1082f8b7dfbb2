//! Dependencies of the reconcilers, and the parts that the controllers share.

use super::refusals::Refusals;
use super::scaler::{LastPodRemovals, Scaler};
use crate::cluster::writes::Writes;
use crate::cluster::{FrontEndQueues, Stores};
use crate::metric_engine::Engine;
use crate::scale::{OnScale, Ports};
use common::RevisionKey;
use common::config::{AutoscalerConfig, DeploymentConfig, PortsConfig};
use common_controller::{Recorder, WorkQueue, WriteLimiter};
use common_runtime::clock::Clock;
use common_runtime::namespaces::Namespaces;
use common_runtime::resolve::Resolve;
use kube::Client;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Dependencies from which the reconcilers are built.
pub(crate) struct Wiring {
    /// Namespace of the activators.
    pub(crate) system_namespace: String,
    pub(crate) cluster_domain: String,
    /// Limit of writes to the API server.
    pub(crate) limiter: WriteLimiter,
    pub(crate) recorder: Recorder,
    /// Callback for every replicas patch that was accepted.
    pub(crate) on_scale: Option<OnScale>,
    pub(crate) client: Client,
    pub(crate) resolver: Arc<dyn Resolve>,
    /// Decisions, measurements, pods, leadership, and the request queue.
    pub(crate) ports: Ports,
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) configs: ReconcilerConfigs,
    /// `config-ports`, live; the default in a Knative install, where workloads have no ports of their own.
    pub(crate) ports_config: watch::Receiver<Arc<PortsConfig>>,
}

/// Live `config-autoscaler` and `config-deployment`.
#[derive(Clone)]
pub(crate) struct ReconcilerConfigs {
    pub(crate) autoscaler: watch::Receiver<Arc<AutoscalerConfig>>,
    pub(crate) deployment: watch::Receiver<Arc<DeploymentConfig>>,
}

/// Parts that controllers share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) stores: Arc<Stores>,
    pub(crate) ports: Ports,
    pub(crate) writes: Writes,
    pub(crate) configs: ReconcilerConfigs,
    pub(crate) scaler: Arc<Scaler>,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) cluster_domain: String,
    pub(crate) shutdown: CancellationToken,
}

impl Parts {
    /// Builds the parts from `wiring`. `queue` holds workloads to reconcile; targets are watched in the given
    /// namespaces.
    pub(crate) fn new(
        wiring: Wiring,
        queue: WorkQueue<RevisionKey>,
        (front_end_queues, namespaces): (Arc<dyn FrontEndQueues>, Namespaces),
        shutdown: &CancellationToken,
    ) -> Self {
        let Wiring { cluster_domain, limiter, recorder, on_scale, client, resolver, ports, engine, .. } = wiring;
        let (leadership, watched, shutdown) =
            (ports.leadership.clone(), (front_end_queues.clone(), namespaces), shutdown.clone());
        let stores = Arc::new(Stores::new(client.clone(), queue.clone(), watched, shutdown.clone()));
        let index = stores.index.clone();
        ports.deciders.set_existing(Arc::new(move |key: &RevisionKey| index.links.knows(key)));
        let writes = Writes { client, leadership, limiter, decisions: queue, recorder, clock: wiring.clock };
        let scaler = {
            let (writes, stores) = (writes.clone(), stores.clone());
            let (leaving, refusals) = (LastPodRemovals::default(), Refusals::default());
            Arc::new(Scaler { writes, stores, front_end_queues, leaving, refusals, on_scale })
        };
        let (engine, configs) = (Arc::new(engine), wiring.configs);
        Self { stores, ports, writes, configs, scaler, engine, resolver, cluster_domain, shutdown }
    }
}
