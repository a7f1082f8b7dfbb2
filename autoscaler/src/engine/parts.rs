//! Parts that the controllers share. A front end passes each controller the parts that it uses.

use super::last_pod::LastPodRemovals;
use super::probe::Prober;
use super::refusals::Refusals;
use super::scaler::Scaler;
use super::wiring::Wiring;
use crate::cluster::Stores;
use crate::cluster::watches::Beside;
use crate::cluster::writes::Writes;
use crate::metric_engine::Engine;
use crate::scale::Ports;
use common::RevisionKey;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common_controller::{Priority, Recorder, WorkQueue};
use common_runtime::namespaces::Namespaces;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Live configuration.
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
    pub(crate) leaving: Arc<LastPodRemovals>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) scaler: Arc<Scaler>,
    pub(crate) prober: Arc<Prober>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) cluster_domain: String,
}

impl Parts {
    /// Builds the parts from `wiring`. `queue` holds workloads to reconcile; targets are watched in the given
    /// namespaces.
    pub(crate) fn new(
        wiring: Wiring,
        queue: WorkQueue<RevisionKey>,
        beside: (Arc<dyn Beside>, Namespaces),
        shutdown: &CancellationToken,
    ) -> Self {
        let (client, clock) = (wiring.client.clone(), wiring.clock.clone());
        let recorder = Recorder::limited(client.clone(), wiring.limiter.clone(), shutdown.clone());
        let engine = Engine::new(client, clock, wiring.ports.pods.clone(), wiring.ports.requests.clone());
        Self::with(wiring, (recorder, engine), queue, beside, shutdown)
    }

    /// Builds the parts with this recorder and engine.
    pub(crate) fn with(
        wiring: Wiring,
        (recorder, engine): (Recorder, Engine),
        queue: WorkQueue<RevisionKey>,
        (beside, namespaces): (Arc<dyn Beside>, Namespaces),
        shutdown: &CancellationToken,
    ) -> Self {
        let Wiring { cluster_domain, on_scale, client, resolver, ports, clock, limiter, .. } = wiring;
        let (leadership, decisions, probed) = (ports.leadership.clone(), queue.clone(), queue.clone());
        let prober = Prober::new(resolver, shutdown.clone(), move |key| probed.add(key.clone(), Priority::Normal));
        let stores = Arc::new(Stores::new(client.clone(), queue, (beside.clone(), namespaces), shutdown.clone()));
        let index = stores.index.clone();
        ports.deciders.set_existing(Arc::new(move |key: &RevisionKey| index.knows(key)));
        let writes = Writes { client, leadership, limiter, decisions, recorder, clock };
        let (leaving, refusals) = (Arc::new(LastPodRemovals::default()), Arc::new(Refusals::default()));
        let scaler = Arc::new(Scaler {
            writes: writes.clone(),
            stores: stores.clone(),
            beside,
            leaving: leaving.clone(),
            refusals: refusals.clone(),
            on_scale,
        });
        let configs = ReconcilerConfigs { autoscaler: wiring.autoscaler_config, deployment: wiring.deployment_config };
        let (prober, engine) = (Arc::new(prober), Arc::new(engine));
        Self { stores, ports, writes, configs, leaving, refusals, scaler, prober, engine, cluster_domain }
    }
}
