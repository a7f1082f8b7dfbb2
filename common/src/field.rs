//! Violations found in an object, all of them at once.
//!
//! Texts follow upstream's admission webhook, `MESSAGE: PATH, PATH`, one a line and sorted, with the rule in
//! parentheses after it. Violations that differ in their path alone become one.

use std::collections::BTreeMap;
use std::fmt;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// What is wrong, the value included.
    pub message: String,
    /// The field or annotation; dots separate fields.
    pub path: String,
    /// What would have been right; empty where the message says it.
    pub rule: String,
}

/// Every broken rule of an object, in the order of discovery. May be empty: see [`FieldErrors::into_result`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// No violation yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a violation.
    pub fn push(&mut self, message: impl Into<String>, path: impl Into<String>, rule: impl Into<String>) {
        self.0.push(FieldError { message: message.into(), path: path.into(), rule: rule.into() });
    }

    /// Adds a value that is wrong in itself.
    pub fn invalid_value(&mut self, value: impl fmt::Display, path: impl Into<String>, rule: impl Into<String>) {
        self.push(format!("invalid value: {value}"), path, rule);
    }

    /// Adds a field that is absent and must not be.
    pub fn missing(&mut self, path: impl Into<String>) {
        self.push("missing field(s)", path, "");
    }

    /// Adds all of `other`, with `prefix` before each path.
    pub fn extend(&mut self, prefix: &str, other: FieldErrors) {
        self.0.extend(other.0.into_iter().map(|error| FieldError { path: format!("{prefix}{}", error.path), ..error }));
    }

    /// The others, where something else says what is wrong with a field.
    pub fn without(mut self, path: &str) -> Self {
        self.0.retain(|error| error.path != path);
        self
    }

    /// The violations.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.0.iter()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Success if there is no violation.
    ///
    /// # Errors
    /// Itself, unless empty.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut merged: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for error in &self.0 {
            merged.entry((&error.message, &error.rule)).or_default().push(&error.path);
        }
        for (index, ((message, rule), mut paths)) in merged.into_iter().enumerate() {
            paths.sort_unstable();
            paths.dedup();
            let line = if index == 0 { "" } else { "\n" };
            write!(f, "{line}{message}: {}", paths.join(", "))?;
            if !rule.is_empty() {
                write!(f, " ({rule})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for FieldErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_violations_become_one_line() {
        let mut errors = FieldErrors::new();
        errors.invalid_value("x", "b", "a whole number is expected");
        errors.push("expected 0 <= -1 <= 5", "c", "");
        errors.invalid_value("x", "a", "a whole number is expected");
        assert_eq!(errors.to_string(), "expected 0 <= -1 <= 5: c\ninvalid value: x: a, b (a whole number is expected)");
        assert_eq!(FieldErrors::new().into_result(), Ok(()));
    }
}
