//! RBAC: Roles, ClusterRoles and their bindings, evaluated from the store.
//!
//! `system:masters` may do everything. The rights that Kubernetes' bootstrap roles give to everyone are implemented in
//! code: discovery and self reviews for callers with a token, health and version for all.
//!
//! Edge cases: a ClusterRole with an aggregation rule has its own rules and those of all matching ClusterRoles, without
//! a controller that copies them. A list or watch of one name counts as access to that name.
//!
//! Limits: there is no check against privilege escalation, and no second check (`create`) of an apply or a PUT that
//! creates an object.

use std::sync::Arc;

use serde_json::Value;

use super::access::Access;
use super::fields::{items, text};
use super::identity::{AUTHENTICATED, Caller, MASTERS, texts};
use super::store::{Object, Store};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Reports whether `caller` is allowed the access.
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
pub(crate) fn rules(store: &Store, caller: &Caller, namespace: &str) -> impl Iterator<Item = Value> {
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

/// Returns the role of a binding, and the roles that it aggregates.
fn role(store: &Store, binding: &Object) -> Vec<Arc<Object>> {
    let name = binding.text("/roleRef/name");
    if binding.text("/roleRef/kind") == "Role" {
        let key = format!("{}/{name}", binding.text("/metadata/namespace"));
        return store.get(&format!("{GROUP}/roles"), &key).into_iter().collect();
    }
    let table = format!("{GROUP}/clusterroles");
    let Some(role) = store.get(&table, name) else { return Vec::new() };
    let selectors = items(&role.value, "/aggregationRule/clusterRoleSelectors").to_vec();
    let mut roles = vec![role];
    for labels in selectors.iter().filter_map(|selector| selector.get("matchLabels")?.as_object()) {
        let has = |object: &Object, key: &str, value: &Value| {
            object.value.pointer("/metadata/labels").and_then(|labels| labels.get(key)) == Some(value)
        };
        let all = store.list(&table, "").0;
        roles.extend(all.into_iter().filter(|other| labels.iter().all(|(key, value)| has(other, key, value))));
    }
    roles
}

/// Reports whether a rule permits the access.
pub(crate) fn permits(rule: &Value, access: &Access) -> bool {
    let lists = |field: &str, wanted: &str| {
        texts(rule, &format!("/{field}")).iter().any(|listed| listed == "*" || listed == wanted)
    };
    if access.resource.is_empty() {
        let matches = |listed: &String| match listed.strip_suffix('*') {
            Some(root) => access.path.starts_with(root),
            None => *listed == access.path,
        };
        return lists("verbs", &access.verb) && texts(rule, "/nonResourceURLs").iter().any(matches);
    }
    let any = access.resource.split_once('/').map(|(_, part)| format!("*/{part}"));
    let names = texts(rule, "/resourceNames");
    lists("verbs", &access.verb)
        && lists("apiGroups", &access.group)
        && (lists("resources", &access.resource) || any.is_some_and(|any| lists("resources", &any)))
        && (names.is_empty() || (!access.name.is_empty() && names.contains(&access.name)))
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
        let paths = json!({"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]});
        for (path, expected) in [("/metrics", true), ("/metrics/x", false), ("/debug/x", true)] {
            assert_eq!(permits(&paths, &Access::path("GET", path)), expected, "{path}");
        }
    }
}
