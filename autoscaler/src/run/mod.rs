//! The whole process: start and shutdown sequence.
//!
//! # Start
//!
//! 1. The stat port is bound first, so that a port in use is an error at once and not a process that hangs.
//! 2. The API server's version is checked.
//! 3. Configuration is read and watched from then on. An update that breaks a rule is rejected as a whole. If a map
//!    breaks a rule at the start, the process ends in a Knative install, as upstream; in standalone it uses the
//!    defaults and logs that loudly. The leader election map is the exception. It is read once, as upstream does: if
//!    only some replicas applied a change, a revision could have two owners. For the same reason the process ends if
//!    that map breaks a rule: its peers might not use the defaults.
//! 4. Watches (also those of the leases), ticks and scrapes start. The stat server accepts connections and reports the
//!    process alive.
//! 5. Reconcilers start once pods are known. A decider created without known pods would start from zero.
//! 6. The process campaigns for leases, and becomes ready, once everything it reconciles has been listed. If it took
//!    leases from active replicas earlier, it could not act on them. If it became ready earlier, a rollout would end a
//!    replica before this one could take over its leases.
//!
//! # Shutdown
//!
//! 1. Stat connections are closed with 1012, so that activators connect elsewhere; ticks and scrapes stop.
//! 2. Reconcilers finish their pending writes.
//! 3. Leases are released only then, because no other replica may write while this one still does.
//! 4. The admin port closes last.
//!
//! Spans of wakes ([`crate::scale::trace`]) exist only in standalone. Knative's autoscaler records no spans between a
//! stat and a patch.

mod configs;
mod process_metrics;

use crate::collect::Collector;
use crate::collect::scraper::Scraper;
use crate::dashboard;
use crate::engine::Wiring;
use crate::engine::parts::ReconcilerConfigs;
use crate::explain;
use crate::ingest::attest::{Attestations, watch_activators};
use crate::ingest::counters::{Counters, IngestCounters};
use crate::ingest::peers::{LinkSettings, Peers};
use crate::ingest::stat_server::StatServer;
use crate::ingest::{Ingest, LocalRecorder};
use crate::knative::bucket_services;
use crate::metric_engine::Engine;
use crate::options::Options;
use crate::pods::{self, PodIndex};
use crate::reconcile::Objects;
use crate::scale::metrics::DeciderMetrics;
use crate::scale::multiscaler::{Multiscaler, Sources};
use crate::scale::{Ports, Requests};
use anyhow::Context;
use common::RevisionKey;
use common::config::{LeaderElectionConfig, NetworkConfig};
use common::ownership::{Holder, bucket_names};
use common_controller::shares::{Shares, warn_on_edits};
use common_controller::{Recorder, WriteLimiter};
use common_runtime::admission::Gate;
use common_runtime::clock::Clock;
use common_runtime::lease::{self, ElectorOptions};
use common_runtime::observe;
use common_runtime::resolve::Resolve;
use common_runtime::telemetry::otlp::ProcessIdentity;
use common_runtime::telemetry::traces::Tracing;
use common_runtime::telemetry::{Metrics, catalog};
use configs::Configs;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Longest wait for background tasks at shutdown. The stat server takes longest, to close its connections.
const DRAIN: Duration = Duration::from_secs(6);
/// Time between checks of the system's wall clock.
const RESYNC: Duration = Duration::from_secs(1);

/// Tokens for the start and the end of the process's stages. Every end token is cancelled on each exit path, also if
/// the future is dropped.
struct Tokens {
    /// Cancelled when everything has been listed once: the campaign for leases starts, and the process is ready.
    listed: CancellationToken,
    /// Cancelled at shutdown: ends all parts that accept work.
    stop: CancellationToken,
    /// Cancelled when the reconcilers have ended: releases the leases.
    leases: CancellationToken,
    /// Cancelled when the leases are released: ends watches, configuration and the admin port.
    last: CancellationToken,
    _guards: [DropGuard; 3],
}

impl Tokens {
    fn new(shutdown: &CancellationToken) -> Self {
        let (stop, leases, last) = (shutdown.child_token(), CancellationToken::new(), CancellationToken::new());
        let _guards = [stop.clone().drop_guard(), leases.clone().drop_guard(), last.clone().drop_guard()];
        Self { listed: CancellationToken::new(), stop, leases, last, _guards }
    }
}

/// Parts of the process that others share.
struct Process {
    options: Options,
    client: Client,
    resolver: Arc<dyn Resolve>,
    tokens: Tokens,
    shares: Shares,
    clock: Clock,
    requests: Requests,
    metrics: Metrics,
    collector: Arc<Collector>,
    pods: Arc<PodIndex>,
    attestations: Arc<Attestations>,
    multiscaler: Arc<Multiscaler>,
}

/// Runs an autoscaler until `shutdown`; returns when everything is released.
///
/// # Errors
/// The API server is too old, a port cannot be bound, or a ConfigMap breaks a rule.
pub async fn run(
    options: Options,
    client: Client,
    resolver: Arc<dyn Resolve>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (tokens, profile) = (Tokens::new(&shutdown), options.install.profile());
    let (mut server, links) = stat_port(&options, &tokens).await?;
    if let Some(least) = &options.process.kubernetes_min_version {
        let Some(checked) = shutdown.run_until_cancelled(least.check(&client)).await else { return Ok(()) };
        checked?;
    }
    let configs = Configs::read(&client, &options, &tokens.stop).await;
    if !profile.defaults_replace_maps {
        configs.refusals.ensure_none()?; // As upstream. Otherwise the error has already been logged.
    }
    let election_map = options.process.config_maps.leader_election.clone();
    let election = Result::clone(&configs.election.borrow()).with_context(|| election_map.clone())?;
    let (shares, released) = campaign(&client, &options, &election, &tokens.listed, &tokens.leases);
    tokio::spawn(warn_on_edits(election_map, configs.election.clone(), tokens.last.clone()));
    let (namespace, pod) = (options.system_namespace.clone(), options.pod_name.clone());
    let identity = ProcessIdentity { service: "autoscaler", namespace, pod };
    let tracing = match profile.traces {
        true => Tracing::start(&configs.observability.borrow().tracing, &identity, &options.process.otel)?,
        false => None,
    };

    let process = Process::new(options, (client, resolver), tokens, shares, tracing.clone());
    let Process { options, client, tokens, metrics, .. } = &process;
    let (peers, ingest) = process.ingest(links);
    if let Some(required) = options.stat_tokens.required.clone() {
        let gate = Gate::new(required, client.clone());
        metrics.register(catalog::STAT_REFUSALS, gate.refusals().clone());
        server.access.gate = Some(Arc::new(gate));
    }
    let limiter = WriteLimiter::new(options.api_rate);
    process_metrics::leases(metrics, process.shares.clone());
    process_metrics::writes(metrics, limiter.clone());
    configs.refusals.register(metrics);
    let diagnostics = observe::Diagnostics {
        identity,
        metrics: metrics.clone(),
        config: configs.observability.clone(),
        pages: vec![explain::page(profile.kind, process.multiscaler.clone(), process.shares.clone())],
        admin: options.admin,
    };
    let mut observed = diagnostics.observe(&options.process, tokens.last.clone()).await?;

    let network = configs.network.clone();
    let reconcilers = options.install.reconcilers(process.wiring(limiter, configs), &tokens.stop);
    let tasks = TaskTracker::new();
    if let Some((settings, objects)) = options.dashboard.clone().zip(reconcilers.displayed.clone()) {
        let parts = process.dashboard_parts(objects, peers.clone());
        server.access.responder = Some(dashboard::start(settings, parts, &tasks, &tokens.stop)?);
    }
    process.spawn(network, &tasks);
    tasks.spawn(async move { peers.run().await });
    tasks.spawn(server.serve(ingest, Counters::new(metrics), tokens.stop.clone()));
    if shutdown.run_until_cancelled(process.pods.synced()).await.is_some() {
        reconcilers.run(&tokens.listed).await;
    }
    end(tokens, released, &tasks).await;
    drop(process); // Ends the spans of its wakes, which are exported below.
    observed.flushed().await;
    if let Some(tracing) = tracing {
        tracing.flushed().await;
    }
    Ok(())
}

/// Acquires this process's share of the revisions: campaigns for the buckets once `listed` is cancelled, unless a
/// StatefulSet assigns them. The returned handle completes when all leases are released.
fn campaign(
    client: &Client,
    options: &Options,
    config: &LeaderElectionConfig,
    listed: &CancellationToken,
    until: &CancellationToken,
) -> (Shares, JoinHandle<()>) {
    if let Some(set) = &options.stateful_set {
        let names = set.buckets(config.buckets, &options.system_namespace, &options.cluster_domain);
        if set.ordinal >= names.len() {
            let (ordinal, buckets) = (set.ordinal, names.len());
            tracing::warn!(
                ordinal,
                buckets,
                "this member of the StatefulSet owns no bucket, so it only forwards stats"
            );
        }
        return (Shares::members(names, set.ordinal), tokio::spawn(async {}));
    }
    let names = bucket_names(config.buckets);
    let me = Holder { pod_name: options.pod_name.clone(), pod_ip: options.pod_ip };
    let elector = ElectorOptions {
        namespace: options.system_namespace.clone(),
        names: names.clone(),
        identity: me.to_string(),
        timing: config.timing,
        balance: options.install.profile().balances_leases,
    };
    let (ownership, released) = lease::start(client.clone(), elector, listed.clone().cancelled_owned(), until.clone());
    (Shares::new(names, ownership).known_as(me), released)
}

/// Binds the stat port, and returns the settings of links to other autoscalers' ports.
async fn stat_port(options: &Options, tokens: &Tokens) -> anyhow::Result<(StatServer, LinkSettings)> {
    let mut server = StatServer::bind(options.stat_listen)?;
    let port = server.local_addr()?.port();
    let mut trust = None;
    if let Some(tls) = options.stat_tls.clone() {
        let (tls, authorities) = tls.open(&tokens.last).await.context("the stat port cannot use TLS")?;
        trust = Some((authorities, tls.allow_plain));
        server.access.tls = Some(tls);
    }
    server.access.can_act = Some(tokens.listed.clone());
    let (system, domain) = (&options.system_namespace, &options.cluster_domain);
    let services = options.install.profile().has_bucket_services.then(|| format!("{system}.svc.{domain}"));
    Ok((server, LinkSettings { port, services, token: options.stat_tokens.own.clone(), trust }))
}

impl Process {
    fn new(
        options: Options,
        (client, resolver): (Client, Arc<dyn Resolve>),
        tokens: Tokens,
        shares: Shares,
        tracing: Option<Tracing>,
    ) -> Self {
        let profile = options.install.profile();
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
            tracing,
        };
        let multiscaler = Arc::new(Multiscaler::new(sources, profile.has_own_rules));
        Self {
            options,
            client,
            resolver,
            tokens,
            shares,
            clock,
            requests,
            metrics,
            collector,
            pods,
            attestations,
            multiscaler,
        }
    }

    /// Returns the links to the other autoscalers, and the reception of stats.
    fn ingest(&self, links: LinkSettings) -> (Arc<Peers>, Arc<Ingest>) {
        let counters = IngestCounters::new(&self.metrics);
        let recorder = Arc::new(LocalRecorder {
            collector: self.collector.clone(),
            multiscaler: self.multiscaler.clone(),
            clock: self.clock.clone(),
            counters: counters.clone(),
        });
        let (local, shares) = (recorder.clone(), self.shares.clone());
        let accept = Box::new(move |message| local.accept(message));
        let stop = self.tokens.stop.clone();
        let peers = Peers::new(shares.clone(), self.resolver.clone(), links, accept, counters, stop);
        let (system_namespace, attestations) = (self.options.system_namespace.clone(), self.attestations.clone());
        let ingest = Ingest { system_namespace, shares, local: recorder, attestations, peers: peers.clone() };
        (peers, Arc::new(ingest))
    }

    /// Returns the dependencies of the reconcilers.
    fn wiring(&self, limiter: WriteLimiter, configs: Configs) -> Wiring {
        let Self { options, client, clock, requests, pods, .. } = self;
        Wiring {
            system_namespace: options.system_namespace.clone(),
            cluster_domain: options.cluster_domain.clone(),
            recorder: Recorder::limited(client.clone(), limiter.clone(), self.tokens.stop.clone()),
            limiter,
            on_scale: options.on_scale.clone(),
            client: client.clone(),
            resolver: self.resolver.clone(),
            ports: Ports {
                deciders: self.multiscaler.clone(),
                collection: self.collector.clone(),
                pods: pods.clone(),
                leadership: Arc::new(self.shares.clone()),
                requests: requests.clone(),
            },
            engine: Engine::new(client.clone(), clock.clone(), pods.clone(), requests.clone()),
            clock: clock.clone(),
            configs: ReconcilerConfigs { autoscaler: configs.autoscaler, deployment: configs.deployment },
            ports_config: configs.ports,
        }
    }

    fn dashboard_parts(&self, objects: Arc<dyn Objects>, peers: Arc<Peers>) -> dashboard::Parts {
        dashboard::Parts {
            objects,
            client: self.client.clone(),
            multiscaler: self.multiscaler.clone(),
            collector: self.collector.clone(),
            pods: self.pods.clone(),
            shares: self.shares.clone(),
            peers,
            clock: self.clock.clone(),
            me: self.options.pod_name.clone(),
        }
    }

    /// Starts watches, ticks and scrapes.
    fn spawn(&self, network: watch::Receiver<Arc<NetworkConfig>>, tasks: &TaskTracker) {
        let Self { options, tokens, client, pods, multiscaler, .. } = self;
        let (system, stop, last) = (&options.system_namespace, || tokens.stop.clone(), || tokens.last.clone());
        tasks.spawn(pods::run(client.clone(), options.install.pods(), pods.clone(), last()));
        tasks.spawn(watch_activators(client.clone(), system.clone(), self.attestations.clone(), last()));
        // Members of a StatefulSet are reached by their own names.
        if options.install.profile().has_bucket_services && options.stateful_set.is_none() {
            let shares = self.shares.clone();
            tasks.spawn(bucket_services::run(client.clone(), system.clone(), options.pod_ip, shares, stop()));
        }
        let deciders = multiscaler.clone();
        let durations = Arc::new(move |key: &RevisionKey| deciders.scrapes(key));
        let (collector, resolver, domain) = (self.collector.clone(), self.resolver.clone(), &options.cluster_domain);
        tasks.spawn(Scraper::new(collector, pods.clone(), resolver, domain, network, durations).run(stop()));
        tasks.spawn(resync(self.clock.clone(), multiscaler.clone(), last()));
        let (multiscaler, stopped) = (multiscaler.clone(), stop());
        tasks.spawn(async move { multiscaler.run(stopped).await });
    }
}

/// The shutdown sequence, after the reconcilers have ended.
async fn end(tokens: &Tokens, released: JoinHandle<()>, tasks: &TaskTracker) {
    tokens.stop.cancel();
    tokens.leases.cancel();
    if let Err(error) = released.await {
        tracing::error!(%error, "leases were not released; other autoscalers take over when the leases expire");
    }
    tokens.last.cancel();
    tasks.close();
    if timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::warn!(left = tasks.len(), "background tasks did not end in time");
    }
}

/// Adjusts the clock when the system's wall clock is set. No other task may do so, because only the first call notices
/// the change.
async fn resync(clock: Clock, multiscaler: Arc<Multiscaler>, until: CancellationToken) {
    while timeout(RESYNC, until.cancelled()).await.is_err() {
        if clock.resync() {
            tracing::warn!(
                "the system's wall clock was set: nothing is scaled down until the measurement windows are full again"
            );
            multiscaler.clock_was_set();
        }
    }
}
