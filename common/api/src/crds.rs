//! CustomResourceDefinitions, generated from the types. Zeroscale's own is completed in [`crate::zeroscaler::crd`].
//! Knative installs the definitions that it shares with Zeroscale. They are here for tests of the drop-in, with
//! upstream's names, columns and required fields.
//!
//! Their schema is stricter than upstream's in one way: `protocolType`, `mode` and `reachability` accept only their
//! valid values. Without a webhook nothing else would reject a wrong value, and a wrong value in the first two breaks
//! even the list requests of typed clients.
//!
//! `cargo run -p common-api --example crds` writes Zeroscale's definition to `deploy/kubernetes/crds`, and the manual's
//! page about it. A test fails while those files are stale.

use crate::{Metric, PodAutoscaler, ServerlessService, zeroscaler};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::json;

/// Returns Zeroscale's own definitions, which are all that standalone needs.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![zeroscaler::crd::crd()]
}

/// Returns the definitions shared with Knative, whose installation provides them. Only tests of the drop-in create
/// them.
pub fn shared() -> [CustomResourceDefinition; 3] {
    [PodAutoscaler::crd(), Metric::crd(), ServerlessService::crd()]
}

/// Returns the generated files by name, including a kustomization that lists the others. Fails if an object cannot be
/// written as YAML, which would be a bug in this crate.
pub fn manifests() -> Result<Vec<(String, String)>, serde_yaml_ng::Error> {
    let crd = zeroscaler::crd::crd();
    let name = format!("{}.yaml", crd.spec.names.singular.clone().unwrap_or_default());
    let kustomization =
        json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [name]});
    Ok(vec![(name, to_yaml(&crd)?), ("kustomization.yaml".to_owned(), to_yaml(&kustomization)?)])
}

fn to_yaml(object: &impl serde::Serialize) -> Result<String, serde_yaml_ng::Error> {
    let header = "# Generated: cargo run -p common-api --example crds\n";
    Ok(format!("{header}{}", serde_yaml_ng::to_string(object)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn schema(crd: &CustomResourceDefinition, path: &[&str]) -> serde_json::Value {
        let crd = serde_json::to_value(crd).expect("serializable");
        let root = crd.pointer("/spec/versions/0/schema/openAPIV3Schema").cloned().expect("a schema");
        path.iter().fold(root, |schema, name| schema.pointer(&format!("/properties/{name}")).cloned().expect(name))
    }

    #[test]
    fn names_match_upstream() {
        let rows = [
            ("podautoscalers.autoscaling.internal.knative.dev", Some(vec!["kpa", "pa"])),
            ("metrics.autoscaling.internal.knative.dev", None),
            ("serverlessservices.networking.internal.knative.dev", Some(vec!["sks"])),
        ];
        for (crd, (name, short)) in shared().iter().zip(rows) {
            assert_eq!(crd.metadata.name.as_deref(), Some(name));
            let found: Vec<&str> = crd.spec.names.short_names.iter().flatten().map(String::as_str).collect();
            assert_eq!(found, short.unwrap_or_default());
            let categories = crd.spec.names.categories.clone().unwrap_or_default();
            assert!(categories.contains(&"knative-internal".to_owned()));
            let label = crd.metadata.labels.as_ref().and_then(|labels| labels.get("knative.dev/crd-install"));
            assert_eq!(label.map(String::as_str), Some("true"));
            let version = &crd.spec.versions[0];
            assert!(version.served && version.storage && version.name == "v1alpha1");
            assert!(version.subresources.as_ref().is_some_and(|s| s.status.is_some()));
            assert_eq!(crd.spec.scope, "Namespaced");
        }
    }

    #[test]
    fn required_fields_match_upstream() {
        let required = |crd: &CustomResourceDefinition, path: &[&str]| schema(crd, path)["required"].clone();
        let [pa, metric, sks] = shared();
        assert_eq!(required(&pa, &["spec"]), json!(["protocolType", "scaleTargetRef"]));
        assert_eq!(required(&pa, &["status"]), json!(["metricsServiceName", "serviceName"]));
        assert_eq!(required(&metric, &["spec"]), json!(["panicWindow", "scrapeTarget", "stableWindow"]));
        assert_eq!(required(&sks, &["spec"]), json!(["objectRef", "protocolType"]));
        assert_eq!(required(&sks, &["status"]), json!(null));
        assert_eq!(schema(&pa, &["spec", "reachability"])["enum"], json!(["", "Reachable", "Unreachable"]));
        assert_eq!(schema(&pa, &["spec", "protocolType"])["enum"], json!(["http1", "h2c"]));
        let target = schema(&pa, &["spec", "scaleTargetRef"])["properties"].clone();
        let fields: Vec<String> = target.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(fields, ["apiVersion", "kind", "name"]);
    }

    /// Goal: schemas are structural, as API servers require: a type everywhere unless any value is accepted, and no
    /// references.
    #[test]
    fn schemas_are_structural() {
        fn walk(schema: &serde_json::Value, at: &str) {
            let of_any_type = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
            let is_open = of_any_type.iter().any(|word| schema[*word] == true);
            assert!(schema.get("type").is_some() || is_open, "{at} has no type");
            for word in ["$ref", "definitions", "additionalItems", "patternProperties"] {
                assert!(schema.get(word).is_none(), "{at} has {word}");
            }
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                walk(property, &format!("{at}.{name}"));
            }
            for word in ["items", "additionalProperties"] {
                if schema.get(word).is_some_and(serde_json::Value::is_object) {
                    walk(&schema[word], &format!("{at}.{word}"));
                }
            }
        }
        for crd in crds().into_iter().chain(shared()) {
            walk(&schema(&crd, &[]), &crd.spec.names.kind);
        }
    }

    #[test]
    fn the_manifests_in_the_repository_are_up_to_date() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/crds");
        for (name, text) in manifests().expect("YAML") {
            let stored = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert!(stored == text, "{name} is stale: cargo run -p common-api --example crds");
        }
    }
}
