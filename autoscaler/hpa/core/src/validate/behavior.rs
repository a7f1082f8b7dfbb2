//! Validates `spec.behavior`: windows of at most an hour, periods of at most half an hour.

use super::Violations;
use crate::quantity::Quantity;
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};

const LONGEST_WINDOW: i32 = 3600;
const LONGEST_PERIOD: i32 = 1800;

pub(super) fn validate(found: &mut Violations, path: &str, behavior: &HorizontalPodAutoscalerBehavior) {
    for (name, rules) in [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)] {
        if let Some(rules) = rules {
            direction(found, &format!("{path}.{name}"), rules);
        }
    }
}

fn direction(found: &mut Violations, path: &str, rules: &HPAScalingRules) {
    if let Some(window) = rules.stabilization_window_seconds {
        let path = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            found.invalid(&path, window, "must be greater than or equal to zero");
        }
        if window > LONGEST_WINDOW {
            found.invalid(&path, window, format!("must be less than or equal to {LONGEST_WINDOW}"));
        }
    }
    if let Some(select) = rules.select_policy.as_deref().filter(|s| !["Disabled", "Max", "Min"].contains(s)) {
        found.unsupported(&format!("{path}.selectPolicy"), select, &["Disabled", "Max", "Min"]);
    }
    let policies = rules.policies.as_deref().unwrap_or_default();
    if policies.is_empty() {
        found.required(&format!("{path}.policies"), "must specify at least one Policy");
    }
    for (i, one) in policies.iter().enumerate() {
        policy(found, &format!("{path}.policies[{i}]"), one);
    }
    if let Some(tolerance) = &rules.tolerance {
        found.quantity(
            &format!("{path}.tolerance"),
            tolerance,
            Quantity::is_negative,
            "must be greater than or equal to 0",
        );
    }
}

fn policy(found: &mut Violations, path: &str, policy: &HPAScalingPolicy) {
    if !["Percent", "Pods"].contains(&policy.type_.as_str()) {
        found.unsupported(&format!("{path}.type"), &policy.type_, &["Percent", "Pods"]);
    }
    if policy.value <= 0 {
        found.invalid(&format!("{path}.value"), policy.value, "must be greater than zero");
    }
    let (path, period) = (format!("{path}.periodSeconds"), policy.period_seconds);
    if period <= 0 {
        found.invalid(&path, period, "must be greater than zero");
    }
    if period > LONGEST_PERIOD {
        found.invalid(&path, period, format!("must be less than or equal to {LONGEST_PERIOD}"));
    }
}
