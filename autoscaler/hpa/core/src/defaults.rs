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

use super::spec::{Behavior, MetricSpec, MetricTarget, Policy, ResourceSource, ScalingRules, Spec};

/// Target of a spec without metrics, in percent of the request.
const CPU_UTILIZATION: i32 = 80;

/// Sets the defaults of a whole spec.
pub fn fill(spec: &mut Spec) {
    spec.min_replicas.get_or_insert(1);
    if spec.metrics.is_empty() {
        let target = MetricTarget {
            kind: "Utilization".into(),
            average_utilization: Some(CPU_UTILIZATION),
            ..MetricTarget::default()
        };
        let resource = Some(ResourceSource { name: "cpu".into(), target });
        spec.metrics.push(MetricSpec { kind: "Resource".into(), resource, ..MetricSpec::default() });
    }
    if let Some(behavior) = &mut spec.behavior {
        fill_behavior(behavior);
    }
}

/// Sets the defaults of both directions of a behavior.
pub fn fill_behavior(behavior: &mut Behavior) {
    let up = behavior.scale_up.get_or_insert_default();
    up.stabilization_window_seconds.get_or_insert(0);
    fill_rules(up, || vec![Policy::new("Pods", 4, 15), Policy::new("Percent", 100, 15)]);
    let down = behavior.scale_down.get_or_insert_default();
    fill_rules(down, || vec![Policy::new("Percent", 100, 15)]);
}

fn fill_rules(rules: &mut ScalingRules, policies: impl FnOnce() -> Vec<Policy>) {
    rules.select_policy.get_or_insert_with(|| "Max".into());
    rules.policies.get_or_insert_with(policies);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_spec_becomes_cpu_at_eighty_percent_without_a_behavior() {
        let mut spec = Spec { max_replicas: 3, ..Spec::default() };
        fill(&mut spec);
        assert_eq!((spec.min_replicas, spec.metrics.len(), spec.behavior.as_ref()), (Some(1), 1, None));
        let resource = spec.metrics[0].resource.as_ref().expect("a resource metric");
        assert_eq!((resource.name.as_str(), resource.target.average_utilization), ("cpu", Some(80)));
    }

    /// Method: set one direction or a part of it, and check that the rest appears.
    #[test]
    fn a_behavior_is_filled_field_by_field() {
        let mut behavior = Behavior {
            scale_up: Some(ScalingRules {
                stabilization_window_seconds: Some(100),
                tolerance: Some("0.5".parse().expect("a quantity")),
                ..ScalingRules::default()
            }),
            scale_down: None,
        };
        fill_behavior(&mut behavior);
        let (up, down) = (behavior.scale_up.expect("filled"), behavior.scale_down.expect("filled"));
        assert_eq!((up.stabilization_window_seconds, up.select_policy.as_deref()), (Some(100), Some("Max")));
        assert_eq!(up.policies, Some(vec![Policy::new("Pods", 4, 15), Policy::new("Percent", 100, 15)]));
        assert_eq!(up.tolerance, "500m".parse().ok());
        assert_eq!((down.stabilization_window_seconds, down.select_policy.as_deref()), (None, Some("Max")));
        assert_eq!(down.policies, Some(vec![Policy::new("Percent", 100, 15)]));

        let down = ScalingRules { policies: Some(Vec::new()), ..ScalingRules::default() };
        let mut behavior = Behavior { scale_up: None, scale_down: Some(down) };
        fill_behavior(&mut behavior);
        assert_eq!(behavior.scale_up.and_then(|up| up.stabilization_window_seconds), Some(0));
        assert_eq!(behavior.scale_down.and_then(|down| down.policies), Some(Vec::new()), "explicitly none");
    }
}
