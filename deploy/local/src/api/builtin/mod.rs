//! The table of built-in resources: names, type, and how each differs from a plain one.
//!
//! Bodies are read by the published types of Kubernetes, so fields that a type does not have vanish and wrong types
//! are refused; what those types leave open is in `rules.yaml` (defaults and rules of single fields) and in the modules beside
//! this one (what depends on several fields, columns). Kinds that nothing here acts on are kept as they come.
//!
//! Not here: volumes and volume claims, ingresses, webhooks, and the admission plugins of a full server.

mod columns;
mod core;
mod hpa;
mod pod;
mod quantity;
mod service;
mod typed;
mod workload;

use std::sync::Arc;

use k8s_openapi::api::{apps, coordination, core as k8s_core, discovery, events, networking, rbac};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::crd;
use super::openapi::describe;
use super::resource::{Generation, Model, NameRule, Registry, Resource, Review, Rules, ScalePaths};
use super::schema::Patterns;
use columns as print;
use typed::{decode, typed};

/// Defaults and rules of built-in kinds.
const RULES: &str = include_str!("rules.yaml");

/// One line of the table: group and version, kind, plural, short names, how bodies are read, and how it differs.
type Row = (&'static str, &'static str, &'static str, &'static [&'static str], Model, Rules);

macro_rules! rows {
    ($($version:literal $kind:ident $plural:literal [$($short:literal),*] $model:expr, $rules:expr;)+) => {
        vec![$(($version, stringify!($kind), $plural, &[$($short),*], $model, $rules)),+]
    };
}

/// What no namespace holds.
const CLUSTER_WIDE: &[&str] = &[
    "clusterrolebindings",
    "clusterroles",
    "customresourcedefinitions",
    "namespaces",
    "nodes",
    "priorityclasses",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "subjectaccessreviews",
    "tokenreviews",
];

const fn spec_status() -> Rules {
    Rules { generation: Generation::Spec, status: true, ..Rules::PLAIN }
}

const WORKLOAD: Rules =
    Rules { scale: true, prepare: workload::prepare, validate: workload::validate, ..spec_status() };
const DEPLOYMENT: Rules = Rules {
    generation: Generation::SpecAndAnnotations,
    prepare: workload::deployment,
    printer: Some(&print::DEPLOYMENT),
    ..WORKLOAD
};
const REPLICA_SET: Rules = Rules { printer: Some(&print::REPLICA_SET), fields: &["status.replicas"], ..WORKLOAD };
const ACCOUNT: Rules = Rules { subresources: &[("token", "TokenRequest", &["create"])], ..Rules::PLAIN };
const ROLE: Rules = Rules { name: NameRule::PathSegment, ..Rules::PLAIN };
const POLICY: Rules = Rules { generation: Generation::Spec, ..Rules::PLAIN };
const DEFINITION: Rules = Rules { prepare: crd::prepare, validate: crd::validate, ..spec_status() };
/// Events of `events.k8s.io` are those of core.
const EVENT: Model = Model::Converted {
    decode: decode::<events::v1::Event>,
    describe: describe::<events::v1::Event>,
    store: core::event_to_core,
    present: core::event_from_core,
};

/// Reads bodies of kinds that nothing here acts on: they are kept as they come.
fn kept() -> Model {
    Model::Typed { decode: Ok, describe: |_| String::new() }
}

fn rows() -> Vec<Row> {
    use k8s_core::v1 as c;
    use networking::v1::NetworkPolicy;
    use rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
    let p = Rules::PLAIN;
    rows! {
        "v1" ConfigMap "configmaps" ["cm"] typed::<c::ConfigMap>(), core::CONFIG_MAP;
        "v1" Endpoints "endpoints" ["ep"] typed::<c::Endpoints>(), service::ENDPOINTS;
        "v1" Event "events" ["ev"] typed::<c::Event>(), core::EVENT;
        "v1" LimitRange "limitranges" ["limits"] kept(), p;
        "v1" Namespace "namespaces" ["ns"] typed::<c::Namespace>(), core::NAMESPACE;
        "v1" Node "nodes" ["no"] typed::<c::Node>(), core::NODE;
        "v1" Pod "pods" ["po"] typed::<c::Pod>(), pod::POD;
        "v1" ReplicationController "replicationcontrollers" ["rc"] kept(), spec_status();
        "v1" ResourceQuota "resourcequotas" ["quota"] kept(), p;
        "v1" Secret "secrets" [] typed::<c::Secret>(), core::SECRET;
        "v1" Service "services" ["svc"] typed::<c::Service>(), service::SERVICE;
        "v1" ServiceAccount "serviceaccounts" ["sa"] typed::<c::ServiceAccount>(), ACCOUNT;

        "apps/v1" ControllerRevision "controllerrevisions" [] kept(), p;
        "apps/v1" DaemonSet "daemonsets" ["ds"] kept(), spec_status();
        "apps/v1" Deployment "deployments" ["deploy"] typed::<apps::v1::Deployment>(), DEPLOYMENT;
        "apps/v1" ReplicaSet "replicasets" ["rs"] typed::<apps::v1::ReplicaSet>(), REPLICA_SET;
        "apps/v1" StatefulSet "statefulsets" ["sts"] typed::<apps::v1::StatefulSet>(), WORKLOAD;
        "batch/v1" CronJob "cronjobs" ["cj"] kept(), spec_status();
        "batch/v1" Job "jobs" [] kept(), spec_status();
        "autoscaling/v2" HorizontalPodAutoscaler "horizontalpodautoscalers" ["hpa"] hpa::MODEL, hpa::RULES;

        "discovery.k8s.io/v1" EndpointSlice "endpointslices" [] typed::<discovery::v1::EndpointSlice>(), service::ENDPOINT_SLICE;
        "coordination.k8s.io/v1" Lease "leases" [] typed::<coordination::v1::Lease>(), core::LEASE;
        "events.k8s.io/v1" Event "events" ["ev"] EVENT, core::EVENT;

        "networking.k8s.io/v1" NetworkPolicy "networkpolicies" ["netpol"] typed::<NetworkPolicy>(), POLICY;
        "networking.k8s.io/v1" Ingress "ingresses" ["ing"] kept(), spec_status();
        "policy/v1" PodDisruptionBudget "poddisruptionbudgets" ["pdb"] kept(), spec_status();
        "rbac.authorization.k8s.io/v1" Role "roles" [] typed::<Role>(), ROLE;
        "rbac.authorization.k8s.io/v1" RoleBinding "rolebindings" [] typed::<RoleBinding>(), ROLE;
        "rbac.authorization.k8s.io/v1" ClusterRole "clusterroles" [] typed::<ClusterRole>(), ROLE;
        "rbac.authorization.k8s.io/v1" ClusterRoleBinding "clusterrolebindings" [] typed::<ClusterRoleBinding>(), ROLE;
        "scheduling.k8s.io/v1" PriorityClass "priorityclasses" ["pc"] kept(), p;
        "apiextensions.k8s.io/v1" CustomResourceDefinition "customresourcedefinitions" ["crd", "crds"] typed::<CustomResourceDefinition>(), DEFINITION;

        "authentication.k8s.io/v1" TokenReview "tokenreviews" [] Model::Review(Review::Token), p;
        "authentication.k8s.io/v1" SelfSubjectReview "selfsubjectreviews" [] Model::Review(Review::SelfSubject), p;
        "authorization.k8s.io/v1" SelfSubjectAccessReview "selfsubjectaccessreviews" [] Model::Review(Review::SelfSubjectAccess), p;
        "authorization.k8s.io/v1" SubjectAccessReview "subjectaccessreviews" [] Model::Review(Review::SubjectAccess), p;
    }
}

/// Resources that `kubectl get all` shows.
const ALL: &[&str] = &[
    "pods",
    "services",
    "replicationcontrollers",
    "daemonsets",
    "deployments",
    "replicasets",
    "statefulsets",
    "horizontalpodautoscalers",
    "cronjobs",
    "jobs",
];

/// The schema of each kind of which a type leaves something open.
fn schemas() -> Value {
    let mut read: serde_yaml_ng::Value = serde_yaml_ng::from_str(RULES).unwrap_or_default();
    match read.apply_merge().map(|()| serde_json::to_value(&read["kinds"])) {
        Ok(Ok(schemas @ Value::Object(_))) => schemas,
        _ => unreachable!("rules.yaml is part of the program, and tests read it"),
    }
}

pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    let schemas = schemas();
    for (group_version, kind, plural, short, model, rules) in rows() {
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let categories: &[&str] = match plural {
            plural if ALL.contains(&plural) => &["all"],
            "customresourcedefinitions" => &["api-extensions"],
            _ => &[],
        };
        // Events of both groups are the same objects.
        let table_group = if plural == "events" { "" } else { group };
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let schema = schemas[kind].clone();
        registry.insert(Arc::new(Resource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List"),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short_names: words(short),
            categories: words(categories),
            namespaced: !CLUSTER_WIDE.contains(&plural),
            table: format!("{table_group}/{plural}").into(),
            scale: rules.scale.then(|| ScalePaths {
                spec: "/spec/replicas".into(),
                status: "/status/replicas".into(),
                selector: Some("/spec/selector".into()),
            }),
            model,
            patterns: Patterns::of(&schema),
            schema,
            rules,
        }));
    }
    registry
}
