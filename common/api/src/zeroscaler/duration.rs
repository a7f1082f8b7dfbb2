//! Durations in the form in which users write them.

use common::golang::{GoDuration, ParseError, parse_duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Duration in Go's syntax: `90s`, `1m30s`, `500ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(transparent)]
pub struct DurationText(String);

impl DurationText {
    /// Wraps a text without checking it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the text. Fails if the text is not a duration.
    pub fn parse(&self) -> Result<GoDuration, ParseError> {
        parse_duration(&self.0)
    }

    /// Returns the duration, or `None` if the text is not a duration or is negative.
    pub fn get(&self) -> Option<Duration> {
        self.parse().ok().filter(|duration| *duration >= GoDuration::ZERO).map(GoDuration::to_std)
    }
}

impl From<Duration> for DurationText {
    fn from(duration: Duration) -> Self {
        Self(GoDuration::from(duration).to_string())
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
