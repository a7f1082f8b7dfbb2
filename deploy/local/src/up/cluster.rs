//! A cluster: starts all parts in order, restarts failed planes, and ends the parts in reverse order.

use crate::api::ApiServer;
use crate::node::proxy::ServiceResolver;
use crate::node::{self, NodeOptions, SHUTDOWN_GRACE};
use crate::up::event::Event;
use crate::up::manifests::{self, Manifest};
use crate::up::options::UpOptions;
use crate::up::plane::{self, Plane};
use crate::up::pod::{self, PodStatuses};
use crate::up::ranges::Ranges;
use crate::up::system::{self, Configuration, Member, create_if_missing};
use crate::up::{accounts, default_scalers, embedded, make_folder};
use crate::{controllers, retry};
use anyhow::Context;
use autoscaler::dashboard::Settings as Dashboard;
use autoscaler::{Hpa, InstallKind, StatTokens};
use common::{RevisionKey, names};
use common_runtime::environment::Mode;
use common_runtime::failure_log::FailureLog;
use common_runtime::listen::listen;
use common_runtime::resolve::Resolve;
use kube::{Api, Client, Config};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval of readiness probes. A kubelet takes seconds; here the interval bounds how long a restart goes unnoticed.
const PROBE_PERIOD: Duration = Duration::from_millis(100);
/// Pause after the endpoints could not be written.
const PUBLISH_RETRY: Duration = Duration::from_secs(1);
/// Interval of readiness probes while a plane is still starting.
const PROBE_PERIOD_STARTING: Duration = Duration::from_millis(5);
/// Maximum wait for the planes at start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait for requests in flight at shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// Port of a plane's metrics and explanations.
const ADMIN_PORT: u16 = 9090;
/// Number of events kept for a slow receiver. Beyond it, the receiver loses the oldest ones.
const EVENTS_MAX: usize = 4096;

/// A running cluster. [`shutdown`](Cluster::shutdown) ends it in order. Dropping it ends it without draining.
pub struct Cluster {
    /// Address of the ingress, which routes by name: a port shared by all activators.
    pub ingress: SocketAddr,
    /// URL of the API server.
    pub api: String,
    /// Address of the dashboard, on loopback.
    pub dashboard: SocketAddr,
    /// File with an administrator's credentials, mode 0600.
    pub kubeconfig: PathBuf,
    client: Client,
    shared: Arc<ClusterShared>,
    server: Option<ApiServer>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    _folder: TempDir,
}

/// Configuration of planes, and the running planes.
struct ClusterShared {
    ranges: Ranges,
    kube: Config,
    /// Folder of the cluster.
    folder: PathBuf,
    resolver: Arc<dyn Resolve>,
    /// Listener shared by all autoscalers. Each shows all workloads.
    dashboard: Arc<TcpListener>,
    /// Listener of the ingress. All activators accept from it; while none runs, connections wait in its backlog.
    ingress: Arc<TcpListener>,
    options: UpOptions,
    events: broadcast::Sender<Event>,
    /// Time of the last scale from zero of each workload.
    woken: Mutex<HashMap<RevisionKey, Instant>>,
    planes: Mutex<BTreeMap<PlaneId, Plane>>,
    /// Readiness of the running planes. It changes only while `planes` is locked.
    ready: watch::Sender<BTreeMap<PlaneId, bool>>,
}

/// Identifier of a plane: one activator or autoscaler of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlaneId {
    /// Activator number n, from 0.
    Activator(usize),
    /// Autoscaler number n, from 0.
    Autoscaler(usize),
}

impl PlaneId {
    /// Returns the name of its pod.
    pub fn name(self) -> String {
        let (Self::Activator(n) | Self::Autoscaler(n)) = self;
        format!("{}-{n}", self.account())
    }

    fn account(self) -> &'static str {
        match self {
            Self::Activator(_) => "activator",
            Self::Autoscaler(_) => "autoscaler",
        }
    }

    fn service(self) -> &'static str {
        match self {
            Self::Activator(_) => names::ACTIVATOR_SERVICE,
            Self::Autoscaler(_) => names::AUTOSCALER_SERVICE,
        }
    }
}

/// Files, addresses and ranges that are opened before anything starts.
struct Inputs {
    manifests: Vec<Manifest>,
    configuration: Option<Configuration>,
    ranges: Ranges,
    ingress: tokio::net::TcpListener,
    dashboard: TcpListener,
    folder: TempDir,
}

impl Inputs {
    /// Opens all inputs. Fails if a file cannot be used, or an address or range is taken.
    fn open(options: &UpOptions) -> anyhow::Result<Self> {
        let mut manifests = Vec::new();
        for path in &options.manifests {
            manifests.extend(manifests::read(path)?);
        }
        let configuration = options.config_autoscaler.as_deref().map(system::configuration).transpose()?;
        let ranges = Ranges::take(std::process::id(), options.pod_cidr, options.service_cidr)?;
        let ingress = listen(options.ingress).with_context(|| {
            format!("cannot listen on --ingress {}; choose another address, or port 0", options.ingress)
        })?;
        let dashboard = TcpListener::bind(options.dashboard).with_context(|| {
            format!("cannot listen on --dashboard {}; choose another address, or port 0", options.dashboard)
        })?;
        let address = dashboard.local_addr()?;
        anyhow::ensure!(
            address.ip().is_loopback(),
            "--dashboard {address} is not a loopback address; the dashboard has no token, so choose a loopback address"
        );
        Ok(Self { manifests, configuration, ranges, ingress, dashboard, folder: make_folder()? })
    }
}

/// Returns the options of the node. The embedded API server, if any, serves the logs and the usage of its pods.
fn node_options(ranges: &Ranges, folder: &Path, server: Option<&ApiServer>) -> NodeOptions {
    let pods = folder.join("pods");
    let mut options = NodeOptions::new("local", ranges.pods, ranges.services, pods.clone());
    if let Some(server) = server {
        server.set_pod_logs(pods);
        server.set_usage(options.usage.clone());
    }
    options.default_scheduler = server.is_some();
    options.reserved = ranges.reserved();
    options
}

impl Cluster {
    /// Starts all parts and applies the manifests. Returns once every activator and autoscaler is ready and the
    /// manifests are applied. Fails if a port or address range is taken, a manifest is rejected, or a plane does not
    /// become ready within 30 s.
    pub async fn start(options: UpOptions) -> anyhow::Result<Self> {
        // Bad input fails here, before anything starts.
        let Inputs { manifests, configuration, ranges, ingress, dashboard, folder } = Inputs::open(&options)?;
        let ingress_address = ingress.local_addr()?;
        let dashboard_address = dashboard.local_addr()?;

        // The API server, the controllers and the node.
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (server, kube, kubeconfig) = match &options.external {
            Some(path) => (None, embedded::external_config(path).await?, path.clone()),
            None => {
                let started = embedded::start(&options, &ranges, folder.path(), Some(dashboard_address));
                let (server, kube, kubeconfig) = started.await?;
                (Some(server), kube, kubeconfig)
            }
        };
        let client = common_runtime::api_server::client(kube.clone(), "local")?;
        if server.is_some() {
            tasks.spawn(controllers::run(client.clone(), shutdown.clone()));
            tasks.spawn(controllers::run_horizontal(client.clone(), options.hpa_sync_period, shutdown.clone()));
        }
        retry::until_answered("the creation of the system objects", || {
            system::create(&client, configuration.clone(), &options.namespaces)
        })
        .await?;
        let node_options = node_options(&ranges, folder.path(), server.as_ref());
        let resolver: Arc<dyn Resolve> = Arc::new(ServiceResolver::new(node_options.services.clone(), system::DOMAIN));
        let node = node::run(node_options, client.clone(), shutdown.clone());
        tasks.spawn(async move {
            if let Err(error) = node.await {
                tracing::error!(error = %format!("{error:#}"), "the node failed");
            }
        });

        // The planes.
        let kube_url = kube.cluster_url.to_string();
        let shared = Arc::new(ClusterShared {
            ranges,
            kube,
            folder: folder.path().to_owned(),
            resolver,
            dashboard: Arc::new(dashboard),
            ingress: Arc::new(ingress.into_std()?),
            options: options.clone(),
            events: broadcast::channel(EVENTS_MAX).0,
            woken: Mutex::default(),
            planes: Mutex::default(),
            ready: watch::Sender::default(),
        });
        let mut cluster = Self {
            ingress: ingress_address,
            api: kube_url,
            dashboard: dashboard_address,
            kubeconfig,
            client: client.clone(),
            shared: shared.clone(),
            server,
            shutdown: shutdown.clone(),
            tasks,
            _folder: folder,
        };
        for n in 0..usize::from(options.autoscalers) {
            cluster.start_plane(PlaneId::Autoscaler(n))?;
        }
        for n in 0..usize::from(options.activators) {
            cluster.start_plane(PlaneId::Activator(n))?;
        }
        cluster.tasks.spawn(probe_planes(shared, client.clone(), shutdown));
        let planes = usize::from(options.autoscalers) + usize::from(options.activators);
        let completed = async {
            cluster.wait_for_planes(planes).await?;
            cluster.apply(manifests).await
        };
        if let Err(error) = completed.await {
            cluster.shutdown().await;
            return Err(error);
        }
        Ok(cluster)
    }

    /// Waits until this number of planes is ready, with an external API server as long as it takes. Fails after
    /// [`START_TIMEOUT`] if the API server is the embedded one.
    async fn wait_for_planes(&self, count: usize) -> anyhow::Result<()> {
        let mut ready = std::pin::pin!(self.wait_until_ready(count));
        if tokio::time::timeout(START_TIMEOUT, &mut ready).await.is_err() {
            let message = format!("the planes did not become ready within {} s", START_TIMEOUT.as_secs());
            anyhow::ensure!(self.server.is_none(), message);
            tracing::warn!("{message}; waiting for the API server of --external");
            ready.await;
        }
        Ok(())
    }

    /// Applies the user's objects. Creates a ZeroScaler for each workload that needs one and has none.
    async fn apply(&self, manifests: Vec<Manifest>) -> anyhow::Result<()> {
        let is_embedded = self.server.is_some();
        let default_scalers = default_scalers::scalers(&manifests, is_embedded);
        if is_embedded {
            manifests::warnings(&manifests).for_each(|warning| tracing::warn!("{warning}"));
            for name in manifests::namespaces(&manifests) {
                manifests::make_namespace(&self.client, name).await?;
            }
        }
        manifests::apply(&self.client, manifests).await?;
        for scaler in &default_scalers {
            let (key, api) = (scaler.key(), Api::namespaced(self.client.clone(), scaler.key().namespace()));
            let make = || async { Ok(create_if_missing(&api, scaler).await?) };
            retry::until_answered("the creation of a default ZeroScaler", make)
                .await
                .with_context(|| format!("ZeroScaler {key}"))?;
        }
        Ok(())
    }

    /// Returns a client with an administrator's rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the resolver of Service names to addresses that this process can reach.
    pub fn resolver(&self) -> Arc<dyn Resolve> {
        self.shared.resolver.clone()
    }

    /// Subscribes to all events from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// Returns the address of a plane: HTTP/1.1 and h2c of an activator, stats of an autoscaler.
    pub fn address(&self, plane: PlaneId) -> SocketAddr {
        self.shared.address(plane)
    }

    /// Returns the admin address of a plane.
    pub fn admin(&self, plane: PlaneId) -> SocketAddr {
        self.shared.admin(plane)
    }

    /// Starts a plane. It replaces a plane with the same name. Fails if no threads can be created.
    pub fn start_plane(&self, id: PlaneId) -> anyhow::Result<()> {
        let plane = self.shared.clone().start(id)?;
        let mut planes = self.shared.planes.lock();
        self.shared.ready.send_modify(|ready| _ = ready.insert(id, false));
        planes.insert(id, plane);
        Ok(())
    }

    /// Drains a plane, as SIGTERM does, and waits for its end.
    pub async fn drain_plane(&self, id: PlaneId) {
        if let Some(plane) = self.shared.take(id) {
            plane.drain().await;
        }
    }

    /// Kills a plane, as SIGKILL does.
    pub fn kill_plane(&self, id: PlaneId) {
        drop(self.shared.take(id));
    }

    /// Waits until exactly `count` planes are ready. A restarted plane counts once its new instance is ready.
    pub async fn wait_until_ready(&self, count: usize) {
        let mut ready = self.shared.ready.subscribe();
        // The sender cannot be gone, since `self` holds it.
        let _ = ready.wait_for(|planes| planes.values().filter(|ready| **ready).count() == count).await;
    }

    /// Shuts down everything: planes drain first, pods and the API server end last.
    pub async fn shutdown(mut self) {
        let planes = std::mem::take(&mut *self.shared.planes.lock());
        let mut draining = JoinSet::new();
        for plane in planes.into_values() {
            draining.spawn(plane.drain());
        }
        let _ = tokio::time::timeout(DRAIN + self.shared.options.linger, draining.join_all()).await;
        self.shutdown.cancel();
        let tasks = std::mem::take(&mut self.tasks);
        // One second more than pods get to terminate, so that a pod killed at that time is gone before its address is
        // reused.
        let _ = tokio::time::timeout(SHUTDOWN_GRACE + Duration::from_secs(1), tasks.join_all()).await;
        match self.server.take() {
            Some(server) => server.shutdown().await,
            None => {
                let withdrawn = async { tokio::join!(system::withdraw(&self.client), pod::withdraw(&self.client)) };
                let _ = tokio::time::timeout(DRAIN, withdrawn).await;
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl ClusterShared {
    fn address(&self, plane: PlaneId) -> SocketAddr {
        match plane {
            PlaneId::Activator(n) => SocketAddr::new(self.ranges.activator(n), names::ACTIVATOR_HTTP1_PORT),
            PlaneId::Autoscaler(n) => SocketAddr::new(self.ranges.autoscaler(n), names::STAT_PORT),
        }
    }

    fn admin(&self, plane: PlaneId) -> SocketAddr {
        SocketAddr::new(self.address(plane).ip(), ADMIN_PORT)
    }

    /// Sends an event to the subscribers, if there are any.
    fn emit(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Removes a plane that is about to end, so that it no longer counts as ready.
    fn take(&self, id: PlaneId) -> Option<Plane> {
        let mut planes = self.planes.lock();
        self.ready.send_modify(|ready| _ = ready.remove(&id));
        planes.remove(&id)
    }

    /// Records the responses to probes, except those of planes that were stopped or replaced meanwhile. Returns number
    /// and readiness of the running planes.
    fn record(&self, answers: Vec<(PlaneId, u64, Option<bool>)>) -> BTreeMap<PlaneId, (u64, bool)> {
        let mut planes = self.planes.lock();
        for (id, number, answer) in answers {
            if let Some(plane) = planes.get_mut(&id).filter(|plane| plane.number == number) {
                plane.record(answer);
            }
        }
        planes.iter().map(|(id, plane)| (*id, (plane.number, plane.is_ready))).collect()
    }

    /// Announces the readiness of planes, except those that were stopped or replaced meanwhile.
    fn announce(&self, probed: &BTreeMap<PlaneId, (u64, bool)>) {
        let planes = self.planes.lock();
        self.ready.send_modify(|known| {
            for (id, (number, ready)) in probed {
                let runs = planes.get(id).is_some_and(|plane| plane.number == *number);
                if runs && known.insert(*id, *ready).unwrap_or(false) != *ready {
                    self.emit(Event::Plane { name: id.name(), ready: *ready });
                }
            }
        });
    }

    /// Restarts failed planes after their pause.
    fn restart(self: &Arc<Self>) {
        let mut planes = self.planes.lock();
        for (id, plane) in planes.iter_mut().filter(|(_, plane)| plane.must_restart()) {
            match self.clone().start(*id) {
                Ok(another) => *plane = another,
                Err(error) => {
                    tracing::error!(plane = %id.name(), error = %format!("{error:#}"), "the plane could not be restarted")
                }
            }
        }
    }

    fn start(self: Arc<Self>, id: PlaneId) -> anyhow::Result<Plane> {
        let (address, resolver, name) = (self.address(id), self.resolver.clone(), id.name());
        let registering = accounts::register_pod(self.kube.clone(), self.folder.clone(), id.account(), name.clone());
        match id {
            PlaneId::Activator(_) => {
                let options = self.activator_options(id, address.ip());
                Plane::start(&name, move |shutdown| async move {
                    let (client, pod) = registering.await?;
                    pod.run_plane(activator::run(options, client, resolver, shutdown.clone()), shutdown).await
                })
            }
            PlaneId::Autoscaler(_) => {
                let options = self.autoscaler_options(id, address);
                Plane::start(&name, move |shutdown| async move {
                    let (client, pod) = registering.await?;
                    pod.run_plane(autoscaler::run(options, client, resolver, shutdown.clone()), shutdown).await
                })
            }
        }
    }

    fn activator_options(self: &Arc<Self>, id: PlaneId, ip: IpAddr) -> activator::Options {
        let mut options = activator::Options::new(id.name(), ip, Mode::Standalone);
        options.system_namespace = system::NAMESPACE.to_owned();
        options.cluster_domain = system::DOMAIN.to_owned();
        options.http1 = SocketAddr::new(ip, names::ACTIVATOR_HTTP1_PORT);
        options.h2c = SocketAddr::new(ip, names::ACTIVATOR_H2C_PORT);
        options.entry = Some(self.ingress.clone());
        options.admin = Some(self.admin(id));
        let service = format!("{}.{}.svc.{}", names::AUTOSCALER_SERVICE, system::NAMESPACE, system::DOMAIN);
        let stat_url = self.options.stat_url.clone();
        options.stat_url = stat_url.unwrap_or_else(|| format!("ws://{service}:{}", names::STAT_PORT));
        if let Some(required) = accounts::required_token(&self.options.namespaces) {
            // Autoscalers require the token, and so do activators that share limits with each other.
            options.stat_token = Some(accounts::stat_token(&self.folder, &id.name()));
            options.stat_audience = Some(required.audience);
        }
        options.linger = self.options.linger;
        options.namespaces = self.options.namespaces.clone();
        options.drain = DRAIN;
        let shared = Arc::downgrade(self);
        options.on_cold_start = Some(Arc::new(move |cold| {
            if let Some(shared) = shared.upgrade() {
                let scaled = shared.woken.lock().get(&cold.key).copied();
                shared.emit(Event::ColdStart { cold: cold.clone(), scaled });
            }
        }));
        options
    }

    fn autoscaler_options(self: &Arc<Self>, id: PlaneId, address: SocketAddr) -> autoscaler::Options {
        let shared = Arc::downgrade(self);
        let listener = self.dashboard.clone();
        let dashboard = listener.local_addr().ok().map(|address| Dashboard {
            listener: Some(listener.clone()),
            price: self.options.pod_hour_price.clone(),
            entry: self.ingress.local_addr().ok().map(|address| address.port()),
            ..Dashboard::local(address)
        });
        autoscaler::Options {
            dashboard,
            system_namespace: system::NAMESPACE.to_owned(),
            cluster_domain: system::DOMAIN.to_owned(),
            stat_listen: address,
            admin: Some(self.admin(id)),
            stat_tokens: StatTokens {
                own: Some(accounts::stat_token(&self.folder, &id.name())),
                required: accounts::required_token(&self.options.namespaces),
            },
            on_scale: Some(Arc::new(move |scale| {
                if let Some(shared) = shared.upgrade() {
                    if scale.from == 0 {
                        shared.woken.lock().insert(scale.key.clone(), scale.at);
                    }
                    shared.emit(Event::Scale(scale.clone()));
                }
            })),
            ..autoscaler::Options::new(
                id.name(),
                address.ip(),
                InstallKind::Standalone { hpa: Hpa::Engine, namespaces: self.options.namespaces.clone() },
            )
        }
    }
}

/// Endpoints of the planes' Services. Failed writes are repeated.
struct Endpoints {
    client: Client,
    published: BTreeMap<&'static str, Vec<Member>>,
    failed: Option<Instant>,
    failures: FailureLog,
}

impl Endpoints {
    /// Writes the endpoints that have changed.
    async fn publish(&mut self, planes: impl Iterator<Item = (PlaneId, Member)> + Clone) {
        if self.failed.is_some_and(|at| at.elapsed() < PUBLISH_RETRY) {
            return;
        }
        for service in system::SERVICES {
            let of_service = planes.clone().filter(|(id, _)| id.service() == service);
            let members: Vec<Member> = of_service.map(|(_, member)| member).collect();
            if self.published.get(service) == Some(&members) {
                continue;
            }
            let published = system::publish(&self.client, service, &members).await;
            self.failed = published.as_ref().err().map(|_| Instant::now());
            match published {
                Ok(()) => {
                    self.published.insert(service, members);
                    self.failures.recovered();
                }
                Err(error) => self.failures.failed(&format!("{error:#}")),
            }
        }
    }
}

/// Probes the planes as a kubelet does. Keeps the endpoints of their Services and the status of their Pods up to date.
async fn probe_planes(shared: Arc<ClusterShared>, client: Client, shutdown: CancellationToken) {
    let mut statuses = PodStatuses::new(&client);
    let failures = FailureLog::for_operation("the update of the planes' endpoints");
    let mut endpoints = Endpoints { client, published: BTreeMap::new(), failed: None, failures };
    let mut known: BTreeMap<PlaneId, u64> = BTreeMap::new();
    loop {
        shared.restart();
        let planes: Vec<(PlaneId, u64)> = shared.planes.lock().iter().map(|(id, plane)| (*id, plane.number)).collect();
        let probes = planes.iter().copied();
        let probes = probes.map(async |(id, number)| (id, number, plane::is_ready(shared.address(id)).await));
        let answers = futures::future::join_all(probes).await;
        let probed = shared.record(answers);
        let member = |(id, (_, ready)): (&PlaneId, &(u64, bool))| {
            (*id, Member { name: id.name(), address: shared.address(*id).ip(), ready: *ready })
        };
        endpoints.publish(probed.iter().map(member)).await;
        known.extend(probed.iter().map(|(id, (number, _))| (*id, *number)));
        for (id, number) in &known {
            let ready = probed.get(id).map(|(_, ready)| *ready);
            statuses.update(*number, &id.name(), id.account(), shared.address(*id).ip(), ready).await;
        }
        shared.announce(&probed);
        let all_ready = probed.values().all(|(_, ready)| *ready);
        let period = if all_ready { PROBE_PERIOD } else { PROBE_PERIOD_STARTING };
        if shutdown.run_until_cancelled(tokio::time::sleep(period)).await.is_none() {
            return;
        }
    }
}
