//! Validates objects like an admission webhook, for objects that have passed none. Every violation is reported with its
//! field.
//!
//! Not here: `namespace`, `uid`, `fieldPath` and `resourceVersion` of references, which upstream rejects; the schema
//! prunes them first. Protocol and mode cannot be wrong in a typed object: the schema rejects wrong values.

use crate::zeroscaler::checks::{API_VERSION, KIND, OBJECT_NAME};
use crate::{Metric, ObjectReference, PodAutoscaler, ServerlessService};
use common::annotations::{self, Annotations};
use common::config::AutoscalerConfig;
use common::field::FieldErrors;
use kube::ResourceExt;

/// Largest container concurrency; the default of `container-concurrency-max-limit` in config-defaults.
pub const CONTAINER_CONCURRENCY_MAX: i64 = 1000;

const ANNOTATIONS: &str = "metadata.annotations.";

impl PodAutoscaler {
    /// Fills in class and metric if they are absent.
    pub fn set_defaults(&mut self, default_class: &str) {
        let annotations = self.annotations_mut();
        annotations.entry(annotations::CLASS.name.to_owned()).or_insert_with(|| default_class.to_owned());
        if annotations::METRIC.entry(annotations).is_none() {
            let metric = annotations::metric(annotations).to_owned();
            if !metric.is_empty() {
                annotations.insert(annotations::METRIC.name.to_owned(), metric);
            }
        }
    }

    /// Checks the spec and Knative's annotations.
    ///
    /// # Errors
    /// Returns every violation.
    pub fn validate(&self, config: &AutoscalerConfig) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::new();
        reference(&self.spec.scale_target_ref, "spec.scaleTargetRef", &mut errors);
        let concurrency = self.spec.container_concurrency;
        if !(0..=CONTAINER_CONCURRENCY_MAX).contains(&concurrency) {
            let message = format!("expected 0 <= {concurrency} <= {CONTAINER_CONCURRENCY_MAX}");
            errors.push(message, "spec.containerConcurrency", "");
        }
        let annotations: &Annotations = self.annotations();
        for result in [annotations::validate(annotations, config), annotations::validate_progress_deadline(annotations)]
        {
            if let Err(found) = result {
                errors.extend(ANNOTATIONS, found);
            }
        }
        errors.into_result()
    }
}

impl ServerlessService {
    /// Checks the spec.
    ///
    /// # Errors
    /// Returns every violation.
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::new();
        if self.spec.mode.is_none() {
            errors.missing("spec.mode");
        }
        reference(&self.spec.object_ref, "spec.objectRef", &mut errors);
        let activators = self.spec.num_activators;
        if activators < 0 {
            errors.invalid_value(activators, "spec.numActivators", "must not be negative; 0 means all");
        }
        errors.into_result()
    }
}

impl Metric {
    /// Checks that the windows in the spec are positive.
    ///
    /// # Errors
    /// Returns every violation.
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

fn reference(reference: &ObjectReference, path: &str, errors: &mut FieldErrors) {
    type Rule<'a> = (&'a str, &'a Option<String>, fn(&str) -> bool, &'a str);
    let rules: [Rule<'_>; 3] = [
        (
            "apiVersion",
            &reference.api_version,
            is_api_version,
            "a version, or a group, a slash and a version, is expected",
        ),
        ("kind", &reference.kind, is_kind, "a kind such as Deployment is expected"),
        ("name", &reference.name, is_object_name, "an object's name is expected: a-z, 0-9, - and ."),
    ];
    for (field, value, good, rule) in rules {
        let path = format!("{path}.{field}");
        match value.as_deref() {
            None | Some("") => errors.missing(path),
            Some(text) if !good(text) => errors.invalid_value(text, path, rule),
            Some(_) => {}
        }
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
    use crate::{Mode, PodAutoscalerSpec, ServerlessServiceSpec};

    fn deployment(name: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some("apps/v1".into()),
            kind: Some("Deployment".into()),
            name: Some(name.into()),
        }
    }

    fn autoscaler() -> PodAutoscaler {
        PodAutoscaler::new(
            "hello",
            PodAutoscalerSpec { scale_target_ref: deployment("hello"), ..PodAutoscalerSpec::default() },
        )
    }

    fn paths(result: Result<(), FieldErrors>) -> Vec<String> {
        result.err().unwrap_or_default().iter().map(|error| error.path.clone()).collect()
    }

    #[test]
    fn a_good_object_passes() {
        assert_eq!(autoscaler().validate(&AutoscalerConfig::default()), Ok(()));
    }

    #[test]
    fn every_violation_names_its_field() {
        let mut object = autoscaler();
        object.spec.container_concurrency = 1001;
        object.spec.scale_target_ref =
            ObjectReference { api_version: Some("apps///v1".into()), kind: None, name: Some("Hello".into()) };
        for (key, value) in [("autoscaling.knative.dev/window", "1s"), ("serving.knative.dev/progress-deadline", "-1s")]
        {
            object.annotations_mut().insert(key.into(), value.into());
        }
        let knative = [
            "spec.scaleTargetRef.apiVersion",
            "spec.scaleTargetRef.kind",
            "spec.scaleTargetRef.name",
            "spec.containerConcurrency",
            "metadata.annotations.autoscaling.knative.dev/window",
            "metadata.annotations.serving.knative.dev/progress-deadline",
        ];
        assert_eq!(paths(object.validate(&AutoscalerConfig::default())), knative);
    }

    #[test]
    fn class_and_metric_are_filled_in() {
        let mut object = autoscaler();
        object.set_defaults(annotations::CLASS_HPA);
        let get = |object: &PodAutoscaler, key: &str| object.annotations().get(key).cloned();
        assert_eq!(get(&object, annotations::CLASS.name).as_deref(), Some(annotations::CLASS_HPA));
        assert_eq!(get(&object, annotations::METRIC.name).as_deref(), Some("cpu"));
        let mut foreign = autoscaler();
        foreign.set_defaults("other.example.com");
        assert_eq!(get(&foreign, annotations::METRIC.name), None);
    }

    #[test]
    fn a_serverless_service_needs_mode_and_target() {
        let spec = ServerlessServiceSpec { num_activators: -1, ..ServerlessServiceSpec::default() };
        let bad = ServerlessService::new("hello", spec);
        assert_eq!(
            paths(bad.validate()),
            [
                "spec.mode",
                "spec.objectRef.apiVersion",
                "spec.objectRef.kind",
                "spec.objectRef.name",
                "spec.numActivators"
            ]
        );
        let spec = ServerlessServiceSpec {
            mode: Some(Mode::Proxy),
            object_ref: deployment("hello"),
            ..ServerlessServiceSpec::default()
        };
        assert_eq!(ServerlessService::new("hello", spec).validate(), Ok(()));
    }
}
