//! Settings of a workload that activators need and cannot read themselves, as stored in the status.
//!
//! The owner derives them from spec, Service and pod template. They stay unchanged while a later spec is invalid.
//! Activators read only these settings, so an invalid spec breaks nothing that works.

use common::backend::{Backend, HttpGet, Probe, Protocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::iter;
use std::slice;

/// Settings by which activators reach the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendStatus {
    /// HTTP version of the pods: http1 or h2c.
    #[serde(default)]
    #[schemars(with = "String")]
    pub protocol: Protocol,
    /// Maximum number of concurrent requests or connections per pod; 0: no limit.
    #[serde(default)]
    pub concurrency: u32,
    /// Set if the pods have Knative's queue-proxy, so its contract for headers and probes applies.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub queue_proxy: bool,
    /// Set if each client is sent to the same pod, because a Service has `sessionAffinity: ClientIP`.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub client_affinity: bool,
    /// Set if the pods use their node's address, which other pods use as well.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub host_network: bool,
    /// Readiness probe that an activator sends.
    #[serde(default)]
    pub probe: ProbeStatus,
    /// Probes of the pod's other containers, which must pass as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sidecar_probes: Vec<ProbeStatus>,
    /// Longest wait for a pod, in milliseconds.
    pub timeout_ms: u64,
    /// Longest duration of an exchange with a pod, in milliseconds; 0: no limit.
    #[serde(default)]
    pub request_ms: u64,
    /// Longest wait for the first byte of a response, in milliseconds; 0: no limit.
    #[serde(default)]
    pub response_start_ms: u64,
    /// Longest idle time in an exchange, in milliseconds; 0: no limit.
    #[serde(default)]
    pub idle_ms: u64,
    /// Maximum number of requests that one activator holds.
    pub max_held: u32,
    /// Reason why held requests fail at once: a persistent fault prevents the pods from serving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
    /// Set if held requests fail at once because the workload is paused and has no pods.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub paused: bool,
    /// Reason why the workload cannot be woken: an error of the API server, or a missing prerequisite. Requests keep
    /// waiting; if they time out, the response contains this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_refused: Option<String>,
}

/// Readiness probe of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeStatus {
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeHeader {
    /// Name of the header.
    pub name: String,
    /// Value of the header.
    pub value: String,
}

impl BackendStatus {
    /// Converts to the activators' form, for an object whose Service is `service`.
    pub fn to_backend(&self, service: &str) -> Backend {
        Backend {
            service: service.into(),
            protocol: self.protocol,
            container_concurrency: self.concurrency,
            queue_proxy: self.queue_proxy,
            client_affinity: self.client_affinity,
            host_network: self.host_network,
            probe: match &self.sidecar_probes[..] {
                [] => self.probe.to_probe(),
                others => Probe::All(iter::once(&self.probe).chain(others).map(ProbeStatus::to_probe).collect()),
            },
            timeout_ms: 0,
            wake_timeout_ms: self.timeout_ms.max(1),
            request_timeout_ms: self.request_ms,
            response_start_timeout_ms: self.response_start_ms,
            idle_timeout_ms: self.idle_ms,
            max_held: self.max_held,
            failing: self.failing.as_deref().map(Into::into),
            paused: self.paused,
            wake_refused: self.wake_refused.as_deref().map(Into::into),
        }
    }
}

impl From<&Backend> for BackendStatus {
    fn from(backend: &Backend) -> Self {
        let probes = match &backend.probe {
            Probe::All(probes) => probes,
            only => slice::from_ref(only),
        };
        let (own, others) = probes.split_first().unwrap_or((&Probe::Kubernetes, &[]));
        Self {
            protocol: backend.protocol,
            concurrency: backend.container_concurrency,
            queue_proxy: backend.queue_proxy,
            client_affinity: backend.client_affinity,
            host_network: backend.host_network,
            probe: ProbeStatus::from(own),
            sidecar_probes: others.iter().map(ProbeStatus::from).collect(),
            timeout_ms: backend.wake_timeout_ms,
            request_ms: backend.request_timeout_ms,
            response_start_ms: backend.response_start_timeout_ms,
            idle_ms: backend.idle_timeout_ms,
            max_held: backend.max_held,
            failing: backend.failing.as_deref().map(Into::into),
            paused: backend.paused,
            wake_refused: backend.wake_refused.as_deref().map(Into::into),
        }
    }
}

impl ProbeStatus {
    fn to_probe(&self) -> Probe {
        let headers = || self.headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect();
        let get = || Box::new(HttpGet { path: self.path.clone(), port: self.port, headers: headers() });
        match self.kind {
            ProbeKind::Tcp => Probe::Tcp { port: self.port },
            ProbeKind::Http => Probe::Http(get()),
            ProbeKind::Https => Probe::Https(get()),
            ProbeKind::Grpc => Probe::Grpc { port: self.port, service: self.service.as_str().into() },
            ProbeKind::QueueProxy => Probe::QueueProxy,
            ProbeKind::Kubernetes => Probe::Kubernetes,
        }
    }

    fn http(kind: ProbeKind, get: &HttpGet) -> Self {
        let header = |(name, value): &(String, String)| ProbeHeader { name: name.clone(), value: value.clone() };
        Self {
            kind,
            port: get.port,
            path: get.path.clone(),
            headers: get.headers.iter().map(header).collect(),
            service: String::new(),
        }
    }
}

impl From<&Probe> for ProbeStatus {
    fn from(probe: &Probe) -> Self {
        let of = |kind, port| Self { kind, port, ..Self::default() };
        match probe {
            Probe::QueueProxy => of(ProbeKind::QueueProxy, None),
            Probe::Tcp { port } => of(ProbeKind::Tcp, *port),
            Probe::Http(get) => Self::http(ProbeKind::Http, get),
            Probe::Https(get) => Self::http(ProbeKind::Https, get),
            Probe::Grpc { port, service } => Self { service: service.to_string(), ..of(ProbeKind::Grpc, *port) },
            // Several probes are written one by one ([`BackendStatus::sidecar_probes`]).
            Probe::Kubernetes | Probe::All(_) => of(ProbeKind::Kubernetes, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_survives_the_status() {
        let headers = vec![("Host".into(), "a".into())];
        let get = Box::new(HttpGet { port: Some(81), headers, ..HttpGet::path("/ready?x") });
        for probe in [
            Probe::QueueProxy,
            Probe::Tcp { port: Some(80) },
            Probe::Tcp { port: None },
            Probe::Http(get.clone()),
            Probe::Https(get),
            Probe::Grpc { port: Some(9000), service: "s".into() },
            Probe::Kubernetes,
            Probe::All([Probe::Tcp { port: None }, Probe::Http(HttpGet::path("/").into())].into()),
        ] {
            let backend = Backend {
                protocol: Protocol::H2c,
                container_concurrency: 7,
                queue_proxy: true,
                client_affinity: true,
                host_network: true,
                request_timeout_ms: 4,
                response_start_timeout_ms: 5,
                idle_timeout_ms: 6,
                failing: Some("CrashLoopBackOff".into()),
                paused: true,
                wake_refused: Some("quota".into()),
                probe,
                ..Backend::plain("hello")
            };
            let json = serde_json::to_string(&BackendStatus::from(&backend)).expect("serializable");
            let status: BackendStatus = serde_json::from_str(&json).expect("readable");
            assert_eq!(status.to_backend("hello"), backend, "{json}");
        }
    }

    /// Goal: the text of each kind of probe is fixed, because an activator of another version may read it.
    #[test]
    fn probes_are_told_by_their_type() {
        let headers = || vec![("Host".into(), "a".into())];
        let get = || Box::new(HttpGet { path: "/x".into(), port: Some(81), headers: headers() });
        let headers = r#""headers":[{"name":"Host","value":"a"}]"#;
        for (probe, text) in [
            (Probe::QueueProxy, r#"{"type":"QueueProxy"}"#.to_owned()),
            (Probe::Tcp { port: Some(80) }, r#"{"type":"Tcp","port":80}"#.to_owned()),
            (Probe::Http(HttpGet::path("/").into()), r#"{"type":"Http","path":"/"}"#.to_owned()),
            (Probe::Http(get()), format!(r#"{{"type":"Http","port":81,"path":"/x",{headers}}}"#)),
            (Probe::Https(get()), format!(r#"{{"type":"Https","port":81,"path":"/x",{headers}}}"#)),
            (Probe::Grpc { port: None, service: "s".into() }, r#"{"type":"Grpc","service":"s"}"#.to_owned()),
            (Probe::Kubernetes, r#"{"type":"Kubernetes"}"#.to_owned()),
        ] {
            assert_eq!(serde_json::to_string(&ProbeStatus::from(&probe)).ok().as_deref(), Some(text.as_str()));
            let read = serde_json::from_str::<ProbeStatus>(&text).expect("readable");
            assert_eq!(read.to_probe(), probe, "{text}");
        }
    }

    /// Goal: two processes may differ in version: unknown fields are ignored and missing ones have defaults.
    #[test]
    fn what_a_newer_version_writes_is_read_as_something_safe() {
        let json =
            r#"{"protocol":"http1","timeoutMs":1,"maxHeld":1,"probe":{"type":"Telepathy","wave":2},"aura":true}"#;
        let status: BackendStatus = serde_json::from_str(json).expect("readable");
        let read = status.to_backend("a");
        let expected = Backend { probe: Probe::Kubernetes, wake_timeout_ms: 1, max_held: 1, ..Backend::plain("a") };
        assert_eq!(read, expected);
        let sparse: BackendStatus = serde_json::from_str(r#"{"timeoutMs":1,"maxHeld":1}"#).expect("readable");
        assert_eq!(sparse.to_backend("a"), expected);
    }
}
