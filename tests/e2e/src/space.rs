//! Namespace of one test, and the operations of tests in it.

use crate::stalls::Stalls;
use crate::workload::Workload;
use anyhow::Context;
use common_api::ZeroScaler;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource, ResourceExt};
use local::up::system;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
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
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Label of the tests' namespaces.
const TEST_LABEL: &str = "zeroscale.dev/e2e";

/// Kind of objects in namespaces.
pub trait Namespaced:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Serialize + Clone + Debug
{
}

impl<K> Namespaced for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Serialize + Clone + Debug
{
}

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
    pub async fn create_in(client: Client) -> anyhow::Result<Self> {
        init_logging();
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"generateName": "e2e-", "labels": {TEST_LABEL: "test"}}}))?;
        let object = Api::all(client.clone()).create(&PostParams::default(), &object).await.context("namespace")?;
        Ok(Self { client, namespace: object.name_any(), stalls: Stalls::new() })
    }

    /// Uses an existing namespace.
    pub fn existing(client: Client, namespace: String) -> Self {
        init_logging();
        Self { client, namespace, stalls: Stalls::new() }
    }

    /// Deletes the namespace, and waits until all its objects are gone. Also deletes namespaces of tests that did not
    /// finish. The autoscaler must still run, because it restores what ZeroScalers have taken over.
    pub async fn delete(&self) -> anyhow::Result<()> {
        self.delete_all(|_| true).await
    }

    /// Does the same for the wanted namespaces of tests.
    pub(crate) async fn delete_all(&self, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let of_tests = ListParams::default().labels(TEST_LABEL);
        self.until(ASLEEP, "the end of namespaces", async || {
            let mut remaining = namespaces.list(&of_tests).await?.items;
            remaining.retain(|namespace| wanted(&namespace.name_any()));
            for namespace in remaining.iter().filter(|namespace| namespace.metadata.deletion_timestamp.is_none()) {
                namespaces.delete(&namespace.name_any(), &DeleteParams::default()).await?;
            }
            Ok(remaining.is_empty())
        })
        .await
    }

    /// Returns the API of one kind in the test's namespace.
    pub fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object from JSON.
    pub async fn create<K: Namespaced>(&self, object: Value) -> anyhow::Result<K> {
        Ok(self.api::<K>().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Merges a patch into an object.
    pub async fn patch<K: Namespaced>(&self, name: &str, patch: Value) -> anyhow::Result<K> {
        Ok(self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Creates a ConfigMap of the planes.
    pub async fn configure(&self, name: &str, data: Value) -> anyhow::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), system::NAMESPACE);
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": data}))?;
        maps.create(&PostParams::default(), &map).await?;
        Ok(())
    }

    /// Creates a workload, and waits until the autoscaler has taken it over.
    pub async fn deploy(&self, workload: &Workload) -> anyhow::Result<()> {
        self.create_workload(workload).await?;
        self.until_served(&workload.name).await
    }

    /// Creates a workload: its Deployment, its Service and its ZeroScaler.
    pub async fn create_workload(&self, workload: &Workload) -> anyhow::Result<()> {
        self.create::<Deployment>(workload.deployment(&program()?)).await?;
        self.create::<Service>(workload.service()).await?;
        self.create::<ZeroScaler>(workload.scaler()).await?;
        Ok(())
    }

    /// Waits until the ZeroScaler `name` is served.
    pub async fn until_served(&self, name: &str) -> anyhow::Result<()> {
        self.until(SOON, "Ready", async || Ok(self.scaler(name).await?.is_ready())).await
    }

    /// Returns the ZeroScaler `name`.
    pub async fn scaler(&self, name: &str) -> anyhow::Result<ZeroScaler> {
        Ok(self.api::<ZeroScaler>().get(name).await?)
    }

    /// Returns status, reason and message of one of its conditions.
    pub async fn condition(&self, name: &str, type_: &str) -> anyhow::Result<Option<(String, String, String)>> {
        let found = self.scaler(name).await?;
        Ok(found.condition(type_).map(|c| (c.status.clone(), c.reason.clone(), c.message.clone())))
    }

    /// Waits until a condition has this status and reason, or is absent; returns its message.
    pub async fn until_condition(
        &self,
        name: &str,
        type_: &str,
        expected: Option<(&str, &str)>,
    ) -> anyhow::Result<String> {
        let mut last = None;
        let what = format!("{type_} of {name}: {expected:?}");
        let reached = self.until(SOON, &what, async || {
            last = self.condition(name, type_).await?;
            Ok(last.as_ref().map(|(status, reason, _)| (status.as_str(), reason.as_str())) == expected)
        });
        reached.await.with_context(|| format!("{last:?}"))?;
        Ok(last.map(|(.., message)| message).unwrap_or_default())
    }

    /// Waits until the ZeroScaler `name` is gone.
    pub async fn until_gone(&self, name: &str) -> anyhow::Result<()> {
        self.until(SOON, "the ZeroScaler to go", async || Ok(self.api::<ZeroScaler>().get_opt(name).await?.is_none()))
            .await
    }

    /// Deletes the ZeroScaler `name`, and waits until it is gone.
    pub async fn delete_scaler(&self, name: &str) -> anyhow::Result<()> {
        self.api::<ZeroScaler>().delete(name, &DeleteParams::default()).await?;
        self.until_gone(name).await
    }

    /// Returns the replicas of the Deployment `name`.
    pub async fn replicas(&self, name: &str) -> anyhow::Result<i32> {
        Ok(self.api::<Deployment>().get(name).await?.spec.and_then(|s| s.replicas).unwrap_or(1))
    }

    /// Returns the cluster IP of a Service with its first port.
    pub async fn service_address(&self, name: &str) -> anyhow::Result<SocketAddr> {
        let spec = self.api::<Service>().get(name).await?.spec.context("a spec")?;
        let port = spec.ports.iter().flatten().next().context("a port")?.port;
        Ok(SocketAddr::new(spec.cluster_ip.context("a cluster IP")?.parse()?, u16::try_from(port)?))
    }

    /// Returns the existing pods of the workload `name`.
    pub async fn pods(&self, name: &str) -> anyhow::Result<Vec<Pod>> {
        let labelled = ListParams::default().labels(&format!("app={name}"));
        Ok(self.api::<Pod>().list(&labelled).await?.items)
    }

    /// Returns the number of pods that are ready and not terminating.
    pub async fn ready_pods(&self, name: &str) -> anyhow::Result<usize> {
        Ok(self.pods(name).await?.iter().filter(|pod| is_ready(pod)).count())
    }

    /// Reports whether `name` has no desired replicas and no pods.
    pub async fn is_asleep(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.replicas(name).await? == 0 && self.pods(name).await?.is_empty())
    }

    /// Waits until `name` is at zero.
    pub async fn until_asleep(&self, name: &str) -> anyhow::Result<()> {
        self.until(ASLEEP, "no replicas and no pods", async || self.is_asleep(name).await).await
    }

    /// Waits until `state` holds. Fails if it does not hold within `patience`, or cannot be checked.
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
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// Waits until a condition holds. Fails if it does not hold within a minute.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let reached = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, reached).await.with_context(|| format!("waited in vain for {what}"))
}

/// Returns an administrator's client of the API server in a kubeconfig.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

/// Prints the cluster's logs if `RUST_LOG` is set.
fn init_logging() {
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

/// Serializes a Service without the fields that the API server sets, to compare it with an earlier version.
pub fn comparable(mut service: Service) -> anyhow::Result<String> {
    service.metadata.resource_version = None;
    service.metadata.managed_fields = None;
    service.status = None;
    Ok(serde_json::to_string(&service)?)
}

/// Returns the path of the sample program, which cargo builds beside the tests.
pub fn program() -> anyhow::Result<String> {
    let tests = std::env::current_exe()?;
    let built = tests.parent().and_then(Path::parent).context("tests lie in a folder of a folder")?;
    Ok(built.join("e2e-workload").display().to_string())
}
