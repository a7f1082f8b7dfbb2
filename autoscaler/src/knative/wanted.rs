//! Desired ServerlessService and Metric of a PodAutoscaler. Existing objects are corrected to match
//! ([`common_controller::objects::corrected`]).

use crate::engine::workload::Path;
use autoscaler_core::path_mode::PathMode;
use common::annotations;
use common::config::AutoscalerConfig;
use common_api::{Metric, MetricSpec, Mode, PodAutoscaler, ServerlessService, ServerlessServiceSpec};
use common_controller::objects::controller_reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

/// Returns metadata with the labels and annotations of the PodAutoscaler, as upstream.
fn metadata(autoscaler: &PodAutoscaler) -> ObjectMeta {
    let (labels, annotations) = (autoscaler.labels().clone(), autoscaler.annotations().clone());
    ObjectMeta {
        name: autoscaler.metadata.name.clone(),
        namespace: autoscaler.metadata.namespace.clone(),
        labels: Some(labels).filter(|labels| !labels.is_empty()),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![controller_reference(autoscaler)]),
        ..ObjectMeta::default()
    }
}

/// Returns the desired ServerlessService. `autoscaler` has its defaults filled in.
pub(crate) fn serverless(autoscaler: &PodAutoscaler, path: Path) -> ServerlessService {
    let mut metadata = metadata(autoscaler);
    metadata.annotations.iter_mut().for_each(|annotations| drop(annotations.remove(annotations::METRIC.name)));
    metadata.annotations.take_if(|annotations| annotations.is_empty());
    ServerlessService {
        metadata,
        spec: ServerlessServiceSpec {
            mode: Some(if path.mode == PathMode::Serve { Mode::Serve } else { Mode::Proxy }),
            object_ref: autoscaler.spec.scale_target_ref.clone(),
            protocol_type: autoscaler.spec.protocol_type,
            num_activators: path.activators,
        },
        status: None,
    }
}

/// Returns the desired Metric. It scrapes `scrape_target`, or nothing if that is empty. `autoscaler` has its defaults
/// filled in.
pub(crate) fn metric(autoscaler: &PodAutoscaler, config: &AutoscalerConfig, scrape_target: &str) -> Metric {
    let annotations = autoscaler.annotations();
    Metric {
        metadata: metadata(autoscaler),
        spec: MetricSpec {
            stable_window: annotations::stable_window(annotations, config).as_nanos(),
            panic_window: annotations::panic_window(annotations, config).as_nanos(),
            scrape_target: scrape_target.to_owned(),
        },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn autoscaler() -> PodAutoscaler {
        serde_json::from_value(json!({
            "metadata": {
                "name": "hello", "namespace": "ns", "uid": "u", "labels": {"app": "hello"},
                "annotations": {
                    "autoscaling.knative.dev/class": "kpa.autoscaling.knative.dev",
                    "autoscaling.knative.dev/metric": "concurrency",
                    "autoscaling.knative.dev/window": "10s",
                    "zeroscale.dev/hosts": "x.example.com",
                },
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello"},
                "protocolType": "h2c",
            },
        }))
        .expect("a PodAutoscaler")
    }

    #[test]
    fn a_serverless_service_copies_all_but_the_metric() {
        let sks = serverless(&autoscaler(), Path { mode: PathMode::Proxy, activators: 3 });
        assert!(sks.annotations().contains_key("zeroscale.dev/hosts"));
        assert!(!sks.annotations().contains_key("autoscaling.knative.dev/metric"));
        assert_eq!(sks.labels().len(), 1, "in a Knative install labels are the revision controller's");
        let value = serde_json::to_value(&sks.spec).expect("serialisable");
        assert_eq!(
            value,
            json!({"mode": "Proxy", "protocolType": "h2c", "numActivators": 3,
                   "objectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello"}})
        );
        let owner = &sks.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("PodAutoscaler", "u", Some(true)));
        assert_eq!(owner.api_version, "autoscaling.internal.knative.dev/v1alpha1");
    }

    #[test]
    fn a_metric_counts_windows_in_nanoseconds() {
        let metric = metric(&autoscaler(), &AutoscalerConfig::default(), "hello-private");
        let value = serde_json::to_value(&metric.spec).expect("serialisable");
        let expected =
            json!({"stableWindow": 10_000_000_000_i64, "panicWindow": 1_000_000_000, "scrapeTarget": "hello-private"});
        assert_eq!(value, expected);
        assert!(metric.annotations().contains_key("autoscaling.knative.dev/metric"));
    }
}
