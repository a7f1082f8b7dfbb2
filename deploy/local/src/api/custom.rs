//! Custom properties of a version of a CustomResourceDefinition.
//!
//! The rules of ZeroScalers are checked by the function that the autoscaler also runs
//! ([`common_api::zeroscaler::validation`]); a test there compares it with the CEL. The CEL rules of other definitions are
//! ignored. As on a real server, the rules run only if the schema validation has passed.

use common::field::FieldErrors;
use serde_json::Value;

use super::causes::Causes;

/// Function that validates an object.
pub(crate) type Rules = fn(&Value) -> Result<(), FieldErrors>;

/// Custom properties of a version of a definition.
#[derive(Debug)]
pub(crate) struct CustomModel {
    /// Fields that field selectors may use.
    pub(crate) selectable: Vec<String>,
    /// Validation that implements the CEL rules of the definition, if there is one.
    pub(crate) rules: Option<Rules>,
}

impl CustomModel {
    /// Validates an object that has passed schema validation.
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
