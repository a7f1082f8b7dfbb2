//! Defaults that the API server sets before it stores an object.
//!
//! | Field | Default |
//! |---|---|
//! | `minReplicas` | 1 |
//! | `metrics` (empty) | Resource `cpu`, Utilization 80 |
//! | `behavior` | stays unset |
//! | within a `behavior`: `scaleUp` | window 0, `Max`, 4 pods or 100 % in 15 s |
//! | `scaleDown` | `Max`, 100 % in 15 s; the window stays unset: the controller's option replaces it |
//!
//! A direction that is set is completed field by field. An explicit empty list of policies stays, so that validation
//! rejects it. Tolerances stay unset.

use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec, MetricSpec,
    MetricTarget, ResourceMetricSource,
};

/// Target of a spec without metrics, in percent of the request.
const CPU_UTILIZATION: i32 = 80;

/// Sets the defaults of a whole spec.
pub fn fill(spec: &mut HorizontalPodAutoscalerSpec) {
    spec.min_replicas.get_or_insert(1);
    let metrics = spec.metrics.get_or_insert_default();
    if metrics.is_empty() {
        let target = MetricTarget {
            type_: "Utilization".into(),
            average_utilization: Some(CPU_UTILIZATION),
            ..MetricTarget::default()
        };
        let resource = Some(ResourceMetricSource { name: "cpu".into(), target });
        metrics.push(MetricSpec { type_: "Resource".into(), resource, ..MetricSpec::default() });
    }
    if let Some(behavior) = &mut spec.behavior {
        fill_behavior(behavior);
    }
}

/// Sets the defaults of both directions of a behavior.
pub fn fill_behavior(behavior: &mut HorizontalPodAutoscalerBehavior) {
    let up = behavior.scale_up.get_or_insert_default();
    up.stabilization_window_seconds.get_or_insert(0);
    fill_rules(up, || vec![policy("Pods", 4, 15), policy("Percent", 100, 15)]);
    let down = behavior.scale_down.get_or_insert_default();
    fill_rules(down, || vec![policy("Percent", 100, 15)]);
}

fn fill_rules(rules: &mut HPAScalingRules, policies: impl FnOnce() -> Vec<HPAScalingPolicy>) {
    rules.select_policy.get_or_insert_with(|| "Max".into());
    rules.policies.get_or_insert_with(policies);
}

/// Returns a policy: at most `value` of type `Pods` or `Percent` in so many seconds.
pub fn policy(kind: &str, value: i32, period_seconds: i32) -> HPAScalingPolicy {
    HPAScalingPolicy { type_: kind.to_owned(), value, period_seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_without_metrics_gets_cpu_at_eighty_percent_and_no_behavior() {
        let mut spec = HorizontalPodAutoscalerSpec { max_replicas: 3, ..HorizontalPodAutoscalerSpec::default() };
        fill(&mut spec);
        assert_eq!(
            (spec.min_replicas, spec.metrics.as_ref().map(Vec::len), spec.behavior.as_ref()),
            (Some(1), Some(1), None)
        );
        let resource = spec.metrics.as_ref().expect("metrics")[0].resource.as_ref().expect("a resource metric");
        assert_eq!((resource.name.as_str(), resource.target.average_utilization), ("cpu", Some(80)));
    }

    #[test]
    fn an_explicit_empty_list_of_policies_gets_no_defaults() {
        let down = HPAScalingRules { policies: Some(Vec::new()), ..HPAScalingRules::default() };
        let mut behavior = HorizontalPodAutoscalerBehavior { scale_up: None, scale_down: Some(down) };
        fill_behavior(&mut behavior);
        assert_eq!(behavior.scale_up.and_then(|up| up.stabilization_window_seconds), Some(0));
        assert_eq!(behavior.scale_down.and_then(|down| down.policies), Some(Vec::new()), "not replaced");
    }
}
