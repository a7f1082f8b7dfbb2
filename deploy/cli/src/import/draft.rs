//! A ZeroScaler as it is put together.

use super::source::Source;
use serde_json::{Map, Value, json};

/// A ZeroScaler that is not complete yet.
pub(super) struct Draft {
    metadata: Value,
    spec: Value,
}

impl Draft {
    /// One of this name for a target; its namespace is the source's.
    pub(super) fn new(name: &str, namespace: Option<&str>, target: Value) -> Self {
        let mut metadata = json!({"name": name});
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        Self { metadata, spec: json!({"target": target}) }
    }

    /// Sets a field of the spec, such as `scale.load.rps`.
    pub(super) fn set(&mut self, path: &str, value: impl Into<Value>) {
        let mut at = &mut self.spec;
        for step in path.split('.') {
            if !at.is_object() {
                *at = Map::new().into();
            }
            at = &mut at[step];
        }
        *at = value.into();
    }

    /// Sets a field, if there is a value.
    pub(super) fn set_some(&mut self, path: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(path, value);
        }
    }

    /// A text of the spec that has been set.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        self.look(path)?.as_str().map(str::to_owned)
    }

    /// A whole number of the spec that has been set.
    pub(super) fn whole(&self, path: &str) -> Option<i64> {
        self.look(path)?.as_i64()
    }

    fn look(&self, path: &str) -> Option<&Value> {
        self.spec.pointer(&format!("/{}", path.replace('.', "/")))
    }

    /// Takes a duration over, of which 0 means no limit there. `timeouts` have no limit by default; any other `path` has to
    /// be more than 0.
    pub(super) fn duration(&mut self, path: &str, from: &mut Source, pointer: &str) {
        match from.text(pointer) {
            None => {}
            Some(zero) if ["0s", "0"].contains(&zero.as_str()) && path.starts_with("timeouts.") => {}
            Some(zero) if zero == "0s" || zero == "0" => {
                from.note(pointer, format!("without a bound; spec.{path} must be more than 0"));
            }
            Some(duration) => self.set(path, duration),
        }
    }

    /// The object.
    pub(super) fn finish(self) -> Value {
        json!({
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": self.metadata, "spec": self.spec,
        })
    }
}
