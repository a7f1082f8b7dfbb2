//! Translates Kubernetes' HorizontalPodAutoscaler, of any version: its metrics apply in addition to the load, and the
//! workload may scale to zero.

use super::draft::{Draft, target};
use super::source::Source;
use serde_json::{Map, Value, json};

/// Annotations in which `autoscaling/v1` stores the behavior and all metrics except CPU.
const OTHER_METRICS: &str = "/metadata/annotations/autoscaling.alpha.kubernetes.io~1metrics";
const BEHAVIOR: &str = "/metadata/annotations/autoscaling.alpha.kubernetes.io~1behavior";

/// Translates a HorizontalPodAutoscaler of any version of `autoscaling`.
pub(super) fn horizontal_pod_autoscaler(from: &mut Source) -> Vec<Value> {
    let target = target(from, "/spec/scaleTargetRef", None);
    let mut draft = Draft::new(from, target);
    // Kubernetes defaults to 1. A ZeroScaler defaults to 0, which allows scaling to zero.
    let min = from.number("/spec/minReplicas").unwrap_or_else(|| 1.into());
    if min != json!(0) {
        draft.set("scale.min", min);
        from.note("/spec/minReplicas", "kept; remove scale.min to allow scaling to zero");
    }
    draft.max(from, "/spec/maxReplicas", None);
    draft.set("metrics", metrics(from));
    let behavior = from.take("/spec/behavior").or_else(|| Some(lower_case(annotation(from, BEHAVIOR)?)));
    draft.set("behavior", behavior);
    draft.metadata(from);
    from.note("/kind", "delete the HorizontalPodAutoscaler before you apply this: both would change the replicas");
    from.note(
        "/spec/scaleTargetRef/name",
        "all Services that lead to the target's pods and share a port with the first of them are served; to choose, list them in services",
    );
    vec![draft.finish()]
}

/// Returns all metrics in the form of `autoscaling/v2`. If none is set, Kubernetes scales by CPU, but a ZeroScaler
/// scales by load alone, so the CPU metric is added.
fn metrics(from: &mut Source) -> Vec<Value> {
    let list = |value: Option<Value>| match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let mut metrics = list(from.take("/spec/metrics"));
    metrics.extend(list(annotation(from, OTHER_METRICS)));
    let percent = from.take("/spec/targetCPUUtilizationPercentage");
    if percent.is_none() && metrics.is_empty() {
        from.note("/spec/metrics", "not set: Kubernetes' default is written out, cpu at 80 %");
    }
    if let Some(percent) = percent.or_else(|| metrics.is_empty().then(|| json!(80))) {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    metrics.iter_mut().for_each(modernize);
    metrics
}

/// Converts a metric from `autoscaling/v2beta1`, which is also the form in the annotation of `v1`.
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

/// Parses the JSON of an annotation.
fn annotation(from: &mut Source, pointer: &str) -> Option<Value> {
    let text = from.text(pointer)?;
    serde_json::from_str(&text).map_err(|error| from.note(pointer, format!("cannot be read as JSON: {error}"))).ok()
}

/// Converts field names to those of the API. The behavior annotation has the field names of Kubernetes' Go types.
fn lower_case(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(mut key, value): (String, Value)| {
                key.get_mut(..1).map(str::make_ascii_lowercase);
                (key, lower_case(value))
            };
            Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).map(field).collect())
        }
        Value::Array(items) => items.into_iter().map(lower_case).collect(),
        other => other,
    }
}
