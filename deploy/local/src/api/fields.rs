//! Reading and writing fields of a JSON value, where what is absent is empty.

use serde_json::{Map, Value};

/// A text field by JSON pointer, or the empty string.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a value, as people write it, is this text.
pub(crate) fn same_text(value: &Value, text: &str) -> bool {
    let shown = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    shown == text
}

/// A whole number by JSON pointer.
pub(crate) fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

/// The value as a map; anything else becomes an empty one.
pub(crate) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("just made a map"),
    }
}

/// A child map, made if it is not there.
pub(crate) fn child<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    object(map.entry(key).or_insert_with(|| Value::Object(Map::new())))
}

/// Sets a field that is absent or null.
pub(crate) fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let slot = map.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value.into();
    }
}

/// The entries of a map by JSON pointer.
pub(crate) fn entries<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}
