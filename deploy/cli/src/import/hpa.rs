//! Kubernetes' HorizontalPodAutoscaler: its metrics are looked at beside the load, and the workload may sleep.

use super::draft::Draft;
use super::source::Source;
use serde_json::{Value, json};

/// Where `autoscaling/v1` keeps all metrics but the one of the CPU.
const OTHER_METRICS: &str = "/metadata/annotations/autoscaling.alpha.kubernetes.io~1metrics";

/// A HorizontalPodAutoscaler of `autoscaling/v2` or `v1`.
pub(super) fn horizontal_pod_autoscaler(from: &mut Source) -> Vec<Value> {
    let name = from.text("/metadata/name").unwrap_or_default();
    let namespace = from.text("/metadata/namespace");
    let target = from.take("/spec/scaleTargetRef").unwrap_or_default();
    let mut draft = Draft::new(&name, namespace.as_deref(), target);
    // Kubernetes' default; 0 lets the workload sleep, which is what ours does unless told.
    let min = from.number("/spec/minReplicas").unwrap_or_else(|| 1.into());
    if min != json!(0) {
        draft.set("scale.min", min);
        from.note("/spec/minReplicas", "kept; without scale.min the workload may go to zero");
    }
    draft.set_some("scale.max", from.number("/spec/maxReplicas"));
    let metrics = from.take("/spec/metrics").filter(|metrics| *metrics != json!([])).or_else(|| {
        let percent = from.take("/spec/targetCPUUtilizationPercentage").or_else(|| default_percent(from))?;
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        Some(json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]))
    });
    draft.set_some("metrics", metrics);
    draft.set_some("behavior", from.take("/spec/behavior"));
    from.note("/kind", "delete the HorizontalPodAutoscaler before this is applied: two would fight over the replicas");
    from.note(
        "/spec/scaleTargetRef/name",
        "the Service that clients call is taken to have the target's name; say service.name if it has not",
    );
    vec![draft.finish()]
}

/// What Kubernetes scales by where no metric is said at all; we would go by the load alone.
fn default_percent(from: &mut Source) -> Option<Value> {
    if from.look(OTHER_METRICS).is_some() {
        return None;
    }
    from.note("/spec/metrics", "none is said: Kubernetes' default is written out, cpu at 80 %");
    Some(json!(80))
}
