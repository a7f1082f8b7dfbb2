//! Deployments and their like.

use serde_json::{Value, json};

use super::pod;
use crate::api::causes::Causes;
use crate::api::fields::{child, default, number, object};

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
