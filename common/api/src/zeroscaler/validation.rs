//! Validates objects by the API server's own rules, for callers that cannot rely on the API server having run them.
//! Rules about one field are checked by their Rust form, rules about several fields by their CEL.
//!
//! Not here: facts that only the cluster knows, such as the existence of the target or the owner of a host.

use super::checks::{List, fields, lists};
use super::{ZeroScaler, crd};
use crate::numbers;
use common::config::AutoscalerConfig;
use common::field::FieldErrors;
use kube_cel::CompiledSchema;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::LazyLock;

/// Rules about several fields, compiled.
static RULES: LazyLock<CompiledSchema> = LazyLock::new(|| kube_cel::compile_schema(&crd::schema_of_rules()));

impl ZeroScaler {
    /// Checks the spec by itself. Returns every violation: field, value, rule.
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::new();
        // A spec consists of maps, lists, texts and numbers, which JSON can represent.
        let value = serde_json::to_value(&self.spec).unwrap_or_default();
        check_fields(&value, &mut errors);
        check_rules(&value, &mut errors);
        errors.into_result()
    }

    /// Checks the spec by itself and against the cluster's limits. Returns every violation: field, value, rule.
    pub fn validate_in(&self, config: &AutoscalerConfig) -> Result<(), FieldErrors> {
        let mut errors = self.validate().err().unwrap_or_default();
        let limit = config.max_scale_limit;
        let mut within = |scale: Option<i32>, from: i32, field: String| {
            if let Some(scale) = scale.filter(|scale| limit > 0 && !(from..=limit).contains(scale)) {
                let rule =
                    format!("a number from {from} to {limit} is expected, the max-scale-limit in config-autoscaler");
                errors.invalid_value(scale, field, rule);
            }
        };
        within(self.spec.scale.max, 1, "spec.scale.max".to_owned());
        for (index, schedule) in self.spec.schedules.iter().enumerate() {
            within(schedule.max, 1, format!("spec.schedules[{index}].max"));
            within(schedule.min, 0, format!("spec.schedules[{index}].min"));
        }
        let bounds = self.spec.scale.bounds(config);
        if errors.is_empty() && bounds.max.is_some_and(|max| bounds.min > max) {
            let (field, max) = (if self.spec.scale.min.is_some() { "min" } else { "max" }, bounds.max.unwrap_or(0));
            let rule = "one of them is the default in config-autoscaler";
            errors.push(format!("min {} is above max {max}", bounds.min), format!("spec.scale.{field}"), rule);
        }
        errors.into_result()
    }
}

/// Checks an object in JSON, for the embedded API server, whose schema handles values of a wrong type. Returns every
/// violation: field, value, rule.
pub fn validate_json(object: &Value) -> Result<(), FieldErrors> {
    serde_json::from_value::<ZeroScaler>(object.clone()).map_or(Ok(()), |object| object.validate())
}

fn check_fields(spec: &Value, errors: &mut FieldErrors) {
    for (path, kind, most) in lists() {
        each(spec, &path, &mut |value, path| check_list(value, path, kind, most, errors));
    }
    for (path, check) in fields() {
        each(spec, &path, &mut |value, path| {
            if let Some(rule) = check.violated_rule(value) {
                errors.invalid_value(display_value(value), path, rule);
            }
        });
    }
}

fn check_rules(spec: &Value, errors: &mut FieldErrors) {
    let mut object = json!({"spec": spec});
    numbers::as_stored(&mut object);
    let Err(broken) = kube_cel::validate_compiled(&RULES, &object, None) else { return };
    let mut broken = broken.into_vec();
    broken.sort_by(|a, b| a.field_path.cmp(&b.field_path));
    for violation in broken {
        errors.push(violation.message, violation.field_path, "");
    }
}

fn check_list(value: &Value, path: &str, kind: List, most: i64, errors: &mut FieldErrors) {
    let Some(items) = value.as_array() else { return };
    if i64::try_from(items.len()).map_or(true, |count| count > most) {
        errors.invalid_value(format!("{} items", items.len()), path, format!("at most {most} items are expected"));
    }
    let mut known = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let identity = match kind {
            List::Atomic => continue,
            List::Set => item,
            List::Map(key) => item.get(key).unwrap_or(&Value::Null),
        };
        if !known.insert(identity.to_string()) {
            errors.invalid_value(display_value(identity), format!("{path}[{index}]"), "each item must be unique");
        }
    }
}

/// Calls `visit` with each value at a path of the spec, and with the path including list indexes.
fn each(spec: &Value, path: &str, visit: &mut dyn FnMut(&Value, &str)) {
    let Some(rest) = path.strip_prefix("spec") else { return };
    descend(spec, "spec", rest.trim_start_matches('.'), visit);
}

fn descend(value: &Value, at: &str, rest: &str, visit: &mut dyn FnMut(&Value, &str)) {
    if rest.is_empty() {
        return visit(value, at);
    }
    let (step, rest) = rest.split_once('.').unwrap_or((rest, ""));
    let name = step.strip_suffix("[]").unwrap_or(step);
    let Some(value) = value.get(name) else { return };
    let at = format!("{at}.{name}");
    if name == step {
        return descend(value, &at, rest, visit);
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        descend(item, &format!("{at}[{index}]"), rest, visit);
    }
}

/// Formats a value as people write it.
fn display_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the cluster's limit applies to every field that can increase the number of pods.
    #[test]
    fn no_field_exceeds_the_clusters_max_scale_limit() {
        let config = AutoscalerConfig { max_scale_limit: 10, ..AutoscalerConfig::default() };
        let (least, most) = ("spec.schedules[0].min", "spec.schedules[0].max");
        for (spec, wrong) in [
            (r#"{"scale": {"max": 10}, "schedules": [{"min": 10, "max": 10}]}"#, None),
            (r#"{"scale": {"max": 11}}"#, Some("spec.scale.max")),
            (r#"{"scale": {"max": 0}}"#, Some("spec.scale.max")),
            (r#"{"scale": {"max": 9}, "schedules": [{"min": 11}]}"#, Some(least)),
            (r#"{"scale": {"max": 9}, "schedules": [{"max": 11}]}"#, Some(most)),
            (r#"{"scale": {"max": 9}, "schedules": [{"max": 0}]}"#, Some(most)),
        ] {
            let mut spec: Value = serde_json::from_str(spec).expect("JSON");
            spec["target"] = serde_json::json!({"name": "a"});
            for schedule in spec.get_mut("schedules").and_then(Value::as_array_mut).into_iter().flatten() {
                (schedule["cron"], schedule["duration"]) = ("0 8 * * *".into(), "1h".into());
            }
            let object = serde_json::json!({"metadata": {"name": "a"}, "spec": spec});
            let object: ZeroScaler = serde_json::from_value(object).expect("a ZeroScaler");
            let errors = object.validate_in(&config).err().map(|errors| errors.to_string());
            let names = |errors: &String| wrong.is_some_and(|field| errors.contains(field) && errors.contains("10"));
            assert!(errors.as_ref().map_or(wrong.is_none(), names), "{spec}: {errors:?}");
        }
    }
}
