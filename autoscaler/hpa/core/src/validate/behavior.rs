//! Validates `spec.behavior`: windows of at most an hour, periods of at most half an hour.

use super::{REQUIRED, amount, unsupported};
use common::field::FieldErrors;
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};

const LONGEST_WINDOW: i32 = 3600;
const LONGEST_PERIOD: i32 = 1800;

/// Adds the violations of a behavior, whose path is `path`.
pub fn validate(found: &mut FieldErrors, path: &str, behavior: &HorizontalPodAutoscalerBehavior) {
    for (name, rules) in [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)] {
        if let Some(rules) = rules {
            direction(found, &format!("{path}.{name}"), rules);
        }
    }
}

fn direction(found: &mut FieldErrors, path: &str, rules: &HPAScalingRules) {
    if let Some(window) = rules.stabilization_window_seconds {
        let path = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            found.invalid_value(window, &path, "must be greater than or equal to zero");
        }
        if window > LONGEST_WINDOW {
            found.invalid_value(window, &path, format!("must be less than or equal to {LONGEST_WINDOW}"));
        }
    }
    if let Some(select) = rules.select_policy.as_deref().filter(|s| !["Disabled", "Max", "Min"].contains(s)) {
        unsupported(found, select, &format!("{path}.selectPolicy"), &["Disabled", "Max", "Min"]);
    }
    let policies = rules.policies.as_deref().unwrap_or_default();
    if policies.is_empty() {
        found.push(REQUIRED, format!("{path}.policies"), "must specify at least one Policy");
    }
    for (i, one) in policies.iter().enumerate() {
        policy(found, &format!("{path}.policies[{i}]"), one);
    }
    if let Some(tolerance) = &rules.tolerance {
        let path = format!("{path}.tolerance");
        amount(found, tolerance, &path, |value| value.milli() < 0, "must be greater than or equal to 0");
    }
}

fn policy(found: &mut FieldErrors, path: &str, policy: &HPAScalingPolicy) {
    if !["Percent", "Pods"].contains(&policy.type_.as_str()) {
        unsupported(found, &policy.type_, &format!("{path}.type"), &["Percent", "Pods"]);
    }
    if policy.value <= 0 {
        found.invalid_value(policy.value, format!("{path}.value"), "must be greater than zero");
    }
    let (path, period) = (format!("{path}.periodSeconds"), policy.period_seconds);
    if period <= 0 {
        found.invalid_value(period, &path, "must be greater than zero");
    }
    if period > LONGEST_PERIOD {
        found.invalid_value(period, &path, format!("must be less than or equal to {LONGEST_PERIOD}"));
    }
}
