//! Defaults and rules of Knative's admission webhook that a drop-in also applies itself, and the syntax of names.

use crate::zeroscaler::checks::{API_VERSION, KIND, OBJECT_NAME};
use crate::{Metric, PodAutoscaler};
use common::annotations;
use common::field::FieldErrors;
use kube::ResourceExt;

impl PodAutoscaler {
    /// Fills in class and metric if they are absent.
    pub fn set_defaults(&mut self, default_class: &str) {
        let annotations = self.annotations_mut();
        annotations.entry(annotations::CLASS.name.to_owned()).or_insert_with(|| default_class.to_owned());
        if annotations::METRIC.text(annotations).is_none() {
            let metric = annotations::metric(annotations).to_owned();
            if !metric.is_empty() {
                annotations.insert(annotations::METRIC.name.to_owned(), metric);
            }
        }
    }
}

impl Metric {
    /// Checks that the windows in the spec are positive. Returns every violation.
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::new();
        for (nanos, path) in
            [(self.spec.stable_window, "spec.stableWindow"), (self.spec.panic_window, "spec.panicWindow")]
        {
            if nanos <= 0 {
                errors.invalid_value(nanos, path, "a positive number of nanoseconds is expected");
            }
        }
        errors.into_result()
    }
}

/// Reports whether the text is `VERSION` or `GROUP/VERSION` in Kubernetes' syntax, such as `v1` or `apps/v1`.
pub fn is_api_version(text: &str) -> bool {
    API_VERSION.matches(text)
}

/// Reports whether the text is a kind: ASCII letters and digits, as in `Deployment`.
pub fn is_kind(text: &str) -> bool {
    KIND.matches(text)
}

/// Reports whether the text is an RFC 1123 subdomain, as Kubernetes requires for the name of a Deployment.
pub fn is_object_name(text: &str) -> bool {
    OBJECT_NAME.matches(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PodAutoscalerSpec;

    #[test]
    fn class_and_metric_are_filled_in() {
        let mut object = PodAutoscaler::new("hello", PodAutoscalerSpec::default());
        object.set_defaults(annotations::CLASS_HPA);
        let get = |object: &PodAutoscaler, key: &str| object.annotations().get(key).cloned();
        assert_eq!(get(&object, annotations::CLASS.name).as_deref(), Some(annotations::CLASS_HPA));
        assert_eq!(get(&object, annotations::METRIC.name).as_deref(), Some("cpu"));
        let mut foreign = PodAutoscaler::new("hello", PodAutoscalerSpec::default());
        foreign.set_defaults("other.example.com");
        assert_eq!(get(&foreign, annotations::METRIC.name), None);
    }
}
