//! What a version of a CustomResourceDefinition says of its objects.
//!
//! Rules in CEL are not run. Those of ZeroScalers are known as code, which the autoscaler runs as well
//! ([`common_api::zeroscaler::validation`]), and which a test there holds equal to the CEL; what other definitions say in CEL
//! is not checked. As on a real server they come once the schema has found nothing.

use common::field::FieldErrors;
use serde_json::Value;

use super::causes::Causes;

/// Finds what is wrong with an object.
pub(crate) type Rules = fn(&Value) -> Result<(), FieldErrors>;

/// What a version of a definition says.
#[derive(Debug)]
pub(crate) struct CustomModel {
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
