//! Manifest from which translation takes fields. The remaining fields have no equivalent.

use common::golang::parse_bool;
use serde_json::{Map, Number, Value, json};

/// Metadata that a server or a client maintains for itself.
const BOOKKEEPING: [&str; 12] = [
    "/metadata/annotations/autoscaling.alpha.kubernetes.io~1conditions",
    "/metadata/annotations/autoscaling.alpha.kubernetes.io~1current-metrics",
    "/metadata/annotations/deployment.kubernetes.io~1revision",
    "/metadata/resourceVersion",
    "/metadata/uid",
    "/metadata/generation",
    "/metadata/creationTimestamp",
    "/metadata/managedFields",
    "/metadata/selfLink",
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
    "/metadata/annotations/serving.knative.dev~1creator",
    "/metadata/annotations/serving.knative.dev~1lastModifier",
];

/// Domains of labels and annotations that belong to tools and describe the source object only.
const OF_TOOLS: [&str; 6] =
    ["keda.sh", "knative.dev", "helm.sh", "argoproj.io", "fluxcd.io", "autoscaling.alpha.kubernetes.io"];

/// One manifest.
pub(super) struct Source {
    /// Name of the object.
    pub(super) name: String,
    /// Namespace of the object, if it names one.
    pub(super) namespace: Option<String>,
    rest: Value,
    notes: Vec<(String, String)>,
}

impl Source {
    pub(super) fn new(mut value: Value) -> Self {
        if let Some(fields) = value.as_object_mut() {
            for field in ["apiVersion", "kind", "status"] {
                fields.remove(field);
            }
        }
        let mut source = Self { name: String::new(), namespace: None, rest: value, notes: Vec::new() };
        for pointer in BOOKKEEPING {
            source.take(pointer);
        }
        source.name = source.text("/metadata/name").unwrap_or_default();
        source.namespace = source.text("/metadata/namespace");
        source
    }

    /// Takes out the value at a JSON pointer.
    pub(super) fn take(&mut self, pointer: &str) -> Option<Value> {
        let (parent, key) = pointer.rsplit_once('/')?;
        let key = key.replace("~1", "/").replace("~0", "~");
        match self.rest.pointer_mut(parent)? {
            Value::Object(fields) => fields.remove(&key),
            Value::Array(items) => {
                let index = key.parse::<usize>().ok().filter(|index| *index < items.len())?;
                Some(std::mem::take(&mut items[index]))
            }
            _ => None,
        }
        .filter(|value| !value.is_null())
    }

    /// Takes out a text. A number becomes its digits.
    pub(super) fn text(&mut self, pointer: &str) -> Option<String> {
        match self.take(pointer)? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            other => {
                self.note(pointer, format!("{other} is neither a text nor a number"));
                None
            }
        }
    }

    /// Takes out a number, written as a number or as text.
    pub(super) fn number(&mut self, pointer: &str) -> Option<Value> {
        let text = self.text(pointer)?;
        let number = text.parse::<Number>();
        number.map_err(|_| self.note(pointer, format!("{text:?} is not a number"))).map(Value::from).ok()
    }

    /// Keeps only labels and annotations with this prefix. The rest of the object is not translated and needs no notes.
    pub(super) fn keep_metadata(&mut self, prefix: &str) {
        let matching = |at: &str| {
            let all = self.rest.pointer(at).and_then(Value::as_object).cloned().unwrap_or_default();
            all.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect::<Map<_, _>>()
        };
        let (labels, annotations) = (matching("/metadata/labels"), matching("/metadata/annotations"));
        self.rest = json!({"metadata": {"labels": labels, "annotations": annotations}});
    }

    /// Takes out the labels or annotations at a pointer, except those of tools. Returns `None` if there are none.
    pub(super) fn take_metadata(&mut self, pointer: &str) -> Option<Map<String, Value>> {
        let all = self.rest.pointer_mut(pointer)?.as_object_mut()?;
        let of_tool = |name: &str| {
            let domain = name.split_once('/').map_or("", |(domain, _)| domain);
            OF_TOOLS.iter().any(|tool| domain.ends_with(tool)) || name == "app.kubernetes.io/managed-by"
        };
        let (left, copied): (_, Map<_, _>) = std::mem::take(all).into_iter().partition(|(name, _)| of_tool(name));
        *all = left;
        Some(copied).filter(|copied| !copied.is_empty())
    }

    /// Takes out a boolean, written as a boolean or as text in a form that Go accepts.
    pub(super) fn switch(&mut self, pointer: &str) -> Option<bool> {
        let text = match self.take(pointer)? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        parse_bool(&text).map_err(|_| self.note(pointer, format!("{text:?} is neither true nor false"))).ok()
    }

    /// Takes out the texts of a list.
    pub(super) fn texts(&mut self, pointer: &str) -> Vec<String> {
        (0..self.count(pointer)).filter_map(|index| self.text(&format!("{pointer}/{index}"))).collect()
    }

    /// Returns the number of items of a list.
    pub(super) fn count(&self, pointer: &str) -> usize {
        self.look(pointer).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Returns a value without taking it out.
    pub(super) fn look(&self, pointer: &str) -> Option<&Value> {
        self.rest.pointer(pointer)
    }

    /// Adds a note about a field that was taken out or needs attention.
    pub(super) fn note(&mut self, pointer: &str, why: impl Into<String>) {
        self.notes.push((path(pointer), why.into()));
    }

    /// Takes out a field that has no equivalent. Adds a note with the reason if the field exists.
    pub(super) fn drop_field(&mut self, pointer: &str, why: &str) {
        if self.take(pointer).is_some() {
            self.note(pointer, why);
        }
    }

    /// Adds the notes of another manifest that is translated with this one. `kind` is its kind.
    pub(super) fn note_all(&mut self, kind: &str, other: Source) {
        self.notes.extend(other.into_notes().into_iter().map(|(field, why)| (format!("{kind}.{field}"), why)));
    }

    /// Returns all notes, and one for every remaining field.
    pub(super) fn into_notes(mut self) -> Vec<(String, String)> {
        note_leaves(&self.rest, "", &mut self.notes);
        self.notes
    }
}

/// Adds a note for each value below the pointer `at`.
fn note_leaves(value: &Value, at: &str, notes: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                note_leaves(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), notes);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                note_leaves(value, &format!("{at}/{index}"), notes);
            }
        }
        Value::Null => {}
        value => notes.push((path(at), format!("{value} has no equivalent"))),
    }
}

/// Formats a JSON pointer for people: `spec.rules[0].hosts`.
pub(super) fn path(pointer: &str) -> String {
    let part = |part: &str| match part.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("[{part}]"),
        false => format!(".{}", part.replace("~1", "/").replace("~0", "~")),
    };
    let path: String = pointer.split('/').skip(1).map(part).collect();
    path.strip_prefix('.').map(str::to_owned).unwrap_or(path)
}
