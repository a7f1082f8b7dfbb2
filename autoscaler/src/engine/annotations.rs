//! What annotations ask the metrics for: the YAML in them, read for the rules.

use autoscaler_core::engine::plan::{Plan, Written, plan, within};
use common::annotations::{Annotations, BEHAVIOR, Key, METRICS};
use common::field::FieldErrors;
use serde::de::DeserializeOwned;

/// The plan of a PodAutoscaler with these annotations. None: its load alone scales it.
///
/// # Errors
/// Every violation, with the annotation and the path within it.
pub(crate) fn read(annotations: &Annotations) -> Result<Option<Plan>, FieldErrors> {
    let mut errors = FieldErrors::new();
    let metrics = yaml(annotations, METRICS, &mut errors);
    let behavior = yaml(annotations, BEHAVIOR, &mut errors);
    plan(annotations, Written { metrics, behavior }, errors)
}

/// What one annotation holds; none, and an error, if it cannot be read.
fn yaml<T: DeserializeOwned>(annotations: &Annotations, key: Key, errors: &mut FieldErrors) -> Option<T> {
    let text = key.text(annotations)?;
    match serde_path_to_error::deserialize(serde_yaml_ng::Deserializer::from_str(text)) {
        Ok(value) => Some(value),
        Err(error) => {
            let path = Some(error.path().to_string()).filter(|path| path != ".").unwrap_or_default();
            errors.push(format!("cannot be read: {}", error.inner()), within(key, &path), "");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::annotations::PERIOD;

    fn of(pairs: &[(Key, &str)]) -> Result<Option<Plan>, FieldErrors> {
        read(&pairs.iter().map(|(key, value)| (key.name.to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn metrics_and_behavior_are_yaml() {
        let cpu = "- {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}";
        let plan = of(&[(METRICS, cpu), (BEHAVIOR, "scaleDown: {stabilizationWindowSeconds: 5}")]);
        let plan = plan.expect("valid").expect("a plan");
        assert_eq!(plan.metrics.len(), 1);
        let down = plan.behavior.and_then(|behavior| behavior.scale_down).expect("rules");
        assert_eq!(down.stabilization_window_seconds, Some(5));
        assert_eq!(of(&[]), Ok(None));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_path() {
        for (text, wanted) in [
            ("- {kind: Resource}", "at line 1 column 4: zeroscale.dev/metrics[0].kind"),
            ("- {type: Pods, pods: {target: {averageValue: much}}}", ": zeroscale.dev/metrics[0].pods.target"),
            ("{}", "cannot be read: invalid type: map, expected a sequence"),
            ("[", "cannot be read: "),
        ] {
            let errors = of(&[(METRICS, text)]).expect_err(text).to_string();
            assert!(errors.contains(wanted), "{text}: {errors}");
        }
    }

    #[test]
    fn all_violations_are_found_at_once() {
        let errors = of(&[(METRICS, "- {}"), (BEHAVIOR, "scaleUp: {tolerance: -1}"), (PERIOD, "0s")]);
        let errors = errors.expect_err("wrong everywhere");
        for key in [METRICS, BEHAVIOR, PERIOD] {
            assert!(errors.iter().any(|error| error.path.starts_with(key.name)), "{errors}");
        }
    }
}
