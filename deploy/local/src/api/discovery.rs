//! What there is to ask for: groups, versions, resources, and as much of OpenAPI as kubectl looks into.
//!
//! Not here: schemas in OpenAPI. The documents name paths, kinds and the parameters of PATCH, so that kubectl leaves
//! the validation of fields to the server; `kubectl explain` has nothing to show.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::resource::{Registry, Resource};

/// `/version`: this server speaks the API of Kubernetes 1.36.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0+zeroscale", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry.groups().iter().filter_map(|name| group(registry, name, false)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
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

fn of_version<'a>(registry: &'a Registry, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
    registry.all().filter(move |resource| resource.group == group && resource.version == version)
}

/// `/api/v1` and `/apis/GROUP/VERSION`; none if there is no such version.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    let mut group_version = None;
    for resource in of_version(registry, group, version) {
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

/// `/api` or `/apis` as one document, for clients that ask for it.
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
                    let resources: Vec<Value> = of_version(registry, group, version).map(|r| aggregate(r)).collect();
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
    // Built-ins leave out what is the same as the group around them.
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

/// `/openapi/v3`: the list of documents.
pub(crate) fn openapi_index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for resource in registry.all() {
        let path = root(resource);
        let url = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn root(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    }
}

/// `/openapi/v3/apis/GROUP/VERSION`: the paths of a version; none if there is no such version.
pub(crate) fn openapi_document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    let parameter = |name: &&str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters: Vec<Value> =
        ["dryRun", "fieldManager", "fieldValidation", "force", "pretty"].iter().map(parameter).collect();
    for resource in of_version(registry, group, version) {
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("/{}{scope}/{}", root(resource), resource.plural);
        let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let operation = |action: &str| {
            json!({
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
                "parameters": parameters, "responses": {"200": {"description": "OK"}},
            })
        };
        paths.insert(collection.clone(), json!({"get": operation("list"), "post": operation("post")}));
        let one = json!({
            "get": operation("get"), "put": operation("put"), "patch": operation("patch"),
            "delete": operation("delete"),
        });
        paths.insert(format!("{collection}/{{name}}"), one);
    }
    if paths.is_empty() {
        return None;
    }
    let info = json!({"title": "Kubernetes", "version": "v1.36.0"});
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}))
}
