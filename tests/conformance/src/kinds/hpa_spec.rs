//! An autoscaler's spec in the format of cases: names in snake case, amounts in thousandths, and the source of a metric
//! beside its type.

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec, MetricTarget,
};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HpaCase {
    pub(super) namespace: String,
    pub(super) name: String,
    scale_target: Value,
    min_replicas: Value,
    max_replicas: i32,
    metrics: Vec<Map<String, Value>>,
    behavior: Value,
    behavior_defaulted: Value,
}

impl HpaCase {
    /// Returns the spec, after filling in and comparing the defaults of its behavior.
    pub(super) fn spec(self) -> Result<HorizontalPodAutoscalerSpec, Mismatch> {
        let spec = json!({
            "scale_target_ref": self.scale_target, "min_replicas": self.min_replicas,
            "max_replicas": self.max_replicas, "metrics": self.metrics.into_iter().map(nested).collect::<Vec<_>>(),
        });
        let behavior = defaulted(self.behavior, self.behavior_defaulted)?;
        Ok(HorizontalPodAutoscalerSpec { behavior, ..parse_api(spec)? })
    }
}

/// Fills in the defaults of a behavior like the API server, and compares the result.
pub(super) fn defaulted(behavior: Value, wanted: Value) -> Result<Option<HorizontalPodAutoscalerBehavior>, Mismatch> {
    let mut behavior: Option<HorizontalPodAutoscalerBehavior> = parse_api(behavior)?;
    if let Some(behavior) = &mut behavior {
        hpa_core::defaults::fill_behavior(behavior);
    }
    equal("behavior_defaulted", &parse_api::<Option<HorizontalPodAutoscalerBehavior>>(wanted)?, &behavior)?;
    Ok(behavior)
}

/// Parses a target, for `#[serde(deserialize_with = "target")]`.
pub(super) fn target<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MetricTarget, D::Error> {
    #[derive(Deserialize, Serialize)]
    struct Targeted {
        target: MetricTarget,
    }
    let case = json!({"target": Value::deserialize(deserializer)?});
    parse_api(case).map(|Targeted { target }| target).map_err(Error::custom)
}

pub(super) fn reference(case: Value) -> Result<CrossVersionObjectReference, Mismatch> {
    parse_api(case)
}

/// Moves the source of a metric into the field of its type, which starts with a lowercase letter.
fn nested(mut metric: Map<String, Value>) -> Value {
    let kind = metric.remove("type").unwrap_or_default();
    if metric.is_empty() {
        return json!({"type": kind});
    }
    if let Some(name) = metric.remove("metric") {
        let selector = metric.remove("selector");
        metric.insert("metric".into(), json!({"name": name, "selector": selector}));
    }
    let mut field = kind.as_str().unwrap_or_default().to_owned();
    field.get_mut(..1).map(str::make_ascii_lowercase);
    json!({"type": kind, field: metric})
}

/// Parses a value of the API, and checks that no part of it was ignored.
fn parse_api<T: DeserializeOwned + Serialize>(case: Value) -> Result<T, Mismatch> {
    let written = api_form(case, false);
    let read: T = parse(&written)?;
    let again = serde_json::to_value(&read).map_err(|e| Mismatch::Broken(e.to_string()))?;
    equal("the case as a value of the API", &written, &again)?;
    Ok(read)
}

/// Converts a value to the form of the API: names in camel case, amounts as quantities, and no null fields. Names of
/// labels do not change.
fn api_form(case: Value, in_target: bool) -> Value {
    let field = |(name, value): (String, Value)| {
        let value = match (name.as_str(), value) {
            (_, Value::Null) => return None,
            ("tolerance", Value::Number(milli)) => json!(format!("{milli}m")),
            ("value" | "average_value", Value::Number(milli)) if in_target => json!(format!("{milli}m")),
            ("match_labels", labels) => labels,
            (name, value) => api_form(value, name == "target"),
        };
        Some((camel_case(&name), value))
    };
    match case {
        Value::Object(fields) => Value::Object(fields.into_iter().filter_map(field).collect()),
        Value::Array(values) => values.into_iter().map(|value| api_form(value, in_target)).collect(),
        other => other,
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}
