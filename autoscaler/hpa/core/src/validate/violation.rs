//! Violation of a rule in the wording of the API server: `PATH: KIND: VALUE: DETAIL`.

use crate::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use std::fmt;

/// Violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, such as `spec.metrics[0].type`.
    pub path: String,
    /// Kind of the rule.
    pub rule: Rule,
    /// Expected value; may be empty.
    pub detail: String,
}

/// Kind of the violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The field must be set.
    Required,
    /// The field must not be set.
    Forbidden,
    /// The value is invalid; it is printed as JSON.
    Invalid(String),
    /// The value is not one of the supported ones.
    Unsupported(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match &self.rule {
            Rule::Required => f.write_str("Required value")?,
            Rule::Forbidden => f.write_str("Forbidden")?,
            Rule::Invalid(value) => write!(f, "Invalid value: {value}")?,
            Rule::Unsupported(value) => write!(f, "Unsupported value: {value}")?,
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// List of violations found so far.
#[derive(Debug, Default)]
pub(super) struct Violations(pub(super) Vec<Violation>);

impl Violations {
    pub(super) fn required(&mut self, path: &str, detail: impl Into<String>) {
        self.push(path, Rule::Required, detail.into());
    }

    pub(super) fn forbidden(&mut self, path: &str, detail: &str) {
        self.push(path, Rule::Forbidden, detail.into());
    }

    pub(super) fn invalid(&mut self, path: &str, value: impl fmt::Debug, detail: impl Into<String>) {
        self.push(path, Rule::Invalid(format!("{value:?}")), detail.into());
    }

    /// Adds a violation if `is_wrong` holds for an amount, or if the amount is no quantity.
    pub(super) fn quantity(
        &mut self,
        path: &str,
        written: &Written,
        is_wrong: impl FnOnce(Quantity) -> bool,
        detail: &str,
    ) {
        match written.0.parse::<Quantity>() {
            Ok(quantity) if is_wrong(quantity) => self.invalid(path, quantity.to_string().as_str(), detail),
            Ok(_) => {}
            Err(error) => self.invalid(path, written.0.as_str(), error.to_string()),
        }
    }

    pub(super) fn unsupported(&mut self, path: &str, value: &str, supported: &[&str]) {
        let supported: Vec<_> = supported.iter().map(|name| format!("{name:?}")).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        self.push(path, Rule::Unsupported(format!("{value:?}")), detail);
    }

    fn push(&mut self, path: &str, rule: Rule, detail: String) {
        self.0.push(Violation { path: path.to_owned(), rule, detail });
    }
}
