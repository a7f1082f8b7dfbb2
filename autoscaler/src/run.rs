//! The whole process: what is started in which order, and how it ends.
//!
//! # Start
//!
//! 1. The stat port is bound, so that a port in use is an error at once and not a process that hangs.
//! 2. The API server's version is checked.
//! 3. Standalone waits, not ready, for as long as Knative Serving's own controller lives in the cluster.
//! 4. Configuration is read and watched from then on; an update that breaks a rule is refused as a whole. A map that
//!    breaks
//!    one at the start ends the process in a Knative install, as upstream; standalone takes the defaults and says so
//!    loudly. Leases are the exception: read once as upstream does, since a change that some replicas know of and
//!    others do not would make two owners. For the same reason a map of theirs that breaks a rule ends the process in
//!    either mode: defaults might not be what its peers go by.
//! 5. Watches, leases, ticks and scrapes begin; the stat server accepts.
//! 6. Reconcilers begin once pods are known, since a decider born without knowing its pods would start from zero.
//!
//! # End
//!
//! 1. Stat connections are closed with 1012, so that activators go elsewhere; ticks and scrapes stop.
//! 2. Reconcilers finish what they are writing.
//! 3. Leases are released, only now: nobody else may write while we still do.
//! 4. The admin port closes last.
//!
//! # Not here
//!
//! Traces: as in Knative's autoscaler, nothing on the way from a stat to a patch makes spans.

use crate::collect::Collector;
use crate::collect::scraper::Scraper;
use crate::explain;
use crate::ingest::admission::Gate;
use crate::ingest::attest::{Attestations, watch_activators};
use crate::ingest::counters::{Counters, IngestCounters};
use crate::ingest::peers::Peers;
use crate::ingest::stat_server::StatServer;
use crate::ingest::{Here, Ingest};
use crate::knative::bucket_services;
use crate::leadership::{Shares, tell_of_edits};
use crate::options::Options;
use crate::pods::{self, PodIndex};
use crate::reconcile;
use crate::scale::metrics::DeciderMetrics;
use crate::scale::multiscaler::{Multiscaler, Sources};
use crate::scale::{Attention, Ports};
use crate::standalone::conflict_guard;
use anyhow::Context;
use common::RevisionKey;
use common::config::{
    self, AutoscalerConfig, ConfigError, DeploymentConfig, LeaderElectionConfig, LogLevel, NetworkConfig,
    ObservabilityConfig,
};
use common::ownership::{Holder, bucket_names};
use common_runtime::clock::Clock;
use common_runtime::config_map::{ConfigMaps, Refusals};
use common_runtime::environment::Mode;
use common_runtime::lease::{self, ElectorOptions, Timing};
use common_runtime::observe;
use common_runtime::resolve::Resolve;
use common_runtime::telemetry::Metrics;
use common_runtime::telemetry::otlp::Who;
use kube::Client;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Owner buckets in standalone: enough for four replicas to share the work, few enough that leases cost next to
/// nothing.
pub const STANDALONE_BUCKETS: u32 = 4;
/// Time between looks at the system's wall clock.
const RESYNC: Duration = Duration::from_secs(30);
/// Longest wait for background tasks at the end; the stat server takes the longest, to close its connections.
const DRAIN: Duration = Duration::from_secs(6);

/// What reconcilers get.
#[derive(Clone)]
pub struct Wiring {
    /// Settings of the process.
    pub options: Options,
    /// The API server.
    pub client: Client,
    /// From names to addresses.
    pub resolver: Arc<dyn Resolve>,
    /// Decisions, measurements, pods, leadership, and the feed.
    pub ports: Ports,
    /// Wall-clock time.
    pub clock: Clock,
    /// Where to register metrics.
    pub metrics: Metrics,
    /// `config-autoscaler`, live.
    pub autoscaler_config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// `config-deployment`, live.
    pub deployment_config: watch::Receiver<Arc<DeploymentConfig>>,
}

/// Runs an autoscaler until `shutdown`; returns when all is released.
///
/// # Errors
/// The API server is too old, a port cannot be bound, or the reconcilers have failed.
pub async fn run(
    options: Options,
    client: Client,
    resolver: Arc<dyn Resolve>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    run_with(options, client, resolver, shutdown, reconcile::run).await
}

/// Runs everything but the reconcilers, which are given as a function, until `shutdown`; returns when all is released.
///
/// # Errors
/// A port cannot be bound, or the reconcilers have failed.
pub async fn run_with<F>(
    options: Options,
    client: Client,
    resolver: Arc<dyn Resolve>,
    shutdown: CancellationToken,
    reconcilers: impl FnOnce(Wiring, CancellationToken) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let tokens = Tokens::new(&shutdown);
    let server = StatServer::bind(options.stat_listen).await?;
    let stat_port = server.local_addr()?.port();
    let (server, trust) = match options.stat_tls.clone()? {
        Some(tls) => {
            let (tls, trust) = tls.open(&tokens.last).await.context("TLS of the stat port")?;
            let allow_plain = tls.allow_plain;
            (server.encrypted(tls), Some((trust, allow_plain)))
        }
        None => (server, None),
    };
    if let Some(least) = &options.process.kubernetes_min_version {
        tokio::select! {
            checked = least.check(&client) => checked?,
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    if options.mode == Mode::Standalone {
        tokio::select! {
            () = conflict_guard::wait_until_alone(&client, &server, conflict_guard::RECHECK) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    let configs = Configs::read(&client, &options, &tokens.stop).await;
    if options.mode == Mode::Knative {
        configs.refusals.none()?;
    }
    let election = Result::clone(&configs.election.borrow());
    let election = election.with_context(|| options.process.config_maps.leader_election.clone())?;
    let (shares, released) = campaign(&client, &options, &election, &tokens.leases);
    let plane = Plane::new(&options, shares, resolver.clone(), stat_port, &configs, &tokens);
    configs.refusals.register(&plane.metrics);
    tokio::spawn(tell_of_edits(
        options.process.config_maps.leader_election.clone(),
        configs.election.clone(),
        tokens.last.clone(),
    ));
    if let Some((trust, allow_plain)) = trust {
        plane.peers.believe(trust, allow_plain);
    }
    let seen = observe::Plane {
        who: Who { service: "autoscaler", namespace: options.system_namespace.clone(), pod: options.pod_name.clone() },
        metrics: plane.metrics.clone(),
        config: configs.observability.clone(),
        pages: vec![explain::page(plane.multiscaler.clone(), plane.shares.clone())],
        admin: options.admin,
    };
    let mut observed = seen.observe(&options.process, tokens.last.clone()).await?;
    let tasks = plane.spawn(&client, &options, server, &tokens);

    let wiring = plane.wiring(options, client, resolver, configs);
    let reconciled = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        () = plane.pods.synced() => reconcilers(wiring, tokens.stop.clone()).await,
    };
    tokens.stop.cancel();
    tokens.leases.cancel();
    if let Err(error) = released.await {
        tracing::error!(%error, "leases were not released; others take over when they expire");
    }
    tokens.last.cancel();
    tasks.close();
    if timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::warn!(left = tasks.len(), "tasks did not end in time");
    }
    observed.flushed().await;
    reconciled.context("reconcilers failed")
}

/// What ends when. Every token is cancelled on every way out, a dropped future included.
struct Tokens {
    /// Ends with shutdown: what takes in work.
    stop: CancellationToken,
    /// Ends when the reconcilers have: leases.
    leases: CancellationToken,
    /// Ends when leases are released: watches, configuration, the admin port.
    last: CancellationToken,
    _guards: [DropGuard; 3],
}

impl Tokens {
    fn new(shutdown: &CancellationToken) -> Self {
        let (stop, leases, last) = (shutdown.child_token(), CancellationToken::new(), CancellationToken::new());
        let _guards = [stop.clone().drop_guard(), leases.clone().drop_guard(), last.clone().drop_guard()];
        Self { stop, leases, last, _guards }
    }
}

/// Live configuration.
struct Configs {
    autoscaler: watch::Receiver<Arc<AutoscalerConfig>>,
    deployment: watch::Receiver<Arc<DeploymentConfig>>,
    /// For the start.
    election: watch::Receiver<Arc<Result<LeaderElectionConfig, ConfigError>>>,
    network: watch::Receiver<Arc<NetworkConfig>>,
    observability: watch::Receiver<Arc<ObservabilityConfig>>,
    /// Which of them break a rule.
    refusals: Refusals,
}

impl Configs {
    async fn read(client: &Client, options: &Options, until: &CancellationToken) -> Self {
        let mode = options.mode;
        let mut maps = ConfigMaps::default();
        let autoscaler = maps.subscribe(config::AUTOSCALER, AutoscalerConfig::default(), AutoscalerConfig::from_map);
        maps.expect(config::AUTOSCALER, AutoscalerConfig::KEYS);
        let deployment = maps.subscribe(config::DEPLOYMENT, DeploymentConfig::default(), DeploymentConfig::from_map);
        let network = maps.subscribe(config::NETWORK, NetworkConfig::default(), NetworkConfig::from_map);
        let parse = move |data: &BTreeMap<String, String>| Ok::<_, ConfigError>(election_config(mode, data));
        let default = election_config(mode, &BTreeMap::new());
        let names = &options.process.config_maps;
        let observability =
            maps.subscribe(&names.observability, ObservabilityConfig::default(), ObservabilityConfig::from_map);
        let level = |data: &BTreeMap<String, String>| LogLevel::from_map(data, "autoscaler");
        if let Some(logs) = &options.process.logs {
            logs.clone().follow(maps.subscribe(&names.logging, LogLevel::default(), level));
        }
        let election = maps.subscribe(&names.leader_election, default, parse);
        let refusals = maps.refusals();
        maps.start(client.clone(), &options.system_namespace, until.clone()).await;
        Self { autoscaler, deployment, election, network, observability, refusals }
    }
}

/// `config-leader-election`, over the defaults of the mode.
fn election_config(mode: Mode, data: &BTreeMap<String, String>) -> Result<LeaderElectionConfig, ConfigError> {
    if mode == Mode::Knative {
        return LeaderElectionConfig::from_map(data);
    }
    let secs = |duration: Duration| format!("{}s", duration.as_secs());
    let defaults = [
        ("lease-duration", "leaseDuration", secs(Timing::STANDALONE.lease_duration)),
        ("renew-deadline", "renewDeadline", secs(Timing::STANDALONE.renew_deadline)),
        ("retry-period", "retryPeriod", secs(Timing::STANDALONE.retry_period)),
        ("buckets", "buckets", STANDALONE_BUCKETS.to_string()),
    ];
    let mut data = data.clone();
    for (key, alias, value) in defaults {
        if !data.contains_key(alias) {
            data.entry(key.to_owned()).or_insert(value);
        }
    }
    LeaderElectionConfig::from_map(&data)
}

/// Starts to campaign for the buckets, unless a StatefulSet has given them away. The handle ends when everything is
/// released.
fn campaign(
    client: &Client,
    options: &Options,
    config: &LeaderElectionConfig,
    until: &CancellationToken,
) -> (Shares, JoinHandle<()>) {
    if let Some(set) = &options.stateful_set {
        let names = set.buckets(config.buckets, &options.system_namespace, &options.cluster_domain);
        if set.ordinal >= names.len() {
            let (ordinal, buckets) = (set.ordinal, names.len());
            tracing::warn!(ordinal, buckets, "no bucket for this member of the StatefulSet: it forwards stats only");
        }
        return (Shares::members(names, set.ordinal), tokio::spawn(async {}));
    }
    let names = bucket_names(config.buckets);
    let me = Holder { pod_name: options.pod_name.clone(), pod_ip: options.pod_ip };
    let elector = ElectorOptions {
        namespace: options.system_namespace.clone(),
        names: names.clone(),
        identity: me.to_string(),
        timing: Timing {
            lease_duration: config.lease_duration,
            renew_deadline: config.renew_deadline,
            retry_period: config.retry_period,
        },
        balance: options.mode == Mode::Standalone,
    };
    let (ownership, released) = lease::start(client.clone(), elector, until.clone());
    (Shares::new(names, ownership).known_as(me), released)
}

/// All parts of the process that know each other.
struct Plane {
    shares: Shares,
    clock: Clock,
    attention: Attention,
    metrics: Metrics,
    collector: Arc<Collector>,
    pods: Arc<PodIndex>,
    attestations: Arc<Attestations>,
    multiscaler: Arc<Multiscaler>,
    peers: Peers,
    ingest: Arc<Ingest>,
    scraper: Scraper,
}

impl Plane {
    fn new(
        options: &Options,
        shares: Shares,
        resolver: Arc<dyn Resolve>,
        stat_port: u16,
        configs: &Configs,
        tokens: &Tokens,
    ) -> Self {
        let (clock, attention, metrics) = (Clock::system(), Attention::new(), Metrics::default());
        let collector = Arc::new(Collector::new(clock.clone(), attention.clone()));
        let pods = Arc::new(PodIndex::new(attention.clone()));
        let attestations = Arc::new(Attestations::new(options.mode == Mode::Knative));
        let sources = Sources {
            collector: collector.clone(),
            pods: pods.clone(),
            attestations: attestations.clone(),
            clock: clock.clone(),
            attention: attention.clone(),
            metrics: DeciderMetrics::new(&metrics),
        };
        let multiscaler = Arc::new(Multiscaler::new(sources, options.mode == Mode::Standalone));
        let here = Arc::new(Here {
            collector: collector.clone(),
            multiscaler: multiscaler.clone(),
            clock: clock.clone(),
            counters: IngestCounters::new(&metrics),
        });
        let counters = here.counters.clone();
        // Only in a Knative install buckets have Services: see `knative::bucket_services`.
        let services = (options.mode == Mode::Knative)
            .then(|| format!("{}.svc.{}", options.system_namespace, options.cluster_domain));
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
        Self { shares, clock, attention, metrics, collector, pods, attestations, multiscaler, peers, ingest, scraper }
    }

    /// Starts everything that runs by itself.
    fn spawn(&self, client: &Client, options: &Options, server: StatServer, tokens: &Tokens) -> TaskTracker {
        let tasks = TaskTracker::new();
        tasks.spawn(pods::run(client.clone(), options.mode, self.pods.clone(), tokens.last.clone()));
        let (activators, namespace) = (self.attestations.clone(), options.system_namespace.clone());
        tasks.spawn(watch_activators(client.clone(), namespace, activators, tokens.last.clone()));
        let peers = self.peers.clone();
        tasks.spawn(async move { peers.run().await });
        if options.mode == Mode::Knative && options.stateful_set.is_none() {
            let namespace = options.system_namespace.clone();
            tasks.spawn(bucket_services::run(
                client.clone(),
                namespace,
                options.pod_ip,
                self.shares.clone(),
                tokens.stop.clone(),
            ));
        }
        let (multiscaler, stop) = (self.multiscaler.clone(), tokens.stop.clone());
        tasks.spawn(async move { multiscaler.run(stop).await });
        tasks.spawn(self.scraper.clone().run(tokens.stop.clone()));
        tasks.spawn(resync(self.clock.clone(), tokens.last.clone()));
        let counters = Counters::new(&self.metrics);
        let server = match &options.stat_tokens.demand {
            Some(demand) => server.guarded(Gate::new(demand.clone(), client.clone(), &self.metrics)),
            None => server,
        };
        tasks.spawn(server.serve(self.ingest.clone(), counters, tokens.stop.clone()));
        tasks
    }

    fn wiring(&self, options: Options, client: Client, resolver: Arc<dyn Resolve>, configs: Configs) -> Wiring {
        Wiring {
            options,
            client,
            resolver,
            ports: Ports {
                deciders: self.multiscaler.clone(),
                collection: self.collector.clone(),
                pods: self.pods.clone(),
                leadership: Arc::new(self.shares.clone()),
                attention: self.attention.clone(),
            },
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            autoscaler_config: configs.autoscaler,
            deployment_config: configs.deployment,
        }
    }
}

/// Follows the system's wall clock where it is set.
async fn resync(clock: Clock, until: CancellationToken) {
    while timeout(RESYNC, until.cancelled()).await.is_err() {
        if clock.resync() {
            tracing::warn!("the wall clock was set; windows go on from the new time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election(mode: Mode, data: &[(&str, &str)]) -> LeaderElectionConfig {
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        election_config(mode, &data).expect("valid")
    }

    #[test]
    fn each_mode_has_its_own_lease_defaults_and_the_map_beats_both() {
        assert_eq!(election(Mode::Knative, &[]), LeaderElectionConfig::default());
        let standalone = election(Mode::Standalone, &[]);
        assert_eq!((standalone.buckets, standalone.lease_duration), (4, Duration::from_secs(15)));
        let edited = election(Mode::Standalone, &[("buckets", "2"), ("leaseDuration", "20s")]);
        assert_eq!((edited.buckets, edited.lease_duration), (2, Duration::from_secs(20)));
        assert_eq!(edited.renew_deadline, Duration::from_secs(10));
    }
}
