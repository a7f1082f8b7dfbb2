//! What the server knows about a resource: its names, and the rules that make it different from the others.
//!
//! All verbs are generic; a resource is one [`Resource`] value. Built-ins come from the table in `builtin`, custom
//! ones from CustomResourceDefinitions (`crd`). The [`Registry`] is replaced as a whole when a definition changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::causes::Causes;
use super::columns::Column;
use super::custom::CustomModel;
use super::fields::object;
use super::schema::Patterns;
use super::types::{Describe, TypeSchemas};

/// Which rule a name follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum NameRule {
    /// A DNS subdomain, at most 253 characters.
    #[default]
    Subdomain,
    /// A DNS label, at most 63 characters.
    Label,
    /// Anything that can stand in a path.
    PathSegment,
}

/// Which changes `metadata.generation` counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Generation {
    /// The resource has no generation.
    #[default]
    Never,
    /// All but metadata and, where it is a subresource, status.
    Spec,
    /// As [`Generation::Spec`], and annotations.
    SpecAndAnnotations,
    /// All but what the server owns: labels count too.
    Any,
}

/// Where a scale subresource finds its numbers: JSON pointers into the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// The wanted number of replicas.
    pub(crate) spec: String,
    /// The actual number of replicas.
    pub(crate) status: String,
    /// A label selector as an object, or as text.
    pub(crate) selector: Option<String>,
}

/// How a resource differs from a plain one.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rules {
    pub(crate) name: NameRule,
    pub(crate) generation: Generation,
    /// Whether status is a subresource.
    pub(crate) status: bool,
    /// Whether there is a scale subresource at the usual paths.
    pub(crate) scale: bool,
    /// Whether a PUT must have a version.
    pub(crate) versioned_update: bool,
    /// Whether PUT makes what is not there.
    pub(crate) create_on_update: bool,
    /// Whether DELETE answers with the object in place of a Status.
    pub(crate) returns_deleted: bool,
    /// Whether collections cannot be deleted.
    pub(crate) deleted_singly: bool,
    /// Fields that selectors may use beside name and namespace.
    pub(crate) fields: Vec<String>,
    /// Further subresources: name, kind, verb.
    pub(crate) subresources: Vec<(String, String, String)>,
    /// What the maker of an object should know of it.
    pub(crate) warning: Option<String>,
    /// Columns for people.
    pub(crate) columns: Vec<Column>,
    #[serde(skip)]
    pub(crate) hooks: Hooks,
}

/// Rules of a resource that depend on several of its fields. The second argument is the stored object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hooks {
    /// Fills in defaults.
    pub(crate) prepare: fn(&mut Value, Option<&Value>),
    /// Finds what is wrong.
    pub(crate) validate: fn(&Value, Option<&Value>, &mut Causes),
}

impl Default for Hooks {
    fn default() -> Self {
        Hooks { prepare: |_, _| {}, validate: |_, _, _| {} }
    }
}

/// A question that is answered and never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Review {
    /// TokenReview: whose token is this?
    Token,
    /// SelfSubjectReview: who am I?
    SelfSubject,
    /// SelfSubjectAccessReview: may I?
    SelfSubjectAccess,
    /// SubjectAccessReview: may somebody else?
    SubjectAccess,
}

/// How bodies of a resource are read.
#[derive(Debug)]
pub(crate) enum Model {
    /// A type of Kubernetes: unknown fields go, wrong types are refused.
    Typed(TypedModel),
    /// Kept as it comes: nothing here acts on it.
    Kept,
    /// A custom resource with its schema.
    Custom(CustomModel),
    /// What pods use; read alone.
    Measured,
    Review(Review),
}

/// A type of Kubernetes as the model of a resource.
#[derive(Debug)]
pub(crate) struct TypedModel {
    pub(crate) name: String,
    pub(crate) describe: Describe,
    /// Those of all built-in kinds.
    pub(crate) schemas: Arc<TypeSchemas>,
    /// Fields that have another name in the store, where the objects of another resource are: there and here.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
}

/// A resource that the server serves.
#[derive(Debug)]
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
    /// Groups of resources that it is listed with, like `all`.
    pub(crate) categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
    /// The table of the store that holds its objects.
    pub(crate) table: Arc<str>,
    pub(crate) model: Model,
    /// The schema of a definition, or what the type of a built-in leaves open: defaults and rules.
    pub(crate) schema: Value,
    pub(crate) patterns: Patterns,
    /// How it differs from a plain resource.
    pub(crate) rules: Rules,
    pub(crate) scale: Option<ScalePaths>,
}

impl Resource {
    /// `group/version`, or `v1` for core.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural.group`, as messages name it.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether it comes from a definition.
    pub(crate) fn custom(&self) -> Option<&CustomModel> {
        match &self.model {
            Model::Custom(model) => Some(model),
            _ => None,
        }
    }

    /// The key of an object in its table.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_string() }
    }

    /// The prefix of keys in a namespace; of all keys where there is none.
    pub(crate) fn prefix(&self, namespace: &str) -> String {
        if self.namespaced && !namespace.is_empty() { format!("{namespace}/") } else { String::new() }
    }

    /// A stored object with its `apiVersion` and `kind`, as a client sees it.
    pub(crate) fn full(&self, stored: &Value) -> Value {
        debug_assert!(!matches!(self.model, Model::Review(_)), "reviews are not stored");
        let mut value = self.present(stored);
        value["apiVersion"] = self.api_version().into();
        value["kind"] = self.kind.clone().into();
        value
    }

    /// The stored form of a value as this resource shows it.
    pub(crate) fn present(&self, value: &Value) -> Value {
        let mut value = value.clone();
        for (here, stored) in self.renamed() {
            rename(&mut value, stored, here);
        }
        value
    }

    /// A value as it is stored, from the form that this resource shows.
    pub(crate) fn stored(&self, mut value: Value) -> Value {
        for (here, stored) in self.renamed() {
            rename(&mut value, here, stored);
        }
        value
    }

    /// Whether objects are stored as those of another resource.
    pub(crate) fn is_converted(&self) -> bool {
        !self.renamed().is_empty()
    }

    fn renamed(&self) -> &'static [(&'static str, &'static str)] {
        if let Model::Typed(model) = &self.model { model.renamed } else { &[] }
    }

    /// The verbs of the resource itself.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        match (&self.model, self.rules.deleted_singly) {
            (Model::Review(_), _) => vec!["create"],
            (Model::Measured, _) => vec!["get", "list"],
            (_, false) => vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            (_, true) => vec!["create", "delete", "get", "list", "patch", "update", "watch"],
        }
    }

    /// Its subresources: name, group, version and kind of what they take, and verbs.
    pub(crate) fn subresources(&self) -> Vec<(&str, &str, &str, &str, Vec<&str>)> {
        let write = || vec!["get", "patch", "update"];
        let mut all = Vec::new();
        if self.scale.is_some() {
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

fn rename(value: &mut Value, from: &str, to: &str) {
    let fields = object(value);
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

/// All resources, by group, version and plural.
#[derive(Debug, Default, Clone)]
pub(crate) struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    /// Adds or replaces a resource.
    pub(crate) fn insert(&mut self, resource: Arc<Resource>) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, resource);
    }

    /// Removes what is stored in a table, in all its versions.
    pub(crate) fn remove_table(&mut self, table: &str) {
        self.resources.retain(|_, resource| &*resource.table != table);
    }

    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources.get(&(group.to_string(), version.to_string(), plural.to_string())).cloned()
    }

    /// A resource that stores its objects in this table.
    pub(crate) fn by_table(&self, table: &str) -> Option<Arc<Resource>> {
        self.resources.values().find(|resource| &*resource.table == table && !resource.is_converted()).cloned()
    }

    /// All resources, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Those of one version of a group.
    pub(crate) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.all().filter(move |resource| resource.group == group && resource.version == version)
    }

    /// The versions of a group, the preferred one first.
    pub(crate) fn versions(&self, group: &str) -> Vec<String> {
        let mut versions: Vec<String> =
            self.all().filter(|resource| resource.group == group).map(|resource| resource.version.clone()).collect();
        versions.dedup();
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
        versions.dedup();
        versions
    }

    /// The groups other than core.
    pub(crate) fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = self.all().map(|resource| resource.group.clone()).collect();
        groups.dedup();
        groups.retain(|group| !group.is_empty());
        groups
    }
}

/// Stable before beta before alpha, then by numbers.
fn rank(version: &str) -> (u8, u64, u64) {
    let rest = version.strip_prefix('v').unwrap_or(version);
    for (stage, word) in [(1, "alpha"), (2, "beta")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return (stage, major.parse().unwrap_or(0), minor.parse().unwrap_or(0));
        }
    }
    rest.parse().map_or((0, 0, 0), |major| (3, major, 0))
}
