//! JSON merge patches (RFC 7396) computed from two states of an object.

use serde_json::{Map, Value};

/// Returns the patch from `old` to `new`, or `None` if they are equal. Arrays are replaced as a whole. An empty array
/// or object equals an absent one, since servers do not distinguish them.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old_fields), Value::Object(new_fields)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (name, new) in new_fields {
        match old_fields.get(name) {
            Some(old) => {
                if let Some(changed) = merge_patch(old, new) {
                    patch.insert(name.clone(), changed);
                }
            }
            None if is_empty(new) => {}
            None => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    for (name, _) in old_fields.iter().filter(|(name, old)| !new_fields.contains_key(*name) && !is_empty(old)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_contains_only_the_differences() {
        let rows = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null}))),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 1, "y": 3}}), Some(json!({"a": {"y": 3}}))),
            (json!({"l": [1, 2]}), json!({"l": [2]}), Some(json!({"l": [2]}))),
            (json!({}), json!({"n": {"m": 1}}), Some(json!({"n": {"m": 1}}))),
            (json!({"n": {"m": 1}}), json!({"n": {}}), Some(json!({"n": {"m": null}}))),
        ];
        assert_eq!(merge_patch(&json!({"a": []}), &json!({"b": {}})), None, "empty is absent");
        for (old, new, expected) in rows {
            assert_eq!(merge_patch(&old, &new), expected, "{old} to {new}");
            let mut merged = old.clone();
            json_patch::merge(&mut merged, &expected.unwrap_or_else(|| json!({})));
            assert_eq!(merged, new, "merging the patch gives the new state");
        }
    }
}
