//! Published Kubernetes types as schemas, by which bodies of built-in kinds are parsed.
//!
//! Unknown fields are dropped and reported. Values of a wrong type are rejected. Quantities and times are normalized.
//! Absent fields stay absent; `builtin/rules.yaml` lists the required ones.
//!
//! Edge case: a schema without a description of its content (`FieldsV1`, a default in a definition) accepts anything.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpa_core::quantity::{NotAQuantity, Quantity};
use jiff::Timestamp;
use k8s_openapi::schemars::generate::SchemaSettings;
use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// Function that adds the schema of a type and returns its name.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Cow<'static, str>;

/// Implements [`Describe`] for a type.
pub(crate) fn describe<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Cow<'static, str> {
    schemas.subschema_for::<T>();
    T::schema_name()
}

/// Schemas by type name.
#[derive(Debug)]
pub(crate) struct TypeSchemas(Map<String, Value>);

impl TypeSchemas {
    /// Builds the schemas of these types and of all types in them.
    pub(crate) fn from_types(types: impl Iterator<Item = Describe>) -> Self {
        let mut generator = SchemaSettings::openapi3().into_generator();
        types.for_each(|describe| drop(describe(&mut generator)));
        TypeSchemas(generator.take_definitions(true))
    }

    /// Parses `value` as type `name`, and adds the paths of unknown fields to `unknown`. Fails if a value has a wrong
    /// type; the text has its path.
    pub(crate) fn read(&self, name: &str, value: &mut Value, unknown: &mut Vec<String>) -> Result<(), String> {
        let root = self.0.get(name).ok_or_else(|| format!("no type {name}"))?;
        self.read_at(value, root, "", unknown)
    }

    /// Returns the type name of a node, if it has one, and its schema.
    fn resolve<'a>(&'a self, node: &'a Value) -> (&'a str, &'a Value) {
        // If the node has a description, the reference is in `allOf`.
        let reference = node.get("$ref").or_else(|| node.pointer("/allOf/0/$ref")).and_then(Value::as_str);
        let name = reference.and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
        (name, self.0.get(name).unwrap_or(node))
    }

    fn read_at(&self, value: &mut Value, node: &Value, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
        let (name, node) = self.resolve(node);
        let refuse = |what: &str, value: &Value| Err(format!("{path}: {value} is not {what}"));
        match (name.rsplit('.').next().unwrap_or_default(), &*value) {
            ("Quantity", Value::String(_) | Value::Number(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let quantity: Quantity = text.parse().map_err(|error: NotAQuantity| format!("{path}: {error}"))?;
                *value = quantity.to_string().into();
                return Ok(());
            }
            ("Time" | "MicroTime", Value::String(text)) => {
                let Ok(time) = text.parse::<Timestamp>() else { return refuse("a time", value) };
                let format = if name.ends_with("MicroTime") { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
                *value = time.strftime(format).to_string().into();
                return Ok(());
            }
            _ => {}
        }
        if node["x-kubernetes-int-or-string"] == true {
            let fits = value.is_string() || value.is_i64();
            return if fits { Ok(()) } else { refuse("a whole number or a string", value) };
        }
        let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let (named, others) = (node["properties"].as_object(), node.get("additionalProperties"));
        match (node["type"].as_str(), &mut *value) {
            (None, _) => Ok(()),
            (Some("object"), _) if named.is_none() && others.is_none() => Ok(()),
            (Some("object"), Value::Object(fields)) => {
                let mut gone = Vec::new();
                for (key, value) in fields.iter_mut() {
                    match named.and_then(|named| named.get(key)).or(others) {
                        _ if value.is_null() => gone.push(key.clone()),
                        Some(node) => self.read_at(value, node, &at(key), unknown)?,
                        None => {
                            unknown.push(at(key));
                            gone.push(key.clone());
                        }
                    }
                }
                gone.iter().for_each(|key| drop(fields.remove(key)));
                Ok(())
            }
            (Some("array"), Value::Array(items)) => items
                .iter_mut()
                .enumerate()
                .try_for_each(|(index, item)| self.read_at(item, &node["items"], &format!("{path}[{index}]"), unknown)),
            (Some("string"), Value::String(text)) => match node["format"].as_str() {
                Some("byte") if STANDARD.decode(&*text).is_err() => refuse("text in base 64", value),
                _ => Ok(()),
            },
            (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) => Ok(()),
            (Some("integer"), Value::Number(number)) => {
                let fits = |number: i64| node["format"] != "int32" || i32::try_from(number).is_ok();
                if number.as_i64().is_some_and(fits) { Ok(()) } else { refuse("a whole number in range", value) }
            }
            (Some(kind), _) => refuse(&format!("of type {kind}"), value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use serde_json::json;

    const DEFINITION: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

    fn read(name: &str, mut value: Value) -> Result<(Value, Vec<String>), String> {
        let all: [Describe; 4] =
            [describe::<Pod>, describe::<Secret>, describe::<Lease>, describe::<CustomResourceDefinition>];
        let mut unknown = Vec::new();
        TypeSchemas::from_types(all.into_iter()).read(name, &mut value, &mut unknown)?;
        Ok((value, unknown))
    }

    /// Goal: unknown fields and nulls are dropped at any depth, values are normalized, and content without a schema
    /// stays unchanged.
    #[test]
    fn bodies_are_parsed_by_their_types() {
        let limits =
            |cpu: Value| json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": cpu}}}]}});
        let owned = json!({"metadata": {"managedFields": [{"fieldsV1": {"f:a": {}}}], "labels": {"a": "b"}}});
        let rows = [
            (limits(json!(0.5)), limits(json!("500m")), vec![]),
            (limits(json!("1000m")), limits(json!("1")), vec![]),
            (json!({"spec": {"nope": 1, "hostname": null}}), json!({"spec": {}}), vec!["spec.nope"]),
            (
                json!({"spec": {"containers": [{"nope": {}, "ports": [{"containerPort": 1, "b": 2}]}]}}),
                json!({"spec": {"containers": [{"ports": [{"containerPort": 1}]}]}}),
                vec!["spec.containers[0].nope", "spec.containers[0].ports[0].b"],
            ),
            (owned.clone(), owned, vec![]),
        ];
        for (given, expected, unknown) in rows {
            let read = read("io.k8s.api.core.v1.Pod", given.clone()).expect("a Pod");
            let mut found: Vec<_> = read.1.iter().map(String::as_str).collect();
            found.sort_unstable();
            assert_eq!((read.0, found), (expected, unknown), "{given}");
        }
        let default = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"default": "red", "nope": 1}}}]}});
        let (definition, unknown) = read(DEFINITION, default).expect("a definition");
        assert_eq!(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], json!({"default": "red"}));
        assert_eq!(unknown, ["spec.versions[0].schema.openAPIV3Schema.nope"]);
        let renewed = json!({"spec": {"renewTime": "2026-01-02T03:04:05+01:00"}});
        let lease = read("io.k8s.api.coordination.v1.Lease", renewed).expect("a Lease").0;
        assert_eq!(lease["spec"]["renewTime"], "2026-01-02T02:04:05.000000Z");
    }

    #[test]
    fn values_of_wrong_types_are_rejected_by_path() {
        for (name, body, words) in [
            ("Pod", json!({"spec": {"containers": {}}}), "spec.containers"),
            ("Pod", json!({"spec": {"containers": [{"name": 1}]}}), "spec.containers[0].name"),
            ("Pod", json!({"spec": {"priority": 1_u64 << 40}}), "spec.priority"),
            ("Pod", json!({"spec": {"hostNetwork": "true"}}), "spec.hostNetwork"),
            ("Pod", json!({"metadata": {"labels": {"a": 1}}}), "metadata.labels.a"),
            ("Pod", json!({"metadata": {"creationTimestamp": "soon"}}), "metadata.creationTimestamp"),
            ("Pod", json!({"spec": {"overhead": {"cpu": "much"}}}), "spec.overhead.cpu"),
            ("Secret", json!({"data": {"a": "?"}}), "data.a"),
        ] {
            let error = read(&format!("io.k8s.api.core.v1.{name}"), body).expect_err(words);
            assert!(error.starts_with(words), "{error}");
        }
    }
}
