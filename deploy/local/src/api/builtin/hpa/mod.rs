//! HorizontalPodAutoscalers: `autoscaling/v2`, and `autoscaling/v1` as a view of it ([`v1`]).
//!
//! Not here: the rule that an object metric's reference is not looked at again once a wrong one is stored.

mod columns;
pub(super) mod v1;
mod validate;

use k8s_openapi::api::autoscaling;
use serde_json::{Value, json};

use super::quantity::Quantity;
use crate::api::fields::{child, default, object};
use crate::api::openapi::describe;
use crate::api::resource::{Model, Rules};

pub(super) const RULES: Rules =
    Rules { status: true, prepare, validate: validate::check, printer: Some(&columns::HPA), ..Rules::PLAIN };

/// How `autoscaling/v2` is read.
pub(super) const V2: Model = Model::Typed { decode, describe: describe::<autoscaling::v2::HorizontalPodAutoscaler> };

fn decode(mut value: Value) -> Result<Value, String> {
    amounts(&mut value)?;
    super::typed::decode::<autoscaling::v2::HorizontalPodAutoscaler>(value)
}

/// Writes amounts in their canonical form, those that are numbers too.
fn amounts(value: &mut Value) -> Result<(), String> {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match (key.as_str(), value) {
                    ("target" | "current", Value::Object(target)) => {
                        target.get_mut("value").map_or(Ok(()), amount)?;
                        target.get_mut("averageValue").map_or(Ok(()), amount)?;
                    }
                    ("tolerance", value) => amount(value)?,
                    (_, value) => amounts(value)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(amounts),
        _ => Ok(()),
    }
}

fn amount(value: &mut Value) -> Result<(), String> {
    if value.is_string() || value.is_number() {
        let read = Quantity::read(value).ok_or_else(|| format!("{value} is no quantity, such as 250m or 1.5Gi"))?;
        *value = read.to_string().into();
    }
    Ok(())
}

/// Defaults; and in whatever version it came, notes of the other version's view are none of the object's.
fn prepare(value: &mut Value, _old: Option<&Value>) {
    v1::strip_notes(value);
    let Some(spec) = value.get_mut("spec").map(object) else { return };
    default(spec, "minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec.insert("metrics".into(), json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    if let Some(behavior) = spec.get_mut("behavior").filter(|behavior| behavior.is_object()).map(object) {
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let up = child(behavior, "scaleUp");
        default(up, "stabilizationWindowSeconds", 0);
        default(up, "selectPolicy", "Max");
        default(up, "policies", json!([pods, percent]));
        let down = child(behavior, "scaleDown");
        default(down, "selectPolicy", "Max");
        default(down, "policies", json!([percent]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::causes::Causes;

    fn hpa(spec: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn amounts_are_kept_in_their_canonical_form() {
        let target = json!({"type": "Value", "value": "0.5"});
        let metric = json!({"type": "External", "external": {"metric": {"name": "q"}, "target": target}});
        let rules = json!({"tolerance": 0.05, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]});
        let object = hpa(json!({
            "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}, "maxReplicas": 2,
            "metrics": [metric], "behavior": {"scaleUp": rules},
        }));
        let read = decode(object.clone()).expect("good");
        assert_eq!(read["spec"]["metrics"][0]["external"]["target"]["value"], "500m");
        assert_eq!(read["spec"]["behavior"]["scaleUp"]["tolerance"], "50m");
        assert_eq!(read["spec"]["behavior"]["scaleUp"]["policies"][0]["value"], 4);
        let mut wrong = object;
        wrong["spec"]["metrics"][0]["external"]["target"]["value"] = "much".into();
        assert!(decode(wrong).is_err_and(|error| error.contains("much")));
    }

    /// Goal: an update may keep what it could not bring.
    #[test]
    fn what_is_stored_may_stay_though_it_could_not_come() {
        let found = |value: &Value, old: Option<&Value>| {
            let mut causes = Causes::default();
            validate::check(value, old, &mut causes);
            causes.is_empty()
        };
        let wrong = hpa(json!({"scaleTargetRef": {"kind": "Deployment", "name": "a"}, "maxReplicas": 2}));
        assert!(!found(&wrong, None), "no API group");
        assert!(found(&wrong, Some(&wrong)));
        let mut moved = wrong.clone();
        moved["spec"]["scaleTargetRef"]["kind"] = "StatefulSet".into();
        assert!(!found(&moved, Some(&wrong)));
        let metric = json!({"type": "External", "external": {
            "metric": {"name": "q"}, "target": {"type": "Value", "value": "1"},
        }});
        let zero = hpa(json!({
            "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}, "maxReplicas": 2,
            "minReplicas": 0, "metrics": [metric],
        }));
        assert!(!found(&zero, None));
        assert!(found(&zero, Some(&zero)));
    }
}
