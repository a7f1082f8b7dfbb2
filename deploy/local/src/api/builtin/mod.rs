//! Built-in resources: `kinds.yaml` has their names and their special rules.
//!
//! Bodies are parsed by the published types of Kubernetes ([`super::types`]), so unknown fields are dropped and wrong
//! types are rejected. `rules.yaml` has defaults and rules of single fields. The modules in this folder have rules that
//! depend on several fields. Kinds on which nothing here acts are stored unchanged.
//!
//! Limits: volumes and volume claims, ingresses, webhooks, and the admission plugins of a full server are not
//! supported.

mod core;
mod hpa;
mod pod;
mod service;
mod workload;

use std::sync::{Arc, LazyLock};

use k8s_openapi::api::{apps, autoscaling, coordination, core as k8s_core, discovery, networking, rbac};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::schemars::SchemaGenerator;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::crd;
use super::resource::{Hooks, Model, Registry, Resource, Rules, ScalePaths, TypedModel};
use super::schema::Patterns;
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
    /// True if its objects are answered and not stored.
    #[serde(default)]
    review: bool,
    #[serde(default)]
    rules: Rules,
}

/// Returns the type of a kind, or `None` if it is stored unchanged.
fn describe_kind(version: &str, kind: &str) -> Option<Describe> {
    use k8s_core::v1 as c;
    Some(match (version, kind) {
        ("v1", "ConfigMap") => describe::<c::ConfigMap>,
        ("v1", "Endpoints") => describe::<c::Endpoints>,
        ("v1", "Event") => describe::<c::Event>,
        ("v1", "Namespace") => describe::<c::Namespace>,
        ("v1", "Node") => describe::<c::Node>,
        ("v1", "Pod") => describe::<c::Pod>,
        ("v1", "Secret") => describe::<c::Secret>,
        ("v1", "Service") => describe::<c::Service>,
        ("v1", "ServiceAccount") => describe::<c::ServiceAccount>,
        ("apps/v1", "Deployment") => describe::<apps::v1::Deployment>,
        ("apps/v1", "ReplicaSet") => describe::<apps::v1::ReplicaSet>,
        ("apps/v1", "StatefulSet") => describe::<apps::v1::StatefulSet>,
        ("autoscaling/v2", _) => describe::<autoscaling::v2::HorizontalPodAutoscaler>,
        ("discovery.k8s.io/v1", _) => describe::<discovery::v1::EndpointSlice>,
        ("coordination.k8s.io/v1", _) => describe::<coordination::v1::Lease>,
        ("networking.k8s.io/v1", "NetworkPolicy") => describe::<networking::v1::NetworkPolicy>,
        ("rbac.authorization.k8s.io/v1", "Role") => describe::<rbac::v1::Role>,
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => describe::<rbac::v1::RoleBinding>,
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => describe::<rbac::v1::ClusterRole>,
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => describe::<rbac::v1::ClusterRoleBinding>,
        ("apiextensions.k8s.io/v1", _) => describe::<CustomResourceDefinition>,
        _ => return None,
    })
}

/// Returns the rules of a kind that depend on several fields.
fn hooks(kind: &str) -> Hooks {
    let plain = Hooks::default();
    match kind {
        "ConfigMap" => Hooks { validate: core::validate_config_map, ..plain },
        "Secret" => Hooks { prepare: core::prepare_secret, validate: core::validate_secret },
        "Namespace" => Hooks { prepare: core::prepare_namespace, ..plain },
        "Pod" => Hooks { prepare: pod::prepare_pod, validate: pod::validate_pod },
        "Service" => Hooks { prepare: service::prepare_service, validate: service::validate_service },
        "EndpointSlice" => Hooks { validate: service::validate_slice, ..plain },
        "Deployment" => Hooks { prepare: workload::deployment, validate: workload::validate },
        "ReplicaSet" | "StatefulSet" => Hooks { prepare: workload::prepare, validate: workload::validate },
        "HorizontalPodAutoscaler" => Hooks { validate: hpa::validate, ..plain },
        "CustomResourceDefinition" => Hooks { prepare: crd::prepare, validate: crd::validate },
        _ => plain,
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
    let types =
        Arc::new(TypeSchemas::from_types(kinds.iter().filter_map(|kind| describe_kind(&kind.version, &kind.kind))));
    for Kind { version, kind, plural, short, categories, cluster, review, mut rules } in kinds {
        let model = match (review, describe_kind(&version, &kind)) {
            (true, _) => Model::Review,
            (false, None) => Model::Kept,
            (false, Some(describe)) => Model::Typed(TypedModel {
                name: describe(&mut SchemaGenerator::default()).into_owned(),
                describe,
                schemas: types.clone(),
            }),
        };
        rules.hooks = hooks(&kind);
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
            scale: rules.scale.then(|| ScalePaths {
                spec: "/spec/replicas".into(),
                status: "/status/replicas".into(),
                selector: Some("/spec/selector".into()),
            }),
            kind,
            plural,
            model,
            patterns: Patterns::from_schema(&schema),
            schema,
            rules,
        }));
    }
    registry
}
