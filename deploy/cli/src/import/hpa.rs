//! Kubernetes' HorizontalPodAutoscaler, of any version: its metrics are looked at beside the load, and the workload may sleep.

use super::draft::{Draft, target};
use super::source::Source;
use serde_json::{Map, Value, json};

/// Annotations in which `autoscaling/v1` keeps all metrics but the one of the CPU, and the behavior.
const OTHER_METRICS: &str = "/metadata/annotations/autoscaling.alpha.kubernetes.io~1metrics";
const BEHAVIOR: &str = "/metadata/annotations/autoscaling.alpha.kubernetes.io~1behavior";

/// A HorizontalPodAutoscaler of any version of `autoscaling`.
pub(super) fn horizontal_pod_autoscaler(from: &mut Source) -> Vec<Value> {
    let name = from.text("/metadata/name").unwrap_or_default();
    let namespace = from.text("/metadata/namespace");
    let target = target(from, "/spec/scaleTargetRef", &name);
    let mut draft = Draft::new(&name, namespace.as_deref(), target);
    // Kubernetes' default; 0 lets the workload sleep, which is what ours does unless told.
    let min = from.number("/spec/minReplicas").unwrap_or_else(|| 1.into());
    if min != json!(0) {
        draft.set("scale.min", min);
        from.note("/spec/minReplicas", "kept; without scale.min the workload may go to zero");
    }
    draft.max(from, "/spec/maxReplicas", None);
    let metrics = metrics(from);
    if !metrics.is_empty() {
        draft.set("metrics", metrics);
    }
    let behavior = from.take("/spec/behavior").or_else(|| Some(lower_case(annotation(from, BEHAVIOR)?)));
    draft.set_some("behavior", behavior);
    draft.metadata(from);
    from.note("/kind", "delete the HorizontalPodAutoscaler before this is applied: two would fight over the replicas");
    from.note(
        "/spec/scaleTargetRef/name",
        "all Services that lead to the target's pods and share a port with the first of them are served; say which in services",
    );
    vec![draft.finish()]
}

/// All metrics, as `autoscaling/v2` has them. Where none is said at all, Kubernetes scales by the CPU; we would go by the load
/// alone.
fn metrics(from: &mut Source) -> Vec<Value> {
    let list = |value: Option<Value>| match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let mut metrics = list(from.take("/spec/metrics"));
    metrics.extend(list(annotation(from, OTHER_METRICS)));
    let percent = from.take("/spec/targetCPUUtilizationPercentage");
    if percent.is_none() && metrics.is_empty() {
        from.note("/spec/metrics", "none is said: Kubernetes' default is written out, cpu at 80 %");
    }
    if let Some(percent) = percent.or_else(|| metrics.is_empty().then(|| json!(80))) {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    metrics.iter_mut().for_each(modernize);
    metrics
}

/// Rewrites a metric of `autoscaling/v2beta1`, whose form the annotation of `v1` has, too.
fn modernize(metric: &mut Value) {
    let kinds = ["resource", "containerResource", "pods", "object", "external"];
    for kind in kinds {
        let Some(Value::Object(source)) = metric.get_mut(kind) else { continue };
        let mut target = Map::new();
        for (old, field, kind) in [
            ("targetAverageUtilization", "averageUtilization", "Utilization"),
            ("targetAverageValue", "averageValue", "AverageValue"),
            ("averageValue", "averageValue", "AverageValue"),
            ("targetValue", "value", "Value"),
        ] {
            if let Some(value) = source.remove(old).filter(|value| !value.is_null()) {
                target.entry("type").or_insert_with(|| kind.into());
                target.insert(field.to_owned(), value);
            }
        }
        if target.is_empty() {
            continue;
        }
        if let Some(object) = source.remove("target") {
            source.insert("describedObject".to_owned(), object);
        }
        source.insert("target".to_owned(), target.into());
        if let Some(name) = source.remove("metricName") {
            let mut metric = json!({"name": name});
            if let Some(selector) = source.remove("selector").or_else(|| source.remove("metricSelector")) {
                metric["selector"] = selector;
            }
            source.insert("metric".to_owned(), metric);
        }
    }
}

/// The JSON of an annotation.
fn annotation(from: &mut Source, pointer: &str) -> Option<Value> {
    let text = from.text(pointer)?;
    serde_json::from_str(&text).map_err(|error| from.note(pointer, format!("cannot be read as JSON: {error}"))).ok()
}

/// Field names as the API has them: the annotation of the behavior has those of Kubernetes' own types.
fn lower_case(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let name = |name: String| name[..1].to_lowercase() + &name[1..];
            let field = |(key, value): (String, Value)| {
                (if key.is_ascii() && !key.is_empty() { name(key) } else { key }, lower_case(value))
            };
            Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).map(field).collect())
        }
        Value::Array(items) => items.into_iter().map(lower_case).collect(),
        other => other,
    }
}
