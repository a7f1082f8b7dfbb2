//! Process `autoscaler-hpa`: start order and shutdown.
//!
//! # Start
//!
//! 1. The probe port is opened; a port in use is an immediate error.
//! 2. The API server's version is checked. Configuration is read, and watched from then on. The leases' configuration
//!    is read only once, as upstream; an invalid one ends the process. Diagnostics ([`observe`]) follow the
//!    configuration.
//! 3. The process watches its leases, and one of the two controllers runs ([`HpaMode`]).
//! 4. The process campaigns for its leases once the controller has listed its objects. Earlier it would take leases
//!    from active processes without being able to act.
//!
//! # Shutdown
//!
//! 1. Probes fail; reconciles in flight complete.
//! 2. Leases are released only now: no other process may write while this one still does.
//! 3. The ports close.
//!
//! # Leases
//!
//! In mode `delegate` the leases have upstream's names,
//! `hpaautoscaler.knative.dev.serving.pkg.reconciler.autoscaling.hpa.reconciler.NN-of-NN`, and share out the
//! PodAutoscalers. Mode `native` has one lease, since one process must know all selectors. The holder is
//! `HOSTNAME_UUID`.
//!
//! # Not here
//!
//! Of upstream's process: traces, and a rate limit on requests to the API server. The `autoscaler` limits its writes
//! ([`common_controller::WriteLimiter`]); this process does not.

use super::delegate;
use super::explain::{self, Explanations};
use super::native;
use super::options::{ControllerOptions, HpaMode};
use anyhow::Context;
use common::config::{self, AutoscalerConfig, ConfigError, LeaderElectionConfig, LogLevel, ObservabilityConfig};
use common::ownership::Holder;
use common_controller::shares::{Shares, warn_on_edits};
use common_runtime::admin::{self, Page};
use common_runtime::clock::Clock;
use common_runtime::config_map::{ConfigMaps, Refusals};
use common_runtime::environment::{EnvironmentError, parsed, required};
use common_runtime::lease::{self, ElectorOptions, Ownership};
use common_runtime::observe;
use common_runtime::process::ProcessOptions;
use common_runtime::telemetry::Metrics;
use common_runtime::telemetry::otlp::ProcessIdentity;
use http::StatusCode;
use kube::Client;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Component name as in upstream: in `config-logging` and in the names of leases.
const COMPONENT: &str = "hpaautoscaler";
/// Service name of pushed metrics.
const SERVICE: &str = "autoscaler-hpa";
/// Queue name of class HPA, second part of its leases' names.
const DELEGATE_QUEUE: &str = "knative.dev.serving.pkg.reconciler.autoscaling.hpa.Reconciler";
/// Queue name of HorizontalPodAutoscalers.
const NATIVE_QUEUE: &str = "zeroscale.dev.horizontalpodautoscaler";
const PROBE_PORT: u16 = 8080;
const PROBES: [&str; 2] = ["/readiness", "/health"];
/// Interval between checks of the system's wall clock.
const RESYNC: Duration = Duration::from_secs(30);

/// Settings of one process.
#[derive(Clone)]
pub struct HpaOptions {
    /// Mode of the process.
    pub mode: HpaMode,
    /// Namespace of ConfigMaps and leases.
    pub system_namespace: String,
    /// Holder identity on leases.
    pub identity: String,
    /// Set if the process leads without a lease.
    pub alone: bool,
    /// Number of concurrent reconciles in mode `delegate`.
    pub workers: usize,
    /// Options of mode `native`.
    pub controller: ControllerOptions,
    /// Address of the probes; `None`: disabled.
    pub probes: Option<SocketAddr>,
    /// Address of metrics and explanations; `None`: disabled.
    pub admin: Option<SocketAddr>,
    /// Options common to all planes.
    pub process: ProcessOptions,
}

impl HpaOptions {
    /// Reads Knative's environment variables: `SYSTEM_NAMESPACE`, `K_THREADS_PER_CONTROLLER`,
    /// `CONFIG_LEADERELECTION_NAME`, `METRICS_PROMETHEUS_HOST` and `_PORT`; and `ZEROSCALE_LISTEN_ADDRESS`. Fails if a
    /// required variable is missing, or one is invalid. The error names the variable, its value and the rule.
    pub fn from_env(mode: HpaMode, get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let all = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let listen = parsed(&get, "ZEROSCALE_LISTEN_ADDRESS", all, "must be an IP address")?;
        let metrics_host = parsed(&get, "METRICS_PROMETHEUS_HOST", listen, "must be an IP address")?;
        let metrics = parsed(&get, "METRICS_PROMETHEUS_PORT", 9090, "must be a port")?;
        let workers = NonZeroUsize::new(delegate::WORKERS).unwrap_or(NonZeroUsize::MIN);
        let workers = parsed(&get, "K_THREADS_PER_CONTROLLER", workers, "must be a number above 0")?;
        Ok(Self {
            mode,
            system_namespace: required(&get, "SYSTEM_NAMESPACE", "the namespace of config maps and leases")?,
            identity: identity(),
            alone: false,
            workers: workers.get(),
            controller: ControllerOptions::default(),
            probes: Some(SocketAddr::new(listen, PROBE_PORT)),
            admin: Some(SocketAddr::new(metrics_host, metrics)),
            process: ProcessOptions::from_env(&get)?,
        })
    }
}

/// Returns a new `HOSTNAME_UUID`.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), uuid::Uuid::new_v4())
}

/// Runs until `shutdown`; returns when everything is released. Fails if a port cannot be bound, the API server is too
/// old, or the leases' ConfigMap is invalid; in mode `delegate` for any invalid ConfigMap.
pub async fn run(options: HpaOptions, client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (leases, end) = (CancellationToken::new(), CancellationToken::new());
    let (_leases_guard, _end_guard) = (leases.clone().drop_guard(), end.clone().drop_guard());
    let (metrics, explanations) = (Metrics::default(), Arc::<Explanations>::default());
    if let Some(listen) = options.probes {
        admin::serve(listen, Metrics::default(), vec![probes(shutdown.clone())], end.clone()).await?;
    }
    if let Some(least) = &options.process.kubernetes_min_version {
        let Some(checked) = shutdown.run_until_cancelled(least.check(&client)).await else { return Ok(()) };
        checked?;
    }
    let configs = shutdown.run_until_cancelled(Configs::read(&client, &options, &end)).await;
    let Some(configs) = configs else { return Ok(()) };
    if options.mode == HpaMode::Delegate {
        configs.refusals.ensure_none()?; // As upstream, any invalid map ends the process.
    }
    configs.refusals.register(&metrics);
    let diagnostics = observe::Diagnostics {
        identity: ProcessIdentity {
            service: SERVICE,
            namespace: options.system_namespace.clone(),
            pod: options.identity.clone(),
        },
        metrics: metrics.clone(),
        config: configs.observability.clone(),
        pages: vec![explain::page(explanations.clone())],
        admin: options.admin,
    };
    let mut observed = diagnostics.observe(&options.process, end.clone()).await?;
    let election = Result::clone(&configs.election.borrow());
    let election_map = options.process.config_maps.leader_election.clone();
    let election = election.with_context(|| election_map.clone())?;
    tokio::spawn(warn_on_edits(election_map, configs.election.clone(), end.clone()));
    let listed = CancellationToken::new();
    let (shares, released) = campaign(&client, &options, &election, &listed, &leases);
    let (clock, leadership) = (Clock::system(), Arc::new(shares));
    tokio::spawn(resync(clock.clone(), end.clone()));
    match options.mode {
        HpaMode::Native => {
            let controller = options.controller;
            let wiring =
                native::Wiring { client, options: controller, leadership, listed, metrics, explanations, clock };
            native::run(wiring, shutdown).await;
        }
        HpaMode::Delegate => {
            let (workers, config) = (options.workers, configs.autoscaler);
            delegate::run(delegate::Wiring { client, workers, leadership, listed, config, clock }, shutdown).await;
        }
    }
    leases.cancel();
    if let Err(error) = released.await {
        tracing::error!(%error, "leases were not released; other replicas take over when they expire");
    }
    end.cancel();
    observed.flushed().await;
    Ok(())
}

/// Returns the page of the probes, which pass until shutdown begins.
fn probes(shutdown: CancellationToken) -> Page {
    Arc::new(move |path| {
        let (code, text) = match shutdown.is_cancelled() {
            true => (StatusCode::INTERNAL_SERVER_ERROR, "shutting down\n"),
            false => (StatusCode::OK, "ok\n"),
        };
        PROBES.contains(&path).then(|| admin::text(code, text))
    })
}

struct Configs {
    autoscaler: watch::Receiver<Arc<AutoscalerConfig>>,
    /// Configuration of the leases, used only at the start.
    election: watch::Receiver<Arc<Result<LeaderElectionConfig, ConfigError>>>,
    observability: watch::Receiver<Arc<ObservabilityConfig>>,
    /// Invalid ConfigMaps.
    refusals: Refusals,
}

impl Configs {
    async fn read(client: &Client, options: &HpaOptions, until: &CancellationToken) -> Self {
        let mut maps = ConfigMaps::default();
        maps.keep_deleted(options.mode == HpaMode::Delegate); // As upstream.
        let autoscaler = maps.subscribe(config::AUTOSCALER, AutoscalerConfig::default(), AutoscalerConfig::from_map);
        let level = |data: &BTreeMap<String, String>| LogLevel::from_map(data, COMPONENT);
        let named = &options.process.config_maps;
        if let Some(logs) = &options.process.logs {
            logs.clone().follow(maps.subscribe(&named.logging, LogLevel::default(), level));
        }
        // An invalid map ends the process: with defaults instead, there could be two owners.
        let parse = |data: &BTreeMap<String, String>| Ok::<_, ConfigError>(LeaderElectionConfig::from_map(data));
        let election = maps.subscribe(&named.leader_election, Ok(LeaderElectionConfig::default()), parse);
        let observability =
            maps.subscribe(&named.observability, ObservabilityConfig::default(), ObservabilityConfig::from_map);
        let refusals = maps.refusals();
        maps.start(client.clone(), &options.system_namespace, until.clone()).await;
        Self { autoscaler, election, observability, refusals }
    }
}

/// Campaigns for leases once `listed` is cancelled. The handle ends when all leases are released.
fn campaign(
    client: &Client,
    options: &HpaOptions,
    config: &LeaderElectionConfig,
    listed: &CancellationToken,
    until: &CancellationToken,
) -> (Shares, JoinHandle<()>) {
    let names = match options.mode {
        HpaMode::Native => LeaderElectionConfig { buckets: 1, ..config.clone() }.lease_names(COMPONENT, NATIVE_QUEUE),
        HpaMode::Delegate => config.lease_names(COMPONENT, DELEGATE_QUEUE),
    };
    if options.alone {
        let me = Holder { pod_name: options.identity.clone(), pod_ip: Ipv4Addr::UNSPECIFIED.into() };
        let ownership = Ownership::alone(names.len(), &me);
        return (Shares::new(names, ownership), tokio::spawn(async {}));
    }
    let elector = ElectorOptions {
        namespace: options.system_namespace.clone(),
        names: names.clone(),
        identity: options.identity.clone(),
        timing: config.timing,
        balance: false,
    };
    let (ownership, released) = lease::start(client.clone(), elector, listed.clone().cancelled_owned(), until.clone());
    (Shares::new(names, ownership), released)
}

/// Follows changes of the system's wall clock.
async fn resync(clock: Clock, until: CancellationToken) {
    while tokio::time::timeout(RESYNC, until.cancelled()).await.is_err() {
        if clock.resync() {
            tracing::warn!("the wall clock was set; recommendations continue from the new time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Mock;
    use serde_json::json;

    /// Goal: a process that cannot list all its objects leaves the leases to others, and campaigns as soon as it can.
    /// Method: each list in turn is rejected at first.
    #[tokio::test(start_paused = true)]
    async fn the_process_campaigns_once_its_objects_are_listed() {
        let autoscalers = "/apis/autoscaling.internal.knative.dev/v1alpha1/podautoscalers";
        let serverless = "/apis/networking.internal.knative.dev/v1alpha1/serverlessservices";
        let horizontals = "/apis/autoscaling/v2/horizontalpodautoscalers";
        let native = [horizontals, "/api/v1/pods"].map(|list| (HpaMode::Native, list));
        let delegate = [autoscalers, horizontals, serverless].map(|list| (HpaMode::Delegate, list));
        let (maps, leases) =
            ("/api/v1/namespaces/sys/configmaps", "/apis/coordination.k8s.io/v1/namespaces/sys/leases");
        let lists = [autoscalers, serverless, horizontals, "/api/v1/pods", maps, leases];
        for (mode, rejected) in native.into_iter().chain(delegate) {
            let (mock, shutdown) = (Mock::default(), CancellationToken::new());
            let allow = |list: &str| {
                let body = json!({"metadata": {"resourceVersion": "1"}, "items": []});
                mock.replace(&format!("GET {list}?&limit=100"), 200, body);
            };
            lists.into_iter().filter(|list| *list != rejected).for_each(allow);
            let running = tokio::spawn(run(bare(mode), mock.client(), shutdown.clone()));
            let campaigns = async || {
                tokio::time::sleep(Duration::from_secs(120)).await;
                mock.request_lines().iter().any(|line| line.starts_with("POST") && line.contains(leases))
            };
            assert!(!campaigns().await, "{mode:?}: {rejected} is rejected");
            allow(rejected);
            assert!(campaigns().await, "{mode:?}: {rejected} is listed");
            shutdown.cancel();
            running.await.expect("no panic").expect("no error");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_ends_while_its_configuration_cannot_be_read() {
        let (mock, shutdown) = (Mock::default(), CancellationToken::new()); // Every request gets a 404.
        let running = tokio::spawn(run(bare(HpaMode::Native), mock.client(), shutdown.clone()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let requests = mock.request_lines();
        assert!(!requests.is_empty() && requests.iter().all(|line| line.contains("/configmaps")), "{requests:?}");
        shutdown.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(60), running).await.expect("an end");
        ended.expect("no panic").expect("no error");
    }

    /// Returns options without open ports.
    fn bare(mode: HpaMode) -> HpaOptions {
        let read = |name: &str| (name == "SYSTEM_NAMESPACE").then(|| "sys".to_owned());
        let options = HpaOptions::from_env(mode, read).expect("sufficient");
        HpaOptions { probes: None, admin: None, process: ProcessOptions::default(), ..options }
    }

    #[test]
    fn knatives_environment_is_sufficient() {
        let read = |pairs: &[(&str, &str)]| {
            HpaOptions::from_env(HpaMode::Delegate, |name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let options = read(&[("SYSTEM_NAMESPACE", "knative-serving")]).expect("sufficient");
        assert_eq!((options.workers, options.probes.map(|probes| probes.port())), (2, Some(8080)));
        assert_eq!(options.admin.map(|admin| admin.port()), Some(9090));
        assert_eq!(options.process.config_maps.leader_election, "config-leader-election");
        let namespace = ("SYSTEM_NAMESPACE", "s");
        let (threads, election) = (("K_THREADS_PER_CONTROLLER", "7"), ("CONFIG_LEADERELECTION_NAME", "mine"));
        let options = read(&[namespace, threads, election]).expect("valid");
        assert_eq!((options.workers, options.process.config_maps.leader_election.as_str()), (7, "mine"));
        assert_eq!(read(&[]).err().map(|error| error.variable), Some("SYSTEM_NAMESPACE".into()));
        let none = read(&[namespace, ("K_THREADS_PER_CONTROLLER", "0")]);
        assert_eq!(none.err().map(|error| error.variable), Some("K_THREADS_PER_CONTROLLER".into()));
    }

    #[test]
    fn each_identity_is_the_host_name_and_a_new_uuid() {
        let (first, second) = (identity(), identity());
        assert_ne!(first, second);
        let (_, uuid) = first.split_once('_').expect("two parts");
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{first}");
        assert!(uuid.as_bytes()[14] == b'4' && b"89ab".contains(&uuid.as_bytes()[19]), "{first}");
    }

    #[test]
    fn probes_fail_once_shutdown_has_begun() {
        let shutdown = CancellationToken::new();
        let page = probes(shutdown.clone());
        let codes = || PROBES.map(|path| page(path).map(|response| response.status().as_u16()));
        assert_eq!(codes(), [Some(200), Some(200)]);
        assert!(page("/other").is_none());
        shutdown.cancel();
        assert_eq!(codes(), [Some(500), Some(500)]);
    }
}
