//! Forwards a local port to the dashboard in an autoscaler pod, through the API server.
//!
//! The target is a ready pod. If it cannot be reached any more, for example because it was replaced, the forwarder
//! switches to another ready pod, so that an open page keeps working. The pod's error for a rejected connection is
//! stored ([`Forward::failure`]), since the connection itself cannot carry it.

use crate::cluster::cause;
use anyhow::{Context, anyhow};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Portforwarder};
use kube::{Api, Client, ResourceExt};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Port of the dashboard in a pod of the autoscaler.
pub const PORT: u16 = 8090;
/// Label selector of autoscaler pods.
const AUTOSCALERS: &str = "app=autoscaler";
/// Maximum wait for the error of a failed connection.
const MOMENT: Duration = Duration::from_millis(500);

/// Active port forwarding. Dropping it stops accepting connections.
pub struct Forward {
    /// Local address.
    pub local: SocketAddr,
    way: Arc<ForwardTarget>,
    accepting: JoinHandle<()>,
}

/// Target of the forwarding.
struct ForwardTarget {
    pods: Api<Pod>,
    namespace: String,
    pod: Mutex<String>,
    failure: Mutex<Option<String>>,
    /// Notified when a connection has ended.
    ended: Notify,
}

impl Forward {
    /// Finds a pod and starts to forward.
    ///
    /// # Errors
    /// Fails if no pod is ready or its port cannot be forwarded; the error says how to fix it.
    pub async fn begin(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let (pods, namespace) = (Api::namespaced(client.clone(), namespace), namespace.to_owned());
        let way = Arc::new(ForwardTarget {
            pods,
            namespace,
            pod: Mutex::default(),
            failure: Mutex::default(),
            ended: Notify::new(),
        });
        *lock(&way.pod) = way.find().await?;
        // Open one connection first, so that missing rights are reported before the address is printed.
        let mut tried = way.open().await?;
        drop(tried.take_stream(PORT));
        tried.abort();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port of this machine is free")?;
        let local = listener.local_addr()?;
        let carrying = way.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let way = carrying.clone();
                tokio::spawn(async move { way.forward_connection(stream).await });
            }
        });
        Ok(Self { local, way, accepting })
    }

    /// Returns the error of the last connection, or `None` if none is known within a short wait. The error may arrive
    /// just after the connection has ended.
    pub async fn failure(&self) -> Option<String> {
        let known = async {
            loop {
                let ended = self.way.ended.notified();
                if let Some(why) = lock(&self.way.failure).clone() {
                    return why;
                }
                ended.await;
            }
        };
        timeout(MOMENT, known).await.ok()
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl ForwardTarget {
    /// Returns the name of a ready pod.
    async fn find(&self) -> anyhow::Result<String> {
        let namespace = &self.namespace;
        let found = self.pods.list(&ListParams::default().labels(AUTOSCALERS)).await;
        let found =
            found.map_err(|error| crate::cluster::explained(error, &format!("pods of namespace {namespace}")))?;
        found.items.iter().find(|pod| is_ready(pod)).map(ResourceExt::name_any).with_context(|| {
            format!(
                "no pod with label {AUTOSCALERS} is ready in namespace {namespace} ({} are there); name another one by \
                 --system-namespace, or the dashboard itself by --address",
                found.items.len()
            )
        })
    }

    /// Opens a connection to the pod. If that fails, tries another ready pod.
    async fn open(&self) -> anyhow::Result<Portforwarder> {
        let pod = lock(&self.pod).clone();
        let refused = match self.pods.portforward(&pod, &[PORT]).await {
            Ok(forwarded) => return Ok(forwarded),
            Err(error) => error,
        };
        match self.find().await {
            Ok(other) if other != pod => {
                (*lock(&self.pod)).clone_from(&other);
                self.pods.portforward(&other, &[PORT]).await.map_err(|error| self.refused(&other, &error))
            }
            _ => Err(self.refused(&pod, &refused)),
        }
    }

    fn refused(&self, pod: &str, error: &kube::Error) -> anyhow::Error {
        anyhow!(
            "port {PORT} of pod {pod} cannot be forwarded: {}; that needs the right to create pods/portforward in \
             namespace {}",
            cause(error),
            self.namespace
        )
    }

    /// Forwards one connection. On failure, the client sees the connection close early.
    async fn forward_connection(&self, mut stream: TcpStream) {
        let failure = match self.open().await {
            Ok(forwarded) => self.exchange(forwarded, &mut stream).await,
            Err(error) => Some(format!("{error:#}")),
        };
        *lock(&self.failure) = failure;
        self.ended.notify_waiters();
    }

    /// Copies both directions. Returns the pod's error if the pod rejects the connection.
    async fn exchange(&self, mut forwarded: Portforwarder, stream: &mut TcpStream) -> Option<String> {
        let (mut there, told) = (forwarded.take_stream(PORT)?, forwarded.take_error(PORT)?);
        let (mut told, mut copied) = (pin!(told.fuse()), pin!(tokio::io::copy_bidirectional(stream, &mut there)));
        let why = tokio::select! {
            biased; // The pod's error has priority over the end of the stream.
            why = &mut told => match why {
                None => {
                    let _ = copied.await; // Either side may close it.
                    None
                }
                why => why,
            },
            _ = &mut copied => told.now_or_never().flatten(),
        };
        Some(format!(
            "pod {} does not take connections on port {PORT}, which is its dashboard's unless \
             ZEROSCALE_DASHBOARD_ADDRESS says otherwise: {}",
            lock(&self.pod),
            why?.trim(),
        ))
    }
}

/// Reports whether a pod is ready and not being deleted.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
