//! Label and field selectors: the text of a query, and whether an object is meant. Labels match as everywhere
//! ([`common::labels`]); the text is read by rules of its own.

use common::labels::Test;
use serde_json::Value;

use super::fields::same_text;
use super::meta::{label_value, qualified};
use super::resource::Resource;
use super::status::{ApiError, Result};

/// What a list or a watch is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<(String, Test)>,
    fields: Vec<(String, bool, String)>,
}

impl Selector {
    /// Reads both selectors of a query; empty texts select everything.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self> {
        let labels = parse_labels(labels)
            .map_err(|rule| ApiError::bad_request(format!("unable to parse label selector \"{labels}\": {rule}")))?;
        let fields = parse_fields(resource, fields)?;
        Ok(Selector { labels, fields })
    }

    /// Adds a condition on the name.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.fields.push(("/metadata/name".into(), true, name.into()));
        self
    }

    /// Whether everything is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object, in its stored form, is meant.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.labels.iter().all(|(key, test)| {
            let value = labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
            test.holds(value)
        }) && self.fields.iter().all(|(pointer, equal, wanted)| {
            let same = match object.pointer(pointer) {
                None | Some(Value::Null) => wanted.is_empty(),
                Some(found) => same_text(found, wanted),
            };
            same == *equal
        })
    }
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<(String, bool, String)>> {
    let mut fields = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (field, equal, value) = match (term.split_once("!="), term.split_once("=="), term.split_once('=')) {
            (Some((field, value)), _, _) => (field, false, value),
            (_, Some((field, value)), _) | (_, _, Some((field, value))) => (field, true, value),
            _ => return Err(ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'"))),
        };
        let known = field == "metadata.name"
            || (field == "metadata.namespace" && resource.namespaced)
            || resource.rules.fields.contains(&field)
            || resource.custom().is_some_and(|model| model.selectable.iter().any(|known| known == field));
        if !known {
            return Err(ApiError::bad_request(format!("field label not supported: {field}")));
        }
        fields.push((format!("/{}", field.replace('.', "/")), equal, value.to_string()));
    }
    Ok(fields)
}

/// A list of requirements: `a=b`, `a!=b`, `a in (x,y)`, `a notin (x)`, `a`, `!a`, `a>1`, `a<1`.
fn parse_labels(text: &str) -> std::result::Result<Vec<(String, Test)>, String> {
    let mut rest = text.trim();
    let mut terms = Vec::new();
    while !rest.is_empty() {
        let (term, after) = split_term(rest);
        terms.push(parse_label(term.trim())?);
        rest = after;
    }
    Ok(terms)
}

/// Splits at the first comma that is outside parentheses.
fn split_term(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn parse_label(term: &str) -> std::result::Result<(String, Test), String> {
    let key = |key: &str| {
        let key = key.trim();
        qualified(key).then(|| key.to_string()).ok_or_else(|| format!("'{key}' is not a label key"))
    };
    let value = |value: &str| {
        let value = value.trim();
        label_value(value).then(|| value.to_string()).ok_or_else(|| format!("'{value}' is not a label value"))
    };
    if let Some(absent) = term.strip_prefix('!') {
        return Ok((key(absent)?, Test::Absent));
    }
    if let Some(open) = term.find('(') {
        let Some(list) = term[open + 1..].strip_suffix(')') else { return Err(format!("'{term}': ')' expected")) };
        let mut words = term[..open].split_whitespace();
        let (Some(name), Some(operator), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!("'{term}': 'key in (…)' or 'key notin (…)' expected"));
        };
        let values = list.split(',').map(value).collect::<std::result::Result<_, _>>()?;
        return match operator {
            "in" => Ok((key(name)?, Test::In(values))),
            "notin" => Ok((key(name)?, Test::NotIn(values))),
            other => Err(format!("'{other}' is not a valid operator")),
        };
    }
    for (sign, build) in [
        ("!=", (|v| Test::NotIn([v].into())) as fn(String) -> Test),
        ("==", |v| Test::In([v].into())),
        ("=", |v| Test::In([v].into())),
    ] {
        if let Some((name, wanted)) = term.split_once(sign) {
            return Ok((key(name)?, build(value(wanted)?)));
        }
    }
    for (sign, build) in [('>', Test::Above as fn(i64) -> Test), ('<', Test::Below)] {
        if let Some((name, bound)) = term.split_once(sign) {
            let bound = bound.trim().parse().map_err(|_| format!("'{bound}' is not a whole number"))?;
            return Ok((key(name)?, build(bound)));
        }
    }
    Ok((key(term)?, Test::Exists))
}

/// A `LabelSelector` object as text, as scale subresources give it.
pub(crate) fn to_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_string();
    }
    let mut terms = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        terms.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_string(),
        });
    }
    terms.join(",")
}
