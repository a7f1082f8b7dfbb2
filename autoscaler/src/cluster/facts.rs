//! Facts of a scale target that decisions depend on. Nothing else of it is kept.

use crate::scale::PodSet;
use common::labels::{self, LabelSelector};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Names and values of labels that pods must carry.
pub(crate) type Labels = BTreeMap<String, String>;

/// Scale target: a Deployment, or any other object with `/scale` and a pod template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) uid: String,
    /// `spec.replicas`; absent means 1.
    pub(crate) replicas: Option<i32>,
    /// Field manager that has set `spec.replicas`, if known.
    pub(crate) replicas_writer: Option<String>,
    /// Selector of its own pods.
    pub(crate) selector: Selector,
    /// Labels of its pods, from its template or else its selector; empty: unknown.
    pub(crate) labels: Labels,
    /// Set if its pods share their node's address.
    pub(crate) host_network: bool,
    /// Containers of its pod template, reduced to ports and probes.
    pub(crate) containers: Vec<Container>,
    /// Hash of its pod template.
    pub(crate) template: u64,
    /// Error of the API server, while it rejects the target's pods.
    pub(crate) refused: Option<String>,
    /// Init containers of its pod template that keep running beside the main containers, reduced likewise.
    pub(crate) sidecars: Vec<Container>,
    /// Set if its pods have readiness gates, so that other controllers take part in their readiness.
    pub(crate) has_readiness_gates: bool,
}

/// Selector of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Selector {
    /// `matchLabels` only.
    Labels(Labels),
    /// Selector as text: it has `matchExpressions`, which a Service cannot express, or only the status contains it.
    Expressions(String),
    /// Missing, empty (which would match every pod), or invalid.
    #[default]
    Missing,
}

impl Selector {
    /// Returns the set of pods that it selects; none: it is missing or invalid.
    pub(crate) fn pods(&self) -> Option<PodSet> {
        match self {
            Self::Labels(labels) => Some(PodSet::Selector(labels.clone())),
            Self::Expressions(text) => labels::Selector::parse(text).ok().map(PodSet::Expressions),
            Self::Missing => None,
        }
    }
}

impl Target {
    /// Returns the current number of requested pods.
    pub(crate) fn current(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    /// Extracts the facts of an object of any kind. Fields of an unexpected shape count as absent.
    pub(crate) fn from_object(object: &DynamicObject) -> Self {
        let spec = &object.data["spec"];
        let labels = labels_at(&spec["selector"]["matchLabels"]);
        let pod_labels = labels_at(&spec["template"]["metadata"]["labels"]).or_else(|| labels.clone());
        let expressions = spec["selector"]["matchExpressions"].as_array().is_some_and(|list| !list.is_empty());
        let text = || serde_json::from_value::<LabelSelector>(spec["selector"].clone()).ok()?.text().ok();
        // If pods are made from another object's template, as with a Rollout, only the status contains the selector.
        let reported = object.data["status"]["selector"].as_str().filter(|text| !text.is_empty());
        let template: PodSpec = serde_json::from_value(spec["template"]["spec"].clone()).unwrap_or_default();
        let is_sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
        Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            replicas: spec["replicas"].as_i64().and_then(|n| i32::try_from(n).ok()),
            replicas_writer: replicas_writer(&object.metadata),
            selector: match labels {
                _ if expressions => text().map_or(Selector::Missing, Selector::Expressions),
                Some(labels) if !labels.is_empty() => Selector::Labels(labels),
                _ => reported.map_or(Selector::Missing, |text| Selector::Expressions(text.to_owned())),
            },
            labels: pod_labels.unwrap_or_default(),
            host_network: template.host_network == Some(true),
            containers: template.containers.into_iter().map(facts).collect(),
            template: fingerprint(&spec["template"]),
            refused: refused(&object.data["status"]),
            sidecars: template.init_containers.into_iter().flatten().filter(is_sidecar).map(facts).collect(),
            has_readiness_gates: template.readiness_gates.is_some_and(|gates| !gates.is_empty()),
        }
    }
}

/// Hashes a template. Equal text has an equal hash in every process.
fn fingerprint(template: &serde_json::Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Returns the message of a `ReplicaFailure` condition, which Deployments and ReplicaSets have.
fn refused(status: &serde_json::Value) -> Option<String> {
    let fails = |condition: &&serde_json::Value| condition["type"] == "ReplicaFailure" && condition["status"] == "True";
    let condition = status["conditions"].as_array()?.iter().find(fails)?;
    condition["message"].as_str().map(str::to_owned)
}

/// Returns the field manager that owns `spec.replicas`; of several, the latest.
fn replicas_writer(metadata: &ObjectMeta) -> Option<String> {
    let owns = |entry: &&ManagedFieldsEntry| {
        entry.fields_v1.as_ref().is_some_and(|fields| !fields.0["f:spec"]["f:replicas"].is_null())
    };
    let latest = metadata.managed_fields.iter().flatten().filter(owns).max_by_key(|entry| entry.time.clone())?;
    latest.manager.clone()
}

fn labels_at(value: &serde_json::Value) -> Option<Labels> {
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    Some(value.as_object()?.iter().map(|(k, v)| (k.clone(), text(v))).collect())
}

/// Removes environment, image and everything else that affects no decision from a container.
fn facts(container: Container) -> Container {
    let Container { name, ports, readiness_probe, startup_probe, .. } = container;
    Container { name, ports, readiness_probe, startup_probe, ..Container::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, Time};
    use k8s_openapi::jiff;
    use serde_json::json;

    #[test]
    fn a_target_of_any_kind_is_parsed() {
        let object = |spec: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "uid": "u"}, "spec": spec,
            }))
            .expect("an object")
        };
        let mut deployment = object(json!({
            "replicas": 0, "selector": {"matchLabels": {"app": "a"}},
            "template": {"spec": {"hostNetwork": true, "containers": [{
                "name": "app", "ports": [{"containerPort": 8080}], "env": [{"name": "A", "value": "b"}],
                "readinessProbe": {"tcpSocket": {"port": 8080}},
            }]}},
        }));
        let entry = |manager: &str, second: i64, fields: serde_json::Value| ManagedFieldsEntry {
            manager: Some(manager.into()),
            time: Some(Time(jiff::Timestamp::from_second(second).expect("a time"))),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        };
        deployment.metadata.managed_fields = Some(vec![
            entry("argocd-controller", 7, json!({"f:spec": {"f:replicas": {}}})),
            entry("autoscaler", 5, json!({"f:spec": {"f:replicas": {}}})),
            entry("kubectl", 9, json!({"f:spec": {"f:template": {}}})),
        ]);
        let target = Target::from_object(&deployment);
        assert_eq!((target.replicas, target.host_network), (Some(0), true));
        assert_eq!(target.replicas_writer.as_deref(), Some("argocd-controller"));
        let [container] = &target.containers[..] else { panic!("one container") };
        assert!(container.ports.is_some() && container.readiness_probe.is_some() && container.env.is_none());
        assert_eq!(target.selector, Selector::Labels([("app".into(), "a".into())].into()));
        let expressions = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchLabels": {"a": "b"}});
        let nonsense = json!({"matchExpressions": [{"key": "a", "operator": "Perhaps"}]});
        let rows = [
            (expressions, Selector::Expressions("a=b,a".into())),
            (nonsense, Selector::Missing),
            (json!({}), Selector::Missing),
        ];
        for (selector, expected) in rows {
            let target = Target::from_object(&object(json!({"selector": selector})));
            assert_eq!((target.selector.clone(), target.current(), target.host_network), (expected, 1, false));
        }
        // A Rollout that uses another object's template: its controller publishes the selector in the status.
        let mut rollout = object(json!({"workloadRef": {"kind": "Deployment", "name": "a"}}));
        assert_eq!(Target::from_object(&rollout).selector, Selector::Missing);
        rollout.data["status"] = json!({"selector": "app=a"});
        assert_eq!(Target::from_object(&rollout).selector, Selector::Expressions("app=a".into()));
    }
}
