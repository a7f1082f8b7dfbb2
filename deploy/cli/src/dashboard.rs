//! The dashboard of the autoscaler, wherever it can be reached.
//!
//! It listens on loopback of each autoscaler's pod. It is reached, in this order, at `--address`, at what the kubeconfig
//! says of its cluster (`local up` writes it), or through a port that the API server forwards to any pod that is ready:
//! that needs the right to create `pods/portforward` there, and none to run anything in it.

use crate::cluster::{Cluster, Where};
use crate::model::{Detail, Listing};
use anyhow::{Context, anyhow, bail};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, Config, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Its port in a pod of the autoscaler.
pub const PORT: u16 = 8090;
/// Pods of the autoscaler.
const AUTOSCALERS: &str = "app=autoscaler";
/// Largest answer that is read: ten thousand workloads take some ten MiB.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longest time that it may take to accept a connection, and to answer.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// One that can be asked.
pub struct Dashboard {
    /// Where it is, for a browser too.
    pub address: String,
    client: Client,
    token: Option<String>,
    /// What leads there, for as long as this lives.
    _forward: Option<Forward>,
}

impl Where {
    /// The dashboard. Only what a port is forwarded to is asked for it.
    ///
    /// # Errors
    /// There is no way to one; the error says which was tried, and what to do.
    pub async fn dashboard(&self, cluster: &anyhow::Result<Cluster>) -> anyhow::Result<Dashboard> {
        let known = match (&self.address, cluster) {
            (Some(address), _) => Some(address.clone()),
            (None, Ok(cluster)) => cluster.dashboard.clone(),
            (None, Err(error)) => bail!("{error:#}"),
        };
        let (address, forward) = match (known, cluster) {
            (Some(address), _) => (address, None),
            (None, Ok(cluster)) => {
                let forward = Forward::begin(&cluster.client, &self.system_namespace).await?;
                (format!("http://{}", forward.local), Some(forward))
            }
            (None, Err(error)) => bail!("{error:#}"),
        };
        let token = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                let text = text.with_context(|| format!("--token-file {}: cannot be read", file.display()))?;
                Some(text.trim().to_owned())
            }
            None => None,
        };
        let uri: http::Uri = address.parse().map_err(|_| anyhow!("--address {address:?}: no URL"))?;
        if uri.scheme().is_none() || uri.host().is_none() {
            bail!("--address {address:?}: must be a URL such as http://127.0.0.1:8090");
        }
        let mut config = Config::new(uri);
        (config.connect_timeout, config.read_timeout) = (Some(CONNECTS_WITHIN), Some(ANSWERS_WITHIN));
        config.default_retry = false;
        let client = Client::try_from(config).with_context(|| format!("dashboard {address}"))?;
        Ok(Dashboard { address, client, token, _forward: forward })
    }
}

impl Dashboard {
    /// All workloads of a namespace; none: of all.
    ///
    /// # Errors
    /// It cannot be asked.
    pub async fn list(&self, namespace: Option<&str>) -> anyhow::Result<Listing> {
        let query = namespace.map(|namespace| format!("?namespace={namespace}")).unwrap_or_default();
        self.get(&format!("/api/v1/workloads{query}")).await
    }

    /// All about one workload.
    ///
    /// # Errors
    /// It cannot be asked, or knows no such workload.
    pub async fn detail(&self, namespace: &str, name: &str) -> anyhow::Result<Detail> {
        self.get(&format!("/api/v1/workloads/{namespace}/{name}")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let address = &self.address;
        let mut request = Request::get(path).header(header::ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::empty()).context("--token-file: no token can be sent")?;
        let answer =
            self.client.send(request).await.with_context(|| format!("the dashboard at {address} cannot be asked"))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
        let bytes = body.map_err(|error| anyhow!("the dashboard at {address} ended early: {error}"))?.to_bytes();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            bail!("the dashboard at {address} wants its token: --token-file FILE");
        }
        if status != StatusCode::OK {
            let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let why = said["error"].as_str().map_or_else(|| status.to_string(), str::to_owned);
            bail!("the dashboard at {address}: {why}");
        }
        serde_json::from_slice(&bytes)
            .with_context(|| format!("the dashboard at {address} says what is not understood"))
    }
}

/// A port of this machine that leads to one of an autoscaler's pod.
struct Forward {
    local: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Forward {
    /// Looks for a pod and begins.
    async fn begin(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let found = pods.list(&ListParams::default().labels(AUTOSCALERS)).await;
        let found =
            found.map_err(|error| crate::cluster::explained(error, &format!("pods of namespace {namespace}")))?;
        let ready = found.items.iter().find(|pod| is_ready(pod)).map(ResourceExt::name_any);
        let pod = ready.with_context(|| {
            format!(
                "no pod with label {AUTOSCALERS} is ready in namespace {namespace} ({} are there); name another one by \
                 --system-namespace, or the dashboard itself by --address",
                found.items.len()
            )
        })?;
        // Whether it may be forwarded at all is known before anything is promised.
        let mut tried = pods.portforward(&pod, &[PORT]).await.map_err(|error| {
            anyhow!(
                "port {PORT} of pod {pod} cannot be forwarded: {error}; that needs the right to create pods/portforward in \
                 namespace {namespace}"
            )
        })?;
        drop(tried.take_stream(PORT));
        tried.abort();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port of this machine is free")?;
        let local = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (pods, pod) = (pods.clone(), pod.clone());
                tokio::spawn(async move { carry(pods, &pod, stream).await });
            }
        });
        Ok(Self { local, accepting })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Carries one connection. Whoever has opened it sees it end early if that fails.
async fn carry(pods: Api<Pod>, pod: &str, mut stream: TcpStream) {
    if let Ok(mut forwarded) = pods.portforward(pod, &[PORT]).await
        && let Some(mut there) = forwarded.take_stream(PORT)
    {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
    }
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
