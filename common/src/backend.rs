//! Settings of a workload that an activator needs, other than its addresses.
//!
//! The autoscaler derives them from the ZeroScaler, its Service and its pod template, and writes them into the
//! ZeroScaler's status; serde's form of [`Backend`] is that part of the status. They stay unchanged while a later spec
//! is invalid. Activators read only these settings, so an invalid spec breaks nothing that works. Hosts and port
//! numbers are not part of it: they are recorded where no tenant can write ([`crate::hosts`], [`crate::ports`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::iter;
use std::ops::Not;
use std::sync::Arc;

/// Settings by which activators reach the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// Name of the public Service, which clients call as `NAME.NS[.svc[.DOMAIN]]`. The status has it elsewhere.
    #[serde(skip)]
    pub service: Arc<str>,
    /// HTTP version of the pods: http1 or h2c.
    #[serde(default)]
    #[schemars(with = "String")]
    pub protocol: Protocol,
    /// Maximum number of concurrent requests or connections per pod; 0: no limit.
    #[serde(default, rename = "concurrency")]
    pub container_concurrency: u32,
    /// Set if the pods have Knative's queue-proxy, so its contract for headers and probes applies.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub queue_proxy: bool,
    /// Set if each client is sent to the same pod, because a Service has `sessionAffinity: ClientIP`.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub client_affinity: bool,
    /// Set if the pods use their node's address, which other pods use as well.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub host_network: bool,
    /// Readiness probe that an activator sends.
    #[serde(default)]
    pub probe: Probe,
    /// Probes of the pod's other containers, which must pass as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sidecar_probes: Vec<Probe>,
    /// Knative's limit for an exchange, including the wait for a pod, in milliseconds; 0: none, as always in
    /// standalone. If set, the other limits of the exchange also count from the request's arrival. Otherwise they count
    /// from the time at which a pod gets the request.
    #[serde(skip)]
    pub timeout_ms: u64,
    /// Longest wait for a pod, in milliseconds.
    // In Knative, 0 means no limit. In the status, the reader raises 0 to 1.
    #[serde(rename = "timeoutMs")]
    pub wake_timeout_ms: u64,
    /// Longest duration of an exchange with a pod, in milliseconds; 0: no limit.
    #[serde(default, rename = "requestMs")]
    pub request_timeout_ms: u64,
    /// Longest wait for the first byte of a response, in milliseconds; 0: no limit.
    #[serde(default, rename = "responseStartMs")]
    pub response_start_timeout_ms: u64,
    /// Longest idle time in an exchange, in milliseconds; 0: no limit.
    #[serde(default, rename = "idleMs")]
    pub idle_timeout_ms: u64,
    /// Maximum number of requests that one activator holds.
    pub max_held: u32,
    /// Reason why held requests fail at once: a persistent fault prevents the pods from serving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Box<str>>,
    /// Set if held requests fail at once because the workload is paused and has no pods.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub paused: bool,
    /// Reason why the workload cannot be woken: an error of the API server, or a missing prerequisite. Requests keep
    /// waiting; if they time out, the response contains this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// Readiness probe of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Kind of the probe: Tcp (a connection only), Http, Https, Grpc, QueueProxy (Knative's own probe), or Kubernetes
    /// (no probe is sent and Kubernetes' readiness counts).
    #[serde(default, rename = "type")]
    pub kind: ProbeKind,
    /// Port of the pod that is probed; absent: the port that takes requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Path and query of an HTTP probe.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Additional headers of an HTTP probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<ProbeHeader>,
    /// Service name in a gRPC health check; empty: the whole server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
}

/// Kind of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProbeKind {
    /// A TCP connection.
    Tcp,
    /// An HTTP GET.
    Http,
    /// An HTTP GET over TLS.
    Https,
    /// gRPC's health check.
    Grpc,
    /// Knative's probe of a queue-proxy.
    QueueProxy,
    /// No probe. Unknown values of newer versions are read as this.
    #[default]
    #[serde(other)]
    Kubernetes,
}

/// A header of an HTTP probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeHeader {
    /// Name of the header.
    pub name: String,
    /// Value of the header.
    pub value: String,
}

impl From<ProbeKind> for Probe {
    /// Creates a probe of the port that takes requests.
    fn from(kind: ProbeKind) -> Self {
        Self { kind, ..Self::default() }
    }
}

impl Probe {
    /// Creates an HTTP probe of a path on the port that takes requests, without additional headers.
    pub fn http(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..ProbeKind::Http.into() }
    }
}

impl Backend {
    /// Returns the backend of plain HTTP/1.1 pods with standalone's defaults. It corresponds to an empty ZeroScaler
    /// whose containers declare no probe.
    pub fn plain(service: &str) -> Self {
        let (service, probe) = (service.into(), ProbeKind::Tcp.into());
        Self { service, probe, wake_timeout_ms: 300_000, max_held: 10_000, ..Self::default() }
    }

    /// Returns all probes that must pass. That of the container that takes requests comes first.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        iter::once(&self.probe).chain(&self.sidecar_probes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_survives_serialization() {
        let backend = Backend {
            protocol: Protocol::H2c,
            container_concurrency: 7,
            queue_proxy: true,
            client_affinity: true,
            host_network: true,
            sidecar_probes: vec![Probe::http("/")],
            request_timeout_ms: 4,
            response_start_timeout_ms: 5,
            idle_timeout_ms: 6,
            failing: Some("CrashLoopBackOff".into()),
            paused: true,
            wake_refused: Some("quota".into()),
            ..Backend::plain("")
        };
        let json = serde_json::to_string(&backend).expect("serializable");
        assert_eq!(serde_json::from_str::<Backend>(&json).expect("readable"), backend, "{json}");
    }

    /// Goal: an activator of another version can read a probe.
    #[test]
    fn the_json_of_each_kind_of_probe_is_fixed() {
        let header = ProbeHeader { name: "Host".into(), value: "a".into() };
        let get = Probe { port: Some(81), headers: vec![header], ..Probe::http("/x") };
        let headers = r#""headers":[{"name":"Host","value":"a"}]"#;
        for (probe, text) in [
            (ProbeKind::QueueProxy.into(), r#"{"type":"QueueProxy"}"#.to_owned()),
            (Probe { port: Some(80), ..ProbeKind::Tcp.into() }, r#"{"type":"Tcp","port":80}"#.to_owned()),
            (Probe::http("/"), r#"{"type":"Http","path":"/"}"#.to_owned()),
            (get.clone(), format!(r#"{{"type":"Http","port":81,"path":"/x",{headers}}}"#)),
            (Probe { kind: ProbeKind::Https, ..get }, format!(r#"{{"type":"Https","port":81,"path":"/x",{headers}}}"#)),
            (Probe { service: "s".into(), ..ProbeKind::Grpc.into() }, r#"{"type":"Grpc","service":"s"}"#.to_owned()),
            (ProbeKind::Kubernetes.into(), r#"{"type":"Kubernetes"}"#.to_owned()),
        ] {
            assert_eq!(serde_json::to_string(&probe).ok().as_deref(), Some(text.as_str()));
            assert_eq!(serde_json::from_str::<Probe>(&text).expect("readable"), probe, "{text}");
        }
    }

    /// Goal: two processes may differ in version.
    #[test]
    fn unknown_fields_are_ignored_and_missing_or_unknown_values_have_defaults() {
        let json = r#"{"protocol":"http1","timeoutMs":1,"maxHeld":1,"probe":{"type":"Quic","streams":2},"new":true}"#;
        let read: Backend = serde_json::from_str(json).expect("readable");
        let expected = Backend { probe: Probe::default(), wake_timeout_ms: 1, max_held: 1, ..Backend::plain("") };
        assert_eq!(read, expected);
        let sparse: Backend = serde_json::from_str(r#"{"timeoutMs":1,"maxHeld":1}"#).expect("readable");
        assert_eq!(sparse, expected);
    }
}
