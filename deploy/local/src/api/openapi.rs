//! OpenAPI v3: supported operations and fields of resources.
//!
//! kubectl needs two things. Before a write, it looks for a PATCH of the kind with `fieldValidation`; if it exists,
//! kubectl leaves the field check to the server ([`super::query::FieldValidation`]). For `explain`, it needs the schema
//! of the kind. Schemas of built-in kinds are generated from the types that parse bodies; the schema of a custom
//! resource is that of its definition.
//!
//! Each request generates the document again. The `hash` in the list has no meaning, since no header allows clients to
//! cache a document.
//!
//! Limits: there is no OpenAPI v2, for clients older than Kubernetes 1.27. Bodies of requests and responses have no
//! schema, so kubectl merges lists by its built-in types. Lists, reviews and metrics have no schema.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::schemars::SchemaGenerator;
use k8s_openapi::schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::fields::{child, object};
use super::resource::{Model, Registry, Resource};

/// Field of an operation or a schema with the kind.
const KIND: &str = "x-kubernetes-group-version-kind";

/// Returns `/openapi/v3`: the list of documents.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for resource in registry.all() {
        let path = root(resource);
        let url = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// Returns `/openapi/v3/apis/GROUP/VERSION`, or `None` if the version does not exist.
pub(crate) fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let (mut paths, mut customs, mut kinds) = (Map::new(), Map::new(), Vec::new());
    let mut generator = SchemaSettings::openapi3().into_generator();
    for resource in registry.of_version(group, version) {
        let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        add_paths(&mut paths, resource, &kind);
        match &resource.model {
            Model::Typed(model) => kinds.push(((model.describe)(&mut generator), kind)),
            Model::Custom => {
                let schema = custom(&resource.schema, &kind, &mut generator);
                customs.insert(custom_name(resource), schema);
            }
            Model::Untyped | Model::Measured | Model::Review => {}
        }
    }
    if paths.is_empty() {
        return None;
    }
    let mut schemas = generator.take_definitions(true);
    for (name, kind) in kinds {
        if let Some(schema) = schemas.get_mut(&*name) {
            schema[KIND] = json!([kind]);
        }
    }
    schemas.extend(customs);
    let info = json!({"title": "Kubernetes", "version": "v1.36.0"});
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}))
}

fn root(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    }
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, kind: &Value) {
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("/{}{scope}/{}", root(resource), resource.plural);
    for verb in resource.verbs() {
        let (of_one, method, action) = match verb {
            "list" => (false, "get", "list"),
            "create" => (false, "post", "post"),
            "deletecollection" => (false, "delete", "deletecollection"),
            "get" => (true, "get", "get"),
            "update" => (true, "put", "put"),
            "patch" => (true, "patch", "patch"),
            "delete" => (true, "delete", "delete"),
            _ => continue, // A watch is a list with a parameter.
        };
        let names: &[&str] = match method {
            "post" | "put" => &["dryRun", "fieldManager", "fieldValidation"],
            "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
            _ => &[],
        };
        let parameters: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}})).collect();
        let path = if of_one { format!("{collection}/{{name}}") } else { collection.clone() };
        let operation = json!({
            "x-kubernetes-action": action, KIND: kind, "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
        });
        child(paths, &path).insert(method.into(), operation);
    }
}

/// Returns the name of a custom resource's schema: reversed group, version and kind.
fn custom_name(resource: &Resource) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').rev().collect();
    parts.extend([resource.version.as_str(), resource.kind.as_str()]);
    parts.join(".")
}

/// Returns the schema of a definition, with the fields that all objects have.
fn custom(schema: &Value, kind: &Value, generator: &mut SchemaGenerator) -> Value {
    let mut schema = schema.clone();
    let fields = object(&mut schema);
    let properties = child(fields, "properties");
    for (name, description) in
        [("apiVersion", "Group and version of the kind."), ("kind", "The kind of object that this is.")]
    {
        let field = properties.entry(name).or_insert_with(|| json!({"type": "string"}));
        object(field).entry("description").or_insert_with(|| description.into());
    }
    let reference = generator.subschema_for::<ObjectMeta>();
    properties.insert("metadata".into(), json!({"description": "Name, labels and the like.", "allOf": [reference]}));
    fields.insert(KIND.into(), json!([kind]));
    schema
}
