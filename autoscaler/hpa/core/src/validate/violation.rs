//! Violation of a rule in the wording of the API server: `PATH: KIND: VALUE: DETAIL`.

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

/// Formats a value for a violation.
pub(super) trait Printed {
    fn printed(self) -> String;
}

impl Printed for i32 {
    fn printed(self) -> String {
        self.to_string()
    }
}

impl Printed for &str {
    fn printed(self) -> String {
        format!("{self:?}")
    }
}

/// List of violations found so far.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<Violation>);

impl Violations {
    pub(super) fn required(&mut self, path: &str, detail: impl Into<String>) {
        self.push(path, Rule::Required, detail.into());
    }

    pub(super) fn forbidden(&mut self, path: &str, detail: &str) {
        self.push(path, Rule::Forbidden, detail.into());
    }

    pub(super) fn invalid(&mut self, path: &str, value: impl Printed, detail: impl Into<String>) {
        self.push(path, Rule::Invalid(value.printed()), detail.into());
    }

    pub(super) fn unsupported(&mut self, path: &str, value: &str, supported: &[&str]) {
        let supported: Vec<_> = supported.iter().map(|name| format!("{name:?}")).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        self.push(path, Rule::Unsupported(format!("{value:?}")), detail);
    }

    pub(super) fn into_inner(self) -> Vec<Violation> {
        self.0
    }

    fn push(&mut self, path: &str, rule: Rule, detail: String) {
        self.0.push(Violation { path: path.to_owned(), rule, detail });
    }
}
