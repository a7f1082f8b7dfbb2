//! Label and field selectors: parses the text of a query and matches objects. Labels are parsed and matched by
//! [`common::labels`].

use common::labels::{self, LabelSelector};
use serde::Deserialize as _;
use serde_json::Value;

use super::fields::display_value;
use super::resource::Resource;
use super::status::{ApiError, Result};

/// Selector of a list or watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: labels::Selector,
    fields: Vec<(String, bool, String)>,
}

impl Selector {
    /// Parses both selectors of a query. Empty texts select everything.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self> {
        let labels = labels::Selector::parse(labels)
            .map_err(|rule| ApiError::bad_request(format!("unable to parse label selector \"{labels}\": {rule}")))?;
        let fields = parse_fields(resource, fields)?;
        Ok(Selector { labels, fields })
    }

    /// Adds a condition on the name.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.fields.push(("/metadata/name".into(), true, name.into()));
        self
    }

    /// Reports whether the selector matches the object in its stored form.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        let value = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        self.labels.matches_with(value)
            && self.fields.iter().all(|(pointer, equal, wanted)| {
                let found = object.pointer(pointer).map(display_value).unwrap_or_default();
                (found == *wanted) == *equal
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
            || resource.rules.fields.iter().any(|known| known == field);
        if !known {
            return Err(ApiError::bad_request(format!("field label not supported: {field}")));
        }
        fields.push((format!("/{}", field.replace('.', "/")), equal, value.to_string()));
    }
    Ok(fields)
}

/// Formats a `LabelSelector` object as text, as in scale subresources. A text is returned unchanged.
pub(crate) fn to_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_string();
    }
    LabelSelector::deserialize(selector).ok().and_then(|selector| selector.text().ok()).unwrap_or_default()
}
