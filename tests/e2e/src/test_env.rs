//! One cluster, one namespace, one test.

use crate::load::Load;
pub use crate::space::{ASLEEP, SOON, comparable, is_ready, program};
use crate::space::{Space, client};
use crate::stalls::Stalls;
use anyhow::Context;
use common_api::ZeroScaler;
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

/// Time that an ending activator keeps serving: longer than Service proxies need to stop using it on a slow machine.
pub const LINGER: Duration = Duration::from_secs(2);

/// Entry point of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// At the Service's own address, as clients do.
    Service,
    /// Directly at the first activator, with only a Host header.
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
    /// Starts a cluster with one of each plane.
    pub async fn start() -> anyhow::Result<Self> {
        Self::with(UpOptions::default()).await
    }

    /// Starts a cluster with `options`, on the API server of `E2E_KUBECONFIG` if that is set and `options` have no
    /// audit. First deletes leftovers of tests that did not finish.
    pub async fn with(mut options: UpOptions) -> anyhow::Result<Self> {
        options.external = std::env::var_os("E2E_KUBECONFIG").filter(|_| options.audit.is_none()).map(Into::into);
        if let Some(kubeconfig) = &options.external {
            delete_settings(&client(kubeconfig).await?).await?;
        }
        if let Ok(range) = std::env::var("E2E_POD_CIDR") {
            options.pod_cidr = Some(range.parse().context("E2E_POD_CIDR")?);
        }
        let (is_external, autoscalers) = (options.external.is_some(), usize::from(options.autoscalers));
        // If only some namespaces are watched, use the first of them, which the cluster has created.
        let listed = options.namespaces.listed().and_then(|names| names.first().cloned());
        let stalls = Stalls::new();
        let cluster = Cluster::start(options).await?;
        let space = match listed {
            Some(namespace) => Space::existing(cluster.client(), namespace),
            None => Space::create_in(cluster.client()).await?,
        };
        let space = Space { stalls, ..space };
        if is_external {
            space.delete_all(|name| name != space.namespace).await?;
        }
        Ok(Self { cluster, space, is_external, autoscalers })
    }

    /// Does the same with a grace period of 6 s before scaling to zero instead of half a minute.
    pub async fn with_short_grace(options: UpOptions) -> anyhow::Result<Self> {
        let mut settings = tempfile::NamedTempFile::new()?;
        settings.write_all(b"scale-to-zero-grace-period: 6s\n")?;
        Self::with(UpOptions { config_autoscaler: Some(settings.path().to_owned()), ..options }).await
    }

    /// Waits until `state` holds. The error includes the autoscaler's explanations.
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

    /// Waits until the number of addresses in the slices of a Service is `wanted`.
    pub async fn until_addresses(&self, service: &str, wanted: impl Fn(usize) -> bool) -> anyhow::Result<()> {
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        self.until(SOON, &format!("the addresses of {service}"), async || {
            let slices = self.api::<EndpointSlice>().list(&of_service).await?;
            Ok(wanted(slices.items.iter().flat_map(|slice| slice.endpoints.iter().flatten()).count()))
        })
        .await
    }

    /// Waits until `name` has no desired replicas and no pods. The error includes the autoscaler's explanations.
    pub async fn until_asleep(&self, name: &str) -> anyhow::Result<()> {
        self.until(ASLEEP, "no replicas and no pods", async || self.is_asleep(name).await).await
    }

    /// Returns the autoscalers' decisions about the test's workloads with their reasons, the states of pods, and
    /// warnings.
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
            let (object, reason) = (&event.involved_object.name, &event.reason);
            lines.push_str(&format!("{object:?} {reason:?} {:?}: {:?}\n", event.count, event.message));
        }
        lines
    }

    /// Ends the cluster in order, and on a permanent API server deletes all objects and settings of the test. Fails if
    /// any remain, since they would affect later tests.
    pub async fn end(self) -> anyhow::Result<()> {
        if self.is_external {
            self.space.delete().await.with_context(|| format!("namespace {}", self.space.namespace))?;
        }
        self.cluster.shutdown().await;
        if self.is_external {
            delete_settings(&self.space.client).await.with_context(|| format!("settings in {NAMESPACE}"))?;
        }
        Ok(())
    }

    /// Reports whether the API server serves the usage of pods. The embedded one must. A permanent one may not: it
    /// queries kubelets, and the test's node is not a kubelet.
    pub async fn has_metrics(&self) -> anyhow::Result<bool> {
        let groups = self.cluster.client().list_api_groups().await?;
        let known = groups.groups.iter().any(|group| group.name == "metrics.k8s.io");
        anyhow::ensure!(known || self.is_external, "the embedded API server serves no metrics.k8s.io");
        Ok(known)
    }

    /// Returns a client of the service `name`.
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

/// Deletes settings of tests, and the leases with their holders.
async fn delete_settings(client: &Client) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    for map in maps.list(&ListParams::default()).await?.items {
        if map.name_any().starts_with("config-") {
            ignore_missing(maps.delete(&map.name_any(), &DeleteParams::default()).await)?;
        }
    }
    for lease in leases.list(&ListParams::default()).await?.items {
        ignore_missing(leases.delete(&lease.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// Accepts that another process has already deleted the object.
fn ignore_missing<T>(deleted: kube::Result<T>) -> kube::Result<()> {
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
