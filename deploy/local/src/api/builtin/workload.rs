//! Deployments and similar workloads, and HorizontalPodAutoscalers.

use serde_json::{Value, json};

use super::pod;
use crate::api::causes::Causes;
use crate::api::fields::{child, default, number, object, text};

/// Sets defaults of the template's containers.
pub(super) fn prepare(value: &mut Value) {
    if let Some(spec) = value.pointer_mut("/spec/template/spec").map(object) {
        pod::prepare_spec(spec);
    }
}

pub(super) fn prepare_deployment(value: &mut Value) {
    prepare(value);
    if let Some(strategy) = value.pointer_mut("/spec/strategy").map(object)
        && strategy["type"] == "RollingUpdate"
    {
        let rolling = child(strategy, "rollingUpdate");
        default(rolling, "maxUnavailable", "25%");
        default(rolling, "maxSurge", "25%");
    }
}

/// Checks that the selector matches the template's labels.
pub(super) fn validate(value: &Value, causes: &mut Causes) {
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
}

/// Validates a HorizontalPodAutoscaler of `autoscaling/v2`. Its controller reports errors of metrics and policies in
/// the status.
pub(super) fn validate_autoscaler(value: &Value, causes: &mut Causes) {
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
