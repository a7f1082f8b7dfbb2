//! HorizontalPodAutoscalers, only `autoscaling/v2`. The server checks the schema and the bounds. The controller reports
//! errors of metrics and policies in the status.

use serde_json::Value;

use crate::api::causes::Causes;
use crate::api::fields::{number, text};

pub(super) fn validate(value: &Value, _old: Option<&Value>, causes: &mut Causes) {
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
