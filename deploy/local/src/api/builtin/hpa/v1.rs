//! `autoscaling/v1`: the same objects with one percentage for the processor. What else they say travels in annotations
//! under `autoscaling.alpha.kubernetes.io/`, in a form of its own.
//!
//! | Annotation | Holds |
//! |---|---|
//! | `metrics`, `current-metrics` | metrics that are not the percentage; all that was measured. Flat, as `autoscaling/v1` has them |
//! | `conditions` | conditions |
//! | `behavior` | the behavior; its keys begin with capitals |
//! | `scale-up-tolerance`, `scale-down-tolerance` | never written, and dropped like the others |
//!
//! Reading: annotated metrics come first, the percentage last; `current-metrics` replaces the one percentage of the
//! status; text that is no JSON is ignored. Writing: the first utilization of the processor is the percentage, further
//! ones are lost, and of the status the last one is.

use serde_json::{Map, Value, json};

use crate::api::fields::{child, object};
use crate::api::meta::metadata;

const PREFIX: &str = "autoscaling.alpha.kubernetes.io/";
const NOTES: [&str; 6] =
    ["metrics", "current-metrics", "conditions", "behavior", "scale-up-tolerance", "scale-down-tolerance"];
const PERCENT: &str = "targetCPUUtilizationPercentage";
const CURRENT_PERCENT: &str = "currentCPUUtilizationPercentage";

/// Removes all notes of this view.
pub(super) fn strip_notes(value: &mut Value) {
    let fields = metadata(value);
    let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    for note in NOTES {
        annotations.remove(&format!("{PREFIX}{note}"));
    }
    if annotations.is_empty() {
        fields.remove("annotations");
    }
}

/// From the wire to the store: as `autoscaling/v2`.
pub(in crate::api::builtin) fn to_v2(mut value: Value) -> Value {
    let note = |value: &Value, name: &str| -> Option<Value> {
        let text = value["metadata"]["annotations"].get(format!("{PREFIX}{name}"))?.as_str()?;
        serde_json::from_str(text).ok()
    };
    let [metrics, measured, conditions, behavior] =
        ["metrics", "current-metrics", "conditions", "behavior"].map(|name| note(&value, name));
    strip_notes(&mut value);
    if let Some(spec) = value.get_mut("spec").map(object) {
        let percent = spec.remove(PERCENT);
        let mut all: Vec<Value> = items(metrics.as_ref()).filter_map(|metric| deepened(metric, &TARGET)).collect();
        all.extend(percent.map(|percent| cpu("target", json!({"type": "Utilization", "averageUtilization": percent}))));
        if !all.is_empty() {
            spec.insert("metrics".into(), all.into());
        }
        let behavior = behavior.map(|behavior| recased(behavior, char::to_ascii_lowercase));
        if let Some(behavior) = behavior.filter(|b| b.as_object().is_some_and(|fields| !fields.is_empty())) {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(status) = value.get_mut("status").map(object) {
        let percent = status.remove(CURRENT_PERCENT);
        let mut all: Vec<Value> = items(measured.as_ref()).filter_map(|metric| deepened(metric, &CURRENT)).collect();
        if measured.is_none() {
            all.extend(percent.map(|percent| cpu("current", json!({"averageUtilization": percent}))));
        }
        if !all.is_empty() {
            status.insert("currentMetrics".into(), all.into());
        }
        if let Some(conditions) = conditions.filter(Value::is_array) {
            status.insert("conditions".into(), conditions);
        }
    }
    value
}

/// From the store to the wire.
pub(in crate::api::builtin) fn from_v2(mut value: Value) -> Value {
    let mut notes = Map::new();
    let mut note = |name: &str, value: Value| drop(notes.insert(format!("{PREFIX}{name}"), value.to_string().into()));
    if let Some(spec) = value.get_mut("spec").map(object) {
        let (percents, others): (Vec<Value>, Vec<Value>) =
            items(spec.remove("metrics").as_ref()).cloned().partition(|metric| percent(metric, "target").is_some());
        if let Some(percent) = percents.first().and_then(|metric| percent(metric, "target")) {
            spec.insert(PERCENT.into(), percent);
        }
        let others: Vec<Value> = others.iter().filter_map(|metric| flattened(metric, &TARGET)).collect();
        if !others.is_empty() {
            note("metrics", others.into());
        }
        if let Some(behavior) = spec.remove("behavior") {
            note("behavior", recased(behavior, char::to_ascii_uppercase));
        }
    }
    if let Some(status) = value.get_mut("status").map(object) {
        let measured = status.remove("currentMetrics");
        if let Some(percent) = items(measured.as_ref()).filter_map(|metric| percent(metric, "current")).next_back() {
            status.insert(CURRENT_PERCENT.into(), percent);
        }
        let all: Vec<Value> = items(measured.as_ref()).filter_map(|metric| flattened(metric, &CURRENT)).collect();
        if !all.is_empty() {
            note("current-metrics", all.into());
        }
        if let Some(conditions) = status.remove("conditions").filter(|c| *c != json!([])) {
            note("conditions", conditions);
        }
        for field in ["currentReplicas", "desiredReplicas"] {
            status.entry(field).or_insert(json!(0));
        }
    }
    if !notes.is_empty() {
        child(metadata(&mut value), "annotations").append(&mut notes);
    }
    value
}

fn items(list: Option<&Value>) -> impl DoubleEndedIterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

fn cpu(side: &str, amounts: Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", side: amounts}})
}

/// The percentage, if a metric is the utilization of the processor.
fn percent(metric: &Value, side: &str) -> Option<Value> {
    let resource =
        metric.get("resource").filter(|resource| metric["type"] == "Resource" && resource["name"] == "cpu")?;
    resource[side].get("averageUtilization").filter(|percent| percent.is_number()).cloned()
}

/// The words of one side: what is aimed for, or what was measured.
struct Side {
    /// The field of `autoscaling/v2`.
    deep: &'static str,
    /// What the flat fields begin with.
    flat: &'static str,
}

const TARGET: Side = Side { deep: "target", flat: "target" };
const CURRENT: Side = Side { deep: "current", flat: "current" };

/// From the nested form to the flat one; none for a metric without its source.
fn flattened(metric: &Value, side: &Side) -> Option<Value> {
    let kind = metric["type"].as_str()?;
    let key = first_letter(kind, char::to_ascii_lowercase);
    let source = metric.get(&key)?;
    let (amounts, name) = (&source[side.deep], &source["metric"]["name"]);
    let mut flat = Map::new();
    let mut put = |key: &str, value: &Value| {
        if !value.is_null() {
            flat.insert(key.to_owned(), value.clone());
        }
    };
    let prefixed = |word: &str| format!("{}{word}", side.flat);
    match kind {
        "Resource" | "ContainerResource" => {
            put("name", &source["name"]);
            put("container", &source["container"]);
            put(&prefixed("AverageUtilization"), &amounts["averageUtilization"]);
            put(&prefixed("AverageValue"), &amounts["averageValue"]);
        }
        "Pods" => {
            put("metricName", name);
            put("selector", &source["metric"]["selector"]);
            put(&prefixed("AverageValue"), &amounts["averageValue"]);
        }
        "Object" => {
            put("target", &source["describedObject"]);
            put("metricName", name);
            put("selector", &source["metric"]["selector"]);
            // This field cannot be absent there.
            put(&prefixed("Value"), amounts.get("value").unwrap_or(&json!("0")));
            put("averageValue", &amounts["averageValue"]);
        }
        "External" => {
            put("metricName", name);
            put("metricSelector", &source["metric"]["selector"]);
            put(&prefixed("Value"), &amounts["value"]);
            put(&prefixed("AverageValue"), &amounts["averageValue"]);
        }
        _ => return None,
    }
    Some(json!({"type": kind, key: flat}))
}

/// From the flat form to the nested one.
fn deepened(metric: &Value, side: &Side) -> Option<Value> {
    let kind = metric["type"].as_str()?;
    let key = first_letter(kind, char::to_ascii_lowercase);
    let flat = metric.get(&key)?;
    let (mut source, mut amounts) = (Map::new(), Map::new());
    let prefixed = |word: &str| &flat[format!("{}{word}", side.flat)];
    let put = |map: &mut Map<String, Value>, key: &str, value: &Value| {
        if !value.is_null() {
            map.insert(key.to_owned(), value.clone());
        }
    };
    let named = |selector: &str| {
        let mut named = Map::new();
        put(&mut named, "name", &flat["metricName"]);
        put(&mut named, "selector", &flat[selector]);
        named
    };
    let goal = match kind {
        "Resource" | "ContainerResource" => {
            put(&mut source, "name", &flat["name"]);
            put(&mut source, "container", &flat["container"]);
            put(&mut amounts, "averageUtilization", prefixed("AverageUtilization"));
            put(&mut amounts, "averageValue", prefixed("AverageValue"));
            if prefixed("AverageUtilization").is_null() { "AverageValue" } else { "Utilization" }
        }
        "Pods" => {
            source.insert("metric".into(), named("selector").into());
            put(&mut amounts, "averageValue", prefixed("AverageValue"));
            "AverageValue"
        }
        "Object" => {
            put(&mut source, "describedObject", &flat["target"]);
            source.insert("metric".into(), named("selector").into());
            let averaged = !flat["averageValue"].is_null();
            // Beside an average a total of 0 is only there because it cannot be absent; a status keeps it.
            if side.deep == "current" || !averaged || prefixed("Value") != "0" {
                put(&mut amounts, "value", prefixed("Value"));
            }
            put(&mut amounts, "averageValue", &flat["averageValue"]);
            if averaged { "AverageValue" } else { "Value" }
        }
        "External" => {
            source.insert("metric".into(), named("metricSelector").into());
            put(&mut amounts, "value", prefixed("Value"));
            put(&mut amounts, "averageValue", prefixed("AverageValue"));
            if prefixed("Value").is_null() { "AverageValue" } else { "Value" }
        }
        _ => return None,
    };
    if side.deep == "target" {
        amounts.insert("type".into(), goal.into());
    }
    source.insert(side.deep.to_owned(), amounts.into());
    Some(json!({"type": kind, key: source}))
}

fn first_letter(word: &str, case: fn(&char) -> char) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| case(&first)).into_iter().chain(letters).collect()
}

/// All keys with another first letter; what is null is absent.
fn recased(value: Value, case: fn(&char) -> char) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (first_letter(&key, case), recased(value, case))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.into_iter().map(|item| recased(item, case)).collect::<Vec<_>>().into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> Vec<Value> {
        let metric = json!({"name": "m", "selector": {"matchLabels": {"a": "b"}}});
        let object = json!({"kind": "Service", "name": "s", "apiVersion": "v1"});
        vec![
            json!({"type": "Resource", "resource": {
                "name": "memory", "target": {"type": "Utilization", "averageUtilization": 50},
            }}),
            json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "AverageValue", "averageValue": "500m"},
            }}),
            json!({"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 50},
            }}),
            json!({"type": "Pods", "pods": {
                "metric": metric, "target": {"type": "AverageValue", "averageValue": "2"},
            }}),
            json!({"type": "Object", "object": {
                "describedObject": object, "metric": metric, "target": {"type": "Value", "value": "2"},
            }}),
            json!({"type": "Object", "object": {
                "describedObject": object, "metric": metric, "target": {"type": "AverageValue", "averageValue": "2"},
            }}),
            json!({"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "2"}}}),
            json!({"type": "External", "external": {
                "metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "2"},
            }}),
        ]
    }

    fn full() -> Value {
        let mut metrics = every_kind();
        metrics.push(cpu("target", json!({"type": "Utilization", "averageUtilization": 70})));
        let rules = json!({
            "stabilizationWindowSeconds": 0, "selectPolicy": "Max", "tolerance": "50m",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
        });
        json!({
            "metadata": {"name": "a", "annotations": {"own": "1"}},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}, "minReplicas": 1,
                "maxReplicas": 5, "metrics": metrics, "behavior": {"scaleUp": rules},
            },
            "status": {
                "currentReplicas": 1, "desiredReplicas": 2,
                "currentMetrics": [cpu("current", json!({"averageUtilization": 30, "averageValue": "300m"}))],
                "conditions": [{"type": "AbleToScale", "status": "True"}],
            },
        })
    }

    /// Among others the v1 row of the reference (hpa, 8.15): of cpu by value and by utilization the latter is the
    /// percentage, and without metrics there is none.
    #[test]
    fn the_view_has_a_percentage_and_notes() {
        let bare = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 2}});
        assert_eq!(from_v2(bare)["spec"].get(PERCENT), None);
        let view = from_v2(full());
        assert_eq!(view["spec"][PERCENT], 70);
        assert_eq!(view["status"][CURRENT_PERCENT], 30);
        let note = |name: &str| -> Value {
            let text = view["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str().expect(name);
            serde_json::from_str(text).expect("JSON")
        };
        let metrics = note("metrics");
        assert_eq!(metrics.as_array().map(Vec::len), Some(8));
        assert_eq!(
            metrics[0],
            json!({"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 50}})
        );
        assert_eq!(metrics[4]["object"]["target"]["name"], "s");
        assert_eq!(metrics[4]["object"]["targetValue"], "2");
        assert_eq!(metrics[6]["external"]["metricSelector"], json!({"matchLabels": {"a": "b"}}));
        assert_eq!(note("behavior")["ScaleUp"]["Policies"][0]["PeriodSeconds"], 15);
        assert_eq!(note("current-metrics")[0]["resource"]["currentAverageUtilization"], 30);
        assert_eq!(note("conditions")[0]["type"], "AbleToScale");
        for gone in ["metrics", "behavior"] {
            assert_eq!(view["spec"].get(gone), None, "{gone}");
        }
    }

    #[test]
    fn a_view_that_is_written_back_changes_nothing() {
        assert_eq!(to_v2(from_v2(full())), full());
    }

    #[test]
    fn odd_objects_are_read_as_upstream_reads_them() {
        let note = |name: &str, text: &str| json!({"annotations": {format!("{PREFIX}{name}"): text}});
        let plain = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 2, PERCENT: 60}});
        let read = to_v2(plain);
        assert_eq!(
            read["spec"]["metrics"],
            json!([cpu("target", json!({"type": "Utilization", "averageUtilization": 60}))])
        );
        let broken = json!({"metadata": note("metrics", "["), "spec": {"maxReplicas": 2}});
        assert_eq!(to_v2(broken), json!({"metadata": {}, "spec": {"maxReplicas": 2}}));
        let empty = json!({"metadata": note("behavior", "{\"ScaleUp\":null}"), "spec": {}});
        assert_eq!(to_v2(empty)["spec"].get("behavior"), None);
        let mut twice = full();
        let percent = cpu("target", json!({"type": "Utilization", "averageUtilization": 10}));
        twice["spec"]["metrics"].as_array_mut().expect("a list").push(percent);
        assert_eq!(to_v2(from_v2(twice))["spec"]["metrics"], full()["spec"]["metrics"], "the second is lost");
    }
}
