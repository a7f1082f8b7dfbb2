//! ZeroScaler under construction.

use super::source::{Source, path};
use json_patch::{AddOperation, PatchOperation, diff};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// API versions of Deployments and StatefulSets: our default, and those of Kubernetes before 1.16.
const BUILT_IN: [&str; 4] = ["apps/v1", "apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"];

/// Translates the workload reference at a pointer. If it has no name, the target's name is `default`, or the source's
/// own name if that is `None`.
pub(super) fn target(from: &mut Source, pointer: &str, default: Option<&str>) -> Value {
    let name = from.text(&format!("{pointer}/name"));
    let name = name.unwrap_or_else(|| default.unwrap_or(&from.name).to_owned());
    let mut target = json!({"kind": "Deployment", "name": name});
    put(&mut target, "kind", from.text(&format!("{pointer}/kind")));
    let version = from.text(&format!("{pointer}/apiVersion"));
    put(&mut target, "apiVersion", version.filter(|version| !BUILT_IN.contains(&version.as_str())));
    target
}

/// Sets a field of an object, such as `scale.load.rps`, unless the value is null or an empty list.
pub(super) fn put(object: &mut Value, path: &str, value: impl Into<Value>) {
    let value = value.into();
    if value.is_null() || value.as_array().is_some_and(Vec::is_empty) {
        return;
    }
    let mut at = object;
    for step in path.split('.') {
        if !at.is_object() {
            *at = Map::new().into();
        }
        at = &mut at[step];
    }
    *at = value;
}

/// Removes fields from a translated object that its type does not have, since an API server would drop or reject them.
/// Adds a note for each.
pub(super) fn prune<T: DeserializeOwned + Serialize>(object: &mut Value, notes: &mut Vec<(String, String)>) {
    let Ok(typed) = serde_json::from_value::<T>(object.clone()).and_then(serde_json::to_value) else { return };
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let mut surplus = Vec::new();
    for operation in diff(&typed, object).0 {
        if let PatchOperation::Add(AddOperation { path: at, value }) = operation
            && !is_omittable(&value)
        {
            notes.push((format!("{kind}.{}", path(at.as_str())), format!("a {kind} has no such field: {value}")));
            surplus.push(at);
        }
    }
    for at in surplus.iter().rev() {
        let _ = at.delete(object); // The path exists.
    }
}

/// Reports whether a value may be omitted when its type is serialized.
fn is_omittable(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_omittable),
        Value::Bool(true) => false,
    }
}

/// Incomplete ZeroScaler.
pub(super) struct Draft {
    metadata: Value,
    pub(super) spec: Value,
}

impl Draft {
    /// Starts a ZeroScaler for a target, with name and namespace of the source.
    pub(super) fn new(from: &Source, target: Value) -> Self {
        let mut metadata = json!({"name": from.name});
        put(&mut metadata, "namespace", from.namespace.clone());
        Self { metadata, spec: json!({"target": target}) }
    }

    /// Copies labels and annotations, except those of tools.
    pub(super) fn metadata(&mut self, from: &mut Source) {
        for field in ["labels", "annotations"] {
            put(&mut self.metadata, field, from.take_metadata(&format!("/metadata/{field}")));
        }
    }

    /// Translates the maximum number of pods. 0 means no pods in the source, but no limit here.
    pub(super) fn max(&mut self, from: &mut Source, pointer: &str, default: Option<u32>) {
        let mut max = from.number(pointer);
        if max == Some(json!(0)) {
            self.set("paused", true);
            let why = "0 would mean no limit here: the ZeroScaler is paused, with scale.max 1; scale the target to 0";
            from.note(pointer, why);
            max = Some(json!(1));
        }
        self.set("scale.max", max.or(default.map(Value::from)));
    }

    /// Sets a field of the spec, unless the value is null or an empty list.
    pub(super) fn set(&mut self, path: &str, value: impl Into<Value>) {
        put(&mut self.spec, path, value);
    }

    /// Translates a duration. 0 means no limit in the source. Here `timeouts` have no limit by default, and any other
    /// `path` must be more than 0.
    pub(super) fn duration(&mut self, path: &str, from: &mut Source, pointer: &str) {
        match from.text(pointer) {
            Some(zero) if zero == "0s" || zero == "0" => {
                if !path.starts_with("timeouts.") {
                    from.note(pointer, format!("0 means no limit, but spec.{path} must be above 0"));
                }
            }
            duration => self.set(path, duration),
        }
    }

    /// Returns the finished object.
    pub(super) fn finish(self) -> Value {
        json!({
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": self.metadata, "spec": self.spec,
        })
    }
}
