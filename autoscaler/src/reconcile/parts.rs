//! What controllers are made of. A front end takes it apart and hands each controller what that one uses.

use super::kpa::leaving::Leaving;
use super::kpa::probe::Prober;
use super::kpa::refusals::Refusals;
use super::kpa::scaler::Scaler;
use super::records::Records;
use super::stores::watches::Watches;
use super::stores::{Queues, Stores};
use super::wiring::Wiring;
use super::writes::Writes;
use crate::engine::Engine;
use crate::scale::Ports;
use common::RevisionKey;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common_controller::{Priority, Recorder, WriteLimiter};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Live configuration.
#[derive(Clone)]
pub(crate) struct ReconcilerConfigs {
    pub(crate) autoscaler: watch::Receiver<Arc<AutoscalerConfig>>,
    pub(crate) deployment: watch::Receiver<Arc<DeploymentConfig>>,
}

/// The parts that controllers share.
pub(crate) struct Parts {
    pub(crate) stores: Arc<Stores>,
    pub(crate) ports: Ports,
    pub(crate) writes: Writes,
    pub(crate) records: Records,
    pub(crate) configs: ReconcilerConfigs,
    pub(crate) leaving: Arc<Leaving>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) scaler: Arc<Scaler>,
    pub(crate) prober: Arc<Prober>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) cluster_domain: String,
}

impl Parts {
    /// What `wiring` leads to. `watches` is told of what the stores see.
    pub(crate) fn new(
        wiring: Wiring,
        queues: Queues,
        watches: Arc<dyn Watches>,
        records: impl FnOnce(&Stores, &Writes) -> Records,
        shutdown: &CancellationToken,
    ) -> Self {
        let (client, clock) = (wiring.client.clone(), wiring.clock.clone());
        let limiter = wiring.limiter.clone();
        let recorder = Recorder::limited(client.clone(), limiter.clone(), shutdown.clone());
        let engine = Engine::new(client, clock, wiring.ports.pods.clone(), wiring.ports.requests.clone());
        Self::with(wiring, limiter, recorder, engine, queues, (watches, records), shutdown)
    }

    /// The same with a recorder and an engine that may ask others.
    pub(super) fn with(
        wiring: Wiring,
        limiter: WriteLimiter,
        recorder: Recorder,
        engine: Engine,
        queues: Queues,
        (watches, records): (Arc<dyn Watches>, impl FnOnce(&Stores, &Writes) -> Records),
        shutdown: &CancellationToken,
    ) -> Self {
        let Wiring { cluster_domain, on_scale, client, resolver, ports, clock, .. } = wiring;
        let (leadership, decisions) = (ports.leadership.clone(), queues.autoscalers.clone());
        let probed = decisions.clone();
        let prober = Prober::new(resolver, shutdown.clone(), move |key| probed.add(key.clone(), Priority::Normal));
        let stores = Arc::new(Stores::new(client.clone(), queues, watches, shutdown.clone()));
        let known = stores.autoscalers.clone();
        ports.deciders.recognise(Arc::new(move |key: &RevisionKey| known.holds(key)));
        let writes = Writes { client, leadership, limiter, decisions, recorder, clock };
        let records = records(&stores, &writes);
        let (leaving, refusals) = (Arc::new(Leaving::default()), Arc::new(Refusals::default()));
        let scaler = Arc::new(Scaler {
            writes: writes.clone(),
            records: records.clone(),
            stores: stores.clone(),
            leaving: leaving.clone(),
            refusals: refusals.clone(),
            on_scale,
        });
        let configs = ReconcilerConfigs { autoscaler: wiring.autoscaler_config, deployment: wiring.deployment_config };
        let (prober, engine) = (Arc::new(prober), Arc::new(engine));
        Self { stores, ports, writes, records, configs, leaving, refusals, scaler, prober, engine, cluster_domain }
    }
}
