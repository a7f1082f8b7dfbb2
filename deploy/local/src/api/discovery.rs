//! Discovery of groups, versions and resources. [`super::openapi`] describes their fields.

use serde_json::{Value, json};

use super::resource::Registry;

/// Returns `/version`: this server implements the API of Kubernetes 1.36.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0+zeroscale", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// Returns `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// Returns `/apis`.
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry.groups().iter().filter_map(|name| group(registry, name, false)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns `/apis/GROUP`.
pub(crate) fn group(registry: &Registry, name: &str, typed: bool) -> Option<Value> {
    let versions: Vec<Value> = registry
        .versions(name)
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first().cloned()?;
    let mut group = json!({"name": name, "versions": versions, "preferredVersion": preferred});
    if typed {
        group["kind"] = "APIGroup".into();
        group["apiVersion"] = "v1".into();
    }
    Some(group)
}

/// Returns `/api/v1` and `/apis/GROUP/VERSION`, or `None` if the version does not exist.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let group_version = registry.of_version(group, version).next()?.api_version();
    let mut list = Vec::new();
    for resource in registry.of_version(group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs(), "storageVersionHash": "",
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        list.push(entry);
        for (name, group, version, kind, verbs) in resource.subresources() {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind, "verbs": verbs,
            });
            if group != resource.group {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            list.push(entry);
        }
    }
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list}))
}
