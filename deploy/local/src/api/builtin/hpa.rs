//! HorizontalPodAutoscalers, `autoscaling/v2` alone. What is wrong with a metric or a policy, the controller says in the
//! status; the server checks what the schema says, and the bounds.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::Value;

use super::columns as print;
use super::quantity::Quantity;
use crate::api::causes::Causes;
use crate::api::fields::{number, text};
use crate::api::openapi::describe;
use crate::api::resource::{Model, Rules};

pub(super) const RULES: Rules = Rules { status: true, validate, printer: Some(&print::HPA), ..Rules::PLAIN };

pub(super) const MODEL: Model = Model::Typed { decode, describe: describe::<HorizontalPodAutoscaler> };

fn decode(mut value: Value) -> Result<Value, String> {
    amounts(&mut value)?;
    super::typed::decode::<HorizontalPodAutoscaler>(value)
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

fn validate(value: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let max = number(value, "/spec/maxReplicas").unwrap_or(0);
    if number(value, "/spec/minReplicas").is_some_and(|min| min > max) {
        causes.invalid("spec.maxReplicas", &max.into(), "must be greater than or equal to `minReplicas`");
    }
    let target = &value["spec"]["scaleTargetRef"];
    if target["kind"] != "ReplicationController" && !text(target, "/apiVersion").contains('/') {
        let field = "spec.scaleTargetRef.apiVersion";
        causes.invalid(field, &target["apiVersion"], "apiVersion must specify API group");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_kept_in_their_canonical_form() {
        let target = json!({"type": "Value", "value": "0.5"});
        let metric = json!({"type": "External", "external": {"metric": {"name": "q"}, "target": target}});
        let rules = json!({"tolerance": 0.05, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]});
        let object = json!({"metadata": {"name": "a"}, "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}, "maxReplicas": 2,
            "metrics": [metric], "behavior": {"scaleUp": rules},
        }});
        let read = decode(object.clone()).expect("good");
        assert_eq!(read["spec"]["metrics"][0]["external"]["target"]["value"], "500m");
        assert_eq!(read["spec"]["behavior"]["scaleUp"]["tolerance"], "50m");
        assert_eq!(read["spec"]["behavior"]["scaleUp"]["policies"][0]["value"], 4);
        let mut wrong = object;
        wrong["spec"]["metrics"][0]["external"]["target"]["value"] = "much".into();
        assert!(decode(wrong).is_err_and(|error| error.contains("much")));
    }
}
