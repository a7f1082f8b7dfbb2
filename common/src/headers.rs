//! Header names and values by which the parts of the system recognize each other.
//!
//! Names are lower case, as HTTP/2 sends them; lookups ignore case. The predicates take values, not requests, so this
//! crate needs no HTTP types. User agents are matched by prefix.

/// Marks a network probe. The value names the component that responds: [`PROBE_VALUE`], [`ACTIVATOR_VALUE`] or
/// [`QUEUE_VALUE`].
pub const NETWORK_PROBE: &str = "k-network-probe";
/// Configuration hash that a probed component echoes to an ingress.
pub const NETWORK_HASH: &str = "k-network-hash";
/// Set to [`ACTIVATOR_VALUE`] on requests that passed through an activator.
pub const PROXY_REQUEST: &str = "k-proxy-request";
/// The client's original `Host`, set if the activator replaces `Host`.
pub const ORIGINAL_HOST: &str = "k-original-host";
/// Tells a mesh to forward the request to the given address without load balancing.
pub const PASSTHROUGH_LB: &str = "k-passthrough-lb";
/// Older spelling of [`PASSTHROUGH_LB`], still sent with scrapes.
pub const DIRECT_LB: &str = "knative-direct-lb";
/// Marks a kubelet probe that a mesh has rewritten.
pub const KUBELET_PROBE: &str = "k-kubelet-probe";
/// Name of the revision that a request is for; set by an ingress.
pub const REVISION: &str = "knative-serving-revision";
/// Namespace of the revision that a request is for; set by an ingress.
pub const NAMESPACE: &str = "knative-serving-namespace";
/// Proxy information as RFC 7239 defines it.
pub const FORWARDED: &str = "forwarded";
/// Name of the client software.
pub const USER_AGENT: &str = "user-agent";

/// Value of [`NETWORK_PROBE`]: any component that receives it echoes [`NETWORK_HASH`].
pub const PROBE_VALUE: &str = "probe";
/// Value of [`NETWORK_PROBE`]: an activator responds with this body. Also the value of [`PROXY_REQUEST`].
pub const ACTIVATOR_VALUE: &str = "activator";
/// Value of [`NETWORK_PROBE`]: a queue-proxy responds with this body.
pub const QUEUE_VALUE: &str = "queue";

/// Prefix of the kubelet's user agent; its version follows.
pub const USER_AGENT_KUBELET_PREFIX: &str = "kube-probe/";
/// User agent of an activator that probes a pod.
pub const USER_AGENT_ACTIVATOR: &str = "Knative-Activator-Probe";

/// Path of network probes.
pub const PROBE_PATH: &str = "/healthz";

/// Kind of a request to an activator, by its headers. An absent header counts as the empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// The kubelet probes the activator's own health.
    Kubelet,
    /// An ingress wants the hash echoed.
    HashProbe,
    /// An autoscaler asks whether an activator is in the request path.
    ActivatorProbe,
    /// A probe that activators do not support; carries its value.
    UnknownProbe(&'a str),
    /// A client's request.
    Traffic,
}

/// Classifies a request to an activator, checking headers in upstream's order.
pub fn classify<'a>(user_agent: &str, kubelet_probe: &str, network_probe: &'a str) -> Incoming<'a> {
    // A mesh replaces the user agent and sets the header.
    if user_agent.starts_with(USER_AGENT_KUBELET_PREFIX) || !kubelet_probe.is_empty() {
        return Incoming::Kubelet;
    }
    match network_probe {
        "" => Incoming::Traffic,
        PROBE_VALUE => Incoming::HashProbe,
        ACTIVATOR_VALUE => Incoming::ActivatorProbe,
        other => Incoming::UnknownProbe(other),
    }
}
