//! Environment variables for each Service of a container's namespace, as set by the kubelet: `NAME_SERVICE_HOST`,
//! `NAME_SERVICE_PORT`, and Docker's older variables such as `NAME_PORT_80_TCP_ADDR`.
//!
//! A Service without a ClusterIP has no variables. A pod with `enableServiceLinks: false` only has those of
//! `kubernetes`.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use std::net::{IpAddr, SocketAddr};

/// Namespace and name of the Service for which every pod has variables.
pub(crate) const MASTER: (&str, &str) = ("default", "kubernetes");

/// Returns the variables of one Service. `proxied_at` returns the address at which the proxy serves a port, if known.
pub(crate) fn variables(service: &Service, proxied_at: impl Fn(u16) -> Option<SocketAddr>) -> Vec<(String, String)> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let address = spec.cluster_ip.as_deref().and_then(|address| address.parse::<IpAddr>().ok());
    let Some(address) = address else { return Vec::new() };
    let word = |text: &str| text.replace('-', "_").to_uppercase();
    let prefix = word(&service.name_any());
    let mut all = Vec::new();
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let number = u16::try_from(port.port).unwrap_or_default();
        // This is the ClusterIP, unless this machine could not listen there.
        let at = proxied_at(number).unwrap_or(SocketAddr::new(address, number));
        let (host, at_port) = (at.ip().to_string(), at.port().to_string());
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{at}", protocol.to_lowercase());
        if index == 0 {
            all.push((format!("{prefix}_SERVICE_HOST"), host.clone()));
            all.push((format!("{prefix}_SERVICE_PORT"), at_port.clone()));
            all.push((format!("{prefix}_PORT"), url.clone()));
        }
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            all.push((format!("{prefix}_SERVICE_PORT_{}", word(name)), at_port.clone()));
        }
        let link = format!("{prefix}_PORT_{number}_{protocol}");
        all.push((format!("{link}_PROTO"), protocol.to_lowercase()));
        all.push((format!("{link}_PORT"), at_port));
        all.push((format!("{link}_ADDR"), host));
        all.push((link, url));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: the example in Kubernetes' documentation has the documented variables. A Service without a ClusterIP has
    /// none.
    #[test]
    fn variables_match_the_example_of_kubernetes() {
        let service = |spec: serde_json::Value| -> Service {
            serde_json::from_value(json!({"metadata": {"name": "redis-primary"}, "spec": spec})).expect("a Service")
        };
        let redis = service(json!({"clusterIP": "10.0.0.11", "ports": [{"port": 6379, "name": "a-b"}]}));
        let given = variables(&redis, |_| None);
        let lines: Vec<_> = given.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "REDIS_PRIMARY_SERVICE_HOST=10.0.0.11",
            "REDIS_PRIMARY_SERVICE_PORT=6379",
            "REDIS_PRIMARY_PORT=tcp://10.0.0.11:6379",
            "REDIS_PRIMARY_SERVICE_PORT_A_B=6379",
            "REDIS_PRIMARY_PORT_6379_TCP_PROTO=tcp",
            "REDIS_PRIMARY_PORT_6379_TCP_PORT=6379",
            "REDIS_PRIMARY_PORT_6379_TCP_ADDR=10.0.0.11",
            "REDIS_PRIMARY_PORT_6379_TCP=tcp://10.0.0.11:6379",
        ];
        assert_eq!(lines, expected);
        for spec in [json!({"clusterIP": "None", "ports": [{"port": 80}]}), json!({"clusterIP": "10.0.0.1"})] {
            assert_eq!(variables(&service(spec), |_| None), []);
        }
        let moved = variables(&redis, |_| Some(([127, 0, 0, 1], 40_000).into()));
        assert_eq!(moved[2].1, "tcp://127.0.0.1:40000");
    }
}
