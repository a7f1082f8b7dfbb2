//! Collects all violations found in an object.
//!
//! Texts follow upstream's admission webhook: `MESSAGE: PATH, PATH`, one per line and sorted, with the rule in
//! parentheses at the end. Violations that differ only in their path are merged into one line.

use std::collections::BTreeMap;
use std::fmt;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Description of the violation, including the value.
    pub message: String,
    /// The field or annotation; dots separate fields.
    pub path: String,
    /// The expected value; empty if the message already says it.
    pub rule: String,
}

/// All violations of an object, in the order of discovery. May be empty: see [`FieldErrors::into_result`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a violation.
    pub fn push(&mut self, message: impl Into<String>, path: impl Into<String>, rule: impl Into<String>) {
        self.0.push(FieldError { message: message.into(), path: path.into(), rule: rule.into() });
    }

    /// Adds an invalid value.
    pub fn invalid_value(&mut self, value: impl fmt::Display, path: impl Into<String>, rule: impl Into<String>) {
        self.push(format!("invalid value: {value}"), path, rule);
    }

    /// Adds all violations of `other`.
    pub fn extend(&mut self, other: FieldErrors) {
        self.0.extend(other.0);
    }

    /// Drops the violations of one path, for callers that report that field elsewhere.
    pub fn without(mut self, path: &str) -> Self {
        self.0.retain(|error| error.path != path);
        self
    }

    /// Returns the violations in the order of discovery.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.0.iter()
    }

    /// Reports whether there is no violation.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Succeeds if there is no violation. Returns itself unless empty.
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
