//! What an activator must know of a workload in standalone, its addresses aside.
//!
//! The autoscaler resolves everything that is asked of a ZeroScaler, its target and its pods once, and writes it into the
//! ZeroScaler's status, where the activator reads it (`common_api::zeroscaler::BackendStatus` is its form there). Hosts and
//! port numbers are not in it: they are settled where no tenant can write ([`crate::hosts`], [`crate::ports`]).

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// All that an activator knows of one revision, its name and its addresses aside.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Name of the public Service: `NAME.NS[.svc[.DOMAIN]]` leads here.
    pub service: Arc<str>,
    /// What the pods speak.
    pub protocol: Protocol,
    /// Requests that one pod may run at once; 0: no limit.
    pub container_concurrency: u32,
    /// Whether pods hold a queue-proxy: Knative's contract for headers and probes applies.
    pub queue_proxy: bool,
    /// Set if a client is led to the same pod each time, as long as that is there.
    pub client_affinity: bool,
    /// Whether pods have their node's address, which is then nobody's: others call from there as well.
    pub host_network: bool,
    /// How a pod is proven ready.
    pub probe: Probe,
    /// Knative's bound of an exchange, the wait for a pod included, in milliseconds; 0: none. If it is set, the other
    /// bounds of the exchange count from the request's arrival, too, else from when a pod has the request.
    pub timeout_ms: u64,
    /// Longest wait for a pod, in milliseconds; 0: no limit.
    pub wake_timeout_ms: u64,
    /// Longest duration of an exchange with a pod, in milliseconds; 0: no limit.
    pub request_timeout_ms: u64,
    /// Longest wait for the first byte of a response, in milliseconds; 0: no limit.
    pub response_start_timeout_ms: u64,
    /// Longest silence in an exchange, in milliseconds; 0: no limit.
    pub idle_timeout_ms: u64,
    /// Most requests that one activator holds for the revision.
    pub max_held: u32,
    /// Set while the pods crash-loop: held requests fail at once with this reason.
    pub failing: Option<Box<str>>,
    /// Whether held requests fail at once: the workload is paused, and has no pods.
    pub paused: bool,
    /// Set while the revision cannot be woken: what the API server says to it, or what it lacks, in one short line. Requests
    /// go on waiting, and those that run into their bound of time are told.
    pub wake_refused: Option<Box<str>>,
}

/// What a revision's pods speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 by prior knowledge, gRPC included.
    H2c,
}

impl Protocol {
    /// Name of the Service port that carries this protocol.
    pub fn port_name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http",
            Protocol::H2c => "http2",
        }
    }
}

/// How an activator proves that a pod is ready.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Knative's: `GET /healthz` with `K-Network-Probe: queue`, 200 and the body `queue`.
    QueueProxy,
    /// A TCP connection is accepted.
    Tcp {
        /// Port to connect to; absent: the backend's.
        port: Option<u16>,
    },
    /// An HTTP GET is answered with a status from 200 to 399.
    Http(Box<HttpGet>),
    /// The same over TLS, whatever certificate is shown, as the kubelet's.
    Https(Box<HttpGet>),
    /// `grpc.health.v1.Health/Check` answers SERVING.
    Grpc {
        /// Port to ask; absent: the backend's.
        port: Option<u16>,
        /// The service asked for; empty: the whole server.
        service: Box<str>,
    },
    /// Kubernetes' own readiness is believed, nothing is sent.
    Kubernetes,
    /// All of these pass: that of the container that takes requests first, then those of the other containers.
    All(Box<[Probe]>),
}

/// What an HTTP probe asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpGet {
    /// Path and query.
    pub path: String,
    /// Port to ask; absent: the backend's.
    pub port: Option<u16>,
    /// Further request headers; `Host` replaces the default.
    pub headers: Vec<(String, String)>,
}

impl HttpGet {
    /// A path of the backend's own port, without further headers.
    pub fn path(path: impl Into<String>) -> Self {
        Self { path: path.into(), port: None, headers: Vec::new() }
    }
}

impl Backend {
    /// One of plain pods that speak HTTP/1.1, with standalone's defaults: what a ZeroScaler that says nothing comes to where
    /// no container declares a probe.
    pub fn plain(service: &str) -> Self {
        Self {
            service: service.into(),
            protocol: Protocol::default(),
            container_concurrency: 0,
            queue_proxy: false,
            client_affinity: false,
            host_network: false,
            probe: Probe::Tcp { port: None },
            timeout_ms: 0,
            wake_timeout_ms: 300_000,
            request_timeout_ms: 0,
            response_start_timeout_ms: 0,
            idle_timeout_ms: 0,
            max_held: 10_000,
            failing: None,
            paused: false,
            wake_refused: None,
        }
    }
}
