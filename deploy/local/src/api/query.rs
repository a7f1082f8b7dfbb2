//! Query of a request: the options for writes and lists, and label and field selectors. Labels are parsed and matched
//! by [`common::labels`].

use super::fields::display_value;
use super::resource::Resource;
use super::status::{ApiError, Causes, Result};
use common::labels::{self, LabelSelector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use kube::api::PropagationPolicy;
use percent_encoding::percent_decode_str;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::HashMap;

/// Decoded query parameters. The first of repeated ones counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(HashMap<String, String>);

impl Query {
    /// Parses `a=b&c=d`, percent-encoded.
    pub(crate) fn parse(text: &str) -> Self {
        let mut map = HashMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            map.entry(unescape(key)).or_insert_with(|| unescape(value));
        }
        Query(map)
    }

    /// Returns the value of a parameter, or the empty string.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).unwrap_or_default()
    }

    /// Reports whether a parameter is present, with or without a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns a boolean parameter: `1`, `true` and `t` mean true.
    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.text(key), "1" | "true" | "True" | "t" | "T")
    }

    /// Returns a whole number, if it is present.
    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>> {
        match self.text(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!("query parameter {key}: \"{text}\" is not a whole number in range"))
            }),
        }
    }
}

/// Decodes percent-encoding; `+` is a space, as in forms.
pub(crate) fn unescape(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Handling of unknown fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop them silently.
    #[default]
    Ignore,
    /// Drop them with a warning in a header.
    Warn,
    /// Reject the request.
    Strict,
}

/// Options of a write. The default is for the server's own writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    /// Respond as usual, but store nothing.
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// Field manager, for server-side apply.
    pub(crate) manager: String,
    /// Allow server-side apply to take fields from other managers.
    pub(crate) force: bool,
    /// The body has the ownership of fields. Only server-side apply sets this.
    pub(crate) owns_fields: bool,
}

impl WriteOptions {
    /// Parses and checks the options of a verb. `kind` is their type, such as `CreateOptions`.
    pub(crate) fn parse(query: &Query, kind: &str) -> Result<Self> {
        let mut causes = Causes::default();
        let dry_run = is_dry_run(query.text("dryRun"), &mut causes);
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                causes.not_supported("fieldValidation", &other.into(), &["", "Ignore", "Strict", "Warn"]);
                FieldValidation::Warn
            }
        };
        let manager = query.text("fieldManager").to_string();
        if manager.len() > 128 {
            causes.too_long("fieldManager", 128);
        }
        causes.into_result("meta.k8s.io", kind, "")?;
        Ok(WriteOptions { dry_run, field_validation, manager, force: query.flag("force"), owns_fields: false })
    }
}

fn is_dry_run(text: &str, causes: &mut Causes) -> bool {
    if !["", "All"].contains(&text) {
        causes.not_supported("dryRun", &text.into(), &["All"]);
    }
    text == "All"
}

/// Options of a deletion, from the query and the body.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    /// Grace period in seconds.
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<PropagationPolicy>,
    /// Required uid of the object.
    pub(crate) uid: Option<String>,
    /// Required version of the object.
    pub(crate) version: Option<String>,
    /// Respond as usual, but store nothing.
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// Parses and checks the options of a deletion. Those in the body take precedence.
    pub(crate) fn parse(query: &Query, body: Option<Value>) -> Result<Self> {
        let refuse = |error: serde_json::Error| ApiError::bad_request(format!("DeleteOptions: {error}"));
        let body: v1::DeleteOptions = body.map(serde_json::from_value).transpose().map_err(refuse)?.unwrap_or_default();
        let mut causes = Causes::default();
        let policy = body.propagation_policy.as_deref().unwrap_or(query.text("propagationPolicy"));
        let propagation = match policy {
            "" if body.orphan_dependents.unwrap_or(query.flag("orphanDependents")) => Some(PropagationPolicy::Orphan),
            "" => None,
            "Background" => Some(PropagationPolicy::Background),
            "Foreground" => Some(PropagationPolicy::Foreground),
            "Orphan" => Some(PropagationPolicy::Orphan),
            other => {
                let allowed = ["Background", "Foreground", "Orphan"];
                causes.not_supported("propagationPolicy", &other.into(), &allowed);
                None
            }
        };
        let directives = body.dry_run.unwrap_or_default();
        let directive = directives.first().map_or(query.text("dryRun"), String::as_str);
        let dry_run = is_dry_run(directive, &mut causes);
        causes.into_result("meta.k8s.io", "DeleteOptions", "")?;
        let grace =
            body.grace_period_seconds.map_or_else(|| query.number("gracePeriodSeconds"), |grace| Ok(Some(grace)))?;
        let v1::Preconditions { uid, resource_version: version } = body.preconditions.unwrap_or_default();
        Ok(DeleteOptions { grace, propagation, uid, version, dry_run })
    }
}

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
