//! Components of the process that refer to each other.

use super::configs::Configs;
use super::process_metrics;
use super::tokens::Tokens;
use crate::collect::Collector;
use crate::collect::scraper::Scraper;
use crate::dashboard::{self, Dashboard};
use crate::engine::Wiring;
use crate::ingest::attest::{Attestations, watch_activators};
use crate::ingest::counters::{Counters, IngestCounters};
use crate::ingest::peers::Peers;
use crate::ingest::stat_server::StatServer;
use crate::ingest::{Ingest, LocalRecorder};
use crate::knative::bucket_services;
use crate::options::Options;
use crate::pods::{self, PodIndex};
use crate::reconcile::display::Objects;
use crate::scale::metrics::DeciderMetrics;
use crate::scale::multiscaler::{Multiscaler, Sources};
use crate::scale::{Ports, Requests};
use common::RevisionKey;
use common_controller::WriteLimiter;
use common_controller::shares::Shares;
use common_runtime::admission::Gate;
use common_runtime::clock::Clock;
use common_runtime::resolve::Resolve;
use common_runtime::telemetry::traces::Tracing;
use common_runtime::telemetry::{Metrics, catalog};
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time between checks of the system's wall clock.
const RESYNC: Duration = Duration::from_secs(1);

/// All components that refer to each other.
pub(super) struct Components {
    pub(super) shares: Shares,
    clock: Clock,
    requests: Requests,
    pub(super) metrics: Metrics,
    collector: Arc<Collector>,
    pub(super) pods: Arc<PodIndex>,
    attestations: Arc<Attestations>,
    pub(super) multiscaler: Arc<Multiscaler>,
    pub(super) peers: Arc<Peers>,
    ingest: Arc<Ingest>,
    scraper: Scraper,
    limiter: WriteLimiter,
}

impl Components {
    pub(super) fn new(
        options: &Options,
        shares: Shares,
        resolver: Arc<dyn Resolve>,
        (stat_port, tracing): (u16, Option<Tracing>),
        configs: &Configs,
        tokens: &Tokens,
    ) -> Self {
        let profile = options.front_end.profile();
        let (clock, requests, metrics) = (Clock::system(), Requests::new(), Metrics::default());
        let collector = Arc::new(Collector::new(clock.clone(), requests.clone()));
        let pods = Arc::new(PodIndex::new(requests.clone()));
        let attestations = Arc::new(Attestations::new(!profile.owns_activators));
        let sources = Sources {
            collector: collector.clone(),
            pods: pods.clone(),
            attestations: attestations.clone(),
            clock: clock.clone(),
            requests: requests.clone(),
            metrics: DeciderMetrics::new(&metrics),
        };
        let multiscaler = Arc::new(Multiscaler::new(sources, profile.has_own_rules).traced(tracing));
        let here = Arc::new(LocalRecorder {
            collector: collector.clone(),
            multiscaler: multiscaler.clone(),
            clock: clock.clone(),
            counters: IngestCounters::new(&metrics),
        });
        let counters = here.counters.clone();
        let services = format!("{}.svc.{}", options.system_namespace, options.cluster_domain);
        let services = Some(services).filter(|_| profile.has_bucket_services);
        let stop = tokens.stop.clone();
        let peers = Peers::new(shares.clone(), resolver.clone(), stat_port, services, here.clone(), counters, stop);
        if let Some(token) = &options.stat_tokens.own {
            peers.present(token.clone());
        }
        let namespace = options.system_namespace.clone();
        let ingest = Ingest::new(namespace, shares.clone(), here, attestations.clone(), peers.clone());
        let deciders = multiscaler.clone();
        let scrapes = Arc::new(move |key: &RevisionKey| deciders.scrapes(key));
        let (domain, network) = (&options.cluster_domain, configs.network.clone());
        let scraper = Scraper::new(collector.clone(), pods.clone(), resolver, domain, network, scrapes);
        let ingest = Arc::new(ingest);
        let limiter = WriteLimiter::new(options.api_rate);
        process_metrics::leases(&metrics, shares.clone());
        process_metrics::writes(&metrics, limiter.clone());
        Self {
            shares,
            clock,
            requests,
            metrics,
            collector,
            pods,
            attestations,
            multiscaler,
            peers,
            ingest,
            scraper,
            limiter,
        }
    }

    /// Binds the dashboard, if there is one. It shows `objects`, and reads their pods with `client`.
    ///
    /// # Errors
    /// Its address cannot be bound.
    pub(super) fn dashboard(
        &self,
        options: &Options,
        objects: Option<Arc<dyn Objects>>,
        client: &Client,
    ) -> anyhow::Result<Option<Dashboard>> {
        let Some((settings, objects)) = options.dashboard.clone().zip(objects) else { return Ok(None) };
        let parts = dashboard::Parts {
            objects,
            client: client.clone(),
            multiscaler: self.multiscaler.clone(),
            collector: self.collector.clone(),
            pods: self.pods.clone(),
            shares: self.shares.clone(),
            peers: self.peers.clone(),
            clock: self.clock.clone(),
            me: options.pod_name.clone(),
        };
        Dashboard::new(settings, parts).map(Some)
    }

    /// Starts the background tasks.
    pub(super) fn spawn(
        &self,
        client: &Client,
        options: &Options,
        (server, dashboard): (StatServer, Option<Dashboard>),
        tokens: &Tokens,
    ) -> TaskTracker {
        let (front_end, tasks) = (&options.front_end, TaskTracker::new());
        tasks.spawn(pods::run(client.clone(), front_end.decides().pods(), self.pods.clone(), tokens.last.clone()));
        let (activators, namespace) = (self.attestations.clone(), options.system_namespace.clone());
        tasks.spawn(watch_activators(client.clone(), namespace, activators, tokens.last.clone()));
        let peers = self.peers.clone();
        tasks.spawn(async move { peers.run().await });
        // Members of a StatefulSet are reached by their own names.
        if front_end.profile().has_bucket_services && options.stateful_set.is_none() {
            let (client, namespace) = (client.clone(), options.system_namespace.clone());
            let (shares, stop) = (self.shares.clone(), tokens.stop.clone());
            tasks.spawn(bucket_services::run(client, namespace, options.pod_ip, shares, stop));
        }
        let (multiscaler, stop) = (self.multiscaler.clone(), tokens.stop.clone());
        tasks.spawn(async move { multiscaler.run(stop).await });
        tasks.spawn(self.scraper.clone().run(tokens.stop.clone()));
        tasks.spawn(resync(self.clock.clone(), self.multiscaler.clone(), tokens.last.clone()));
        let counters = Counters::new(&self.metrics);
        let server = match &options.stat_tokens.demand {
            Some(demand) => {
                let gate = Gate::new(demand.clone(), client.clone());
                self.metrics.register(catalog::STAT_REFUSALS, gate.refusals().clone());
                server.guarded(gate)
            }
            None => server,
        };
        let server = match dashboard {
            Some(dashboard) => {
                let responder = dashboard.responder();
                dashboard.start(&tasks, &tokens.stop);
                server.answering(responder)
            }
            None => server,
        };
        tasks.spawn(server.serve(self.ingest.clone(), counters, tokens.stop.clone()));
        tasks
    }

    pub(super) fn wiring(
        &self,
        options: &Options,
        client: Client,
        resolver: Arc<dyn Resolve>,
        configs: Configs,
    ) -> Wiring {
        Wiring {
            system_namespace: options.system_namespace.clone(),
            cluster_domain: options.cluster_domain.clone(),
            limiter: self.limiter.clone(),
            on_scale: options.on_scale.clone(),
            client,
            resolver,
            ports: Ports {
                deciders: self.multiscaler.clone(),
                collection: self.collector.clone(),
                pods: self.pods.clone(),
                leadership: Arc::new(self.shares.clone()),
                requests: self.requests.clone(),
            },
            clock: self.clock.clone(),
            autoscaler_config: configs.autoscaler,
            deployment_config: configs.deployment,
            ports_config: configs.ports,
        }
    }
}

/// Adjusts the clock when the system's wall clock is set. No other task adjusts it: only the first one would notice.
async fn resync(clock: Clock, multiscaler: Arc<Multiscaler>, until: CancellationToken) {
    while timeout(RESYNC, until.cancelled()).await.is_err() {
        if clock.resync() {
            tracing::warn!("the wall clock was set; windows fill again, and nothing is scaled down until they have");
            multiscaler.clock_was_set();
        }
    }
}
