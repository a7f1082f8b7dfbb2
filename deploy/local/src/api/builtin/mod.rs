//! Built-in resources: `kinds.yaml` has their names and their special rules.
//!
//! Bodies are parsed by the published types of Kubernetes ([`super::types`]), so unknown fields are dropped and wrong
//! types are rejected. `rules.yaml` has defaults and rules of single fields. The modules in this folder have rules that
//! depend on several fields. Kinds on which nothing here acts are stored unchanged.
//!
//! Limits: volumes and volume claims, ingresses, webhooks, and the admission plugins of a full server are not
//! supported.

mod core;
mod pod;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::{apps, autoscaling, coordination, core as k8s_core, discovery, networking, rbac};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::crd;
use super::resource::{Model, Registry, Resource, Rules, TypedModel};
use super::status::Causes;
use super::types::{Describe, TypeSchemas, describe};

/// Entry in `kinds.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    /// Group and version, or the version alone for core.
    version: String,
    kind: String,
    plural: String,
    #[serde(default)]
    short: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    /// True if the kind is cluster-scoped.
    #[serde(default)]
    cluster: bool,
    /// True if its objects are queries, which are answered and not stored.
    #[serde(default)]
    review: bool,
    #[serde(default)]
    rules: Rules,
}

/// Returns the types of kinds, by version and kind. Other kinds are stored unchanged.
fn types() -> HashMap<(&'static str, &'static str), Describe> {
    use k8s_core::v1 as c;
    HashMap::from([
        typed::<c::ConfigMap>(),
        typed::<c::Endpoints>(),
        typed::<c::Event>(),
        typed::<c::Namespace>(),
        typed::<c::Node>(),
        typed::<c::Pod>(),
        typed::<c::Secret>(),
        typed::<c::Service>(),
        typed::<c::ServiceAccount>(),
        typed::<apps::v1::Deployment>(),
        typed::<apps::v1::ReplicaSet>(),
        typed::<apps::v1::StatefulSet>(),
        typed::<autoscaling::v2::HorizontalPodAutoscaler>(),
        typed::<discovery::v1::EndpointSlice>(),
        typed::<coordination::v1::Lease>(),
        typed::<networking::v1::NetworkPolicy>(),
        typed::<rbac::v1::Role>(),
        typed::<rbac::v1::RoleBinding>(),
        typed::<rbac::v1::ClusterRole>(),
        typed::<rbac::v1::ClusterRoleBinding>(),
        typed::<CustomResourceDefinition>(),
    ])
}

fn typed<T: k8s_openapi::Resource + JsonSchema>() -> ((&'static str, &'static str), Describe) {
    ((T::API_VERSION, T::KIND), describe::<T>)
}

/// Sets the defaults of a kind that depend on several fields. `old` is the stored object.
pub(super) fn set_defaults(kind: &str, value: &mut Value, old: Option<&Value>) {
    match kind {
        "Secret" => core::prepare_secret(value),
        "Namespace" => core::prepare_namespace(value, old),
        "Pod" => pod::prepare_pod(value, old),
        "Service" => core::prepare_service(value, old),
        "Deployment" => pod::prepare_deployment(value),
        "ReplicaSet" | "StatefulSet" => pod::prepare_workload(value),
        "CustomResourceDefinition" => crd::prepare(value, old),
        _ => {}
    }
}

/// Validates the rules of a kind that depend on several fields. `old` is the stored object.
pub(super) fn validate(kind: &str, value: &Value, old: Option<&Value>, causes: &mut Causes) {
    match kind {
        "ConfigMap" => core::validate_config_map(value, old, causes),
        "Secret" => core::validate_data(value, old, causes),
        "Pod" => pod::validate_pod(value, old, causes),
        "Service" => core::validate_service(value, causes),
        "EndpointSlice" => core::validate_slice(value, causes),
        "Deployment" | "ReplicaSet" | "StatefulSet" => pod::validate_workload(value, causes),
        "HorizontalPodAutoscaler" => pod::validate_autoscaler(value, causes),
        "CustomResourceDefinition" => crd::validate(value, causes),
        _ => {}
    }
}

/// Parses a part of an included file.
fn read<T: DeserializeOwned>(file: &str, part: &str) -> T {
    let mut read: serde_yaml_ng::Value = serde_yaml_ng::from_str(file).unwrap_or_default();
    let parsed = read.apply_merge().and_then(|()| serde_yaml_ng::from_value(read[part].clone()));
    parsed.unwrap_or_else(|error| {
        unreachable!("{part}: {error}, in a file that is part of the program and read by tests")
    })
}

/// Returns the built-in resources, which are built once.
pub(crate) fn registry() -> Registry {
    static BUILTIN: LazyLock<Registry> = LazyLock::new(make);
    BUILTIN.clone()
}

fn make() -> Registry {
    let mut registry = Registry::default();
    let kinds: Vec<Kind> = read(include_str!("kinds.yaml"), "kinds");
    let schemas: Value = read(include_str!("rules.yaml"), "kinds");
    let types = types();
    let described = Arc::new(TypeSchemas::from_types(types.values().copied()));
    for Kind { version, kind, plural, short, categories, cluster, review, rules } in kinds {
        let model = match types.get(&(version.as_str(), kind.as_str())) {
            _ if review => Model::Review,
            None => Model::Untyped,
            Some(&describe) => {
                let name = describe(&mut SchemaGenerator::default()).into_owned();
                Model::Typed(TypedModel { name, describe, schemas: described.clone() })
            }
        };
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let schema = schemas[&kind].clone();
        registry.insert(Arc::new(Resource {
            group: group.into(),
            version: version.into(),
            list_kind: format!("{kind}List"),
            singular: kind.to_lowercase(),
            short_names: short,
            categories,
            namespaced: !cluster,
            table: format!("{group}/{plural}").into(),
            kind,
            plural,
            model,
            schema,
            rules,
        }));
    }
    registry
}
