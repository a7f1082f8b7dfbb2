//! Check of our own rights and of the planes' service accounts. It asks about every rule of the roles that the planes
//! are installed with. This finds roles that were cut down or are of an older version before they cause errors.
//!
//! Planes that watch only some namespaces have Roles there and no ClusterRole. The autoscaler's Deployment names these
//! namespaces (`ZEROSCALE_NAMESPACES`). Both ways of installing add the planes' own namespace, which holds the
//! activators' EndpointSlices. If the namespaces cannot be read from the Deployment, nothing is asked.

use super::{AS_INSTALLED, CheckContext, Finding, first_names};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use serde::Deserialize;
use serde_json::Value;
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

/// Rights to check for ourselves: verb, resource with subresource, group, true for the system namespace, and the
/// commands that need it.
const OURS: [(&str, &str, &str, bool, &str); 5] = [
    ("list", "zeroscalers", "zeroscale.dev", false, "status, top"),
    ("get", "zeroscalers", "zeroscale.dev", false, "status NAME, wake, sleep, pause, resume"),
    ("patch", "zeroscalers", "zeroscale.dev", false, "wake, sleep, pause, resume"),
    ("list", "pods", "", true, "status with load, top, why, ui"),
    ("create", "pods/portforward", "", true, "status with load, top, why, ui"),
];

/// Checks our own rights and those of the planes.
pub async fn check(place: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = ours(place).await;
    findings.extend(theirs(place).await);
    findings
}

async fn ours(place: &CheckContext<'_>) -> Vec<Finding> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(place.cluster.client.clone());
    let mut lacking = Vec::new();
    for (verb, resource, group, in_system, what_for) in OURS {
        if in_system && place.cluster.dashboard.is_some() {
            continue; // Not needed: the kubeconfig has the dashboard's address.
        }
        let namespace = if in_system { place.system } else { &place.cluster.namespace };
        let attributes = attributes(verb, resource, group, namespace);
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        match reviews.create(&PostParams::default(), &review).await {
            Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => lacking.push(Finding::note(
                ABOUT,
                format!("we may not {verb} {resource} in namespace {namespace}, which is for {what_for}"),
            )),
            Err(error) => return vec![Finding::denied(ABOUT, "our own rights", &error)],
        }
    }
    if lacking.is_empty() {
        lacking.push(Finding::good(ABOUT, format!("we may do all of it in namespace {}", place.cluster.namespace)));
    }
    lacking
}

async fn theirs(place: &CheckContext<'_>) -> Vec<Finding> {
    if place.cluster.dashboard.is_some() {
        return Vec::new(); // The planes run outside the cluster and have no service accounts.
    }
    let deployments: Api<Deployment> = Api::namespaced(place.cluster.client.clone(), place.system);
    let seen = match deployments.get_opt(DEPLOYMENT).await {
        Ok(Some(deployment)) => looked_at(&deployment, place.system),
        Ok(None) => Err(format!("there is no Deployment {DEPLOYMENT} in namespace {}", place.system)),
        Err(error) => {
            let what = format!("Deployment {DEPLOYMENT} of {}, which says where rights are needed,", place.system);
            return vec![Finding::denied(ABOUT, &what, &error)];
        }
    };
    let seen = match seen {
        Ok(seen) => seen,
        Err(why) => {
            return vec![Finding::unknown(ABOUT, format!("where the planes need rights cannot be told: {why}"))];
        }
    };
    let reviews: Api<SubjectAccessReview> = Api::all(place.cluster.client.clone());
    let questions = needed(seen.as_ref(), place.system);
    let asked = questions.len();
    let answers = stream::iter(questions.into_iter().map(|question| {
        let reviews = reviews.clone();
        async move {
            let review = SubjectAccessReview { spec: question.spec(), ..Default::default() };
            let answer = reviews.create(&PostParams::default(), &review).await;
            answer.map(|answer| (question, answer.status.is_some_and(|status| status.allowed)))
        }
    }));
    let answers: Vec<_> = answers.buffered(AT_ONCE).collect().await;
    let mut lacking = Vec::new();
    for answer in answers {
        match answer {
            Ok((_, true)) => {}
            Ok((question, false)) => lacking.push(question.to_string()),
            Err(error) => return vec![Finding::denied(ABOUT, "the rights of the planes", &error)],
        }
    }
    vec![if lacking.is_empty() {
        Finding::good(ABOUT, format!("the planes have all {asked} rights that they need"))
    } else {
        Finding::wrong(
            ABOUT,
            format!("the planes lack {} of {asked} rights: {}", lacking.len(), first_names(&lacking)),
            match seen {
                None => format!("apply the roles of this version, {AS_INSTALLED}"),
                Some(_) => format!(
                    "apply the roles of this version, {AS_INSTALLED}; by kustomization, deploy/kubernetes/namespaced/rights \
                     in each further namespace of {VARIABLE} as well"
                ),
            },
        )
    }]
}

/// Returns the namespaces that the autoscaler watches, or `None` for all.
///
/// # Errors
/// Fails if the Deployment takes the value from another object.
fn looked_at(autoscaler: &Deployment, system: &str) -> Result<Option<BTreeSet<String>>, String> {
    let pod = autoscaler.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut variables =
        pod.into_iter().flat_map(|pod| &pod.containers).flat_map(|container| container.env.iter().flatten());
    let Some(variable) = variables.rfind(|variable| variable.name == VARIABLE) else { return Ok(None) };
    let list = match &variable.value_from {
        None => variable.value.as_deref().unwrap_or_default(),
        Some(source) if source.field_ref.as_ref().is_some_and(|field| field.field_path == "metadata.namespace") => {
            system
        }
        Some(_) => return Err(format!("{VARIABLE} of Deployment {DEPLOYMENT} is taken from elsewhere")),
    };
    let names: BTreeSet<String> =
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Ok(Some(names).filter(|names| !names.is_empty()))
}

/// Returns the rights that planes in namespace `system` need to watch the given namespaces, or all of them.
fn needed(seen: Option<&BTreeSet<String>>, system: &str) -> Vec<Question> {
    let mut needed = questions(ROLES, system, system);
    if let Some(names) = seen {
        needed.retain(|question| question.attributes.namespace.is_some());
        let own = (!names.contains(system)).then_some(system);
        for namespace in own.into_iter().chain(names.iter().map(String::as_str)) {
            needed.extend(questions(WITHIN, system, namespace));
        }
    }
    needed
}

/// A right that a service account should have.
#[derive(Clone, Debug, PartialEq)]
struct Question {
    account: String,
    system: String,
    attributes: ResourceAttributes,
}

impl Question {
    fn spec(&self) -> SubjectAccessReviewSpec {
        let (namespace, account) = (&self.system, &self.account);
        SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(self.attributes.clone()),
            ..Default::default()
        }
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let ResourceAttributes { verb, resource, subresource, namespace, .. } = &self.attributes;
        write!(f, "{} {} {}", self.account, text(verb), text(resource))?;
        if let Some(subresource) = subresource {
            write!(f, "/{subresource}")?;
        }
        namespace.as_ref().map_or(Ok(()), |namespace| write!(f, " in {namespace}"))
    }
}

/// Returns every right that the bindings in a YAML text give to accounts of the system namespace. Rights of
/// RoleBindings apply to namespace `within`.
fn questions(roles: &str, system: &str, within: &str) -> Vec<Question> {
    let documents: Vec<Value> =
        serde_yaml_ng::Deserializer::from_str(roles).filter_map(|document| Value::deserialize(document).ok()).collect();
    let mut questions = Vec::new();
    let bindings =
        documents.iter().filter(|document| document["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")));
    for binding in bindings {
        let role = documents.iter().find(|role| {
            role["kind"] == binding["roleRef"]["kind"] && role["metadata"]["name"] == binding["roleRef"]["name"]
        });
        let namespace = (binding["kind"] == "RoleBinding").then(|| within.to_owned());
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            let rules = role.into_iter().flat_map(|role| role["rules"].as_array().into_iter().flatten());
            for rule in rules {
                let account = subject["name"].as_str().unwrap_or_default();
                for (group, resource, verb) in rights(rule) {
                    let mut attributes = attributes(&verb, &resource, &group, "");
                    attributes.namespace.clone_from(&namespace);
                    attributes.name = texts(&rule["resourceNames"]).into_iter().next();
                    questions.push(Question { account: account.to_owned(), system: system.to_owned(), attributes });
                }
            }
        }
    }
    questions
}

/// Returns group, resource and verb of each right in a rule.
fn rights(rule: &Value) -> Vec<(String, String, String)> {
    let mut rights = Vec::new();
    for group in texts(&rule["apiGroups"]) {
        for resource in texts(&rule["resources"]) {
            for verb in texts(&rule["verbs"]) {
                rights.push((group.clone(), resource.clone(), verb));
            }
        }
    }
    rights
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

fn attributes(verb: &str, resource: &str, group: &str, namespace: &str) -> ResourceAttributes {
    let (resource, subresource) = resource.split_once('/').map_or((resource, None), |(of, sub)| (of, Some(sub)));
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

    /// Goal: each verb of each rule is checked, in the namespace of its binding, and no role is left out.
    #[test]
    fn every_rule_of_the_roles_is_a_question() {
        let all = needed(None, "zeroscale-system");
        let said: Vec<String> = all.iter().map(ToString::to_string).collect();
        for right in [
            "activator list zeroscalers",
            "autoscaler patch deployments/scale",
            "autoscaler update zeroscalers/status",
            "activator watch configmaps in zeroscale-system",
        ] {
            assert!(said.iter().any(|known| known == right), "{right}: {said:#?}");
        }
        let documents =
            serde_yaml_ng::Deserializer::from_str(ROLES).filter_map(|document| Value::deserialize(document).ok());
        let verbs: usize = documents
            .flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default())
            .map(|rule| {
                ["apiGroups", "resources", "verbs"]
                    .iter()
                    .map(|list| rule[*list].as_array().map_or(0, Vec::len))
                    .product::<usize>()
            })
            .sum();
        assert!(verbs > 20 && all.len() >= verbs, "{} questions of {verbs} rights", all.len());
        assert_eq!(all[0].spec().user.as_deref(), Some("system:serviceaccount:zeroscale-system:activator"));
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    /// Goal: for planes that watch some namespaces, the check covers each of these and their own namespace with the
    /// Roles installed there. It covers nothing that only a ClusterRole gives. The accounts are those of the planes'
    /// own namespace.
    #[test]
    fn planes_of_some_namespaces_need_no_right_beyond_them() {
        let all = needed(Some(&names(["shop", "stage"])), "zs");
        let said: Vec<String> = all.iter().map(ToString::to_string).collect();
        for right in [
            "activator watch endpointslices in shop",
            "autoscaler patch deployments/scale in shop",
            "autoscaler patch deployments/scale in stage",
            "autoscaler get namespaces in stage",
            "autoscaler list endpointslices in zs",
            "autoscaler update leases in zs",
            "activator watch configmaps in zs",
        ] {
            assert!(said.iter().any(|known| known == right), "{right}: {said:#?}");
        }
        for question in &all {
            let namespace = question.attributes.namespace.as_deref();
            assert!(namespace.is_some_and(|name| ["shop", "stage", "zs"].contains(&name)), "{question}");
            assert_ne!(question.attributes.resource.as_deref(), Some("tokenreviews"), "{question}");
            let user = question.spec().user.unwrap_or_default();
            assert!(user.starts_with("system:serviceaccount:zs:"), "{user}");
        }
        let own = needed(Some(&names(["zs"])), "zs");
        let within = questions(WITHIN, "zs", "zs").len();
        assert!(within > 20, "the Roles are read: {within}");
        assert_eq!(
            (own.len() + 2 * within, needed(Some(&names(["zs", "a", "b"])), "zs").len()),
            (all.len(), all.len())
        );
    }

    /// Goal: the namespaces are read from the Deployment for each way of installing, and not guessed if another object
    /// holds the value.
    ///
    /// env of the container -> namespaces
    #[test]
    fn the_deployment_says_which_namespaces_are_looked_at() {
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
                Err("ZEROSCALE_NAMESPACES of Deployment autoscaler is taken from elsewhere".to_owned()),
            ),
        ];
        for (env, expected) in rows {
            let text = format!(
                "spec: {{selector: {{}}, template: {{spec: {{containers: [{{name: proxy}}, {{name: autoscaler, env: {env}}}]}}}}}}"
            );
            let deployment: Deployment = serde_yaml_ng::from_str(&text).expect("a Deployment");
            assert_eq!(looked_at(&deployment, "zs"), expected, "{env}");
        }
    }
}
