//! What the server knows about a resource: its names, and the rules that make it different from the others.
//!
//! All verbs are generic; a resource is one [`Resource`] value. Built-ins come from the table in `builtin`, custom
//! ones from CustomResourceDefinitions (`crd`). The [`Registry`] is replaced as a whole when a definition changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::schemars::SchemaGenerator;
use serde_json::Value;

use super::causes::Causes;
use super::custom::CustomModel;
use super::printer::Printer;
use super::schema::Patterns;

/// Which rule a name follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// A DNS subdomain, at most 253 characters.
    Subdomain,
    /// A DNS label, at most 63 characters.
    Label,
    /// Anything that can stand in a path.
    PathSegment,
}

/// Which changes `metadata.generation` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The resource has no generation.
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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) name: NameRule,
    pub(crate) generation: Generation,
    /// Whether status is a subresource.
    pub(crate) status: bool,
    /// Whether there is a scale subresource at the usual paths.
    pub(crate) scale: bool,
    /// Whether PUT without a version is taken.
    pub(crate) unconditional_update: bool,
    /// Whether PUT makes what is not there.
    pub(crate) create_on_update: bool,
    /// Whether DELETE answers with the object in place of a Status.
    pub(crate) returns_deleted: bool,
    /// Whether collections can be deleted.
    pub(crate) delete_collection: bool,
    /// Fields that selectors may use beside name and namespace.
    pub(crate) fields: &'static [&'static str],
    /// Further subresources: name, kind, verbs.
    pub(crate) subresources: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// Fills in defaults; the second argument is the stored object.
    pub(crate) prepare: fn(&mut Value, Option<&Value>),
    /// Finds what is wrong; the second argument is the stored object.
    pub(crate) validate: fn(&Value, Option<&Value>, &mut Causes),
    /// Columns for people.
    pub(crate) printer: Option<&'static Printer>,
}

impl Rules {
    pub(crate) const PLAIN: Rules = Rules {
        name: NameRule::Subdomain,
        generation: Generation::Never,
        status: false,
        scale: false,
        unconditional_update: true,
        create_on_update: false,
        returns_deleted: false,
        delete_collection: true,
        fields: &[],
        subresources: &[],
        prepare: |_, _| {},
        validate: |_, _, _| {},
        printer: None,
    };
}

/// A question that is answered and never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    Typed {
        decode: fn(Value) -> Result<Value, String>,
        /// Adds the type's schema, and says by which name.
        describe: fn(&mut SchemaGenerator) -> String,
    },
    /// As [`Model::Typed`], but stored in the form of another resource.
    Converted {
        /// Reads the form on the wire.
        decode: fn(Value) -> Result<Value, String>,
        /// Adds the schema of that form, and says by which name.
        describe: fn(&mut SchemaGenerator) -> String,
        /// From the wire to the store.
        store: fn(Value) -> Value,
        /// From the store to the wire.
        present: fn(Value) -> Value,
    },
    /// A custom resource with its schema.
    Custom(CustomModel),
    /// What pods use; read alone.
    Measured,
    Review(Review),
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
        match &self.model {
            Model::Converted { present, .. } => present(value.clone()),
            _ => value.clone(),
        }
    }

    /// The verbs of the resource itself.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        match (&self.model, self.rules.delete_collection) {
            (Model::Review(_), _) => vec!["create"],
            (Model::Measured, _) => vec!["get", "list"],
            (_, true) => vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            (_, false) => vec!["create", "delete", "get", "list", "patch", "update", "watch"],
        }
    }

    /// Its subresources: name, group, version and kind of what they take, and verbs.
    pub(crate) fn subresources(&self) -> Vec<(&str, &str, &str, &str, Vec<&'static str>)> {
        let write = || vec!["get", "patch", "update"];
        let mut all = Vec::new();
        if self.scale.is_some() {
            all.push(("scale", "autoscaling", "v1", "Scale", write()));
        }
        if self.rules.status {
            all.push(("status", self.group.as_str(), self.version.as_str(), self.kind.as_str(), write()));
        }
        for (name, kind, verbs) in self.rules.subresources {
            let (group, version) = match *kind {
                "TokenRequest" => ("authentication.k8s.io", "v1"),
                _ => (self.group.as_str(), self.version.as_str()),
            };
            all.push((name, group, version, kind, verbs.to_vec()));
        }
        all
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
        self.resources
            .values()
            .find(|resource| &*resource.table == table && !matches!(resource.model, Model::Converted { .. }))
            .cloned()
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
