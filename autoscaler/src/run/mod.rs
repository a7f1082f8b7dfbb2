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

mod buckets;
mod configs;
mod process_metrics;
mod tokens;

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
use crate::scale::metrics::DeciderMetrics;
use crate::scale::multiscaler::{Multiscaler, Sources};
use crate::scale::{Ports, Requests};
use anyhow::Context;
use common::RevisionKey;
use common_controller::shares::warn_on_edits;
use common_controller::{Recorder, WriteLimiter};
use common_runtime::admission::Gate;
use common_runtime::clock::Clock;
use common_runtime::observe;
use common_runtime::resolve::Resolve;
use common_runtime::telemetry::otlp::ProcessIdentity;
use common_runtime::telemetry::traces::Tracing;
use common_runtime::telemetry::{Metrics, catalog};
use configs::Configs;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokens::Tokens;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longest wait for background tasks at shutdown. The stat server takes longest, to close its connections.
const DRAIN: Duration = Duration::from_secs(6);
/// Time between checks of the system's wall clock.
const RESYNC: Duration = Duration::from_secs(1);

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
    let (system, domain) = (&options.system_namespace, &options.cluster_domain);
    let mut server = StatServer::bind(options.stat_listen)?;
    let port = server.local_addr()?.port();
    let mut trust = None;
    if let Some(tls) = options.stat_tls.clone() {
        let (tls, authorities) = tls.open(&tokens.last).await.context("the stat port cannot use TLS")?;
        trust = Some((authorities, tls.allow_plain));
        server.access.tls = Some(tls);
    }
    server.access.can_act = Some(tokens.listed.clone());
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
    let (shares, released) = buckets::campaign(&client, &options, &election, &tokens.listed, &tokens.leases);
    tokio::spawn(warn_on_edits(election_map, configs.election, tokens.last.clone()));
    let identity = ProcessIdentity { service: "autoscaler", namespace: system.clone(), pod: options.pod_name.clone() };
    let tracing = match profile.traces {
        true => Tracing::start(&configs.observability.borrow().tracing, &identity, &options.process.otel)?,
        false => None,
    };

    // Measurements and decisions.
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
    let multiscaler = Arc::new(Multiscaler::new(sources, profile.has_own_rules).traced(tracing.clone()));
    let deciders = multiscaler.clone();
    let durations = Arc::new(move |key: &RevisionKey| deciders.scrapes(key));
    let network = configs.network;
    let scraper = Scraper::new(collector.clone(), pods.clone(), resolver.clone(), domain, network, durations);

    // Reception and routing of stats.
    let counters = IngestCounters::new(&metrics);
    let recorder = Arc::new(LocalRecorder {
        collector: collector.clone(),
        multiscaler: multiscaler.clone(),
        clock: clock.clone(),
        counters: counters.clone(),
    });
    let services = profile.has_bucket_services.then(|| format!("{system}.svc.{domain}"));
    let settings = LinkSettings { port, services, token: options.stat_tokens.own.clone(), trust };
    let stop = || tokens.stop.clone();
    let local = recorder.clone();
    let accept = Box::new(move |message| local.accept(message));
    let peers = Peers::new(shares.clone(), resolver.clone(), settings, accept, counters, stop());
    let ingest = Ingest::new(system.clone(), shares.clone(), recorder, attestations.clone(), peers.clone());
    if let Some(required) = options.stat_tokens.required.clone() {
        let gate = Gate::new(required, client.clone());
        metrics.register(catalog::STAT_REFUSALS, gate.refusals().clone());
        server.access.gate = Some(Arc::new(gate));
    }

    // Diagnostics of the process.
    let limiter = WriteLimiter::new(options.api_rate);
    process_metrics::leases(&metrics, shares.clone());
    process_metrics::writes(&metrics, limiter.clone());
    configs.refusals.register(&metrics);
    let diagnostics = observe::Diagnostics {
        identity,
        metrics: metrics.clone(),
        config: configs.observability,
        pages: vec![explain::page(profile.kind, multiscaler.clone(), shares.clone())],
        admin: options.admin,
    };
    let mut observed = diagnostics.observe(&options.process, tokens.last.clone()).await?;

    // Reconcilers, and the page that shows their objects.
    let reconcilers = options.install.reconcilers(
        Wiring {
            system_namespace: system.clone(),
            cluster_domain: domain.clone(),
            recorder: Recorder::limited(client.clone(), limiter.clone(), stop()),
            limiter,
            on_scale: options.on_scale.clone(),
            client: client.clone(),
            resolver,
            ports: Ports {
                deciders: multiscaler.clone(),
                collection: collector.clone(),
                pods: pods.clone(),
                leadership: Arc::new(shares.clone()),
                requests: requests.clone(),
            },
            engine: Engine::new(client.clone(), clock.clone(), pods.clone(), requests),
            clock: clock.clone(),
            configs: ReconcilerConfigs { autoscaler: configs.autoscaler, deployment: configs.deployment },
            ports_config: configs.ports,
        },
        &tokens.stop,
    );
    let tasks = TaskTracker::new();
    if let Some((settings, objects)) = options.dashboard.clone().zip(reconcilers.displayed.clone()) {
        let parts = dashboard::Parts {
            objects,
            client: client.clone(),
            multiscaler: multiscaler.clone(),
            collector,
            pods: pods.clone(),
            shares: shares.clone(),
            peers: peers.clone(),
            clock: clock.clone(),
            me: options.pod_name.clone(),
        };
        server.access.responder = Some(dashboard::start(settings, parts, &tasks, &tokens.stop)?);
    }

    // Background tasks.
    tasks.spawn(pods::run(client.clone(), options.install.pods(), pods.clone(), tokens.last.clone()));
    tasks.spawn(watch_activators(client.clone(), system.clone(), attestations, tokens.last.clone()));
    tasks.spawn(async move { peers.run().await });
    // Members of a StatefulSet are reached by their own names.
    if profile.has_bucket_services && options.stateful_set.is_none() {
        tasks.spawn(bucket_services::run(client, system.clone(), options.pod_ip, shares, stop()));
    }
    tasks.spawn(scraper.run(stop()));
    tasks.spawn(resync(clock, multiscaler.clone(), tokens.last.clone()));
    let stopped = stop();
    tasks.spawn(async move { multiscaler.run(stopped).await });
    tasks.spawn(server.serve(Arc::new(ingest), Counters::new(&metrics), stop()));
    if shutdown.run_until_cancelled(pods.synced()).await.is_some() {
        reconcilers.run(&tokens.listed).await;
    }

    // The shutdown sequence.
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
    observed.flushed().await;
    if let Some(tracing) = tracing {
        tracing.flushed().await;
    }
    Ok(())
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
