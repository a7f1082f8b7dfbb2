//! Namespace of one test, and the operations of tests in it.

use crate::workload::Workload;
use anyhow::Context;
use common_api::ZeroScaler;
use faults::stalls::Stalls;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use local::up::system;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use tracing_subscriber::EnvFilter;

/// Longest wait for a state that should be reached within moments.
pub const SOON: Duration = Duration::from_secs(60);
/// Longest wait for scaling to zero: window, grace period and the delays of a slow machine.
pub const ASLEEP: Duration = Duration::from_secs(120);
/// Interval at which a state is checked. Many tests wait at the same time, and each check costs requests.
const LOOK: Duration = Duration::from_millis(50);

/// Label of the tests' namespaces.
const MARK: &str = "zeroscale.dev/e2e";

/// Namespace of an API server.
pub struct Space {
    /// An administrator's client.
    pub client: Client,
    /// Namespace of the test.
    pub namespace: String,
    /// Stalls of the machine; every time limit is extended by them.
    pub stalls: Stalls,
}

impl Space {
    /// Creates a new namespace.
    ///
    /// # Errors
    /// Fails if the API server rejects it.
    pub async fn create_in(client: Client) -> anyhow::Result<Self> {
        logs();
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"generateName": "e2e-", "labels": {MARK: "test"}}}))?;
        let object = Api::all(client.clone()).create(&PostParams::default(), &object).await.context("namespace")?;
        Ok(Self { client, namespace: object.name_any(), stalls: Stalls::new() })
    }

    /// Uses an existing namespace.
    pub fn existing(client: Client, namespace: String) -> Self {
        logs();
        Self { client, namespace, stalls: Stalls::new() }
    }

    /// Deletes the namespace, and waits until all its objects are gone. Also deletes namespaces of tests that did not
    /// finish. The autoscaler must still run, because it restores what ZeroScalers have taken over.
    ///
    /// # Errors
    /// Fails if something stays.
    pub async fn delete(&self) -> anyhow::Result<()> {
        self.delete_all(|_| true).await
    }

    /// Does the same for all namespaces of earlier tests.
    ///
    /// # Errors
    /// Fails if something stays.
    pub async fn delete_former(&self) -> anyhow::Result<()> {
        self.delete_all(|name| name != self.namespace).await
    }

    async fn delete_all(&self, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let marked = ListParams::default().labels(MARK);
        self.until(ASLEEP, "the end of namespaces", async || {
            let mut left = namespaces.list(&marked).await?.items;
            left.retain(|namespace| wanted(&namespace.name_any()));
            for namespace in left.iter().filter(|namespace| namespace.metadata.deletion_timestamp.is_none()) {
                namespaces.delete(&namespace.name_any(), &DeleteParams::default()).await?;
            }
            Ok(left.is_empty())
        })
        .await
    }

    /// Returns the API of one kind in the test's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object from JSON.
    ///
    /// # Errors
    /// Fails if the API server rejects it.
    pub async fn create<K>(&self, object: Value) -> anyhow::Result<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>
            + serde::de::DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        Ok(self.api::<K>().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Merges a patch into an object.
    ///
    /// # Errors
    /// Fails if the API server rejects it.
    pub async fn patch<K>(&self, name: &str, patch: Value) -> anyhow::Result<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>
            + serde::de::DeserializeOwned
            + Clone
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        Ok(self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Creates a ConfigMap of the planes.
    ///
    /// # Errors
    /// Fails if it exists.
    pub async fn configure(&self, name: &str, data: Value) -> anyhow::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), system::NAMESPACE);
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": data}))?;
        maps.create(&PostParams::default(), &map).await?;
        Ok(())
    }

    /// Creates a workload, and waits until the autoscaler has taken it over.
    ///
    /// # Errors
    /// Fails if an object is rejected, or if the takeover takes too long.
    pub async fn deploy(&self, workload: &Workload) -> anyhow::Result<()> {
        self.create_workload(workload).await?;
        self.until_served(&workload.name).await
    }

    /// Creates a workload: its Deployment, its Service and its ZeroScaler.
    ///
    /// # Errors
    /// Fails if an object is rejected.
    pub async fn create_workload(&self, workload: &Workload) -> anyhow::Result<()> {
        self.create::<Deployment>(workload.deployment(&program()?)).await?;
        self.create::<Service>(workload.service()).await?;
        self.create::<ZeroScaler>(workload.scaler()).await?;
        Ok(())
    }

    /// Waits until the ZeroScaler `name` is served.
    ///
    /// # Errors
    /// Fails if it is not, or cannot be read.
    pub async fn until_served(&self, name: &str) -> anyhow::Result<()> {
        self.until(SOON, "Ready", async || Ok(self.scaler(name).await?.is_ready())).await
    }

    /// Returns the ZeroScaler `name`.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub async fn scaler(&self, name: &str) -> anyhow::Result<ZeroScaler> {
        Ok(self.api::<ZeroScaler>().get(name).await?)
    }

    /// Returns status, reason and message of one of its conditions.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub async fn condition(&self, name: &str, type_: &str) -> anyhow::Result<Option<(String, String, String)>> {
        let found = self.scaler(name).await?;
        Ok(found.condition(type_).map(|c| (c.status.clone(), c.reason.clone(), c.message.clone())))
    }

    /// Waits until the ZeroScaler `name` is gone.
    ///
    /// # Errors
    /// Fails if it stays, or if the API server does not respond.
    pub async fn until_gone(&self, name: &str) -> anyhow::Result<()> {
        self.until(SOON, "the ZeroScaler to go", async || Ok(self.api::<ZeroScaler>().get_opt(name).await?.is_none()))
            .await
    }

    /// Returns the replicas of the Deployment `name`.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub async fn replicas(&self, name: &str) -> anyhow::Result<i32> {
        Ok(self.api::<Deployment>().get(name).await?.spec.and_then(|s| s.replicas).unwrap_or(1))
    }

    /// Returns the first port of a Service's own address.
    ///
    /// # Errors
    /// Fails if it has none, or cannot be read.
    pub async fn service_address(&self, name: &str) -> anyhow::Result<SocketAddr> {
        let spec = self.api::<Service>().get(name).await?.spec.context("a spec")?;
        let port = spec.ports.iter().flatten().next().context("a port")?.port;
        Ok(SocketAddr::new(spec.cluster_ip.context("a cluster IP")?.parse()?, u16::try_from(port)?))
    }

    /// Returns the existing pods of the workload `name`.
    ///
    /// # Errors
    /// Fails if they cannot be listed.
    pub async fn pods(&self, name: &str) -> anyhow::Result<Vec<Pod>> {
        let labelled = ListParams::default().labels(&format!("app={name}"));
        Ok(self.api::<Pod>().list(&labelled).await?.items)
    }

    /// Returns the number of pods that are ready and not terminating.
    ///
    /// # Errors
    /// Fails if they cannot be listed.
    pub async fn ready_pods(&self, name: &str) -> anyhow::Result<usize> {
        Ok(self.pods(name).await?.iter().filter(|pod| is_ready(pod)).count())
    }

    /// Reports whether `name` has no desired replicas and no pods.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub async fn is_asleep(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.replicas(name).await? == 0 && self.pods(name).await?.is_empty())
    }

    /// Waits until `name` is at zero.
    ///
    /// # Errors
    /// Fails if it keeps pods.
    pub async fn until_asleep(&self, name: &str) -> anyhow::Result<()> {
        self.until(ASLEEP, "no replicas and no pods", async || self.is_asleep(name).await).await
    }

    /// Waits until `state` holds.
    ///
    /// # Errors
    /// Fails if it does not hold within `patience`, or cannot be checked.
    pub async fn until(
        &self,
        patience: Duration,
        what: &str,
        mut state: impl AsyncFnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let (begun, stalled) = (Instant::now(), self.stalls.total());
        while !state().await? {
            let (waited, lost) = (begun.elapsed(), self.stalls.total() - stalled);
            let is_over = waited > patience + lost;
            anyhow::ensure!(!is_over, "waited {waited:?} in vain for {what}; threads stalled {lost:?} meanwhile");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

/// Returns an administrator's client of the API server in a kubeconfig.
///
/// # Errors
/// Fails if the file cannot be read or is invalid.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

/// Prints the cluster's logs if `RUST_LOG` is set.
fn logs() {
    if let Ok(filter) = EnvFilter::try_from_default_env() {
        // An error means that another test of this process was first.
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    }
}

/// Reports whether a pod is ready and not terminating.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Returns the parts of a Service that its owner could have written.
///
/// # Errors
/// Fails if it cannot be serialized.
pub fn essence(mut service: Service) -> anyhow::Result<String> {
    service.metadata.resource_version = None;
    service.metadata.managed_fields = None;
    service.status = None;
    Ok(serde_json::to_string(&service)?)
}

/// Returns the path of the sample program, which cargo builds beside the tests.
///
/// # Errors
/// Fails if the path of the test itself is unknown.
pub fn program() -> anyhow::Result<String> {
    let tests = std::env::current_exe()?;
    let built = tests.parent().and_then(Path::parent).context("tests lie in a folder of a folder")?;
    Ok(built.join("e2e-workload").display().to_string())
}
