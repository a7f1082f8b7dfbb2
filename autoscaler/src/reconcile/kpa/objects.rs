//! The ServerlessService and the Metric of a PodAutoscaler, as they should be.

use common::annotations::{self, Annotations};
use common::config::AutoscalerConfig;
use common::names;
use common_api::{Metric, MetricSpec, Mode, PodAutoscaler, ServerlessService, ServerlessServiceSpec};
use common_controller::objects::controller_reference;
use common_runtime::environment::Mode as Rules;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::collections::BTreeMap;

/// Labels of everything that belongs to a revision: the PodAutoscaler's; in standalone, where nobody else sets them,
/// with revision, its uid and configuration.
pub(crate) fn labels(autoscaler: &PodAutoscaler, rules: Rules) -> BTreeMap<String, String> {
    let mut labels = autoscaler.labels().clone();
    if rules == Rules::Standalone {
        let name = autoscaler.name_any();
        let uid = autoscaler.uid().unwrap_or_default();
        for (label, value) in [(names::REVISION, &name), (names::CONFIGURATION, &name), (names::REVISION_UID, &uid)] {
            labels.entry(label.to_owned()).or_insert_with(|| value.clone());
        }
    }
    labels
}

fn metadata(autoscaler: &PodAutoscaler, rules: Rules, annotations: Annotations) -> ObjectMeta {
    ObjectMeta {
        name: autoscaler.metadata.name.clone(),
        namespace: autoscaler.metadata.namespace.clone(),
        labels: Some(labels(autoscaler, rules)).filter(|labels| !labels.is_empty()),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![controller_reference(autoscaler)]),
        ..ObjectMeta::default()
    }
}

/// Knative's annotations of the PodAutoscaler; what else it carries (`kubectl`'s record of it for one) stays there.
fn shared_annotations(autoscaler: &PodAutoscaler, rules: Rules) -> Annotations {
    let all = autoscaler.annotations().iter();
    let shared = all.filter(|(name, _)| rules == Rules::Knative || name.contains(".knative.dev/"));
    shared.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The ServerlessService. `autoscaler` has its defaults filled in.
pub(crate) fn serverless(
    autoscaler: &PodAutoscaler,
    rules: Rules,
    mode: Mode,
    num_activators: i32,
) -> ServerlessService {
    let mut annotations = shared_annotations(autoscaler, rules);
    annotations.remove(annotations::METRIC.name);
    ServerlessService {
        metadata: metadata(autoscaler, rules, annotations),
        spec: serverless_spec(autoscaler, mode, num_activators),
        status: None,
    }
}

/// Its spec.
pub(crate) fn serverless_spec(autoscaler: &PodAutoscaler, mode: Mode, num_activators: i32) -> ServerlessServiceSpec {
    ServerlessServiceSpec {
        mode: Some(mode),
        object_ref: autoscaler.spec.scale_target_ref.clone(),
        protocol_type: autoscaler.spec.protocol_type,
        num_activators,
    }
}

/// The Metric; scrapes `scrape_target`, or nothing where that is empty. `autoscaler` has its defaults filled in.
pub(crate) fn metric(
    autoscaler: &PodAutoscaler,
    rules: Rules,
    config: &AutoscalerConfig,
    scrape_target: &str,
) -> Metric {
    let annotations = autoscaler.annotations();
    Metric {
        metadata: metadata(autoscaler, rules, shared_annotations(autoscaler, rules)),
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
    use common_controller::objects::corrected;
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
        let sks = serverless(&autoscaler(), Rules::Knative, Mode::Proxy, 3);
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
    fn standalone_fills_in_what_nobody_else_sets() {
        let sks = serverless(&autoscaler(), Rules::Standalone, Mode::Proxy, 0);
        for (label, value) in [(names::REVISION, "hello"), (names::CONFIGURATION, "hello"), (names::REVISION_UID, "u")]
        {
            assert_eq!(sks.labels().get(label).map(String::as_str), Some(value));
        }
        assert!(!sks.annotations().contains_key("zeroscale.dev/hosts"), "ours mean something on a PodAutoscaler only");
    }

    #[test]
    fn a_metric_counts_windows_in_nanoseconds() {
        let metric = metric(&autoscaler(), Rules::Knative, &AutoscalerConfig::default(), "hello-private");
        let value = serde_json::to_value(&metric.spec).expect("serialisable");
        let expected =
            json!({"stableWindow": 10_000_000_000_i64, "panicWindow": 1_000_000_000, "scrapeTarget": "hello-private"});
        assert_eq!(value, expected);
        assert!(metric.annotations().contains_key("autoscaling.knative.dev/metric"));
    }

    /// Goal: what drifted comes back, what is not set any more goes, and what is somebody else's stays.
    #[test]
    fn labels_annotations_and_spec_are_put_right() {
        let want = || metric(&autoscaler(), Rules::Knative, &AutoscalerConfig::default(), "hello-private");
        assert_eq!(corrected(&want(), &want()), None);
        let mut foreign = want();
        foreign.labels_mut().insert("team".into(), "blue".into());
        foreign.annotations_mut().insert("example.com/note".into(), "mine".into());
        assert_eq!(corrected(&foreign, &want()), None, "others may add their own");
        let edits: [fn(&mut Metric); 4] = [
            |metric| _ = metric.labels_mut().insert("app".into(), "other".into()),
            |metric| _ = metric.annotations_mut().remove("autoscaling.knative.dev/window"),
            |metric| _ = metric.annotations_mut().insert("autoscaling.knative.dev/minScale".into(), "3".into()),
            |metric| metric.spec.scrape_target = String::new(),
        ];
        for (edit, drift) in edits.iter().enumerate() {
            let mut have = foreign.clone();
            drift(&mut have);
            assert_eq!(corrected(&have, &want()), Some(foreign.clone()), "edit {edit}");
        }
    }
}
