//! Discovery of groups, versions and resources. [`super::openapi`] describes their fields.

use serde_json::{Value, json};

use super::resource::{Registry, Resource};

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
    let mut list = Vec::new();
    let mut group_version = None;
    for resource in registry.of_version(group, version) {
        group_version = Some(resource.api_version());
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
    let group_version = group_version?;
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list}))
}

/// Returns `/api` or `/apis` as one document, for clients that request aggregated discovery.
pub(crate) fn aggregated(registry: &Registry, core: bool, document_version: &str) -> Value {
    let groups = if core { vec![String::new()] } else { registry.groups() };
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let metadata = if core { json!({"creationTimestamp": null}) } else { json!({"name": group}) };
            let versions: Vec<Value> = registry
                .versions(group)
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = registry.of_version(group, version).map(|r| aggregate(r)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{document_version}"),
        "metadata": {}, "items": items,
    })
}

fn aggregate(resource: &Resource) -> Value {
    // Built-in kinds omit group and version if they equal those of the enclosing group.
    let kind = |group: &str, version: &str, kind: &str| match resource.custom() {
        None if group == resource.group => json!({"group": "", "version": "", "kind": kind}),
        _ => json!({"group": group, "version": version, "kind": kind}),
    };
    let subresources: Vec<Value> = resource
        .subresources()
        .iter()
        .map(|(name, group, version, k, verbs)| {
            json!({"subresource": name, "responseKind": kind(group, version, k), "verbs": verbs})
        })
        .collect();
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs(),
    });
    for (key, list) in [
        ("shortNames", json!(resource.short_names)),
        ("categories", json!(resource.categories)),
        ("subresources", subresources.into()),
    ] {
        if list != json!([]) {
            entry[key] = list;
        }
    }
    entry
}
