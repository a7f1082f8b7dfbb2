//! Metrics and behavior that a workload requests.
//!
//! `metrics` and `behavior` are those of `autoscaling/v2`. Missing values get defaults and violations are rejected, as
//! Kubernetes does for a HorizontalPodAutoscaler. Without a behavior the one in [`super::blend`] applies. The load of
//! requests counts like one more metric.

use common::field::FieldErrors;
use hpa_core::defaults;
use hpa_core::validate;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerBehavior as Behavior, MetricSpec};
use std::time::Duration;

/// Time between two measurements of the metrics; the default of Kubernetes.
pub const PERIOD: Duration = Duration::from_secs(15);

/// Validated metrics and behavior.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Metrics to measure; empty if only a behavior was requested.
    pub metrics: Vec<MetricSpec>,
    /// Requested behavior, with defaults filled in.
    pub behavior: Option<Behavior>,
}

/// Validates the requested metrics and behavior. Returns `None` if there are none, so that the load alone scales the
/// workload. Fails with every violation, with the path within the object.
pub fn plan(metrics: Vec<MetricSpec>, mut behavior: Option<Behavior>) -> Result<Option<Plan>, FieldErrors> {
    let mut errors = FieldErrors::new();
    validate::metrics(&mut errors, "spec.metrics", &metrics);
    if let Some(behavior) = &mut behavior {
        defaults::fill_behavior(behavior);
        validate::behavior(&mut errors, "spec.behavior", behavior);
    }
    errors.into_result()?;
    let is_requested = !metrics.is_empty() || behavior.is_some();
    Ok(is_requested.then_some(Plan { metrics, behavior }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans `metrics` and `behavior` given as JSON; an empty text means absent.
    fn plan_json(metrics: &str, behavior: &str) -> Result<Option<Plan>, FieldErrors> {
        let metrics = if metrics.is_empty() { Vec::new() } else { serde_json::from_str(metrics).expect("metrics") };
        let behavior = (!behavior.is_empty()).then(|| serde_json::from_str(behavior).expect("a behavior"));
        plan(metrics, behavior)
    }

    #[test]
    fn there_is_a_plan_only_if_one_is_requested() {
        let cpu = r#"[{"type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]"#;
        assert_eq!(plan_json("", ""), Ok(None));
        let planned = plan_json(cpu, "").expect("valid").expect("a plan");
        assert_eq!((planned.metrics.len(), planned.behavior), (1, None));
        let behaving =
            plan_json("", r#"{"scaleDown": {"stabilizationWindowSeconds": 5}}"#).expect("valid").expect("a plan");
        assert_eq!(behaving.metrics, []);
        let up = behaving.behavior.and_then(|behavior| behavior.scale_up);
        assert!(up.is_some_and(|up| up.policies.is_some_and(|policies| policies.len() == 2)), "filled in");
    }

    #[test]
    fn all_violations_are_found_at_once() {
        let errors = plan_json(r#"[{"type": "Resource"}]"#, r#"{"scaleUp": {"tolerance": "-1"}}"#)
            .expect_err("wrong everywhere");
        for path in ["spec.metrics[0].resource", "spec.behavior.scaleUp.tolerance"] {
            assert!(errors.iter().any(|error| error.path == path), "{errors}");
        }
    }
}
