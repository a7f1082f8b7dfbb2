//! The table of built-in resources: names, type, and how each differs from a plain one.
//!
//! Bodies are read by the published types of Kubernetes, so fields that a type does not have vanish and wrong types
//! are refused; what those types leave open (defaults, rules, columns) is in the modules beside this one.
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

use k8s_openapi::api::{apps, autoscaling, batch, coordination, core as k8s_core, discovery, events, networking};
use k8s_openapi::api::{policy, rbac, scheduling};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;

use super::crd;
use super::openapi::describe;
use super::resource::{Generation, Model, NameRule, Registry, Resource, Review, Rules, ScalePaths};
use columns as print;
use typed::{decode, typed};

/// One line of the table.
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    model: Model,
    rules: Rules,
}

fn row(
    group_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    model: Model,
    rules: Rules,
) -> Row {
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    Row { group, version, kind, plural, short, namespaced: true, model, rules }
}

fn cluster(row: Row) -> Row {
    Row { namespaced: false, ..row }
}

const fn spec_status() -> Rules {
    Rules { generation: Generation::Spec, status: true, ..Rules::PLAIN }
}

const WORKLOAD: Rules = Rules { scale: true, validate: workload::validate, ..spec_status() };
const ACCOUNT: Rules = Rules { subresources: &[("token", "TokenRequest", &["create"])], ..Rules::PLAIN };
const ROLE: Rules = Rules { name: NameRule::PathSegment, ..Rules::PLAIN };

fn rows() -> Vec<Row> {
    use apiextensions::v1::CustomResourceDefinition;
    use k8s_core::v1 as c;
    let p = Rules::PLAIN;
    vec![
        // Core.
        row("v1", "ConfigMap", "configmaps", &["cm"], typed::<c::ConfigMap>(), core::CONFIG_MAP),
        row("v1", "Endpoints", "endpoints", &["ep"], typed::<c::Endpoints>(), service::ENDPOINTS),
        row("v1", "Event", "events", &["ev"], typed::<c::Event>(), core::EVENT),
        row("v1", "LimitRange", "limitranges", &["limits"], typed::<c::LimitRange>(), p),
        cluster(row("v1", "Namespace", "namespaces", &["ns"], typed::<c::Namespace>(), core::NAMESPACE)),
        cluster(row("v1", "Node", "nodes", &["no"], typed::<c::Node>(), core::NODE)),
        row("v1", "Pod", "pods", &["po"], typed::<c::Pod>(), pod::POD),
        row(
            "v1",
            "ReplicationController",
            "replicationcontrollers",
            &["rc"],
            typed::<c::ReplicationController>(),
            spec_status(),
        ),
        row("v1", "ResourceQuota", "resourcequotas", &["quota"], typed::<c::ResourceQuota>(), p),
        row("v1", "Secret", "secrets", &[], typed::<c::Secret>(), core::SECRET),
        row("v1", "Service", "services", &["svc"], typed::<c::Service>(), service::SERVICE),
        row("v1", "ServiceAccount", "serviceaccounts", &["sa"], typed::<c::ServiceAccount>(), ACCOUNT),
        // Workloads.
        row("apps/v1", "ControllerRevision", "controllerrevisions", &[], typed::<apps::v1::ControllerRevision>(), p),
        row(
            "apps/v1",
            "DaemonSet",
            "daemonsets",
            &["ds"],
            typed::<apps::v1::DaemonSet>(),
            Rules { scale: false, prepare: workload::daemon_set, ..WORKLOAD },
        ),
        row(
            "apps/v1",
            "Deployment",
            "deployments",
            &["deploy"],
            typed::<apps::v1::Deployment>(),
            Rules {
                generation: Generation::SpecAndAnnotations,
                prepare: workload::deployment,
                printer: Some(&print::DEPLOYMENT),
                ..WORKLOAD
            },
        ),
        row(
            "apps/v1",
            "ReplicaSet",
            "replicasets",
            &["rs"],
            typed::<apps::v1::ReplicaSet>(),
            Rules {
                prepare: workload::replica_set,
                printer: Some(&print::REPLICA_SET),
                fields: &["status.replicas"],
                ..WORKLOAD
            },
        ),
        row(
            "apps/v1",
            "StatefulSet",
            "statefulsets",
            &["sts"],
            typed::<apps::v1::StatefulSet>(),
            Rules { prepare: workload::stateful_set, ..WORKLOAD },
        ),
        row("batch/v1", "CronJob", "cronjobs", &["cj"], typed::<batch::v1::CronJob>(), spec_status()),
        row("batch/v1", "Job", "jobs", &[], typed::<batch::v1::Job>(), spec_status()),
        row("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], hpa::V2, hpa::RULES),
        row(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            &["hpa"],
            Model::Converted {
                decode: decode::<autoscaling::v1::HorizontalPodAutoscaler>,
                describe: describe::<autoscaling::v1::HorizontalPodAutoscaler>,
                store: hpa::v1::to_v2,
                present: hpa::v1::from_v2,
            },
            hpa::RULES,
        ),
        // Discovery, coordination, events.
        row(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            &[],
            typed::<discovery::v1::EndpointSlice>(),
            service::ENDPOINT_SLICE,
        ),
        row("coordination.k8s.io/v1", "Lease", "leases", &[], typed::<coordination::v1::Lease>(), core::LEASE),
        row(
            "events.k8s.io/v1",
            "Event",
            "events",
            &["ev"],
            Model::Converted {
                decode: decode::<events::v1::Event>,
                describe: describe::<events::v1::Event>,
                store: core::event_to_core,
                present: core::event_from_core,
            },
            core::EVENT,
        ),
        // Policy, which is data alone, and permissions.
        row(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "networkpolicies",
            &["netpol"],
            typed::<networking::v1::NetworkPolicy>(),
            Rules { generation: Generation::Spec, ..p },
        ),
        row(
            "networking.k8s.io/v1",
            "Ingress",
            "ingresses",
            &["ing"],
            typed::<networking::v1::Ingress>(),
            spec_status(),
        ),
        row(
            "policy/v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            &["pdb"],
            typed::<policy::v1::PodDisruptionBudget>(),
            spec_status(),
        ),
        row("rbac.authorization.k8s.io/v1", "Role", "roles", &[], typed::<rbac::v1::Role>(), ROLE),
        row("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", &[], typed::<rbac::v1::RoleBinding>(), ROLE),
        cluster(row(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "clusterroles",
            &[],
            typed::<rbac::v1::ClusterRole>(),
            ROLE,
        )),
        cluster(row(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "clusterrolebindings",
            &[],
            typed::<rbac::v1::ClusterRoleBinding>(),
            ROLE,
        )),
        cluster(row(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "priorityclasses",
            &["pc"],
            typed::<scheduling::v1::PriorityClass>(),
            p,
        )),
        cluster(row(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            &["crd", "crds"],
            typed::<CustomResourceDefinition>(),
            Rules { prepare: crd::prepare, validate: crd::validate, ..spec_status() },
        )),
        // Questions.
        cluster(row("authentication.k8s.io/v1", "TokenReview", "tokenreviews", &[], Model::Review(Review::Token), p)),
        cluster(row(
            "authentication.k8s.io/v1",
            "SelfSubjectReview",
            "selfsubjectreviews",
            &[],
            Model::Review(Review::SelfSubject),
            p,
        )),
        cluster(row(
            "authorization.k8s.io/v1",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            &[],
            Model::Review(Review::SelfSubjectAccess),
            p,
        )),
        cluster(row(
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
            "subjectaccessreviews",
            &[],
            Model::Review(Review::SubjectAccess),
            p,
        )),
        cluster(row(
            "authorization.k8s.io/v1",
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            &[],
            Model::Review(Review::SelfSubjectRules),
            p,
        )),
    ]
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

pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    for row in rows() {
        let categories: &[&str] = match row.plural {
            plural if ALL.contains(&plural) => &["all"],
            "customresourcedefinitions" => &["api-extensions"],
            _ => &[],
        };
        // Events of both groups are the same objects.
        let table_group = if row.plural == "events" { "" } else { row.group };
        let singular = row.kind.to_lowercase();
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        registry.insert(Arc::new(Resource {
            group: row.group.into(),
            version: row.version.into(),
            kind: row.kind.into(),
            list_kind: format!("{}List", row.kind),
            plural: row.plural.into(),
            singular,
            short_names: words(row.short),
            categories: words(categories),
            namespaced: row.namespaced,
            table: format!("{table_group}/{}", row.plural).into(),
            scale: row.rules.scale.then(|| ScalePaths {
                spec: "/spec/replicas".into(),
                status: "/status/replicas".into(),
                selector: Some("/spec/selector".into()),
            }),
            model: row.model,
            rules: row.rules,
        }));
    }
    registry
}
