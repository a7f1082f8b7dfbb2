//! Field errors of a rejected object, collected and reported together as one 422.

use serde::Serialize;
use serde_json::Value;

/// A field error, as in the details of a Status.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

/// Field errors in the order of detection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Causes(pub(super) Vec<Cause>);

impl Causes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the errors as `FIELD: MESSAGE`.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    fn push(&mut self, reason: &'static str, field: impl Into<String>, message: String) {
        self.0.push(Cause { reason, field: field.into(), message });
    }

    /// Adds an error: a required field is missing.
    pub(crate) fn required(&mut self, field: impl Into<String>, rule: &str) {
        let message = if rule.is_empty() { "Required value".into() } else { format!("Required value: {rule}") };
        self.push("FieldValueRequired", field, message);
    }

    /// Adds an error: the value breaks a rule.
    pub(crate) fn invalid(&mut self, field: impl Into<String>, value: &Value, rule: &str) {
        self.push("FieldValueInvalid", field, format!("Invalid value: {value}: {rule}"));
    }

    /// Adds an error: the value has the wrong JSON type.
    pub(crate) fn wrong_type(&mut self, field: impl Into<String>, value: &Value, rule: &str) {
        self.push("FieldValueTypeInvalid", field, format!("Invalid value: {value}: {rule}"));
    }

    /// Adds an error: the value is not one of the allowed ones.
    pub(crate) fn not_supported(&mut self, field: impl Into<String>, value: &Value, allowed: &[&str]) {
        let allowed: Vec<String> = allowed.iter().map(|a| format!("\"{a}\"")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        self.push("FieldValueNotSupported", field, message);
    }

    /// Adds an error: the value is a duplicate.
    pub(crate) fn duplicate(&mut self, field: impl Into<String>, value: &Value) {
        self.push("FieldValueDuplicate", field, format!("Duplicate value: {value}"));
    }

    /// Adds an error: the field must not be set or changed here.
    pub(crate) fn forbidden(&mut self, field: impl Into<String>, rule: &str) {
        self.push("FieldValueForbidden", field, format!("Forbidden: {rule}"));
    }

    /// Adds an error: the text is too long.
    pub(crate) fn too_long(&mut self, field: impl Into<String>, limit: u64) {
        self.push("FieldValueTooLong", field, format!("Too long: may not be more than {limit} bytes"));
    }

    /// Adds an error: the list has too many items.
    pub(crate) fn too_many(&mut self, field: impl Into<String>, count: usize, limit: u64) {
        self.push("FieldValueTooMany", field, format!("Too many: {count}: must have at most {limit} items"));
    }
}
