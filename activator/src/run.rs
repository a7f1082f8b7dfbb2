//! Builds the activator from its parts, in the order of their dependencies, and shuts it down.
//!
//! # Shutdown
//!
//! 1. `shutdown`: probes fail, and siblings take over the held workloads. Requests are served for [`Options::linger`],
//!    so that every peer stops sending first. If workloads have ports, requests are then served until clients are
//!    routed elsewhere ([`crate::endpoint_removal`]). Persistent connections are closed with their next response.
//! 2. The server drains ([`activator_net::Server`]), within [`Options::drain`].
//! 3. Stats, watches and connections to pods stop. Stats stop last, so that requests in flight are still counted.

use crate::config::Configs;
use crate::config::certificates::InternalTls;
use crate::config::clients::ClientOptions;
use crate::config::options::Options;
use crate::discovery::front_end::FrontEnd;
use crate::discovery::{self, Event};
use crate::endpoint_removal::wait_until_removed_from_endpoints;
use crate::holders::{self, AskApi, Holders, Security};
use crate::layers::answers::Answering;
use crate::layers::connect::{self, Connections};
use crate::layers::error_responder::ErrorResponder;
use crate::layers::fallback::Fallbacks;
use crate::layers::hold::Hold;
use crate::layers::lookup::Lookup;
use crate::layers::probe::Probe;
use crate::layers::relay::Relay;
use crate::layers::report::Report;
use crate::layers::request_log::{RequestLog, sink};
use crate::layers::timeouts::Timeouts;
use crate::metrics::{Convention, Metrics, clients};
use crate::ports;
use crate::registry::explain;
use crate::registry::ports::WorkloadPorts;
use crate::registry::readiness::Readiness;
use crate::registry::stats::StatSink;
use crate::registry::{Parts, Registry};
use activator_core::breaker::Load;
use activator_core::holders::sharing_mode::SharingMode;
use activator_net::{ClientConnections, Disconnects, HALF_CLOSE_MAX, Kind, Memory, Pools, PortListeners, Server};
use anyhow::Context;
use common::RevisionKey;
use common::names;
use common::time::Timestamp;
use common_runtime::admission::{Demand, Gate};
use common_runtime::environment::Mode;
use common_runtime::listen::listen;
use common_runtime::observe::{self, Observed};
use common_runtime::resolve::{ClusterIps, DnsElseApi, Endpoints, Resolve};
use common_runtime::stat_tls::StatTrust;
use common_runtime::telemetry;
use common_runtime::telemetry::otlp::Who;
use common_runtime::telemetry::traces::Tracing;
use common_runtime::tls::{ClientAuth, HTTP_ALPN, Trust, files, server_config};
use common_runtime::websocket::{Config, DurableSender};
use futures::FutureExt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Divisor of the memory limit: clients' connections and requests may use this part.
const MEMORY_PART: u64 = 2;

/// Running activator.
pub struct Activator {
    /// Bound address of the first data listener.
    pub http1: SocketAddr,
    /// Bound address of the second data listener.
    pub h2c: SocketAddr,
    /// Bound address of the TLS listener, if system-internal TLS is on.
    pub https: Option<SocketAddr>,
    /// Bound address of the metrics endpoint, if enabled.
    pub admin: Option<SocketAddr>,
    observed: Observed,
    tracing: Option<Tracing>,
    registry: Arc<Registry>,
    memory: Memory,
    server: Server<ErrorResponder>,
    readiness: Arc<Readiness>,
    holders: Holders,
    options: Options,
    infrastructure: CancellationToken,
}

/// Runs an activator on the objects that `client` watches, until `shutdown`; then drains it.
///
/// # Errors
/// The API server is too old, a listener cannot be bound, the stat server's URL is malformed, or system-internal TLS is
/// on and its certificate is missing.
pub async fn run(
    options: Options,
    client: kube::Client,
    resolver: Arc<dyn Resolve>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    if let Some(least) = &options.process.kubernetes_min_version {
        tokio::select! {
            checked = least.check(&client) => checked?,
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    let watching = CancellationToken::new().drop_guard();
    let until = watching.token().clone();
    let front_end = options.front_end();
    let configured = async {
        let (namespace, process) = (&options.system_namespace, &options.process);
        let keeps_deleted = front_end.keeps_deleted_maps();
        let mut configs = Configs::watch(client.clone(), namespace, process, keeps_deleted, until.clone()).await;
        front_end.check(&configs.refusals)?;
        if configs.network.borrow().system_internal_tls {
            configs.tls = Some(InternalTls::watch(client.clone(), namespace, until).await?);
        }
        anyhow::Ok(configs)
    };
    let configs = tokio::select! {
        configs = configured => configs?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let (sender, events) = mpsc::channel(discovery::QUEUE_CAPACITY);
    tokio::spawn(front_end.watch(client.clone(), configs.network.clone(), sender));
    let activator = begin(options, front_end, events, resolver, configs, Some(client)).await?;
    shutdown.cancelled().await;
    activator.stop().await;
    drop(watching);
    Ok(())
}

/// Starts an activator on a stream of events. Serves until [`Activator::stop`].
///
/// # Errors
/// A listener cannot be bound, or the stat server's URL is malformed.
pub async fn start(
    options: Options,
    events: mpsc::Receiver<Event>,
    resolver: Arc<dyn Resolve>,
    configs: Configs,
) -> anyhow::Result<Activator> {
    let front_end = options.front_end();
    begin(options, front_end, events, resolver, configs, None).await
}

/// Returns the resolvers of the link to the autoscaler and of fallbacks.
fn resolvers(
    resolver: Arc<dyn Resolve>,
    client: Option<&kube::Client>,
    domain: &str,
) -> (Arc<dyn Resolve>, Arc<dyn Resolve>) {
    let Some(client) = client.filter(|_| resolver.follows_names()) else { return (resolver.clone(), resolver) };
    // Workloads cannot be woken without the link, so a cluster DNS outage must not affect it.
    let api = Arc::new(Endpoints::new(client.clone(), domain.to_owned()));
    // A user who may edit the fallback's Service must not be able to redirect requests.
    (Arc::new(DnsElseApi::new(resolver, api)), Arc::new(ClusterIps::new(client.clone(), domain.to_owned())))
}

/// Returns a check that passes if the API server responds at all.
fn ask_api(client: kube::Client) -> AskApi {
    Arc::new(move || {
        let client = client.clone();
        async move { !matches!(client.apiserver_version().await, Err(kube::Error::Service(_) | kube::Error::HyperError(_))) }.boxed()
    })
}

/// Returns the requirements for activators that share limits, which equal those for stats. `None`: pods are divided.
async fn security(
    options: &Options,
    demand: Option<Arc<Gate>>,
    trust: Option<Trust>,
    until: &CancellationToken,
) -> anyhow::Result<Option<Security>> {
    let missing = match (&options.stat_token, &options.stat_audience, &trust, &options.sibling_tls) {
        _ if !options.share_pods => return Ok(None),
        (Some(_), None, ..) => "ZEROSCALE_STAT_AUDIENCE, since stats carry a token",
        (None, Some(_), ..) => "ZEROSCALE_STAT_TOKEN_FILE, since ZEROSCALE_STAT_AUDIENCE asks for tokens",
        (_, _, Some(_), None) => "ZEROSCALE_STAT_TLS_CERT and _KEY, since stats go over TLS",
        _ => "",
    };
    if !missing.is_empty() {
        tracing::warn!(missing, "pods with a hard limit are divided among activators, which do not keep one limit");
        return Ok(None);
    }
    let tls = match (trust, options.sibling_tls.clone()) {
        (Some(_), Some(pair)) => {
            let identity = pair.follow(files::LOOK, until.clone()).await.context("TLS between activators")?;
            let config = server_config(&identity, &options.tls, ClientAuth::None, &[])?;
            let name = format!("{}.{}.svc", names::ACTIVATOR_SERVICE, options.system_namespace);
            let StatTrust { authorities, .. } = options.stat_trust.clone().context("stats go over TLS")?;
            Some((StatTrust { authorities, name }.open(until).await.context("TLS between activators")?, config))
        }
        _ => None,
    };
    Ok(Some(Security { token: options.stat_token.clone(), demand, tls }))
}

async fn begin(
    options: Options,
    front_end: Arc<dyn FrontEnd>,
    events: mpsc::Receiver<Event>,
    resolver: Arc<dyn Resolve>,
    configs: Configs,
    client: Option<kube::Client>,
) -> anyhow::Result<Activator> {
    let started = Instant::now();
    let infrastructure = CancellationToken::new();
    let bind = |address: SocketAddr| listen(address).with_context(|| format!("data port {address} cannot be bound"));
    let (http1, h2c) = (bind(options.http1)?, bind(options.h2c)?);
    let https = match &configs.tls {
        Some(tls) => {
            let config = server_config(&tls.identity, &options.tls, ClientAuth::None, &HTTP_ALPN)?;
            Some((bind(options.https)?, config))
        }
        None => None,
    };
    let roots = configs.tls.as_ref().and_then(|tls| front_end.pod_roots(&tls.roots));

    let registered = telemetry::Metrics::default();
    let convention = match options.mode {
        Mode::Knative => Convention::Knative,
        Mode::Standalone => Convention::OpenTelemetry,
    };
    let metrics = Metrics::new(&registered, convention, options.on_cold_start.clone());
    configs.refusals.register(&registered);
    let readiness = Arc::new(Readiness::new(started));
    let idle = (options.idle_connections_per_pod, options.idle_connections);
    let pools = Pools::start(idle, roots, infrastructure.clone());
    let trust = match options.stat_trust.clone() {
        Some(trust) => Some(trust.open(&infrastructure).await.context("TLS towards the autoscaler")?),
        None => None,
    };
    let config = Config { token: options.stat_token.clone(), trust: trust.clone(), ..Config::default() };
    let (of_link, of_fallbacks) = resolvers(resolver, client.as_ref(), &options.cluster_domain);
    let link = DurableSender::start(vec![options.stat_url.clone()], of_link, config, infrastructure.clone())?;
    // If workloads have ports of their own, the autoscaler is one of ours.
    let shows = front_end.has_ports();
    let sink = StatSink::new(link, options.pod_name.clone(), options.system_namespace.clone(), metrics.clone(), shows);
    tokio::spawn(sink.clone().run(readiness.clone(), infrastructure.clone()));
    let memory = Memory::new(options.memory_limit.map(|limit| limit / MEMORY_PART));
    let listeners = match front_end.has_ports() {
        true => Some(PortListeners::new(options.http1.ip(), options.clients.keepalive)),
        false => None,
    };
    let gate = options.stat_audience.clone().zip(client.clone()).map(|(audience, client)| {
        Arc::new(Gate::new(Demand::of_planes(&audience, &options.system_namespace, "autoscaler"), client))
    });
    let security = security(&options, gate.clone(), trust, &infrastructure).await?;
    let is_shared = security.is_some();
    let bound = (http1.local_addr()?, h2c.local_addr()?);
    let holders = Holders::start(holders::Parts {
        address: options.pod_ip,
        port: bound.0.port(),
        pools: pools.clone(),
        runtime: Handle::current(),
        ask_api: client.map(ask_api),
        security: security.unwrap_or_default(),
        shutdown: infrastructure.clone(),
    });
    holders::sharing_metric::show(&registered, &holders);
    let sharing = is_shared.then(|| holders.clone());
    let registry = Registry::new(Parts {
        clock: Arc::new(move || {
            let nanos = started.elapsed().as_nanos();
            Timestamp::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
        }),
        metrics: metrics.clone(),
        memory: memory.clone(),
        pools: pools.clone(),
        readiness: readiness.clone(),
        own_ip: options.pod_ip.to_string(),
        cluster_domain: options.cluster_domain.clone(),
        ports: listeners.clone().map(|listeners| WorkloadPorts::new(listeners, options.pod_name.clone())),
        runtime: Handle::current(),
        probe_budget: Arc::default(),
        holders: sharing.clone(),
    });
    let applying = tokio::spawn(registry.clone().run(events));
    let stopped = infrastructure.clone();
    tokio::spawn(async move {
        stopped.cancelled().await;
        applying.abort(); // Drops the receiver, which ends the watches.
    });

    let who = Who { service: "activator", namespace: options.system_namespace.clone(), pod: options.pod_name.clone() };
    let tracing = Tracing::start(&configs.telemetry.borrow().tracing, &who, &options.process.otel)?;
    let fallbacks = Fallbacks::new(pools.clone(), of_fallbacks, &options.cluster_domain, metrics.answered.clone());
    let hold = Hold::new(pools.clone(), memory.clone(), sink.clone(), fallbacks);
    let connections = Connections::new(connect::Parts {
        registry: registry.clone(),
        pools: pools.clone(),
        sink: sink.clone(),
        refused: metrics.refused.clone(),
        relayed: metrics.relayed.clone(),
        holders: sharing.clone(),
    });
    let report = Report::new(Timeouts::new(hold), sink.clone());
    let answering = Answering::new(report, sink.clone(), metrics.answered.clone(), readiness.clone(), configs.page);
    let logged = RequestLog::new(answering, configs.observability, sink::stdout()?);
    let relay = Relay::new(logged, pools, metrics.relayed.clone());
    let lookup = Lookup::new(
        relay,
        registry.clone(),
        readiness.clone(),
        front_end.clone(),
        metrics.unknown(),
        tracing.clone(),
        sharing.clone(),
    );
    let chain = Probe::new(lookup, readiness.clone(), registry.clone(), sharing, gate);

    let trusting = front_end.clone();
    let trust = Arc::new(move |peer| trusting.trust(peer));
    let half_close = if front_end.has_ports() { HALF_CLOSE_MAX } else { Duration::ZERO };
    let disconnects = Disconnects::start(infrastructure.clone(), half_close);
    let ClientOptions { keepalive, bounds } = options.clients;
    let client_connections = ClientConnections::start(bounds, memory.clone(), infrastructure.clone());
    clients::show(&registered, &client_connections);
    let responder = ErrorResponder::new(front_end, metrics.refused.clone());
    let server = Server::new(responder, trust, disconnects, client_connections, keepalive, options.workers.clone());

    let pages = vec![explain::page(registry.clone())];
    let plane =
        observe::Diagnostics { who, metrics: registered, config: configs.telemetry, pages, admin: options.admin };
    let observed = plane.observe(&options.process, infrastructure.clone()).await?;
    server.listen(http1, chain.clone());
    server.listen(h2c, chain.clone());
    if let Some(entry) = &options.entry {
        server.listen(TcpListener::from_std(entry.try_clone()?)?, chain.clone());
    }
    if let Some(listeners) = &listeners {
        ports::listen(&server, listeners, chain.clone(), connections);
    }
    let https = match https {
        Some((listener, config)) => {
            let address = listener.local_addr()?;
            server.listen_tls(listener, config, chain);
            tracing::info!(https = %address, "TLS is spoken");
            Some(address)
        }
        None => None,
    };
    tracing::info!(http1 = %bound.0, h2c = %bound.1, mode = ?options.mode, "activator listens");
    Ok(Activator {
        http1: bound.0,
        h2c: bound.1,
        https,
        admin: observed.admin,
        observed,
        tracing,
        registry,
        memory,
        server,
        readiness,
        holders,
        options,
        infrastructure,
    })
}

impl Activator {
    /// Returns the load of a revision's breaker: in flight, queued, capacity.
    pub fn load(&self, key: &RevisionKey) -> Option<Load> {
        self.registry.load(key.namespace(), key.name())
    }

    /// Returns the number of waiting requests of all revisions, and their charged bytes.
    pub fn held(&self) -> (u64, u64) {
        (self.memory.held(), self.memory.charged(Kind::Held))
    }

    /// Reports whether hard limits are shared with other activators.
    pub fn shares_pods(&self) -> bool {
        self.holders.sharing_mode() == SharingMode::Shared
    }

    /// Returns the bytes charged for clients' incomplete heads and unread frames.
    pub fn input(&self) -> u64 {
        self.memory.charged(Kind::Input)
    }

    /// Returns the bytes charged for responses that clients do not read.
    pub fn output(&self) -> u64 {
        self.memory.charged(Kind::Output)
    }

    /// Drains and stops. See the module documentation.
    pub async fn stop(mut self) {
        let Options { linger, drain, .. } = self.options;
        tracing::info!(?linger, "draining: readiness fails, everything is still served");
        self.server.leave();
        self.readiness.set_draining();
        self.holders.leave();
        tokio::time::sleep(linger).await;
        if self.registry.has_ports() {
            wait_until_removed_from_endpoints(|| self.registry.replaceable_workloads()).await;
        }
        tracing::info!(bound = ?drain, "draining: ports close, what is in flight is finished");
        match self.server.drain(drain).await {
            0 => tracing::info!("drained"),
            cut => {
                tracing::warn!(cut, bound = ?drain, "connections were still busy after the drain's bound, and were cut")
            }
        }
        self.infrastructure.cancel();
        self.observed.flushed().await;
        if let Some(tracing) = self.tracing.take() {
            tracing.flushed().await;
        }
    }
}

/// Stops stats, watches and connections to pods, without a drain.
impl Drop for Activator {
    fn drop(&mut self) {
        self.infrastructure.cancel();
    }
}
