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
use crate::layers::LayerParts;
use crate::layers::answers::Answering;
use crate::layers::error_responder::ErrorResponder;
use crate::layers::fallback::Fallbacks;
use crate::layers::hold::Hold;
use crate::layers::lookup::Lookup;
use crate::layers::probe::Probe;
use crate::layers::relay::Relay;
use crate::layers::report::Report;
use crate::layers::request_log::{RequestLog, sink};
use crate::layers::timeouts::Timeouts;
use crate::metrics::{Metrics, clients};
use crate::ports::{self, Layers};
use crate::registry::explain;
use crate::registry::ports::WorkloadPorts;
use crate::registry::readiness::Readiness;
use crate::registry::stats::StatSink;
use crate::registry::{self, Registry};
use activator_core::breaker::Load;
use activator_core::holders::sharing_mode::SharingMode;
use activator_net::{ClientConnections, HALF_CLOSE_MAX, Kind, Memory, Pools, PortIdentity, PortListeners, Server};
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
use common_runtime::telemetry::otlp::ProcessIdentity;
use common_runtime::telemetry::traces::Tracing;
use common_runtime::tls::rustls::ServerConfig;
use common_runtime::tls::{ClientAuth, HTTP_ALPN, Trust, files, server_config};
use common_runtime::websocket::{Config, DurableSender};
use futures::FutureExt;
use futures::future::OptionFuture;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Divisor of the memory limit: the quotient is for clients' connections and requests.
const MEMORY_DIVISOR: u64 = 2;

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
    parts: Arc<LayerParts>,
    server: Server<ErrorResponder>,
    holders: Arc<Holders>,
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
    let (front_end, is_knative) = (options.front_end(), options.mode == Mode::Knative);
    let configured = async {
        let (namespace, process) = (&options.system_namespace, &options.process);
        // Like Knative's activator: the values of deleted maps stay in force, and a map that breaks a rule prevents the
        // start.
        let mut configs = Configs::watch(client.clone(), namespace, process, is_knative, until.clone()).await;
        if is_knative {
            configs.refusals.ensure_none()?;
        }
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
    let activator = Setup::new(options, configs, Some(client)).begin(events, resolver).await?;
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
    Setup::new(options, configs, None).begin(events, resolver).await
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

/// Inputs of an activator that starts.
struct Setup {
    options: Options,
    front_end: Arc<dyn FrontEnd>,
    /// Set if workloads have ports of their own.
    has_ports: bool,
    configs: Configs,
    /// `None`: there is no API server.
    client: Option<kube::Client>,
    registered: telemetry::Metrics,
    started: Instant,
    infrastructure: CancellationToken,
}

/// Listener of the TLS port; `None`: system-internal TLS is off.
type TlsListener = Option<(TcpListener, Arc<ServerConfig>)>;

impl Setup {
    fn new(options: Options, configs: Configs, client: Option<kube::Client>) -> Self {
        let (started, infrastructure) = (Instant::now(), CancellationToken::new());
        let (front_end, registered) = (options.front_end(), telemetry::Metrics::default());
        let has_ports = options.mode == Mode::Standalone;
        Self { options, front_end, has_ports, configs, client, registered, started, infrastructure }
    }

    async fn begin(self, events: mpsc::Receiver<Event>, resolver: Arc<dyn Resolve>) -> anyhow::Result<Activator> {
        let (on_http1, on_h2c, on_https) = self.bind()?;
        let (http1, h2c) = (on_http1.local_addr()?, on_h2c.local_addr()?);
        self.configs.refusals.register(&self.registered);
        let (link_resolver, fallback_resolver) =
            resolvers(resolver, self.client.as_ref(), &self.options.cluster_domain);
        let listeners =
            self.has_ports.then(|| PortListeners::new(self.options.http1.ip(), self.options.clients.keepalive));
        let (parts, holders) = self.parts(link_resolver, http1.port(), listeners.clone()).await?;
        let applying = tokio::spawn(parts.registry.clone().run(events));
        let stopped = self.infrastructure.clone();
        tokio::spawn(async move {
            stopped.cancelled().await;
            applying.abort(); // Drops the receiver, which ends the watches.
        });
        let chain = self.chain(&parts, fallback_resolver)?;
        let server = self.server(&parts);
        let plane = observe::Diagnostics {
            identity: self.identity(),
            metrics: self.registered,
            config: self.configs.telemetry,
            pages: vec![explain::page(parts.registry.clone())],
            admin: self.options.admin,
        };
        let observed = plane.observe(&self.options.process, self.infrastructure.clone()).await?;
        let https = on_https.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?;
        server.listen(on_http1, None, chain.clone());
        server.listen(on_h2c, None, chain.clone());
        if let Some(entry) = &self.options.entry {
            server.listen(TcpListener::from_std(entry.try_clone()?)?, None, chain.clone());
        }
        if let Some(listeners) = &listeners {
            let parts = parts.clone();
            let protocols = move |port: &PortIdentity| ports::port_protocols(port, &parts);
            server.listen_ports(listeners, chain.clone(), ports::share_of, protocols);
        }
        if let Some((listener, config)) = on_https {
            server.listen(listener, Some(config), chain);
        }
        let (options, infrastructure) = (self.options, self.infrastructure);
        let tls = https.map(tracing::field::display);
        tracing::info!(%http1, %h2c, https = tls, mode = ?options.mode, "activator listens");
        let admin = observed.admin;
        Ok(Activator { http1, h2c, https, admin, observed, parts, server, holders, options, infrastructure })
    }

    fn bind(&self) -> anyhow::Result<(TcpListener, TcpListener, TlsListener)> {
        let Options { http1, h2c, https, tls: parameters, .. } = &self.options;
        let bind =
            |address: &SocketAddr| listen(*address).with_context(|| format!("data port {address} cannot be bound"));
        let (http1, h2c) = (bind(http1)?, bind(h2c)?);
        let https = match &self.configs.tls {
            Some(tls) => {
                let config = server_config(&tls.identity, parameters, ClientAuth::None, &HTTP_ALPN)?;
                Some((bind(https)?, config))
            }
            None => None,
        };
        Ok((http1, h2c, https))
    }

    fn identity(&self) -> ProcessIdentity {
        let (namespace, pod) = (self.options.system_namespace.clone(), self.options.pod_name.clone());
        ProcessIdentity { service: "activator", namespace, pod }
    }

    /// Builds the parts that the layers use, and the shared limits. `port`: first data port.
    async fn parts(
        &self,
        resolver: Arc<dyn Resolve>,
        port: u16,
        listeners: Option<PortListeners>,
    ) -> anyhow::Result<(Arc<LayerParts>, Arc<Holders>)> {
        let options = &self.options;
        let metrics = Metrics::new(&self.registered, options.mode, options.on_cold_start.clone());
        let readiness = Arc::new(Readiness::new(self.started));
        // Pods of standalone workloads have no certificates, so requests to them are not encrypted.
        let roots = self.configs.tls.as_ref().filter(|_| !self.has_ports).map(|tls| tls.roots.clone());
        let idle = (options.idle_connections_per_pod, options.idle_connections);
        let pools = Pools::start(idle, roots, self.infrastructure.clone());
        let memory = Memory::new(options.memory_limit.map(|limit| limit / MEMORY_DIVISOR));
        let trust = options.stat_trust.clone().map(|trust| trust.open(&self.infrastructure));
        let trust = OptionFuture::from(trust).await.transpose();
        let trust = trust.context("the authorities for TLS to the autoscaler cannot be used")?;
        let sink = self.sink(resolver, trust.clone(), metrics.clone())?;
        tokio::spawn(sink.clone().run(readiness.clone(), self.infrastructure.clone()));
        let gate = options.stat_audience.clone().zip(self.client.clone()).map(|(audience, client)| {
            Arc::new(Gate::new(Demand::of_planes(&audience, &options.system_namespace, "autoscaler"), client))
        });
        let security = self.security(gate.clone(), trust).await?;
        let is_shared = security.is_some();
        let shared_limits = Holders::start(holders::Parts {
            address: options.pod_ip,
            port,
            pools: pools.clone(),
            runtime: Handle::current(),
            ask_api: self.client.clone().map(ask_api),
            security: security.unwrap_or_default(),
            shutdown: self.infrastructure.clone(),
        });
        holders::register_metric(&self.registered, &shared_limits);
        let holders = is_shared.then(|| shared_limits.clone());
        let started = self.started;
        let registry = Registry::new(registry::Parts {
            clock: Arc::new(move || {
                Timestamp::from_nanos(i64::try_from(started.elapsed().as_nanos()).unwrap_or(i64::MAX))
            }),
            metrics: metrics.clone(),
            memory: memory.clone(),
            pools: pools.clone(),
            readiness: readiness.clone(),
            own_ip: options.pod_ip.to_string(),
            cluster_domain: options.cluster_domain.clone(),
            ports: listeners.map(|listeners| WorkloadPorts::new(listeners, options.pod_name.clone())),
            runtime: Handle::current(),
            probe_budget: Arc::default(),
            holders: holders.clone(),
        });
        let identity = self.identity();
        let tracing = Tracing::start(&self.configs.telemetry.borrow().tracing, &identity, &options.process.otel)?;
        let (front_end, page) = (self.front_end.clone(), self.configs.page.clone());
        let parts =
            LayerParts { registry, readiness, front_end, pools, memory, sink, metrics, tracing, holders, gate, page };
        Ok((Arc::new(parts), shared_limits))
    }

    /// Returns the sender of stats over a link to the autoscaler.
    fn sink(
        &self,
        resolver: Arc<dyn Resolve>,
        trust: Option<Trust>,
        metrics: Metrics,
    ) -> anyhow::Result<Arc<StatSink>> {
        let Options { stat_token, stat_url, pod_name, system_namespace, .. } = self.options.clone();
        let config = Config { token: stat_token, trust, ..Config::default() };
        let link = DurableSender::start(vec![stat_url], resolver, config, self.infrastructure.clone())?;
        // If workloads have ports of their own, the autoscaler is Zeroscale's.
        let (reporting, sends_extensions) = (Mutex::default(), self.has_ports);
        Ok(Arc::new(StatSink { link, pod_name, system_namespace, reporting, metrics, sends_extensions }))
    }

    /// Returns the requirements for activators that share limits, which equal those for stats, or `None` if pods are
    /// divided.
    async fn security(&self, demand: Option<Arc<Gate>>, trust: Option<Trust>) -> anyhow::Result<Option<Security>> {
        const PAIR: &str = "the certificate for TLS between activators cannot be used";
        const AUTHORITIES: &str = "the authorities for TLS between activators cannot be used";
        let (options, until) = (&self.options, &self.infrastructure);
        let missing = match (&options.stat_token, &options.stat_audience, &trust, &options.sibling_tls) {
            _ if !options.share_pods => return Ok(None),
            (Some(_), None, ..) => "ZEROSCALE_STAT_AUDIENCE, since stats carry a token",
            (None, Some(_), ..) => "ZEROSCALE_STAT_TOKEN_FILE, since ZEROSCALE_STAT_AUDIENCE requires tokens",
            (_, _, Some(_), None) => "ZEROSCALE_STAT_TLS_CERT and _KEY, since stats go over TLS",
            _ => "",
        };
        if !missing.is_empty() {
            tracing::warn!(
                missing,
                "a setting is missing, so activators divide pods with a hard limit instead of sharing one limit"
            );
            return Ok(None);
        }
        let tls = match (trust, options.sibling_tls.clone()) {
            (Some(_), Some(pair)) => {
                let identity = pair.follow(files::CHECK_INTERVAL, until.clone()).await.context(PAIR)?;
                let config = server_config(&identity, &options.tls, ClientAuth::None, &[])?;
                let name = format!("{}.{}.svc", names::ACTIVATOR_SERVICE, options.system_namespace);
                let StatTrust { authorities, .. } = options.stat_trust.clone().context(AUTHORITIES)?;
                Some((StatTrust { authorities, name }.open(until).await.context(AUTHORITIES)?, config))
            }
            _ => None,
        };
        Ok(Some(Security { token: options.stat_token.clone(), demand, tls }))
    }

    fn chain(&self, parts: &Arc<LayerParts>, resolver: Arc<dyn Resolve>) -> anyhow::Result<Layers> {
        let fallbacks = Fallbacks {
            pools: parts.pools.clone(),
            resolver,
            cluster_domain: self.options.cluster_domain.as_str().into(),
            answered: parts.metrics.answered.clone(),
        };
        let inner = Timeouts { inner: Hold::new(parts, fallbacks) };
        let inner = Report { inner, sink: parts.sink.clone() };
        let inner = Answering { inner, parts: parts.clone() };
        let inner = RequestLog::new(inner, self.configs.observability.clone(), sink::stdout()?);
        let inner = Lookup::new(Relay::new(inner, parts.clone()), parts.clone());
        Ok(Probe { inner, parts: parts.clone() })
    }

    fn server(&self, parts: &LayerParts) -> Server<ErrorResponder> {
        let front_end = self.front_end.clone();
        let half_close = if self.has_ports { HALF_CLOSE_MAX } else { Duration::ZERO };
        let responder = ErrorResponder { front_end: front_end.clone(), refused: parts.metrics.refused.clone() };
        let ClientOptions { keepalive, bounds } = self.options.clients;
        let connections = ClientConnections::start(bounds, parts.memory.clone(), self.infrastructure.clone());
        clients::register(&self.registered, &connections);
        let trust = Arc::new(move |peer| front_end.trust(peer));
        Server::new(responder, trust, half_close, connections, keepalive, self.options.workers.clone())
    }
}

impl Activator {
    /// Returns the load of a revision's breaker: in flight, queued, capacity.
    pub fn load(&self, key: &RevisionKey) -> Option<Load> {
        self.parts.registry.load(key.namespace(), key.name())
    }

    /// Returns the number of waiting requests of all revisions, and their charged bytes.
    pub fn held(&self) -> (u64, u64) {
        (self.parts.memory.held(), self.parts.memory.charged(Kind::Held))
    }

    /// Reports whether hard limits are shared with other activators.
    pub fn shares_pods(&self) -> bool {
        self.holders.sharing_mode() == SharingMode::Shared
    }

    /// Returns the bytes charged for clients' incomplete heads and unread frames.
    pub fn input(&self) -> u64 {
        self.parts.memory.charged(Kind::Input)
    }

    /// Returns the bytes charged for responses that clients do not read.
    pub fn output(&self) -> u64 {
        self.parts.memory.charged(Kind::Output)
    }

    /// Drains and stops. See the module documentation.
    pub async fn stop(mut self) {
        let Options { linger, drain, .. } = self.options;
        tracing::info!(?linger, "shutting down: the readiness probe fails, requests are still served");
        self.server.close_after_response();
        self.parts.readiness.set_draining();
        self.holders.begin_shutdown();
        tokio::time::sleep(linger).await;
        let registry = &self.parts.registry;
        if registry.has_ports() {
            wait_until_removed_from_endpoints(|| registry.replaceable_workloads()).await;
        }
        tracing::info!(bound = ?drain, "shutting down: the ports close, requests in flight are finished");
        match self.server.drain(drain).await {
            0 => tracing::info!("drained"),
            cut => {
                tracing::warn!(cut, bound = ?drain, "connections were still busy at the end of the drain and were cut")
            }
        }
        self.infrastructure.cancel();
        self.observed.flushed().await;
        if let Some(tracing) = self.parts.tracing.clone() {
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
