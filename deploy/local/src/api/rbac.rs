//! RBAC: Roles, ClusterRoles and their bindings, evaluated from the store.
//!
//! `system:masters` may do everything. The rights that Kubernetes' bootstrap roles give to everyone are implemented in
//! code: discovery and self reviews for callers with a token, health and version for all.
//!
//! Edge case: a list or watch of one name counts as access to that name.
//!
//! Limits: there are no aggregation rules, no rules for paths (`nonResourceURLs`), no check against privilege
//! escalation, and no second check (`create`) of an apply or a PUT that creates an object.
//!
//! Reviews of identity and access are answered and not stored.

use super::access::Access;
use super::core::Api;
use super::fields::{items, text};
use super::identity::{ADMINISTRATOR, AUTHENTICATED, Caller, MASTERS, texts};
use super::status::{ApiError, Causes, Result};
use super::store::{Object, Store};
use serde_json::{Value, json};
use std::sync::Arc;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) fn allows(store: &Store, caller: &Caller, access: &Access) -> bool {
    caller.groups.iter().any(|group| group == MASTERS)
        || is_for_everyone(caller, access)
        || rules(store, caller, &access.namespace).any(|rule| permits(&rule, access))
}

/// Reports whether the bootstrap roles allow the access to everyone.
fn is_for_everyone(caller: &Caller, access: &Access) -> bool {
    let has_token = caller.groups.iter().any(|group| group == AUTHENTICATED);
    let under =
        |root: &str| access.path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_path = access.resource.is_empty() && access.verb == "get";
    if is_path && ["/healthz", "/livez", "/readyz", "/version"].into_iter().any(under) {
        return true;
    }
    let self_reviews = ["selfsubjectreviews", "selfsubjectaccessreviews"];
    has_token
        && ((is_path && ["/api", "/apis", "/openapi"].into_iter().any(under))
            || (access.verb == "create" && self_reviews.contains(&access.resource.as_str())))
}

/// Returns the rules for `caller` in `namespace`, or, if that is empty, only those for all namespaces.
fn rules(store: &Store, caller: &Caller, namespace: &str) -> impl Iterator<Item = Value> {
    let mut bindings = store.list(&format!("{GROUP}/clusterrolebindings"), "").0;
    if !namespace.is_empty() {
        bindings.extend(store.list(&format!("{GROUP}/rolebindings"), &format!("{namespace}/")).0);
    }
    bindings.retain(|binding| binds(&binding.value, caller));
    bindings
        .into_iter()
        .flat_map(|binding| role(store, &binding))
        .flat_map(|role| items(&role.value, "/rules").to_vec())
}

/// Reports whether a binding has the caller as a subject.
fn binds(binding: &Value, caller: &Caller) -> bool {
    items(binding, "/subjects").iter().any(|subject| {
        let name = text(subject, "/name");
        match text(subject, "/kind") {
            "User" => caller.name == name,
            "Group" => caller.groups.iter().any(|group| group == name),
            "ServiceAccount" => caller.name == format!("system:serviceaccount:{}:{name}", text(subject, "/namespace")),
            _ => false,
        }
    })
}

fn role(store: &Store, binding: &Object) -> Option<Arc<Object>> {
    let name = binding.text("/roleRef/name");
    if binding.text("/roleRef/kind") == "Role" {
        return store.get(&format!("{GROUP}/roles"), &format!("{}/{name}", binding.text("/metadata/namespace")));
    }
    store.get(&format!("{GROUP}/clusterroles"), name)
}

/// Reports whether a rule permits the access to a resource. No rule permits a path.
fn permits(rule: &Value, access: &Access) -> bool {
    let lists = |field: &str, wanted: &str| {
        texts(rule, &format!("/{field}")).iter().any(|listed| listed == "*" || listed == wanted)
    };
    let any = access.resource.split_once('/').map(|(_, part)| format!("*/{part}"));
    let names = texts(rule, "/resourceNames");
    !access.resource.is_empty()
        && lists("verbs", &access.verb)
        && lists("apiGroups", &access.group)
        && (lists("resources", &access.resource) || any.is_some_and(|any| lists("resources", &any)))
        && (names.is_empty() || (!access.name.is_empty() && names.contains(&access.name)))
}

/// Returns the review with its status. `kind` is its kind.
pub(super) fn answer(kind: &str, api: &Api, caller: &Caller, body: &Value) -> Result<Value> {
    let status = match kind {
        "TokenReview" => token(api, body)?,
        "SelfSubjectReview" => json!({"userInfo": caller}),
        "SelfSubjectAccessReview" => json!({"allowed": allows(&api.store, caller, &attributes(body, kind)?)}),
        _ => subject_access(api, body, kind)?,
    };
    let mut answer = body.clone();
    answer["status"] = status;
    Ok(answer)
}

fn token(api: &Api, body: &Value) -> Result<Value> {
    let token = text(body, "/spec/token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    Ok(match api.tokens.review(&api.store, token, &texts(body, "/spec/audiences")) {
        Some((caller, audiences)) if audiences.is_empty() => json!({"authenticated": true, "user": caller}),
        Some((caller, audiences)) => json!({"authenticated": true, "user": caller, "audiences": audiences}),
        None => json!({"user": {}, "error": "the token was not issued by this server"}),
    })
}

fn subject_access(api: &Api, body: &Value, kind: &str) -> Result<Value> {
    let access = attributes(body, kind)?;
    let (user, mut groups) = (text(body, "/spec/user"), texts(body, "/spec/groups"));
    if user == ADMINISTRATOR {
        groups.push(MASTERS.into());
    }
    let allowed = allows(&api.store, &Caller::known(user, groups), &access);
    Ok(json!({"allowed": allowed}))
}

fn attributes(body: &Value, kind: &str) -> Result<Access> {
    let given = |key: &str| body.pointer(&format!("/spec/{key}")).is_some_and(Value::is_object);
    if given("resourceAttributes") != given("nonResourceAttributes") {
        return Ok(access(&body["spec"]));
    }
    let mut causes = Causes::default();
    let rule = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    causes.invalid("spec.resourceAttributes", &Value::Null, rule);
    Err(ApiError::invalid_kind("authorization.k8s.io", kind, "", causes))
}

/// Returns the access in the attributes of a resource or of a path.
fn access(spec: &Value) -> Access {
    let attribute = |name: &str| text(spec, &format!("/resourceAttributes/{name}")).to_owned();
    if spec.get("resourceAttributes").is_none_or(Value::is_null) {
        return Access::path(text(spec, "/nonResourceAttributes/verb"), text(spec, "/nonResourceAttributes/path"));
    }
    let (resource, part) = (attribute("resource"), attribute("subresource"));
    let resource = if part.is_empty() { resource } else { format!("{resource}/{part}") };
    let (verb, group, namespace, name) =
        (attribute("verb"), attribute("group"), attribute("namespace"), attribute("name"));
    Access { verb, group, resource, namespace, name, path: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn access(verb: &str, group: &str, resource: &str, name: &str) -> Access {
        let (verb, group, resource, name) = (verb.into(), group.into(), resource.into(), name.into());
        Access { verb, group, resource, name, ..Access::default() }
    }

    #[test]
    fn a_rule_permits_access_that_all_its_lists_contain() {
        let rule = |resources: Value, names: Value| json!({"apiGroups": ["apps"], "resources": resources, "verbs": ["get", "patch"], "resourceNames": names});
        let rows = [
            (json!(["deployments"]), json!([]), access("get", "apps", "deployments", "a"), true),
            (json!(["deployments"]), json!([]), access("list", "apps", "deployments", ""), false),
            (json!(["deployments"]), json!([]), access("get", "", "deployments", "a"), false),
            (json!(["deployments"]), json!([]), access("patch", "apps", "deployments/scale", "a"), false),
            (json!(["deployments/scale"]), json!([]), access("patch", "apps", "deployments/scale", "a"), true),
            (json!(["*/scale"]), json!([]), access("patch", "apps", "deployments/scale", "a"), true),
            (json!(["*/scale"]), json!([]), access("patch", "apps", "deployments", "a"), false),
            (json!(["*"]), json!([]), access("patch", "apps", "deployments/scale", "a"), true),
            (json!(["deployments"]), json!(["b"]), access("get", "apps", "deployments", "a"), false),
            (json!(["deployments"]), json!(["b"]), access("get", "apps", "deployments", "b"), true),
            (json!(["deployments"]), json!(["b"]), access("get", "apps", "deployments", ""), false),
        ];
        for (resources, names, access, expected) in rows {
            let is_permitted = permits(&rule(resources.clone(), names.clone()), &access);
            assert_eq!(is_permitted, expected, "{resources} {names} {access:?}");
        }
    }
}
