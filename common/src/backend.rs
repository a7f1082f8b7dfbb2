//! What an activator must know of a revision, in one annotation.
//!
//! Standalone has no Revision objects. The ServerlessService controller resolves everything that is asked of a
//! PodAutoscaler, its target and its pods once, and writes it as JSON under [`BACKEND`](crate::names::BACKEND) on the
//! private Service, whose EndpointSlices carry the addresses. The activator needs nothing else, and sees an edit as
//! soon as the Service is updated.

use serde::{Deserialize, Serialize};

/// All that an activator knows of one revision, its addresses aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// Revision (PodAutoscaler) name; the namespace is the Service's.
    pub revision: String,
    /// Name of the public Service: `NAME.NS[.svc[.DOMAIN]]` leads here.
    pub service: String,
    /// Further hosts that lead here, lower case, exact or `*.` + domain. Conflicts are settled before they get here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// What the pods speak.
    #[serde(default)]
    pub protocol: Protocol,
    /// Requests that one pod may run at once; 0: no limit.
    #[serde(default)]
    pub container_concurrency: u32,
    /// Whether pods hold a queue-proxy: Knative's contract for headers and probes applies.
    #[serde(default)]
    pub queue_proxy: bool,
    /// How a pod is proven ready.
    pub probe: Probe,
    /// Longest duration of a request, holding included, in milliseconds.
    pub timeout_ms: u64,
    /// Longest wait for the first byte of a response, in milliseconds; 0: no limit.
    #[serde(default)]
    pub response_start_timeout_ms: u64,
    /// Longest silence in a response, in milliseconds; 0: no limit.
    #[serde(default)]
    pub idle_timeout_ms: u64,
    /// Most requests that one activator holds for the revision.
    pub max_held: u32,
    /// Set while the pods crash-loop: held requests fail at once with this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Probe {
    /// Knative's: `GET /healthz` with `K-Network-Probe: queue`, 200 and the body `queue`.
    QueueProxy,
    /// A TCP connection is accepted.
    #[serde(rename_all = "camelCase")]
    Tcp {
        /// Port to connect to; absent: the backend's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// An HTTP GET is answered with a status from 200 to 399.
    #[serde(rename_all = "camelCase")]
    Http {
        /// Path and query.
        path: String,
        /// Port to ask; absent: the backend's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// Further request headers; `Host` replaces the default.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        headers: Vec<(String, String)>,
    },
    /// The same over TLS, whatever certificate is shown, as the kubelet's.
    #[serde(rename_all = "camelCase")]
    Https {
        /// Path and query.
        path: String,
        /// Port to ask; absent: the backend's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// Further request headers; `Host` replaces the default.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        headers: Vec<(String, String)>,
    },
    /// `grpc.health.v1.Health/Check` answers SERVING.
    #[serde(rename_all = "camelCase")]
    Grpc {
        /// Port to ask; absent: the backend's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// The service asked for; empty: the whole server.
        #[serde(default)]
        service: String,
    },
    /// Kubernetes' own readiness is believed, nothing is sent.
    Kubernetes,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The annotation is an interface between two processes that may differ in version: unknown fields are ignored,
    /// missing ones have defaults.
    #[test]
    fn a_backend_survives_the_annotation() {
        let backend = Backend {
            revision: "hello".into(),
            service: "hello".into(),
            hosts: vec!["*.example.com".into()],
            protocol: Protocol::H2c,
            container_concurrency: 3,
            queue_proxy: false,
            probe: Probe::Http { path: "/ready".into(), port: Some(8081), headers: vec![] },
            timeout_ms: 300_000,
            response_start_timeout_ms: 0,
            idle_timeout_ms: 0,
            max_held: 10_000,
            failing: None,
        };
        let json = serde_json::to_string(&backend).expect("serializable");
        assert_eq!(serde_json::from_str::<Backend>(&json).expect("readable"), backend);
        let sparse = r#"{"revision":"a","service":"a","probe":{"type":"tcp"},"timeoutMs":1,"maxHeld":1,"new":true}"#;
        let read: Backend = serde_json::from_str(sparse).expect("readable");
        assert_eq!((read.protocol, read.probe), (Protocol::Http1, Probe::Tcp { port: None }));
    }
}
