//! Deployments and their like, and horizontal pod autoscalers.

use serde_json::{Value, json};

use super::columns as print;
use super::pod;
use crate::api::meta::{child, default, number, object, text};
use crate::api::resource::Rules;
use crate::api::status::Causes;

pub(super) const HPA: Rules =
    Rules { status: true, prepare: prepare_hpa, validate: validate_hpa, printer: Some(&print::HPA), ..Rules::PLAIN };

fn prepare_template(value: &mut Value, defaults: &[(&str, Value)]) {
    let Some(spec) = value.get_mut("spec").map(object) else { return };
    for (key, value) in defaults {
        default(spec, key, value.clone());
    }
    if let Some(template) = spec.get_mut("template").map(object) {
        pod::prepare_spec(child(template, "spec"));
    }
}

pub(super) fn deployment(value: &mut Value, _old: Option<&Value>) {
    prepare_template(
        value,
        &[
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("progressDeadlineSeconds", json!(600)),
            ("strategy", json!({"type": "RollingUpdate"})),
        ],
    );
    if let Some(strategy) = value.pointer_mut("/spec/strategy").map(object) {
        default(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            let rolling = child(strategy, "rollingUpdate");
            default(rolling, "maxUnavailable", "25%");
            default(rolling, "maxSurge", "25%");
        }
    }
}

pub(super) fn replica_set(value: &mut Value, _old: Option<&Value>) {
    prepare_template(value, &[("replicas", json!(1))]);
}

pub(super) fn stateful_set(value: &mut Value, _old: Option<&Value>) {
    prepare_template(
        value,
        &[
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("podManagementPolicy", json!("OrderedReady")),
            ("updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})),
        ],
    );
}

pub(super) fn daemon_set(value: &mut Value, _old: Option<&Value>) {
    prepare_template(
        value,
        &[
            ("revisionHistoryLimit", json!(10)),
            ("updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})),
        ],
    );
}

/// Selector, template and replicas; the selector never changes.
pub(super) fn validate(value: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &value["spec"];
    let selector = &spec["selector"];
    let terms = |key: &str| selector.get(key).is_some_and(|terms| *terms != json!({}) && *terms != json!([]));
    let labels = &spec["template"]["metadata"]["labels"];
    if !terms("matchLabels") && !terms("matchExpressions") {
        causes.required("spec.selector", "");
        causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
    } else {
        let matched = selector["matchLabels"].as_object().into_iter().flatten();
        if !matched.into_iter().all(|(key, value)| labels.get(key) == Some(value)) {
            causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
        }
    }
    if number(value, "/spec/replicas").is_some_and(|replicas| replicas < 0) {
        causes.invalid("spec.replicas", &spec["replicas"], "must be greater than or equal to 0");
    }
    pod::validate_spec(&spec["template"]["spec"], "spec.template.spec", causes);
    if old.is_some_and(|old| old["spec"]["selector"] != *selector) {
        causes.invalid("spec.selector", selector, "field is immutable");
    }
}

fn prepare_hpa(value: &mut Value, _old: Option<&Value>) {
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

fn validate_hpa(value: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let target = "spec.scaleTargetRef";
    for key in ["kind", "name"] {
        if text(value, &format!("/spec/scaleTargetRef/{key}")).is_empty() {
            causes.required(format!("{target}.{key}"), "");
        }
    }
    if text(value, "/spec/scaleTargetRef/kind").is_empty() && text(value, "/spec/scaleTargetRef/apiVersion").is_empty()
    {
        let found = value.pointer("/spec/scaleTargetRef/apiVersion").cloned().unwrap_or_default();
        causes.invalid(format!("{target}.apiVersion"), &found, "must be group/version");
    }
    let most = number(value, "/spec/maxReplicas").unwrap_or(0);
    let least = number(value, "/spec/minReplicas").unwrap_or(1);
    if most < 1 {
        causes.invalid("spec.maxReplicas", &most.into(), "must be greater than 0");
    } else if most < least {
        causes.invalid("spec.maxReplicas", &most.into(), "must be greater than or equal to `minReplicas`");
    }
    if least < 0 {
        causes.invalid("spec.minReplicas", &least.into(), "must be greater than or equal to 0");
    }
}
