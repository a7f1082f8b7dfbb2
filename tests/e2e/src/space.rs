//! A namespace of one test, and what tests do in it.

use crate::workload::Workload;
use anyhow::Context;
use common_api::ZeroScaler;
use faults::stalls::Stalls;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use tracing_subscriber::EnvFilter;

/// Longest wait for a state that is a matter of a moment.
pub const SOON: Duration = Duration::from_secs(60);
/// Longest wait for a service to fall asleep: window, grace period and what a busy machine adds.
pub const ASLEEP: Duration = Duration::from_secs(120);
/// How often a state is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Marks the namespaces of tests.
const MARK: &str = "zeroscale.dev/e2e";

/// A namespace of an API server.
pub struct Space {
    /// An administrator's client.
    pub client: Client,
    /// The test's namespace.
    pub namespace: String,
    /// What the machine took from the test; every bound is that much further away.
    pub stalls: Stalls,
}

impl Space {
    /// A new namespace.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn create_in(client: Client) -> anyhow::Result<Self> {
        logs();
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"generateName": "e2e-", "labels": {MARK: "test"}}}))?;
        let object = Api::all(client.clone()).create(&PostParams::default(), &object).await.context("namespace")?;
        Ok(Self { client, namespace: object.name_any(), stalls: Stalls::new() })
    }

    /// A namespace that is there.
    pub fn of(client: Client, namespace: String) -> Self {
        logs();
        Self { client, namespace, stalls: Stalls::new() }
    }

    /// Deletes the namespace, and waits until all that was in it is gone; with it the namespaces of tests that did not
    /// come to their end. Whoever gives back what ZeroScalers hold must still run.
    ///
    /// # Errors
    /// Something stays.
    pub async fn delete(&self) -> anyhow::Result<()> {
        self.delete_all(|_| true).await
    }

    /// Does so with all of tests before this one.
    ///
    /// # Errors
    /// Something stays.
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

    /// Objects of one kind in the test's namespace.
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
    /// The API server refuses it.
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

    /// Creates a workload, and waits until the autoscaler has taken it over.
    ///
    /// # Errors
    /// An object is refused, or the takeover takes too long.
    pub async fn deploy(&self, workload: &Workload) -> anyhow::Result<()> {
        self.create_workload(workload).await?;
        self.until_served(&workload.name).await
    }

    /// Creates a workload: its Deployment, its Service and its ZeroScaler.
    ///
    /// # Errors
    /// An object is refused.
    pub async fn create_workload(&self, workload: &Workload) -> anyhow::Result<()> {
        self.create::<Deployment>(workload.deployment(&program()?)).await?;
        self.create::<Service>(workload.service()).await?;
        self.create::<ZeroScaler>(workload.scaler()).await?;
        Ok(())
    }

    /// Waits until the ZeroScaler `name` is served.
    ///
    /// # Errors
    /// It is not, or cannot be read.
    pub async fn until_served(&self, name: &str) -> anyhow::Result<()> {
        self.until(SOON, "Ready", async || Ok(self.scaler(name).await?.is_ready())).await
    }

    /// The ZeroScaler `name`.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn scaler(&self, name: &str) -> anyhow::Result<ZeroScaler> {
        Ok(self.api::<ZeroScaler>().get(name).await?)
    }

    /// Status, reason and message of one of its conditions.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn condition(&self, name: &str, type_: &str) -> anyhow::Result<Option<(String, String, String)>> {
        let found = self.scaler(name).await?;
        Ok(found.condition(type_).map(|c| (c.status.clone(), c.reason.clone(), c.message.clone())))
    }

    /// Waits until the ZeroScaler `name` is gone.
    ///
    /// # Errors
    /// It stays, or cannot be looked for.
    pub async fn until_gone(&self, name: &str) -> anyhow::Result<()> {
        self.until(SOON, "the ZeroScaler to go", async || Ok(self.api::<ZeroScaler>().get_opt(name).await?.is_none()))
            .await
    }

    /// Replicas that the Deployment `name` asks for.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn replicas(&self, name: &str) -> anyhow::Result<i32> {
        Ok(self.api::<Deployment>().get(name).await?.spec.and_then(|s| s.replicas).unwrap_or(1))
    }

    /// Pods of the workload `name` that still run.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn pods(&self, name: &str) -> anyhow::Result<Vec<Pod>> {
        let labelled = ListParams::default().labels(&format!("app={name}"));
        Ok(self.api::<Pod>().list(&labelled).await?.items)
    }

    /// How many of them are ready and not going.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn ready_pods(&self, name: &str) -> anyhow::Result<usize> {
        Ok(self.pods(name).await?.iter().filter(|pod| is_ready(pod)).count())
    }

    /// Whether `name` asks for no replicas and has no pods.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn is_asleep(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.replicas(name).await? == 0 && self.pods(name).await?.is_empty())
    }

    /// Waits until it is.
    ///
    /// # Errors
    /// It stays awake.
    pub async fn until_asleep(&self, name: &str) -> anyhow::Result<()> {
        self.until(ASLEEP, "no replicas and no pods", async || self.is_asleep(name).await).await
    }

    /// Waits until `state` holds.
    ///
    /// # Errors
    /// It does not within `patience`, or cannot be looked at.
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

/// An administrator's client of the API server that a kubeconfig names.
///
/// # Errors
/// The file cannot be read, or says nothing of use.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

/// Says what the cluster logs if `RUST_LOG` says how much.
fn logs() {
    if let Ok(filter) = EnvFilter::try_from_default_env() {
        // An error means that another test of this process was first.
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    }
}

/// Whether a pod is ready and not going.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Path of the sample program, which cargo builds beside the tests.
///
/// # Errors
/// The test runs from nowhere.
pub fn program() -> anyhow::Result<String> {
    let tests = std::env::current_exe()?;
    let built = tests.parent().and_then(Path::parent).context("tests lie in a folder of a folder")?;
    Ok(built.join("e2e-workload").display().to_string())
}
