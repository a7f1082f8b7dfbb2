//! Header names and values that the parts of the system recognize each other by.
//!
//! Names are lower case: HTTP/2 sends them so, and lookups do not care. The predicates take values, not requests, so
//! that this crate needs no HTTP types. User agents are matched by prefix.

/// Marks a probe of the network: [`PROBE_VALUE`], [`ACTIVATOR_VALUE`] or [`QUEUE_VALUE`] say who should answer.
pub const NETWORK_PROBE: &str = "k-network-probe";
/// Configuration hash that a probed component echoes to an ingress.
pub const NETWORK_HASH: &str = "k-network-hash";
/// Set to [`ACTIVATOR_VALUE`] on requests that came through an activator.
pub const PROXY_REQUEST: &str = "k-proxy-request";
/// The client's `Host`, where the activator replaces it.
pub const ORIGINAL_HOST: &str = "k-original-host";
/// Asks a mesh to pass the request on to the address as it is.
pub const PASSTHROUGH_LB: &str = "k-passthrough-lb";
/// Older spelling of [`PASSTHROUGH_LB`], still sent when scraping.
pub const DIRECT_LB: &str = "knative-direct-lb";
/// Marks a kubelet's probe that a mesh has rewritten.
pub const KUBELET_PROBE: &str = "k-kubelet-probe";
/// Name of the revision that a request is for, set by an ingress.
pub const REVISION: &str = "knative-serving-revision";
/// Namespace of the revision that a request is for, set by an ingress.
pub const NAMESPACE: &str = "knative-serving-namespace";
/// RFC 7239.
pub const FORWARDED: &str = "forwarded";
/// Who sends.
pub const USER_AGENT: &str = "user-agent";

/// Value of [`NETWORK_PROBE`]: whoever is reached echoes [`NETWORK_HASH`].
pub const PROBE_VALUE: &str = "probe";
/// Value of [`NETWORK_PROBE`]: an activator answers with this body. Also the value of [`PROXY_REQUEST`].
pub const ACTIVATOR_VALUE: &str = "activator";
/// Value of [`NETWORK_PROBE`]: a queue-proxy answers with this body.
pub const QUEUE_VALUE: &str = "queue";

/// User agent of the kubelet, followed by its version.
pub const USER_AGENT_KUBELET_PREFIX: &str = "kube-probe/";
/// User agent of an activator that probes a pod.
pub const USER_AGENT_ACTIVATOR: &str = "Knative-Activator-Probe";

/// Path of the probes.
pub const PROBE_PATH: &str = "/healthz";

/// What a request to an activator is, by its headers; an absent header is the empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// The kubelet asks for the activator's own health.
    Kubelet,
    /// An ingress asks for the hash to be echoed.
    HashProbe,
    /// An autoscaler asks whether an activator is in the path.
    ActivatorProbe,
    /// A probe that an activator has no answer for.
    UnknownProbe(&'a str),
    /// A client's request.
    Traffic,
}

/// Sorts out a request to an activator, in the order that upstream does.
pub fn classify<'a>(user_agent: &str, kubelet_probe: &str, network_probe: &'a str) -> Incoming<'a> {
    if is_kubelet_probe(user_agent, kubelet_probe) {
        return Incoming::Kubelet;
    }
    match network_probe {
        "" => Incoming::Traffic,
        PROBE_VALUE => Incoming::HashProbe,
        ACTIVATOR_VALUE => Incoming::ActivatorProbe,
        other => Incoming::UnknownProbe(other),
    }
}

/// Whether the kubelet asks: by its user agent, or by the header that a mesh puts in its place.
pub fn is_kubelet_probe(user_agent: &str, kubelet_probe: &str) -> bool {
    user_agent.starts_with(USER_AGENT_KUBELET_PREFIX) || !kubelet_probe.is_empty()
}

/// Whether a request is a probe of any kind, and so stays out of metrics, logs and traces.
pub fn is_probe(user_agent: &str, kubelet_probe: &str, network_probe: &str) -> bool {
    is_kubelet_probe(user_agent, kubelet_probe) || !network_probe.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_told_from_traffic() {
        let rows = [
            (("kube-probe/1.34", "", ""), Incoming::Kubelet),
            (("kube-probe//", "", "queue"), Incoming::Kubelet),
            (("Istio", "yes", ""), Incoming::Kubelet),
            (("Knative-Ingress-Probe", "", "probe"), Incoming::HashProbe),
            (("Knative-Autoscaling-Probe", "", "activator"), Incoming::ActivatorProbe),
            (("curl", "", "activator"), Incoming::ActivatorProbe),
            (("Knative-Activator-Probe", "", "queue"), Incoming::UnknownProbe("queue")),
            (("curl kube-probe/", "", ""), Incoming::Traffic),
            (("Knative-Activator-Probe", "", ""), Incoming::Traffic),
        ];
        for ((agent, kubelet, network), expected) in rows {
            assert_eq!(classify(agent, kubelet, network), expected, "{agent} {kubelet} {network}");
            assert_eq!(is_probe(agent, kubelet, network), expected != Incoming::Traffic);
        }
    }
}
