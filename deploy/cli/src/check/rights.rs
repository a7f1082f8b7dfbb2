//! Check of the rights of the user and of the planes' service accounts. It asks about every rule of the roles with
//! which the planes are installed. This finds roles that were cut down or are of an older version before they cause
//! errors.
//!
//! Planes that watch only some namespaces have Roles there and no ClusterRole. The autoscaler's Deployment names these
//! namespaces (`ZEROSCALE_NAMESPACES`). Both ways of installing add the planes' own namespace, which holds the
//! activators' EndpointSlices. If the namespaces cannot be read from the Deployment, nothing is checked.

use super::{AS_INSTALLED, CheckContext, Finding, first_names};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Roles of the planes, as they are installed.
const ROLES: &str = include_str!("../../../kubernetes/base/roles.yaml");
/// Roles installed in each namespace instead of ClusterRoles, if the planes watch only some namespaces.
const WITHIN: &str = include_str!("../../../kubernetes/namespaced/rights/roles.yaml");
/// Deployment and environment variable that name the watched namespaces.
const DEPLOYMENT: &str = "autoscaler";
const VARIABLE: &str = "ZEROSCALE_NAMESPACES";
/// Maximum number of concurrent access reviews.
const AT_ONCE: usize = 8;
const ABOUT: &str = "rights";

/// Rights that the user needs: verb, resource with subresource, group, true for the system namespace, and the commands
/// that need it.
const USER_RIGHTS: [(&str, &str, &str, bool, &str); 5] = [
    ("list", "zeroscalers", "zeroscale.dev", false, "status, top"),
    ("get", "zeroscalers", "zeroscale.dev", false, "status NAME, wake, sleep, pause, resume"),
    ("patch", "zeroscalers", "zeroscale.dev", false, "wake, sleep, pause, resume"),
    ("list", "pods", "", true, "status with load, top, why, ui"),
    ("create", "pods/portforward", "", true, "status with load, top, why, ui"),
];

/// Checks the rights of the user.
pub async fn check_user(context: &CheckContext<'_>) -> Result<Vec<Finding>, Finding> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(context.cluster.client.clone());
    let mut lacking = Vec::new();
    for (verb, resource, group, in_system, what_for) in USER_RIGHTS {
        if in_system && context.cluster.dashboard.is_some() {
            continue; // Not needed: the kubeconfig has the dashboard's address.
        }
        let namespace = if in_system { context.system } else { &context.cluster.namespace };
        let attributes = attributes(verb, resource, group, namespace);
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Finding::denied(ABOUT, "your own rights", &error))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            let message = format!(
                "you may not {verb} {resource} in namespace {namespace}, as these commands require: {what_for}"
            );
            lacking.push(Finding::note(ABOUT, message));
        }
    }
    if lacking.is_empty() {
        let message = format!("you have the rights for all commands in namespace {}", context.cluster.namespace);
        lacking.push(Finding::good(ABOUT, message));
    }
    Ok(lacking)
}

/// Checks the rights of the planes.
pub async fn check_planes(context: &CheckContext<'_>) -> Result<Vec<Finding>, Finding> {
    if context.cluster.dashboard.is_some() {
        return Ok(Vec::new()); // The planes run outside the cluster and have no service accounts.
    }
    let system = context.system;
    let deployments: Api<Deployment> = Api::namespaced(context.cluster.client.clone(), system);
    let deployment = deployments.get_opt(DEPLOYMENT).await.map_err(|error| {
        let what = format!("Deployment {DEPLOYMENT} of {system}, which names the namespaces that need rights,");
        Finding::denied(ABOUT, &what, &error)
    })?;
    let watched = deployment.ok_or_else(|| format!("there is no Deployment {DEPLOYMENT} in namespace {system}"));
    let watched = watched.and_then(|deployment| watched_namespaces(&deployment, system)).map_err(|why| {
        Finding::unknown(ABOUT, format!("the namespaces in which the planes need rights are unknown: {why}"))
    })?;
    let reviews: Api<SubjectAccessReview> = Api::all(context.cluster.client.clone());
    let rights = needed(watched.as_ref(), system);
    let total = rights.len();
    let answers = stream::iter(rights).map(|spec| {
        let (reviews, right) = (reviews.clone(), described(&spec));
        async move {
            let review = SubjectAccessReview { spec, ..Default::default() };
            let answer = reviews.create(&PostParams::default(), &review).await?;
            let is_allowed = answer.status.is_some_and(|status| status.allowed);
            Ok::<_, kube::Error>(Some(right).filter(|_| !is_allowed))
        }
    });
    let answers = answers.buffered(AT_ONCE).try_collect::<Vec<Option<String>>>().await;
    let answers = answers.map_err(|error| Finding::denied(ABOUT, "the rights of the planes", &error))?;
    let lacking: Vec<String> = answers.into_iter().flatten().collect();
    if lacking.is_empty() {
        return Ok(vec![Finding::good(ABOUT, format!("the planes have all {total} rights that they need"))]);
    }
    let message = format!("the planes lack {} of {total} rights: {}", lacking.len(), first_names(&lacking));
    let mut remedy = format!("apply the roles of this version {AS_INSTALLED}");
    if watched.is_some() {
        remedy += "; with kustomize, also apply deploy/kubernetes/namespaced/rights in each further namespace of ";
        remedy += VARIABLE;
    }
    Ok(vec![Finding::wrong(ABOUT, message, remedy)])
}

/// Returns the namespaces that the autoscaler watches, or `None` for all. Fails if the Deployment takes the value from
/// another object.
fn watched_namespaces(autoscaler: &Deployment, system: &str) -> Result<Option<BTreeSet<String>>, String> {
    let pod = autoscaler.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut variables =
        pod.into_iter().flat_map(|pod| &pod.containers).flat_map(|container| container.env.iter().flatten());
    let Some(variable) = variables.rfind(|variable| variable.name == VARIABLE) else { return Ok(None) };
    let list = match &variable.value_from {
        None => variable.value.as_deref().unwrap_or_default(),
        Some(source) if source.field_ref.as_ref().is_some_and(|field| field.field_path == "metadata.namespace") => {
            system
        }
        Some(_) => return Err(format!("Deployment {DEPLOYMENT} takes {VARIABLE} from another object")),
    };
    let names: BTreeSet<String> =
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Ok(Some(names).filter(|names| !names.is_empty()))
}

/// Returns the rights that planes in namespace `system` need to watch the given namespaces, or all of them.
fn needed(watched: Option<&BTreeSet<String>>, system: &str) -> Vec<SubjectAccessReviewSpec> {
    let mut needed = rights_of(ROLES, system, system);
    if let Some(names) = watched {
        needed.retain(|right| right.resource_attributes.as_ref().is_some_and(|right| right.namespace.is_some()));
        let own = (!names.contains(system)).then_some(system);
        for namespace in own.into_iter().chain(names.iter().map(String::as_str)) {
            needed.extend(rights_of(WITHIN, system, namespace));
        }
    }
    needed
}

/// Describes a right of a service account: `autoscaler patch deployments/scale in shop`.
fn described(right: &SubjectAccessReviewSpec) -> String {
    let ResourceAttributes { verb, resource, subresource, namespace, .. } =
        right.resource_attributes.clone().unwrap_or_default();
    let account = right.user.as_deref().and_then(|user| user.rsplit(':').next()).unwrap_or_default();
    let subresource = subresource.map(|subresource| format!("/{subresource}")).unwrap_or_default();
    let namespace = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    let (verb, resource) = (verb.unwrap_or_default(), resource.unwrap_or_default());
    format!("{account} {verb} {resource}{subresource}{namespace}")
}

/// Role or binding, of a namespace or of the cluster.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RoleOrBinding {
    kind: String,
    metadata: ObjectMeta,
    rules: Vec<PolicyRule>,
    role_ref: RoleRef,
    subjects: Vec<Subject>,
}

/// Returns every right that the bindings in a YAML text give to accounts of the system namespace. Rights of
/// RoleBindings apply to namespace `within`.
fn rights_of(roles: &str, system: &str, within: &str) -> Vec<SubjectAccessReviewSpec> {
    let documents = serde_yaml_ng::Deserializer::from_str(roles);
    let documents: Vec<RoleOrBinding> =
        documents.filter_map(|document| RoleOrBinding::deserialize(document).ok()).collect();
    let mut rights = Vec::new();
    for binding in documents.iter().filter(|document| document.kind.ends_with("Binding")) {
        let reference = &binding.role_ref;
        let is_meant =
            |role: &&RoleOrBinding| role.kind == reference.kind && role.metadata.name.as_ref() == Some(&reference.name);
        let rules = documents.iter().find(is_meant).map(|role| &role.rules[..]).unwrap_or_default();
        let namespace = if binding.kind == "RoleBinding" { within } else { "" };
        for subject in &binding.subjects {
            for attributes in rules.iter().flat_map(|rule| attributes_of(rule, namespace)) {
                rights.push(SubjectAccessReviewSpec {
                    user: Some(format!("system:serviceaccount:{system}:{}", subject.name)),
                    groups: Some(vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{system}"),
                        "system:authenticated".to_owned(),
                    ]),
                    resource_attributes: Some(attributes),
                    ..Default::default()
                });
            }
        }
    }
    rights
}

/// Returns each right of a rule, in a namespace or, if that is empty, in all of them.
fn attributes_of(rule: &PolicyRule, namespace: &str) -> Vec<ResourceAttributes> {
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                let name = rule.resource_names.iter().flatten().next().cloned();
                rights.push(ResourceAttributes { name, ..attributes(verb, resource, group, namespace) });
            }
        }
    }
    rights
}

fn attributes(verb: &str, resource: &str, group: &str, namespace: &str) -> ResourceAttributes {
    let (resource, subresource) = resource.split_once('/').map_or((resource, None), |(name, sub)| (name, Some(sub)));
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        verb: Some(verb.to_owned()),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        ..ResourceAttributes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Goal: each verb of each rule is checked, in the namespace of its binding, and no role is left out.
    #[test]
    fn every_rule_of_the_roles_is_checked() {
        let all = needed(None, "zeroscale-system");
        let described_rights: Vec<String> = all.iter().map(described).collect();
        for right in [
            "activator list zeroscalers",
            "autoscaler patch deployments/scale",
            "autoscaler update zeroscalers/status",
            "activator watch configmaps in zeroscale-system",
        ] {
            assert!(described_rights.iter().any(|known| known == right), "{right}: {described_rights:#?}");
        }
        let documents =
            serde_yaml_ng::Deserializer::from_str(ROLES).filter_map(|document| Value::deserialize(document).ok());
        let verbs: usize = documents
            .flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default())
            .map(|rule| {
                let lengths = ["apiGroups", "resources", "verbs"].map(|list| rule[list].as_array().map_or(0, Vec::len));
                lengths.iter().product::<usize>()
            })
            .sum();
        assert!(verbs > 20 && all.len() >= verbs, "{} questions of {verbs} rights", all.len());
        assert_eq!(all[0].user.as_deref(), Some("system:serviceaccount:zeroscale-system:activator"));
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    /// Goal: for planes that watch some namespaces, the check covers each of these and their own namespace with the
    /// Roles installed there. It covers nothing that only a ClusterRole gives. The accounts are those of the planes'
    /// own namespace.
    #[test]
    fn planes_that_watch_some_namespaces_need_no_right_elsewhere() {
        let all = needed(Some(&names(["shop", "stage"])), "zs");
        let described_rights: Vec<String> = all.iter().map(described).collect();
        for right in [
            "activator watch endpointslices in shop",
            "autoscaler patch deployments/scale in shop",
            "autoscaler patch deployments/scale in stage",
            "autoscaler get namespaces in stage",
            "autoscaler list endpointslices in zs",
            "autoscaler update leases in zs",
            "activator watch configmaps in zs",
        ] {
            assert!(described_rights.iter().any(|known| known == right), "{right}: {described_rights:#?}");
        }
        for question in &all {
            let attributes = question.resource_attributes.as_ref().expect("attributes");
            let namespace = attributes.namespace.as_deref();
            assert!(namespace.is_some_and(|name| ["shop", "stage", "zs"].contains(&name)), "{question:?}");
            assert_ne!(attributes.resource.as_deref(), Some("tokenreviews"), "{question:?}");
            let user = question.user.as_deref().unwrap_or_default();
            assert!(user.starts_with("system:serviceaccount:zs:"), "{user}");
        }
        let own = needed(Some(&names(["zs"])), "zs");
        let within = rights_of(WITHIN, "zs", "zs").len();
        assert!(within > 20, "the Roles are read: {within}");
        let three = needed(Some(&names(["zs", "a", "b"])), "zs");
        assert_eq!((own.len() + 2 * within, three.len()), (all.len(), all.len()));
    }

    /// Goal: the namespaces are read from the Deployment for each way of installing, and not guessed if another object
    /// holds the value.
    ///
    /// env of the container -> namespaces
    #[test]
    fn the_watched_namespaces_are_read_from_the_deployment() {
        let rows = [
            ("[]", Ok(None)),
            ("[{name: POD_NAME, value: a}]", Ok(None)),
            ("[{name: ZEROSCALE_NAMESPACES}]", Ok(None)),
            ("[{name: ZEROSCALE_NAMESPACES, value: ''}]", Ok(None)),
            ("[{name: ZEROSCALE_NAMESPACES, value: 'stage, shop,shop'}]", Ok(Some(names(["shop", "stage"])))),
            (
                "[{name: ZEROSCALE_NAMESPACES, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]",
                Ok(Some(names(["zs"]))),
            ),
            (
                "[{name: ZEROSCALE_NAMESPACES, valueFrom: {configMapKeyRef: {name: a, key: b}}}]",
                Err("Deployment autoscaler takes ZEROSCALE_NAMESPACES from another object".to_owned()),
            ),
        ];
        for (env, expected) in rows {
            let text = format!(
                "spec: {{selector: {{}}, template: {{spec: {{containers: [{{name: proxy}}, {{name: autoscaler, env: {env}}}]}}}}}}"
            );
            let deployment: Deployment = serde_yaml_ng::from_str(&text).expect("a Deployment");
            assert_eq!(watched_namespaces(&deployment, "zs"), expected, "{env}");
        }
    }
}
