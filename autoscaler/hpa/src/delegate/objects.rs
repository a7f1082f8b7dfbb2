//! Builds the HorizontalPodAutoscaler and the ServerlessService of a PodAutoscaler, as Knative does.
//!
//! | Annotations | `metrics` |
//! |---|---|
//! | no valid `target` | none: the API server defaults to cpu at 80 % |
//! | `target`, metric `cpu` | cpu, Utilization, rounded up |
//! | `target`, metric `memory` | memory, AverageValue, whole MiB |
//! | `target`, any other metric | that metric of the pods, AverageValue, whole |
//!
//! `window` becomes the stabilization window in both directions. Other annotations of the class KPA have no effect. A
//! PodAutoscaler without a route has no minimum scale.

use common::annotations::{self, METRIC, METRIC_CPU, METRIC_MEMORY, TARGET, WINDOW};
use common::config::AutoscalerConfig;
use common_api::{Mode, PodAutoscaler, ServerlessService, ServerlessServiceSpec};
use common_controller::objects::controller_reference;
use hpa_core::defaults;
use hpa_core::quantity::{self, Format};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec, MetricIdentifier, MetricSpec, MetricTarget, PodsMetricSource, ResourceMetricSource,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

/// Number of activators that stands for all of them.
const ALL_ACTIVATORS: i32 = 0;

/// Returns the HorizontalPodAutoscaler of a PodAutoscaler, which must have its defaults.
pub(super) fn horizontal(autoscaler: &PodAutoscaler, config: &AutoscalerConfig) -> HorizontalPodAutoscaler {
    let annotations = autoscaler.annotations();
    let bounds = annotations::bounds(annotations, config, autoscaler.is_reachable());
    let target = &autoscaler.spec.scale_target_ref;
    let window = WINDOW.duration(annotations).map(|window| {
        let seconds = window.as_nanos() / 1_000_000_000;
        HPAScalingRules {
            stabilization_window_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            ..HPAScalingRules::default()
        }
    });
    HorizontalPodAutoscaler {
        metadata: metadata(autoscaler),
        spec: HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: target.api_version.clone(),
                kind: target.kind.clone().unwrap_or_default(),
                name: target.name.clone().unwrap_or_default(),
            },
            min_replicas: Some(bounds.min).filter(|min| *min > 0),
            max_replicas: bounds.max.unwrap_or(i32::MAX),
            metrics: metric(autoscaler).map(|metric| vec![metric]),
            behavior: window.map(|rules| HorizontalPodAutoscalerBehavior {
                scale_up: Some(rules.clone()),
                scale_down: Some(rules),
            }),
        },
        status: None,
    }
}

/// Returns name, labels, annotations and owner of an object built for a PodAutoscaler.
fn metadata(autoscaler: &PodAutoscaler) -> ObjectMeta {
    ObjectMeta {
        name: autoscaler.metadata.name.clone(),
        namespace: autoscaler.metadata.namespace.clone(),
        labels: autoscaler.metadata.labels.clone(),
        annotations: autoscaler.metadata.annotations.clone(),
        owner_references: Some(vec![controller_reference(autoscaler)]),
        ..ObjectMeta::default()
    }
}

/// Returns the ServerlessService: traffic goes to the pods, and any traffic through activators may use all of them.
pub(super) fn serverless(autoscaler: &PodAutoscaler) -> ServerlessService {
    let mut metadata = metadata(autoscaler);
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(METRIC.name);
    }
    ServerlessService {
        metadata,
        spec: ServerlessServiceSpec {
            mode: Some(Mode::Serve),
            object_ref: autoscaler.spec.scale_target_ref.clone(),
            protocol_type: autoscaler.spec.protocol_type,
            num_activators: ALL_ACTIVATORS,
        },
        status: None,
    }
}

fn metric(autoscaler: &PodAutoscaler) -> Option<MetricSpec> {
    let annotations = autoscaler.annotations();
    let target = TARGET.float(annotations)?;
    let whole = target as i64; // The conversion saturates.
    let average = |milli: i64, format| MetricTarget {
        type_: "AverageValue".to_owned(),
        average_value: Some(quantity::to_api(milli, format)),
        ..MetricTarget::default()
    };
    let resource = |name: &str, target| MetricSpec {
        type_: "Resource".to_owned(),
        resource: Some(ResourceMetricSource { name: name.to_owned(), target }),
        ..MetricSpec::default()
    };
    Some(match annotations::metric(annotations) {
        METRIC_CPU => {
            let percent = target.ceil() as i32; // The conversion saturates.
            let target = MetricTarget {
                type_: "Utilization".to_owned(),
                average_utilization: Some(percent),
                ..MetricTarget::default()
            };
            resource(METRIC_CPU, target)
        }
        METRIC_MEMORY => resource(METRIC_MEMORY, average(whole.saturating_mul(1024 * 1024 * 1000), Format::Binary)),
        name => MetricSpec {
            type_: "Pods".to_owned(),
            pods: Some(PodsMetricSource {
                metric: MetricIdentifier { name: name.to_owned(), selector: None },
                target: average(whole.saturating_mul(1000), Format::Decimal),
            }),
            ..MetricSpec::default()
        },
    })
}

/// Reports whether an object equals the desired one after the API server's defaults.
pub(super) fn is_up_to_date(current: &HorizontalPodAutoscaler, desired: &HorizontalPodAutoscaler) -> bool {
    let filled = |object: &HorizontalPodAutoscaler| {
        let mut spec = object.spec.clone();
        defaults::fill(&mut spec);
        spec
    };
    filled(current) == filled(desired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn built(annotations: &[(&str, &str)], reachability: &str) -> HorizontalPodAutoscaler {
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(key, value)| (format!("autoscaling.knative.dev/{key}"), json!(value))).collect();
        let mut object: PodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "hello", "namespace": "ns", "uid": "u", "labels": {"app": "hello"}, "annotations": annotations},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello-deployment"},
                "protocolType": "http1", "reachability": reachability,
            },
        }))
        .expect("a PodAutoscaler");
        object.set_defaults("");
        horizontal(&object, &AutoscalerConfig::default())
    }

    const CLASS: (&str, &str) = ("class", "hpa.autoscaling.knative.dev");

    #[test]
    fn annotations_become_metrics_bounds_and_behavior() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello-deployment"});
        let resource =
            |name: &str, target: Value| json!([{"type": "Resource", "resource": {"name": name, "target": target}}]);
        let cpu = |percent: i32| resource("cpu", json!({"type": "Utilization", "averageUtilization": percent}));
        let memory = resource("memory", json!({"type": "AverageValue", "averageValue": "50Mi"}));
        let average = json!({"type": "AverageValue", "averageValue": "50"});
        let custom = json!([{"type": "Pods", "pods": {"metric": {"name": "customMetric"}, "target": average}}]);
        let rules = json!({"stabilizationWindowSeconds": 60});
        let behavior = json!({"scaleUp": rules, "scaleDown": rules});
        for (annotations, mut expected) in [
            (&[][..], json!({})),
            (&[("min-scale", "5")], json!({"minReplicas": 5})),
            (&[("min-scale", "0"), ("max-scale", "5")], json!({"maxReplicas": 5})),
            (&[("target", "50")], json!({"metrics": cpu(50)})),
            (&[("target", "1982.4"), ("metric", "cpu")], json!({"metrics": cpu(1983)})),
            (&[("target", "50"), ("metric", "memory")], json!({"metrics": memory})),
            (&[("target", "50.9"), ("metric", "customMetric")], json!({"metrics": custom})),
            (&[("target", "many"), ("metric", "memory")], json!({})),
            (&[("window", "60s"), ("target-utilization-percentage", "30")], json!({"behavior": behavior})),
        ] {
            expected["scaleTargetRef"] = target.clone();
            if expected["maxReplicas"].is_null() {
                expected["maxReplicas"] = json!(i32::MAX);
            }
            let all: Vec<_> = [CLASS].iter().chain(annotations).copied().collect();
            let spec = serde_json::to_value(built(&all, "Reachable").spec).expect("serialisable");
            assert_eq!(spec, expected, "{annotations:?}");
        }
        let unreachable = built(&[CLASS, ("min-scale", "5")], "Unreachable");
        assert_eq!(unreachable.spec.min_replicas, None);
    }

    #[test]
    fn labels_annotations_and_owner_come_from_the_pod_autoscaler() {
        let object = built(&[CLASS], "");
        assert_eq!(object.labels()["app"], "hello");
        assert_eq!(object.annotations()["autoscaling.knative.dev/metric"], "cpu", "a default of the PodAutoscaler");
        let owner = &object.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("PodAutoscaler", "u", Some(true)));
    }

    #[test]
    fn only_differences_from_the_defaults_of_the_api_server_count() {
        let desired = built(&[CLASS, ("window", "60s")], "");
        let mut current = desired.clone();
        current.spec.min_replicas = Some(1);
        let cpu = json!([{"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
        }}]);
        current.spec.metrics = serde_json::from_value(cpu).expect("metrics");
        let policy = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
        let down = current.spec.behavior.as_mut().and_then(|behavior| behavior.scale_down.as_mut()).expect("down");
        down.policies = serde_json::from_value(policy).expect("policies");
        down.select_policy = Some("Max".to_owned());
        assert!(is_up_to_date(&current, &desired));
        current.spec.max_replicas = 7;
        assert!(!is_up_to_date(&current, &desired));
        let other = built(&[CLASS, ("window", "60s"), ("target", "80.5")], "");
        assert!(!is_up_to_date(&desired, &other), "81 is not the default");
    }
}
