//! Compares a response with its expectation.
//!
//! Fields in which servers may differ are removed first: `managedFields` and `selfLink` of metadata, an empty
//! `continue`, and null fields. Arrays match element by element, unless `contains` names them.

use serde_json::Value;

use super::template::Bindings;

/// Strictness of matching a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The body is ignored.
    StatusOnly,
    /// Other fields are allowed.
    Subset,
    /// No other field is allowed, at any depth.
    Exact,
}

/// Expectation, with the rules of comparison.
pub(super) struct Expectation<'a> {
    body: &'a Value,
    mode: Mode,
    /// Arrays that may contain more elements, in any order.
    contains: Vec<String>,
    /// Pointers that must not exist.
    absent: Vec<String>,
}

impl<'a> Expectation<'a> {
    /// Returns the expectation `body`, with the rules in `want`.
    pub(super) fn from_step(want: &Value, body: &'a Value) -> Result<Self, String> {
        let mode = match want["mode"].as_str() {
            Some("status-only") | None => Mode::StatusOnly,
            Some("subset") => Mode::Subset,
            Some("exact") => Mode::Exact,
            Some(other) => return Err(format!("unknown mode {other:?}")),
        };
        let list = |key: &str| {
            let items = want[key].as_array().into_iter().flatten().filter_map(Value::as_str);
            items.map(str::to_string).collect()
        };
        Ok(Expectation { body, mode, contains: list("contains"), absent: list("absent") })
    }

    /// Compares a body and binds placeholders.
    pub(super) fn check(&self, got: &Value, bindings: &mut Bindings) -> Result<(), String> {
        let mut got = got.clone();
        normalize(&mut got, false);
        for pointer in &self.absent {
            if let Some(found) = got.pointer(pointer).filter(|found| !found.is_null()) {
                return Err(format!("{pointer}: wanted nothing, got {found}"));
            }
        }
        if self.mode == Mode::StatusOnly || self.body.is_null() {
            return Ok(());
        }
        self.value("", self.body, &got, bindings)?;
        if self.mode == Mode::Exact { check_list_version(&got) } else { Ok(()) }
    }

    fn value(&self, at: &str, wanted: &Value, got: &Value, bindings: &mut Bindings) -> Result<(), String> {
        match (wanted, got) {
            (Value::String(wanted), got) if wanted == "${any}" => match got {
                Value::Null => Err(format!("{at}: wanted anything, got nothing")),
                _ => Ok(()),
            },
            (Value::Object(wanted), Value::Object(got)) => {
                let mut keys = Vec::new();
                for (key, wanted) in wanted {
                    let key = bindings.fill_text(key)?;
                    let found = got.get(&key).unwrap_or(&Value::Null);
                    self.value(&format!("{at}/{key}"), wanted, found, bindings)?;
                    keys.push(key);
                }
                match got.iter().find(|(key, _)| self.mode == Mode::Exact && !keys.contains(key)) {
                    Some((key, value)) => Err(format!("{at}/{key}: wanted nothing, got {value}")),
                    None => Ok(()),
                }
            }
            (Value::Array(wanted), Value::Array(got)) => {
                if self.contains.iter().any(|pattern| covers(pattern, at)) {
                    return self.check_contained(at, wanted, got, bindings);
                }
                if wanted.len() != got.len() {
                    return Err(format!("{at}: wanted {} elements, got {}: {}", wanted.len(), got.len(), brief(got)));
                }
                let mut pairs = wanted.iter().zip(got).enumerate();
                pairs.try_for_each(|(i, (wanted, got))| self.value(&format!("{at}/{i}"), wanted, got, bindings))
            }
            (Value::String(wanted), Value::String(got)) => {
                bindings.matches(wanted, got).map_err(|why| format!("{at}: {why}"))
            }
            (Value::Number(wanted), Value::Number(got)) if wanted.as_f64() == got.as_f64() => Ok(()),
            (wanted, got) if wanted == got => Ok(()),
            (wanted, got) => Err(format!("{at}: wanted {wanted}, got {got}")),
        }
    }

    /// Checks that each wanted element matches a different element.
    fn check_contained(
        &self,
        at: &str,
        wanted: &[Value],
        got: &[Value],
        bindings: &mut Bindings,
    ) -> Result<(), String> {
        let Some((first, rest)) = wanted.split_first() else { return Ok(()) };
        let mut nearest = format!("{at}: wanted {first}, got an empty list");
        for (index, candidate) in got.iter().enumerate() {
            let mut trial = bindings.clone();
            let others: Vec<Value> =
                got.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, value)| value.clone()).collect();
            let matched = self
                .value(&format!("{at}/{index}"), first, candidate, &mut trial)
                .and_then(|()| self.check_contained(at, rest, &others, &mut trial));
            match matched {
                Ok(()) => {
                    *bindings = trial;
                    return Ok(());
                }
                Err(why) => nearest = format!("{at}: no element matches {first} (last tried: {why})"),
            }
        }
        Err(nearest)
    }
}

/// Returns true if a pattern like `/items/*/verbs` matches this place. Keys may contain slashes, so places are compared
/// as text.
fn covers(pattern: &str, at: &str) -> bool {
    if !pattern.contains('*') {
        return pattern == at;
    }
    let (mut patterns, mut places) = (pattern.split('/'), at.split('/'));
    loop {
        match (patterns.next(), places.next()) {
            (None, None) => return true,
            (Some("*"), Some(place)) if place.parse::<usize>().is_ok() => {}
            (Some(pattern), Some(place)) if pattern == place => {}
            _ => return false,
        }
    }
}

fn normalize(value: &mut Value, metadata: bool) {
    match value {
        Value::Object(fields) => {
            if metadata {
                fields.remove("managedFields");
                fields.remove("selfLink");
                if fields.get("continue").is_some_and(|token| token == "") {
                    fields.remove("continue");
                }
            }
            fields.retain(|_, value| !value.is_null());
            fields.iter_mut().for_each(|(key, value)| normalize(value, key == "metadata"));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| normalize(item, false)),
        _ => {}
    }
}

/// Checks that a list is not older than its items.
fn check_list_version(got: &Value) -> Result<(), String> {
    let version = |value: &Value| value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    let Some(items) = got["items"].as_array() else { return Ok(()) };
    let newest: Option<u64> = items.iter().filter_map(version).max();
    match (version(got), newest) {
        (Some(list), Some(newest)) if list < newest => Err(format!("a list at {list} holds an item at {newest}")),
        _ => Ok(()),
    }
}

fn brief(values: &[Value]) -> String {
    let text = Value::Array(values.to_vec()).to_string();
    if text.len() > 300 { format!("{}…", text.chars().take(300).collect::<String>()) } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(want: Value, got: Value) -> Result<(), String> {
        Expectation::from_step(&want, &want["body"])?.check(&got, &mut Bindings::default())
    }

    #[test]
    fn only_subset_allows_other_fields() {
        let got = json!({"a": 1, "b": {"c": 2, "n": null}, "metadata": {"managedFields": [1], "continue": ""}});
        for (mode, body, absent, matches) in [
            ("exact", json!({"a": 1.0, "b": {"c": 2}, "metadata": {}}), json!([]), true),
            ("exact", json!({"a": 1, "metadata": {}}), json!([]), false),
            ("subset", json!({"a": 1}), json!([]), true),
            ("subset", json!({"a": 2}), json!([]), false),
            ("subset", json!({}), json!(["/b/n"]), true),
            ("subset", json!({}), json!(["/b/c"]), false),
            ("subset", json!({"a": "${any}"}), json!([]), true),
            ("subset", json!({"x": "${any}"}), json!([]), false),
        ] {
            let want = json!({"mode": mode, "body": body, "absent": absent});
            assert_eq!(check(want.clone(), got.clone()).is_ok(), matches, "{want}");
        }
    }

    #[test]
    fn contained_elements_match_different_elements() {
        let want = |body: Value| json!({"mode": "subset", "body": {"l": body}, "contains": ["/l", "/l/*/m"]});
        let got = json!({"l": [{"k": "x", "m": [1, 2, 3]}, {"k": "y", "m": [1]}]});
        assert!(check(want(json!([{"k": "y"}, {"m": [3, 1]}])), got.clone()).is_ok());
        assert!(check(want(json!([{"m": [1]}, {"m": [1]}, {"m": [1]}])), got.clone()).is_err(), "two are present");
        assert!(check(want(json!([{"m": [2]}, {"k": "x"}])), got).is_err(), "both match only the first");
        assert!(covers("/paths//apis/x/parameters", "/paths//apis/x/parameters"));
    }

    #[test]
    fn a_list_must_not_be_older_than_its_items() {
        let list =
            |at: &str| json!({"metadata": {"resourceVersion": at}, "items": [{"metadata": {"resourceVersion": "7"}}]});
        let want = json!({"mode": "exact", "body": {
            "metadata": {"resourceVersion": "${lrv1}"}, "items": [{"metadata": {"resourceVersion": "${rv1}"}}]}});
        assert!(check(want.clone(), list("7")).is_ok());
        assert!(check(want, list("6")).is_err());
    }
}
