//! Description of a resource: its names and its special rules.
//!
//! All verbs are generic; a [`Resource`] value describes a resource. Built-in resources come from the table in
//! `builtin`, custom ones from CustomResourceDefinitions (`crd`). The [`Registry`] is replaced as a whole when a
//! definition changes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::Version;
use serde::Deserialize;
use serde_json::Value;

use super::columns::Column;
use super::status::ApiError;
use super::store::Object;
use super::types::{Describe, TypeSchemas};

/// Rule for the names of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum NameRule {
    /// DNS subdomain, at most 253 characters.
    #[default]
    Subdomain,
    /// DNS label, at most 63 characters.
    Label,
    /// Any text that is a valid path segment.
    PathSegment,
}

/// Changes that increment `metadata.generation`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Generation {
    /// The resource has no generation.
    #[default]
    Never,
    /// All except metadata and, if it is a subresource, status.
    Spec,
    /// Like [`Generation::Spec`], and annotations.
    SpecAndAnnotations,
    /// Like [`Generation::Spec`], and labels.
    SpecAndLabels,
}

/// Paths of a scale subresource in the object, as in a definition.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ScalePaths {
    /// Desired number of replicas.
    pub(crate) spec_replicas_path: String,
    /// Actual number of replicas.
    pub(crate) status_replicas_path: String,
    /// Label selector, as an object or as text.
    pub(crate) label_selector_path: Option<String>,
}

impl Default for ScalePaths {
    fn default() -> Self {
        let (spec, status) = (".spec.replicas".into(), ".status.replicas".into());
        Self { spec_replicas_path: spec, status_replicas_path: status, label_selector_path: None }
    }
}

/// Special rules of a resource.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rules {
    pub(crate) name: NameRule,
    pub(crate) generation: Generation,
    /// True if status is a subresource.
    pub(crate) status: bool,
    /// The scale subresource, if there is one.
    pub(crate) scale: Option<ScalePaths>,
    /// True if a PUT must have a version.
    pub(crate) versioned_update: bool,
    /// True if a PUT creates a missing object.
    pub(crate) create_on_update: bool,
    /// True if DELETE returns the object instead of a Status.
    pub(crate) returns_deleted: bool,
    /// True if collections cannot be deleted.
    pub(crate) deleted_singly: bool,
    /// Fields that field selectors may use in addition to name and namespace.
    pub(crate) fields: Vec<String>,
    /// Other subresources: name, kind, verb.
    pub(crate) subresources: Vec<(String, String, String)>,
    /// Warning for clients that create an object.
    pub(crate) warning: Option<String>,
    /// Columns of tables for people.
    pub(crate) columns: Vec<Column>,
}

/// Model by which bodies of a resource are parsed.
#[derive(Debug, Default)]
pub(crate) enum Model {
    /// A type of Kubernetes: unknown fields are dropped, wrong types are rejected.
    Typed(TypedModel),
    /// Stored unchanged: nothing here acts on it.
    #[default]
    Untyped,
    /// A custom resource with its schema.
    Custom,
    /// Usage of pods; read-only.
    Measured,
    /// A query that is answered and not stored, such as a TokenReview.
    Review,
}

/// A Kubernetes type as the model of a resource.
#[derive(Debug)]
pub(crate) struct TypedModel {
    pub(crate) name: String,
    pub(crate) describe: Describe,
    /// Schemas of all built-in kinds.
    pub(crate) schemas: Arc<TypeSchemas>,
}

/// A resource of the server.
#[derive(Debug, Default)]
pub(crate) struct Resource {
    /// API group; empty for core.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    /// Name in paths.
    pub(crate) plural: String,
    /// Name for people.
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    /// Categories, such as `all`, with which it is listed.
    pub(crate) categories: Vec<String>,
    /// True if its objects are in namespaces.
    pub(crate) namespaced: bool,
    /// Table of the store for its objects.
    pub(crate) table: Arc<str>,
    pub(crate) model: Model,
    /// Schema of a definition, or, for a built-in kind, defaults and rules in addition to its type.
    pub(crate) schema: Value,
    pub(crate) rules: Rules,
}

impl Resource {
    /// Returns `group/version`, or the version alone for core.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns `plural.group`, the name in messages.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.model, Model::Custom)
    }

    /// Returns the key of an object in its table.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_string() }
    }

    /// Returns the prefix of the keys in a namespace. It is empty for all keys.
    pub(crate) fn prefix(&self, namespace: &str) -> String {
        if self.namespaced && !namespace.is_empty() { format!("{namespace}/") } else { String::new() }
    }

    /// Returns an object with `apiVersion` and `kind`, as clients see it.
    pub(crate) fn full(&self, stored: &Value) -> Value {
        let mut value = stored.clone();
        value["apiVersion"] = self.api_version().into();
        value["kind"] = self.kind.clone().into();
        value
    }

    /// Returns the verbs of the resource itself.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        match (&self.model, self.rules.deleted_singly) {
            (Model::Review, _) => vec!["create"],
            (Model::Measured, _) => vec!["get", "list"],
            (_, false) => vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            (_, true) => vec!["create", "delete", "get", "list", "patch", "update", "watch"],
        }
    }

    /// Returns the subresources: name; group, version and kind of their objects; and verbs.
    pub(crate) fn subresources(&self) -> Vec<(&str, &str, &str, &str, Vec<&str>)> {
        let write = || vec!["get", "patch", "update"];
        let mut all = Vec::new();
        if self.rules.scale.is_some() {
            all.push(("scale", "autoscaling", "v1", "Scale", write()));
        }
        if self.rules.status {
            all.push(("status", self.group.as_str(), self.version.as_str(), self.kind.as_str(), write()));
        }
        for (name, kind, verb) in &self.rules.subresources {
            let (group, version) = match kind.as_str() {
                "TokenRequest" => ("authentication.k8s.io", "v1"),
                _ => (self.group.as_str(), self.version.as_str()),
            };
            all.push((name.as_str(), group, version, kind.as_str(), vec![verb.as_str()]));
        }
        all
    }
}

/// Reference to an object by its path. The object may not exist.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    /// Namespace; empty for cluster-scoped objects.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Target<'a> {
    /// Returns the reference to a known object.
    pub(crate) fn new(resource: &'a Arc<Resource>, object: &'a Object) -> Self {
        let (namespace, name) = (object.text("/metadata/namespace"), object.text("/metadata/name"));
        Target { resource, namespace, name }
    }

    pub(crate) fn key(&self) -> String {
        self.resource.key(self.namespace, self.name)
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(self.resource, self.name)
    }

    pub(crate) fn conflict(&self, why: &str) -> ApiError {
        ApiError::conflict(self.resource, self.name, why)
    }
}

/// All resources, by group, version and plural.
#[derive(Debug, Default, Clone)]
pub(crate) struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    pub(crate) fn insert(&mut self, resource: Arc<Resource>) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, resource);
    }

    /// Removes the resources of a table, in all versions.
    pub(crate) fn remove_table(&mut self, table: &str) {
        self.resources.retain(|_, resource| &*resource.table != table);
    }

    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources.get(&(group.to_string(), version.to_string(), plural.to_string())).cloned()
    }

    /// Returns the resource that stores its objects in this table.
    pub(crate) fn by_table(&self, table: &str) -> Option<Arc<Resource>> {
        self.resources.values().find(|resource| &*resource.table == table).cloned()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Returns the resources of a version of a group.
    pub(crate) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.all().filter(move |resource| resource.group == group && resource.version == version)
    }

    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.all().any(|resource| resource.group == group)
    }

    /// Returns the versions of a group, with the preferred one first.
    pub(crate) fn versions(&self, group: &str) -> Vec<&str> {
        let of_group = self.all().filter(|resource| resource.group == group);
        let mut versions: Vec<&str> = of_group.map(|resource| resource.version.as_str()).collect();
        versions.dedup();
        versions.sort_by_cached_key(|version| Reverse(Version::parse(version).priority()));
        versions
    }

    /// Returns all groups except core.
    pub(crate) fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = self.all().map(|resource| resource.group.clone()).collect();
        groups.dedup();
        groups.retain(|group| !group.is_empty());
        groups
    }
}
