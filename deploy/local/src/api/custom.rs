//! What a version of a CustomResourceDefinition says of its objects.
//!
//! Rules in CEL are not run. Those of ZeroScalers are known as code, which the autoscaler runs as well
//! ([`common_api::zeroscaler::validation`]), and which a test there holds equal to the CEL; what other definitions say in CEL
//! is not checked. As on a real server they come once the schema has found nothing.

use common::field::FieldErrors;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

use super::causes::Causes;

/// A column that a definition shows to people.
#[derive(Debug)]
pub(crate) struct CustomColumn {
    /// The column as a `columnDefinitions` entry.
    pub(crate) definition: Value,
    /// Whether the cell is an age.
    pub(crate) date: bool,
    /// Where the cell's value is.
    pub(crate) path: JpQuery,
}

impl CustomColumn {
    /// Reads a JSON path as definitions have it, such as `.status.conditions[?(@.type=="Ready")].status`.
    pub(crate) fn path(text: &str) -> Option<JpQuery> {
        let path = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
        parse_json_path(&format!("${path}")).ok().filter(|_| path.starts_with(['.', '[']))
    }

    /// The first value at the path.
    pub(crate) fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        Some(js_path_process(&self.path, object).ok()?.into_iter().next()?.val())
    }
}

/// Finds what is wrong with an object.
pub(crate) type Rules = fn(&Value) -> Result<(), FieldErrors>;

/// What a version of a definition says.
#[derive(Debug)]
pub(crate) struct CustomModel {
    pub(crate) columns: Vec<CustomColumn>,
    /// Fields for field selectors.
    pub(crate) selectable: Vec<String>,
    /// The rules that the definition has in CEL, where they are known as code.
    pub(crate) rules: Option<Rules>,
}

impl CustomModel {
    /// Finds what the rules forbid of an object that is as the schema wants it.
    pub(crate) fn validate(&self, value: &Value, causes: &mut Causes) {
        let Some(Err(errors)) = self.rules.map(|rules| rules(value)) else { return };
        for error in errors.iter() {
            let pointer = format!("/{}", error.path.replace(['.', '['], "/").replace(']', ""));
            let given = value.pointer(&pointer).filter(|given| !given.is_object() && !given.is_array());
            let rule = if error.rule.is_empty() { &error.message } else { &error.rule };
            causes.invalid(&error.path, given.unwrap_or(&"object".into()), rule);
        }
    }
}
