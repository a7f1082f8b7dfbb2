//! What a version of a CustomResourceDefinition says of its objects.

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

/// What a version of a definition says.
#[derive(Debug)]
pub(crate) struct CustomModel {
    pub(crate) schema: Value,
    pub(crate) patterns: schema::Patterns,
    pub(crate) columns: Vec<CustomColumn>,
    /// Fields for field selectors.
    pub(crate) selectable: Vec<String>,
}

impl CustomModel {
    /// Drops unknown fields, which it names, and fills in defaults.
    pub(crate) fn read(&self, value: &mut Value, unknown: &mut Vec<String>) {
        schema::prune(value, &self.schema, unknown);
        schema::default(value, &self.schema);
    }

    /// Finds what the schema forbids.
    pub(crate) fn validate(&self, value: &Value, causes: &mut Causes) {
        schema::validate(value, &self.schema, &self.patterns, causes);
    }
}
