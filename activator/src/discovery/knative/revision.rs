//! Translation of a Knative Revision for the activator.
//!
//! | Revision | becomes |
//! |---|---|
//! | `containerConcurrency`, `timeoutSeconds` (absent or 0: 300), response start and idle timeout | the same |
//! | first port of the serving container named `h2c` | protocol h2c: Endpoints port `http2`, else `http` |
//! | exec readiness probe on the serving container, or a startup probe on any | a pod must be ready in Kubernetes, too, not only pass its probe |
//!
//! The serving container is the only one, or the first with ports.
//!
//! With `enable-mesh-pod-addressability`, probes and requests carry the private Service's name as their host and
//! `K-Passthrough-Lb: true`, and the cluster IP is never used. (In mesh mode `enabled`, Knative then probes and serves
//! nothing; here pods are probed as in mode `auto`.)

use crate::discovery::Spec;
use activator_core::backends::{Fallback, Proof, Rules};
use activator_core::contract::Contract;
use common::RevisionKey;
use common::backend::{Backend, ProbeKind, Protocol};
use common::config::{MeshMode, NetworkConfig};
use common::names;
use common_api::Revision;
use common_controller::key_of;
use http::HeaderValue;
use k8s_openapi::api::core::v1::Container;
use kube::ResourceExt;
use std::time::Duration;

/// Timeout that Knative's webhook sets if it is missing or zero.
const TIMEOUT_SECONDS: i64 = 300;

/// Maximum number of requests held for one revision. It equals Knative's queue depth, which is a hard bound only here.
const MAX_HELD: u32 = 10_000;

/// Translates a Revision. Also returns whether its queue-proxy's probe implies readiness.
pub(super) fn spec(revision: &Revision, network: &NetworkConfig, probe_timeout: Duration) -> (Spec, bool) {
    let key = key_of(revision);
    let containers = &revision.spec.containers;
    let serving = serving_container(containers);
    let is_h2c = serving.and_then(|c| c.ports.as_ref()?.first()?.name.as_deref()) == Some("h2c");
    let millis = |seconds: Option<i64>| seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0).saturating_mul(1000);
    let total = revision.spec.timeout_seconds.filter(|seconds| *seconds > 0).unwrap_or(TIMEOUT_SECONDS);
    let label = |name: &str| revision.labels().get(name).map(String::as_str).unwrap_or_default().into();
    let trusts_probe = trusts_probe(containers, serving);
    let limit = revision.spec.container_concurrency.and_then(|limit| u32::try_from(limit).ok());
    let backend = Backend {
        protocol: if is_h2c { Protocol::H2c } else { Protocol::Http1 },
        container_concurrency: limit.unwrap_or(0),
        queue_proxy: true,
        probe: ProbeKind::QueueProxy.into(),
        timeout_ms: millis(Some(total)),
        wake_timeout_ms: 0,
        response_start_timeout_ms: millis(revision.spec.response_start_timeout_seconds),
        idle_timeout_ms: millis(revision.spec.idle_timeout_seconds),
        max_held: MAX_HELD,
        ..Backend::plain(key.name())
    };
    let spec = Spec {
        passthrough: passthrough(&key, network),
        contract: Contract::Knative,
        rules: rules(network, trusts_probe, probe_timeout),
        configuration: label(names::CONFIGURATION),
        service: label(names::SERVICE),
        ..Spec::standalone(key.namespace(), key.name(), backend)
    };
    (spec, trusts_probe)
}

/// Returns the rules that decide when a revision's pods may receive requests.
pub(super) fn rules(network: &NetworkConfig, trusts_probe: bool, probe_timeout: Duration) -> Rules {
    let mesh = network.mesh_mode;
    let proof = match (mesh, trusts_probe) {
        (MeshMode::Disabled, true) => Proof::ReadyOrProbe,
        (MeshMode::Disabled, false) => Proof::Ready,
        (_, true) => Proof::Probe,
        (_, false) => Proof::ProbeAndReady,
    };
    let fallback = match mesh {
        _ if network.mesh_pod_addressability => Fallback::Never,
        MeshMode::Auto => Fallback::WhenUnaddressable,
        MeshMode::Enabled => Fallback::Always,
        MeshMode::Disabled => Fallback::Never,
    };
    Rules { proof, fallback, answer_timeout: probe_timeout }
}

/// Returns the host that a mesh routes by, if the mesh lets pods be addressed.
pub(super) fn passthrough(key: &RevisionKey, network: &NetworkConfig) -> Option<Box<HeaderValue>> {
    let host = || {
        HeaderValue::try_from(format!("{}.{}", names::private_service(key.name()), key.namespace())).ok().map(Box::new)
    };
    network.mesh_pod_addressability.then(host)?
}

fn serving_container(containers: &[Container]) -> Option<&Container> {
    match containers {
        [only] => Some(only),
        several => several.iter().find(|c| c.ports.as_ref().is_some_and(|ports| !ports.is_empty())),
    }
}

/// Reports whether a passed queue-proxy probe implies Kubernetes readiness.
fn trusts_probe(containers: &[Container], serving: Option<&Container>) -> bool {
    let exec = serving.and_then(|c| c.readiness_probe.as_ref()).is_some_and(|probe| probe.exec.is_some());
    !exec && containers.iter().all(|container| container.startup_probe.is_none())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in super::super) fn revision(spec: serde_json::Value) -> Revision {
        serde_json::from_value(json!({
            "apiVersion": "serving.knative.dev/v1", "kind": "Revision",
            "metadata": {"namespace": "ns", "name": "app-00001", "labels": {
                names::CONFIGURATION: "app", names::SERVICE: "app"}},
            "spec": spec,
        }))
        .expect("a revision")
    }

    fn read(given: serde_json::Value, mesh: MeshMode) -> Spec {
        let network = NetworkConfig { mesh_mode: mesh, ..NetworkConfig::default() };
        spec(&revision(given), &network, Duration::from_millis(300)).0
    }

    #[test]
    fn a_revision_is_read_as_in_knative() {
        let containers = json!([{"ports": [{"name": "h2c", "containerPort": 8080}]}]);
        let given = json!({"containerConcurrency": 3, "idleTimeoutSeconds": 7, "containers": containers});
        let spec = read(given, MeshMode::Auto);
        assert_eq!(spec.backend.container_concurrency, 3);
        assert_eq!(spec.backend.timeout_ms, 300_000, "the default of the webhook");
        assert_eq!((spec.backend.response_start_timeout_ms, spec.backend.idle_timeout_ms), (0, 7_000));
        assert_eq!(spec.backend.protocol, Protocol::H2c);
        assert_eq!((&*spec.configuration, &*spec.service), ("app", "app"));
    }

    #[test]
    fn kubernetes_readiness_is_required_if_the_probe_does_not_imply_it() {
        let exec = json!({"exec": {"command": ["true"]}});
        let port = json!([{"containerPort": 8080}]);
        let rows = [
            (json!({"containers": [{}]}), Proof::Probe),
            (json!({"containers": [{"readinessProbe": exec}]}), Proof::ProbeAndReady),
            (json!({"containers": [{"startupProbe": {"tcpSocket": {"port": 1}}}]}), Proof::ProbeAndReady),
            (json!({"containers": [{"ports": port}, {"readinessProbe": exec}]}), Proof::Probe),
            (json!({"containers": [{"ports": port}, {"startupProbe": exec}]}), Proof::ProbeAndReady),
        ];
        for (given, expected) in rows {
            assert_eq!(read(given.clone(), MeshMode::Auto).rules.proof, expected, "{given}");
        }
        assert_eq!(read(json!({"containers": [{}]}), MeshMode::Disabled).rules.proof, Proof::ReadyOrProbe);
        assert_eq!(read(json!({}), MeshMode::Enabled).rules.fallback, Fallback::Always);
    }
}
