//! One cluster, one namespace, one test.

use crate::load::Load;
use crate::space::Space;
use crate::space::client;
pub use crate::space::{ASLEEP, SOON, is_ready, program};
use anyhow::Context;
use common_api::ZeroScaler;
use faults::stalls::Stalls;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use local::up::system::NAMESPACE;
use local::up::{Cluster, PlaneId, UpOptions};
use serde_json::json;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

/// Longer than Service proxies take to learn that an activator goes, on a busy machine as well.
pub const LINGER: Duration = Duration::from_secs(2);

/// Which way requests go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// As clients do: at the Service's own address.
    Service,
    /// Straight at the first activator, with Host alone.
    Activator,
}

/// One cluster and a namespace in it.
pub struct TestEnv {
    /// The cluster.
    pub cluster: Cluster,
    space: Space,
    is_external: bool,
    autoscalers: usize,
}

impl TestEnv {
    /// A cluster with one of each plane.
    ///
    /// # Errors
    /// The cluster does not start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::with(UpOptions::default()).await
    }

    /// A cluster as `options` say; on the API server that `E2E_KUBECONFIG` names, if it is set and nobody wants to be
    /// told of its requests. What is left there of tests that did not come to their end is thrown away first.
    ///
    /// # Errors
    /// The cluster does not start.
    pub async fn with(mut options: UpOptions) -> anyhow::Result<Self> {
        options.external = std::env::var_os("E2E_KUBECONFIG").filter(|_| options.audit.is_none()).map(Into::into);
        if let Some(kubeconfig) = &options.external {
            forget_settings(&client(kubeconfig).await?).await?;
        }
        if let Ok(range) = std::env::var("E2E_POD_CIDR") {
            options.pod_cidr = Some(range.parse().context("E2E_POD_CIDR")?);
        }
        let (is_external, autoscalers) = (options.external.is_some(), usize::from(options.autoscalers));
        // Where only some namespaces are looked at, the first of them, which the cluster has made.
        let listed = options.namespaces.listed().and_then(|names| names.first().cloned());
        let stalls = Stalls::new();
        let cluster = Cluster::start(options).await?;
        let space = match listed {
            Some(namespace) => Space::of(cluster.client(), namespace),
            None => Space::create_in(cluster.client()).await?,
        };
        let space = Space { stalls, ..space };
        if is_external {
            space.delete_former().await?;
        }
        Ok(Self { cluster, space, is_external, autoscalers })
    }

    /// The same, with a grace period of 6 s on the way to zero in place of half a minute.
    ///
    /// # Errors
    /// The cluster does not start.
    pub async fn sleeping_soon(options: UpOptions) -> anyhow::Result<Self> {
        let mut settings = tempfile::NamedTempFile::new()?;
        settings.write_all(b"scale-to-zero-grace-period: 6s\n")?;
        Self::with(UpOptions { config_autoscaler: Some(settings.path().to_owned()), ..options }).await
    }

    /// Waits until `state` holds.
    ///
    /// # Errors
    /// It does not within `patience`, or cannot be looked at. What the autoscaler says of its decisions follows.
    pub async fn until(
        &self,
        patience: Duration,
        what: &str,
        state: impl AsyncFnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        match self.space.until(patience, what, state).await {
            Err(error) => Err(anyhow::anyhow!("{error:#}\n{}", self.why().await)),
            ok => ok,
        }
    }

    /// Waits until so many addresses stand in the slices of a Service.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn until_led(&self, service: &str, addresses: usize) -> anyhow::Result<()> {
        self.until_led_by(service, |led| led == addresses).await.with_context(|| format!("{addresses} are wanted"))
    }

    /// Waits until as many addresses stand in the slices of a Service as are wanted.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn until_led_by(&self, service: &str, wanted: impl Fn(usize) -> bool) -> anyhow::Result<()> {
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        self.until(SOON, &format!("the addresses of {service}"), async || {
            let slices = self.api::<EndpointSlice>().list(&of_service).await?;
            Ok(wanted(slices.items.iter().flat_map(|slice| slice.endpoints.iter().flatten()).count()))
        })
        .await
    }

    /// Waits until `name` asks for no replicas and has no pods.
    ///
    /// # Errors
    /// It stays awake, and why.
    pub async fn until_asleep(&self, name: &str) -> anyhow::Result<()> {
        self.until(ASLEEP, "no replicas and no pods", async || self.is_asleep(name).await).await
    }

    /// What autoscalers have decided on the test's workloads, and why, each in a table; how pods are, and what there was to
    /// warn of.
    async fn why(&self) -> String {
        let scalers = self.api::<ZeroScaler>().list(&ListParams::default()).await;
        let mut tables = String::new();
        for name in scalers.iter().flatten().filter_map(|object| object.metadata.name.as_deref()) {
            let revision = format!("{}/{name}", self.namespace);
            for n in 0..self.autoscalers {
                let admin = self.cluster.admin(PlaneId::Autoscaler(n));
                let table = autoscaler::explain::why(admin, None, &revision).await;
                tables.push_str(&table.unwrap_or_else(|error| format!("{error:#}\n")));
            }
        }
        tables + &self.pods_and_warnings().await
    }

    async fn pods_and_warnings(&self) -> String {
        let mut lines = String::new();
        for pod in self.api::<Pod>().list(&ListParams::default()).await.iter().flatten() {
            let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            let states: Vec<_> = containers
                .map(|c| {
                    let (is, was) = (json!(c.state), json!(c.last_state));
                    format!("ready {}, {} restarts, {is}, before {was}", c.ready, c.restart_count)
                })
                .collect();
            lines.push_str(&format!("pod {}: {}\n", pod.name_any(), states.join("; ")));
        }
        let warnings = ListParams::default().fields("type=Warning");
        for event in self.api::<Event>().list(&warnings).await.iter().flatten() {
            let (of, reason) = (&event.involved_object.name, &event.reason);
            lines.push_str(&format!("{of:?} {reason:?} {:?}: {:?}\n", event.count, event.message));
        }
        lines
    }

    /// Ends the cluster in order. What a test has written on an API server that stays is gone when this returns.
    ///
    /// # Panics
    /// The test's namespace does not end, or its settings stay: the tests to come would meet them.
    pub async fn end(self) {
        if self.is_external
            && let Err(error) = self.space.delete().await
        {
            panic!("namespace {}: {error:#}", self.space.namespace);
        }
        self.cluster.shutdown().await;
        if self.is_external
            && let Err(error) = forget_settings(&self.space.client).await
        {
            panic!("settings in {NAMESPACE}: {error:#}");
        }
    }

    /// Whether the API server knows what pods use. Ours does; one that stays may not, since it asks kubelets, which our
    /// node is none of.
    ///
    /// # Errors
    /// It is ours and does not, or it does not answer.
    pub async fn has_metrics(&self) -> anyhow::Result<bool> {
        let groups = self.cluster.client().list_api_groups().await?;
        let known = groups.groups.iter().any(|group| group.name == "metrics.k8s.io");
        anyhow::ensure!(known || self.is_external, "the embedded API server serves no metrics.k8s.io");
        Ok(known)
    }

    /// A client of the service `name`.
    pub fn load(&self, entry: Entry, name: &str) -> Load {
        let host = format!("{name}.{}", self.namespace);
        match entry {
            Entry::Service => Load::by_name(self.cluster.resolver(), host),
            Entry::Activator => Load::new(self.activator(), host),
        }
    }

    /// Returns a shared port of the first activator.
    pub fn activator(&self) -> SocketAddr {
        self.cluster.address(PlaneId::Activator(0))
    }
}

/// Deletes what a test may have set, and who held which lease.
async fn forget_settings(client: &Client) -> anyhow::Result<()> {
    let (maps, leases): (Api<ConfigMap>, Api<Lease>) =
        (Api::namespaced(client.clone(), NAMESPACE), Api::namespaced(client.clone(), NAMESPACE));
    for map in maps.list(&ListParams::default()).await?.items {
        if map.name_any().starts_with("config-") {
            gone(maps.delete(&map.name_any(), &DeleteParams::default()).await)?;
        }
    }
    for lease in leases.list(&ListParams::default()).await?.items {
        gone(leases.delete(&lease.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// Somebody else may have been faster.
fn gone<T>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(|_| ()),
    }
}

impl Deref for TestEnv {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}
