//! Settings of a standalone workload that an activator needs, other than its addresses.
//!
//! The autoscaler resolves the ZeroScaler, its target and its pods once and writes the result into the ZeroScaler's
//! status. The activator reads it from there (`common_api::zeroscaler::BackendStatus` is the serialized form). Hosts
//! and port numbers are not part of it: they are recorded where no tenant can write ([`crate::hosts`],
//! [`crate::ports`]).

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Everything that an activator knows of one revision, other than its name and addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Name of the public Service, which clients call as `NAME.NS[.svc[.DOMAIN]]`.
    pub service: Arc<str>,
    /// Protocol of the pods.
    pub protocol: Protocol,
    /// Maximum number of concurrent requests per pod; 0: no limit.
    pub container_concurrency: u32,
    /// Set if pods have a queue-proxy, so Knative's contract for headers and probes applies.
    pub queue_proxy: bool,
    /// Set if each client is sent to the same pod while that pod exists.
    pub client_affinity: bool,
    /// Set if pods use their node's address. Such an address does not identify a pod, because other pods call from it
    /// as well.
    pub host_network: bool,
    /// Readiness probe of the pods.
    pub probe: Probe,
    /// Knative's limit for an exchange, including the wait for a pod, in milliseconds; 0: none. If set, the other
    /// limits of the exchange also count from the request's arrival. Otherwise they count from the time at which a pod
    /// gets the request.
    pub timeout_ms: u64,
    /// Longest wait for a pod, in milliseconds; 0: no limit.
    pub wake_timeout_ms: u64,
    /// Longest duration of an exchange with a pod, in milliseconds; 0: no limit.
    pub request_timeout_ms: u64,
    /// Longest wait for the first byte of a response, in milliseconds; 0: no limit.
    pub response_start_timeout_ms: u64,
    /// Longest idle time within an exchange, in milliseconds; 0: no limit.
    pub idle_timeout_ms: u64,
    /// Maximum number of requests that one activator holds for the revision.
    pub max_held: u32,
    /// Set while the pods crash-loop: held requests fail immediately with this reason.
    pub failing: Option<Box<str>>,
    /// Set if held requests fail immediately, because the workload is paused and has no pods.
    pub paused: bool,
    /// Set while the revision cannot be scaled from zero: the API server's error or the missing prerequisite, in one
    /// short line. Requests keep waiting; if their deadline expires, the response contains this reason.
    pub wake_refused: Option<Box<str>>,
}

/// Protocol of a revision's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge, including gRPC.
    H2c,
}

impl Protocol {
    /// Returns the name of the Service port that carries this protocol.
    pub fn port_name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http",
            Protocol::H2c => "http2",
        }
    }
}

/// Check by which an activator verifies that a pod is ready.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Knative's probe: `GET /healthz` with `K-Network-Probe: queue`, expecting 200 and the body `queue`.
    QueueProxy,
    /// The pod accepts a TCP connection.
    Tcp {
        /// Port to connect to; `None`: the backend's.
        port: Option<u16>,
    },
    /// The response to an HTTP GET has a status from 200 to 399.
    Http(Box<HttpGet>),
    /// An HTTP GET over TLS, with the same rule. Any certificate is accepted, as by the kubelet.
    Https(Box<HttpGet>),
    /// `grpc.health.v1.Health/Check` returns SERVING.
    Grpc {
        /// Port to call; `None`: the backend's.
        port: Option<u16>,
        /// Service name in the health check; empty: the whole server.
        service: Box<str>,
    },
    /// Kubernetes' own readiness is used and no probe is sent.
    Kubernetes,
    /// All of these probes pass. The probe of the container that takes requests comes first, then those of other
    /// containers.
    All(Box<[Probe]>),
}

/// Request of an HTTP probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpGet {
    /// Path and query.
    pub path: String,
    /// Port to call; `None`: the backend's.
    pub port: Option<u16>,
    /// Additional request headers; `Host` replaces the default.
    pub headers: Vec<(String, String)>,
}

impl HttpGet {
    /// Creates a probe of a path on the backend's own port, without additional headers.
    pub fn path(path: impl Into<String>) -> Self {
        Self { path: path.into(), port: None, headers: Vec::new() }
    }
}

impl Backend {
    /// Returns the backend of plain HTTP/1.1 pods with standalone's defaults. It corresponds to an empty ZeroScaler
    /// whose containers declare no probe.
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
