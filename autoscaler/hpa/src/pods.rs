//! Converts pods to the form of the rules: labels, phase, times, readiness and requests, some hundred bytes for each.

use hpa_core::pod::{Container, Phase, Pod, Readiness, Resources};
use hpa_core::quantity;
use hpa_core::status::timestamp;
use k8s_openapi::api::core::v1::{self as core, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;

/// Converts a pod to the form of the rules.
pub fn parse_pod(pod: &core::Pod) -> Pod {
    let status = pod.status.as_ref();
    let spec = pod.spec.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready").map(|condition| Readiness {
        status: match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        },
        last_transition: condition.last_transition_time.as_ref().map(timestamp).unwrap_or_default(),
    });
    let container = |container: &core::Container| Container {
        name: container.name.clone(),
        requests: requests(container.resources.as_ref()),
        restarts: container.restart_policy.as_deref() == Some("Always"),
    };
    let init_containers = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    Pod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        phase: match status.and_then(|status| status.phase.as_deref()) {
            Some("Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Unknown,
        },
        deleting: pod.metadata.deletion_timestamp.is_some(),
        start_time: status.and_then(|status| status.start_time.as_ref()).map(timestamp),
        ready,
        containers: spec.into_iter().flat_map(|spec| &spec.containers).map(container).collect(),
        init_containers: init_containers.map(container).collect(),
        requests: requests(spec.and_then(|spec| spec.resources.as_ref())),
        overhead: spec.and_then(|spec| spec.overhead.as_ref()).map(amounts).unwrap_or_default(),
    }
}

fn requests(resources: Option<&ResourceRequirements>) -> Resources {
    resources.and_then(|resources| resources.requests.as_ref()).map(amounts).unwrap_or_default()
}

/// Parses amounts, which the API server has validated.
fn amounts(amounts: &BTreeMap<String, ApiQuantity>) -> Resources {
    let milli = |(resource, amount): (&String, &ApiQuantity)| Some((resource.clone(), quantity::milli(amount).ok()?));
    amounts.iter().filter_map(milli).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Timestamp;
    use serde_json::json;

    #[test]
    fn a_converted_pod_has_all_fields_that_the_rules_read() {
        let pod: core::Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "app", "resources": {"requests": {"cpu": "100m", "memory": "1Ki"}}}],
                "initContainers": [
                    {"name": "setup", "resources": {"requests": {"cpu": "1"}}},
                    {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
                ],
                "overhead": {"cpu": "10m"},
            },
            "status": {
                "phase": "Running", "startTime": "2023-11-14T22:13:20Z",
                "conditions": [
                    {"type": "Initialized", "status": "True"},
                    {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2023-11-14T22:13:21Z"},
                ],
            },
        }))
        .expect("a pod");
        let pod = parse_pod(&pod);
        assert_eq!(pod.request(None, "cpu"), Ok(150), "container and sidecar");
        assert_eq!(pod.request(Some("app"), "memory"), Ok(1_024_000));
        assert_eq!((pod.phase, pod.deleting), (Phase::Running, false));
        assert_eq!(pod.start_time, Some(Timestamp::from_secs(1_700_000_000)));
        let ready = Readiness { status: None, last_transition: Timestamp::from_secs(1_700_000_001) };
        assert_eq!(pod.ready, Some(ready));
        assert_eq!(pod.overhead["cpu"], 10);
        assert_eq!(parse_pod(&core::Pod::default()).phase, Phase::Unknown);
    }
}
