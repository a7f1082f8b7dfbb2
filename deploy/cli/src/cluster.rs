//! Connection to the cluster, names of ZeroScalers in it, and errors that say how to fix them.

use anyhow::{Context, anyhow};
use clap::Args;
use common::RevisionKey;
use common_api::ZeroScaler;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource};
use std::path::PathBuf;
use std::time::Duration;

/// Name of the kubeconfig cluster extension that holds the dashboard's address.
const DASHBOARD: &str = "zeroscale.dev/dashboard";
const NO_KUBECONFIG: &str = "no kubeconfig is found: set --kubeconfig or KUBECONFIG, or create ~/.kube/config";
/// Timeouts for connecting to the API server and for reading from it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Cluster and dashboard options.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Path of the kubeconfig [default: KUBECONFIG, else ~/.kube/config, else the pod's own service account].
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig [default: its current context].
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the workloads [default: the namespace of the context].
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// Namespace in which Zeroscale runs.
    #[arg(long, global = true, value_name = "NAMESPACE", default_value = "zeroscale-system")]
    pub system_namespace: String,
    /// Address of the dashboard, such as http://127.0.0.1:8090 [default: the address in the kubeconfig, else a
    /// forwarded port of an autoscaler pod].
    #[arg(long, global = true, value_name = "URL")]
    pub address: Option<String>,
    /// File with the token of the dashboard.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Connection to a cluster.
#[derive(Clone)]
pub struct Cluster {
    /// Client of the API server.
    pub client: Client,
    /// Namespace that applies if none is named.
    pub namespace: String,
    /// Address of the dashboard, if the kubeconfig has one.
    pub dashboard: Option<String>,
}

impl ClusterArgs {
    /// Builds the client from the kubeconfig. Sends no request. Fails if the kubeconfig cannot be used; the error names
    /// it.
    pub async fn cluster(&self) -> anyhow::Result<Cluster> {
        let (mut config, dashboard) = self.config().await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
        Ok(Cluster { client, namespace, dashboard })
    }

    async fn config(&self) -> anyhow::Result<(Config, Option<String>)> {
        let named = std::env::var("KUBECONFIG").ok().filter(|value| !value.is_empty());
        let (what, read) = match (&self.kubeconfig, named) {
            (Some(path), _) => (format!("--kubeconfig {}", path.display()), Kubeconfig::read_from(path)),
            (None, Some(paths)) => (format!("KUBECONFIG={paths}"), Kubeconfig::read()),
            (None, None) => match Kubeconfig::read() {
                Ok(read) => ("~/.kube/config".to_owned(), Ok(read)),
                Err(_) if self.context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                    return Ok((Config::incluster().context("the pod's service account cannot be used")?, None));
                }
                Err(error) => (NO_KUBECONFIG.to_owned(), Err(error)),
            },
        };
        let read = read.map_err(|error| anyhow!("{what}: {error}"))?;
        let dashboard = dashboard(&read, self.context.as_deref());
        let selected = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(read, &selected).await.with_context(|| what)?;
        Ok((config, dashboard))
    }
}

/// Returns the dashboard address in the extension of the context's cluster.
fn dashboard(read: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(read.current_context.as_deref())?;
    let context = read.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    let cluster = read.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    let extension = cluster.extensions.iter().flatten().find(|extension| extension.name == DASHBOARD)?;
    Some(extension.extension["address"].as_str()?.to_owned())
}

impl Cluster {
    /// Returns the API of a kind in a namespace, or in all namespaces if it is `None`.
    pub fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// Lists the ZeroScalers of a namespace, or of the cluster if it is `None`. Fails with the API server's error
    /// and advice.
    pub async fn list(&self, namespace: Option<&str>) -> anyhow::Result<Vec<ZeroScaler>> {
        let listed = self.api::<ZeroScaler>(namespace).list(&ListParams::default()).await;
        listed.map(|list| list.items).map_err(|error| api_error(error, "ZeroScalers cannot be listed"))
    }

    /// Reads one ZeroScaler. Fails if it does not exist, or with the API server's error and advice.
    pub async fn get(&self, key: &RevisionKey) -> anyhow::Result<ZeroScaler> {
        let found = self.api(Some(key.namespace())).get(key.name()).await;
        found.map_err(|error| zeroscaler_error(error, key))
    }
}

/// Parses `NAME`, which is in the given namespace, or `NAMESPACE/NAME`. Fails if the text has neither form.
pub fn key(text: &str, namespace: &str) -> anyhow::Result<RevisionKey> {
    let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
    let good = common_api::validation::is_object_name;
    anyhow::ensure!(good(namespace) && good(name), "{text:?} must be NAME or NAMESPACE/NAME: a-z, 0-9, - and .");
    Ok(RevisionKey::new(namespace, name))
}

/// Parses several names. Fails if a text has neither form.
pub fn keys(texts: &[String], namespace: &str) -> anyhow::Result<Vec<RevisionKey>> {
    texts.iter().map(|text| key(text, namespace)).collect()
}

/// Converts an API server error about one ZeroScaler, which may not exist, and adds advice.
pub fn zeroscaler_error(error: kube::Error, key: &RevisionKey) -> anyhow::Error {
    match &error {
        kube::Error::Api(status) if status.code == 404 && !is_undefined(status) => {
            anyhow!("no ZeroScaler {:?} in namespace {:?}", key.name(), key.namespace())
        }
        _ => api_error(error, &format!("ZeroScaler {key}")),
    }
}

/// Converts an API server error and adds advice.
pub fn api_error(error: kube::Error, doing: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if is_undefined(&status) => anyhow!(
            "{doing}: this cluster has no definition of ZeroScalers; apply deploy/kubernetes/crds, or select another cluster \
             with --context"
        ),
        kube::Error::Api(status) if status.code == 401 => {
            anyhow!("{doing}: the API server rejects your credentials ({}): log in again", status.message)
        }
        kube::Error::Api(status) => anyhow!("{doing}: {}", status.message),
        error => anyhow!("{doing}: the API server cannot be reached: {}", cause(&error)),
    }
}

/// Returns the innermost source of an error. The outer layers only describe our own call, which does not help the user.
pub fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

/// Reports whether the whole kind is missing rather than one object.
fn is_undefined(status: &kube::core::Status) -> bool {
    status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_include_its_namespace() {
        let read = |text| key(text, "shop").map(|key| key.to_string()).map_err(|error| error.to_string());
        assert_eq!(read("hello"), Ok("shop/hello".to_owned()));
        assert_eq!(read("other/hello"), Ok("other/hello".to_owned()));
        for wrong in ["", "a/b/c", "Hello", "/x", "x/", "../x"] {
            assert!(read(wrong).expect_err(wrong).contains("NAMESPACE/NAME"), "{wrong}");
        }
    }

    #[test]
    fn the_dashboards_address_is_read_from_the_kubeconfig() {
        let text = |address: &str| {
            format!(
                "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: c, user: u}}}}, \
                 {{name: b, context: {{cluster: d, user: u}}}}], users: [], clusters: [{{name: c, cluster: {{server: \
                 'http://x', extensions: [{{name: {DASHBOARD}, extension: {address}}}]}}}}, {{name: d, cluster: {{server: \
                 'http://y'}}}}]}}"
            )
        };
        let read = |text: &str| Kubeconfig::from_yaml(text).expect("a kubeconfig");
        let local = read(&text("{address: 'http://127.0.0.1:9'}"));
        assert_eq!(dashboard(&local, None).as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!((dashboard(&local, Some("b")), dashboard(&local, Some("z"))), (None, None));
        assert_eq!(dashboard(&read(&text("7")), None), None);
    }
}
