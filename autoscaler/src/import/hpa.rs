//! Kubernetes' HorizontalPodAutoscaler: its metrics are looked at beside the load, and the workload may sleep.

use super::source::Source;
use super::{Annotations, pod_autoscaler};
use common::annotations::{BEHAVIOR, MAX_SCALE, METRICS, MIN_SCALE};
use serde_json::{Value, json};

/// A HorizontalPodAutoscaler of `autoscaling/v2` or `v1`.
pub(super) fn horizontal_pod_autoscaler(from: &mut Source) -> Vec<Value> {
    let name = from.text("/metadata/name").unwrap_or_default();
    let namespace = from.text("/metadata/namespace");
    let mut annotations = Annotations::new();
    // Kubernetes' default; 0 lets the workload sleep, which is what ours does unless told.
    let min = from.text("/spec/minReplicas").unwrap_or_else(|| "1".into());
    if min != "0" {
        annotations.insert(MIN_SCALE.name.into(), min.into());
        from.note("/spec/minReplicas", "kept; without autoscaling.knative.dev/min-scale the workload may go to zero");
    }
    if let Some(max) = from.text("/spec/maxReplicas") {
        annotations.insert(MAX_SCALE.name.into(), max.into());
    }
    let metrics = from.take("/spec/metrics").or_else(|| {
        let percent = from.take("/spec/targetCPUUtilizationPercentage")?;
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        Some(json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]))
    });
    for (key, value) in [(METRICS, metrics), (BEHAVIOR, from.take("/spec/behavior"))] {
        if let Some(text) = value.and_then(|value| serde_yaml_ng::to_string(&value).ok()) {
            annotations.insert(key.name.into(), text.into());
        }
    }
    let target = from.take("/spec/scaleTargetRef").unwrap_or_default();
    from.note("/kind", "delete the HorizontalPodAutoscaler once this is applied: two would fight over the replicas");
    vec![pod_autoscaler(&name, namespace, annotations, target)]
}
