//! Validates `spec.behavior`: windows are at most an hour, and periods at most half an hour.

use super::{REQUIRED, amount, unsupported};
use common::field::FieldErrors;
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};

const LONGEST_WINDOW: i32 = 3600;
const LONGEST_PERIOD: i32 = 1800;

/// Adds the violations of a behavior, whose path is `path`.
pub fn validate(errors: &mut FieldErrors, path: &str, behavior: &HorizontalPodAutoscalerBehavior) {
    for (name, rules) in [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)] {
        if let Some(rules) = rules {
            direction(errors, &format!("{path}.{name}"), rules);
        }
    }
}

fn direction(errors: &mut FieldErrors, path: &str, rules: &HPAScalingRules) {
    if let Some(window) = rules.stabilization_window_seconds {
        let path = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            errors.invalid_value(window, &path, "must be greater than or equal to zero");
        }
        if window > LONGEST_WINDOW {
            errors.invalid_value(window, &path, format!("must be less than or equal to {LONGEST_WINDOW}"));
        }
    }
    if let Some(select) = rules.select_policy.as_deref().filter(|s| !["Disabled", "Max", "Min"].contains(s)) {
        unsupported(errors, select, &format!("{path}.selectPolicy"), &["Disabled", "Max", "Min"]);
    }
    let policies = rules.policies.as_deref().unwrap_or_default();
    if policies.is_empty() {
        errors.push(REQUIRED, format!("{path}.policies"), "must specify at least one Policy");
    }
    for (i, entry) in policies.iter().enumerate() {
        policy(errors, &format!("{path}.policies[{i}]"), entry);
    }
    if let Some(tolerance) = &rules.tolerance {
        let path = format!("{path}.tolerance");
        amount(errors, tolerance, &path, |value| value.milli() < 0, "must be greater than or equal to 0");
    }
}

fn policy(errors: &mut FieldErrors, path: &str, policy: &HPAScalingPolicy) {
    if !["Percent", "Pods"].contains(&policy.type_.as_str()) {
        unsupported(errors, &policy.type_, &format!("{path}.type"), &["Percent", "Pods"]);
    }
    if policy.value <= 0 {
        errors.invalid_value(policy.value, format!("{path}.value"), "must be greater than zero");
    }
    let (path, period) = (format!("{path}.periodSeconds"), policy.period_seconds);
    if period <= 0 {
        errors.invalid_value(period, &path, "must be greater than zero");
    }
    if period > LONGEST_PERIOD {
        errors.invalid_value(period, &path, format!("must be less than or equal to {LONGEST_PERIOD}"));
    }
}
