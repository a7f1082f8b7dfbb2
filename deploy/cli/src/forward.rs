//! Forwards a local port to the dashboard in an autoscaler pod, through the API server.
//!
//! Each connection leads to a pod that is ready at that time, so an open page keeps working if the pod is replaced. The
//! pod's error for a rejected connection is stored ([`Forward::failure`]), since the connection itself cannot carry it.

use crate::cluster::cause;
use anyhow::{Context, anyhow};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Portforwarder};
use kube::{Api, Client, ResourceExt};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Port of the dashboard in a pod of the autoscaler.
pub const PORT: u16 = 8090;
/// Label selector of autoscaler pods.
const AUTOSCALERS: &str = "app=autoscaler";
/// Maximum wait for the error of a failed connection.
const ERROR_TIMEOUT: Duration = Duration::from_millis(500);

/// Active port forwarding. Dropping it stops accepting connections.
pub struct Forward {
    /// Local address.
    pub local: SocketAddr,
    target: Arc<ForwardTarget>,
    _accepting: JoinSet<()>,
}

/// Target of the forwarding.
struct ForwardTarget {
    pods: Api<Pod>,
    namespace: String,
    /// Error of the connection that ended last, if it had one.
    failure: watch::Sender<Option<String>>,
}

impl Forward {
    /// Finds a pod and starts to forward. Fails if no pod is ready or its port cannot be forwarded; the error says how
    /// to fix it.
    pub async fn begin(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let (pods, failure) = (Api::namespaced(client.clone(), namespace), watch::Sender::new(None));
        let target = Arc::new(ForwardTarget { pods, namespace: namespace.to_owned(), failure });
        // Open one connection first, so that missing rights are reported before the address is printed.
        let (_, mut tried) = target.open().await?;
        drop(tried.take_stream(PORT));
        tried.abort();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no local port is free")?;
        let local = listener.local_addr()?;
        let (mut accepting, accepted) = (JoinSet::new(), target.clone());
        accepting.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let target = accepted.clone();
                tokio::spawn(async move { target.forward_connection(stream).await });
            }
        });
        Ok(Self { local, target, _accepting: accepting })
    }

    /// Returns the error of the last connection, or `None` if none is known within a short wait. The error may arrive
    /// just after the connection has ended.
    pub async fn failure(&self) -> Option<String> {
        let mut failure = self.target.failure.subscribe();
        let known = timeout(ERROR_TIMEOUT, failure.wait_for(Option::is_some)).await;
        known.ok()?.ok()?.clone()
    }
}

impl ForwardTarget {
    /// Returns the name of a ready pod.
    async fn find(&self) -> anyhow::Result<String> {
        let namespace = &self.namespace;
        let found = self.pods.list(&ListParams::default().labels(AUTOSCALERS)).await;
        let found =
            found.map_err(|error| crate::cluster::api_error(error, &format!("pods of namespace {namespace}")))?;
        found.items.iter().find(|pod| is_ready(pod)).map(ResourceExt::name_any).with_context(|| {
            format!(
                "no pod with label {AUTOSCALERS} is ready in namespace {namespace} ({} exist); select another namespace with \
                 --system-namespace, or the dashboard with --address",
                found.items.len()
            )
        })
    }

    /// Opens a connection to a ready pod. If that fails, looks for a ready pod once more, because the first may be
    /// gone.
    async fn open(&self) -> anyhow::Result<(String, Portforwarder)> {
        let pod = self.find().await?;
        if let Ok(forwarded) = self.pods.portforward(&pod, &[PORT]).await {
            return Ok((pod, forwarded));
        }
        let pod = self.find().await?;
        let forwarded = self.pods.portforward(&pod, &[PORT]).await.map_err(|error| {
            let (why, namespace) = (cause(&error), &self.namespace);
            anyhow!(
                "port {PORT} of pod {pod} cannot be forwarded: {why}; this requires the right to create \
                 pods/portforward in namespace {namespace}"
            )
        })?;
        Ok((pod, forwarded))
    }

    /// Forwards one connection. On failure, the client sees the connection close early.
    async fn forward_connection(&self, mut stream: TcpStream) {
        let failure = match self.open().await {
            Ok((pod, forwarded)) => exchange(&pod, forwarded, &mut stream).await,
            Err(error) => Some(format!("{error:#}")),
        };
        self.failure.send_replace(failure);
    }
}

/// Copies both directions. Returns the pod's error if the pod rejects the connection.
async fn exchange(pod: &str, mut forwarded: Portforwarder, stream: &mut TcpStream) -> Option<String> {
    let (mut there, error) = (forwarded.take_stream(PORT)?, forwarded.take_error(PORT)?);
    let (mut error, mut copied) = (pin!(error.fuse()), pin!(tokio::io::copy_bidirectional(stream, &mut there)));
    let why = tokio::select! {
        biased; // The pod's error has priority over the end of the stream.
        why = &mut error => match why {
            None => {
                let _ = copied.await; // Either side may close it.
                None
            }
            why => why,
        },
        _ = &mut copied => error.now_or_never().flatten(),
    };
    Some(format!(
        "pod {pod} accepts no connections on port {PORT}, the port of the dashboard unless \
         ZEROSCALE_DASHBOARD_ADDRESS names another one: {}",
        why?.trim(),
    ))
}

/// Reports whether a pod is ready and not being deleted.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
