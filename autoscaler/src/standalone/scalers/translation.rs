//! What a ZeroScaler means, in the words of the passes: a PodAutoscaler, settings, parameters, a plan for its metrics.
//!
//! The PodAutoscaler carries as annotations what code that both front ends share reads there: windows of the load, fewest
//! pods. Everything else is read from the ZeroScaler itself.

use super::super::finalizer::{ADOPTED_REPLICAS, ADOPTED_TARGET};
use super::super::settings::{PortReference, Settings};
use autoscaler_core::engine::Plan;
use autoscaler_core::engine::plan::{Written, plan};
use common::annotations::{self, Annotations};
use common::backend::Protocol;
use common::field::FieldErrors;
use common_api::zeroscaler::Target;
use common_api::{ObjectReference, PodAutoscaler, PodAutoscalerSpec, Reachability, ZeroScaler};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// What one scales.
pub(crate) fn target(object: &ZeroScaler) -> ObjectReference {
    let target = &object.spec.target;
    ObjectReference {
        api_version: Some(target.api_version.clone()),
        kind: Some(target.kind.clone()),
        name: Some(target.name.clone()),
    }
}

/// The target that a reference names.
pub(crate) fn named(reference: &ObjectReference) -> Target {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let ObjectReference { api_version, kind, name } = reference;
    Target { api_version: text(api_version), kind: text(kind), name: text(name) }
}

/// The PodAutoscaler that stands for one, without a status.
pub(crate) fn autoscaler(object: &ZeroScaler) -> PodAutoscaler {
    let spec = &object.spec;
    let mut annotations = Annotations::new();
    if let Some(min) = spec.scale.min {
        annotations.insert(annotations::MIN_SCALE.name.to_owned(), min.to_string());
    }
    for name in [ADOPTED_REPLICAS, ADOPTED_TARGET] {
        if let Some(noted) = object.annotations().get(name) {
            annotations.insert(name.to_owned(), noted.clone());
        }
    }
    PodAutoscaler {
        metadata: ObjectMeta { annotations: Some(annotations), managed_fields: None, ..object.metadata.clone() },
        spec: PodAutoscalerSpec {
            container_concurrency: i64::from(spec.concurrency),
            scale_target_ref: target(object),
            reachability: Reachability::Reachable,
            protocol_type: protocol(object),
        },
        status: None,
    }
}

/// The same with the windows of the load as they were resolved, for what is measured.
pub(crate) fn with_windows(mut autoscaler: PodAutoscaler, stable: Duration, panic: Duration) -> PodAutoscaler {
    let percentage = panic.as_secs_f64() / stable.as_secs_f64().max(1.0) * 100.0;
    let annotations = autoscaler.annotations_mut();
    annotations.insert(annotations::WINDOW.name.to_owned(), format!("{}s", stable.as_secs()));
    annotations.insert(annotations::PANIC_WINDOW.name.to_owned(), percentage.to_string());
    autoscaler
}

/// What its pods speak where requests on the shared ports lead, which is the first port that it names. What came to another
/// port is sent in what that one speaks.
fn protocol(object: &ZeroScaler) -> Protocol {
    object.spec.ports.first().and_then(|port| port.protocol.http()).unwrap_or_default()
}

/// What it says beside the scale. `port`: where its pods take requests, by its Service.
pub(crate) fn settings(object: &ZeroScaler, port: Option<PortReference>) -> Settings {
    Settings { port, ..Settings::new(&object.spec.wake, &object.spec.timeouts) }
}

/// What it asks the metrics for; none: its load alone scales it.
///
/// # Errors
/// Every violation, with the path within the spec.
pub(crate) fn metrics(object: &ZeroScaler) -> Result<Option<Plan>, FieldErrors> {
    let (spec, mut errors) = (&object.spec, FieldErrors::new());
    let metrics = Some(&spec.metrics).filter(|metrics| !metrics.is_empty());
    let written = Written {
        metrics: metrics.and_then(|metrics| converted(metrics, "spec.metrics", &mut errors)),
        behavior: spec.behavior.as_ref().and_then(|b| converted(b, "spec.behavior", &mut errors)),
    };
    plan(written, errors)
}

/// The same in the words of the rules; none, and an error, if these do not know it.
fn converted<T: DeserializeOwned>(value: &impl Serialize, at: &str, errors: &mut FieldErrors) -> Option<T> {
    let value = serde_json::to_value(value).unwrap_or_default();
    match serde_path_to_error::deserialize(value) {
        Ok(value) => Some(value),
        Err(error) => {
            let path = Some(error.path().to_string()).filter(|path| path != ".").unwrap_or_default();
            let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            errors.push(format!("cannot be read: {}", error.inner()), format!("{at}{dot}{path}"), "");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn scaler(spec: Value) -> ZeroScaler {
        serde_json::from_value(json!({
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
            "metadata": {
                "name": "hello", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 3,
                "finalizers": ["zeroscale.dev/restore"], "labels": {"team": "a"},
                "annotations": {"zeroscale.dev/adopted-replicas": "4", "zeroscale.dev/timeout": "1s"},
            },
            "spec": spec,
        }))
        .expect("a ZeroScaler")
    }

    #[test]
    fn what_shared_code_reads_is_in_the_podautoscaler_and_annotations_configure_nothing() {
        let object = scaler(json!({
            "target": {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"},
            "concurrency": 5, "scale": {"min": 2}, "hosts": ["a.example.com", "*.example.org"],
            "ports": [{"name": "grpc", "protocol": "h2c"}],
        }));
        let made = autoscaler(&object);
        assert_eq!(made.metadata.uid.as_deref(), Some("u"));
        assert_eq!(made.metadata.finalizers, object.metadata.finalizers);
        assert_eq!((made.spec.container_concurrency, made.spec.protocol_type), (5, Protocol::H2c));
        let target = &made.spec.scale_target_ref;
        assert_eq!((target.kind.as_deref(), target.name.as_deref()), (Some("Rollout"), Some("web")));
        let expected = [("autoscaling.knative.dev/min-scale", "2"), ("zeroscale.dev/adopted-replicas", "4")];
        let found: Vec<_> = made.annotations().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected, "what a user annotates is no setting");
    }

    #[test]
    fn the_first_port_says_what_is_spoken_where_the_shared_ports_lead() {
        let rows = [
            (json!([]), Protocol::Http1),
            (json!([{"name": "grpc", "protocol": "h2c"}, {"name": "web", "protocol": "http1"}]), Protocol::H2c),
            (json!([{"name": "web", "protocol": "http1"}, {"name": "grpc", "protocol": "h2c"}]), Protocol::Http1),
            (json!([{"name": "web"}, {"name": "grpc", "protocol": "h2c"}]), Protocol::Http1),
        ];
        for (ports, expected) in rows {
            let object = scaler(json!({"target": {"name": "web"}, "ports": ports}));
            assert_eq!(autoscaler(&object).spec.protocol_type, expected, "{ports}");
        }
    }

    #[test]
    fn windows_survive_the_way_through_annotations() {
        let config = common::config::AutoscalerConfig::default();
        for (stable, panic) in [(60, 6), (6, 1), (90, 7), (3600, 3600), (600, 61)] {
            let (stable, panic) = (Duration::from_secs(stable), Duration::from_secs(panic));
            let made = with_windows(autoscaler(&scaler(json!({"target": {"name": "web"}}))), stable, panic);
            let read = (
                annotations::stable_window(made.annotations(), &config).to_std(),
                annotations::panic_window(made.annotations(), &config).to_std(),
            );
            assert_eq!(read, (stable, panic));
        }
    }

    #[test]
    fn metrics_are_read_for_the_rules_and_mistakes_are_named_in_the_spec() {
        let cpu = json!([{"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
        }}]);
        let asked = metrics(&scaler(json!({"target": {"name": "a"}, "metrics": cpu}))).expect("valid");
        assert_eq!(asked.map(|plan| plan.metrics.len()), Some(1));
        assert_eq!(metrics(&scaler(json!({"target": {"name": "a"}}))), Ok(None));
        let wrong = json!([{"type": "Resource"}]);
        let errors = metrics(&scaler(json!({"target": {"name": "a"}, "metrics": wrong}))).expect_err("no resource");
        assert!(errors.to_string().contains("spec.metrics[0]"), "{errors}");
    }
}
