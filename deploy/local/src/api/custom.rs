//! What a version of a CustomResourceDefinition says of its objects.
//!
//! Rules in CEL are not run. Those of ZeroScalers are known as code, which the autoscaler runs as well
//! ([`common_api::zeroscaler::validation`]), and which a test there holds equal to the CEL; what other definitions say in CEL
//! is not checked. As on a real server they come once the schema has found nothing.

use common::field::FieldErrors;
use serde_json::Value;

use super::causes::Causes;
use super::jsonpath::Path;
use super::schema;

/// A column that a definition shows to people.
#[derive(Debug)]
pub(crate) struct CustomColumn {
    /// The column as a `columnDefinitions` entry.
    pub(crate) definition: Value,
    /// Whether the cell is an age.
    pub(crate) date: bool,
    /// Where the cell's value is.
    pub(crate) path: Path,
}

/// Finds what is wrong with an object.
pub(crate) type Rules = fn(&Value) -> Result<(), FieldErrors>;

/// What a version of a definition says.
#[derive(Debug)]
pub(crate) struct CustomModel {
    pub(crate) schema: Value,
    pub(crate) patterns: schema::Patterns,
    pub(crate) columns: Vec<CustomColumn>,
    /// Fields for field selectors.
    pub(crate) selectable: Vec<String>,
    /// The rules that the definition has in CEL, where they are known as code.
    pub(crate) rules: Option<Rules>,
}

impl CustomModel {
    /// Drops unknown fields, which it names, and fills in defaults.
    pub(crate) fn read(&self, value: &mut Value, unknown: &mut Vec<String>) {
        schema::prune(value, &self.schema, unknown);
        self.fill_in(value);
    }

    /// Fills in defaults.
    pub(crate) fn fill_in(&self, value: &mut Value) {
        schema::default(value, &self.schema);
    }

    /// Finds what the schema and the rules forbid.
    pub(crate) fn validate(&self, value: &Value, causes: &mut Causes) {
        let mut found = Causes::default();
        schema::validate(value, &self.schema, &self.patterns, &mut found);
        let rules = self.rules.filter(|_| found.is_empty());
        causes.extend(found);
        let Some(Err(errors)) = rules.map(|rules| rules(value)) else { return };
        for error in errors.iter() {
            let pointer = format!("/{}", error.path.replace(['.', '['], "/").replace(']', ""));
            let given = value.pointer(&pointer).filter(|given| !given.is_object() && !given.is_array());
            let rule = if error.rule.is_empty() { &error.message } else { &error.rule };
            causes.invalid(&error.path, given.unwrap_or(&"object".into()), rule);
        }
    }
}
