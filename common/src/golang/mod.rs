//! Go's syntax for booleans, integers, floats and durations, and Go's quoting.
//!
//! ConfigMaps and annotations were written for Go programs. So the valid syntax is that of Go's `strconv` and
//! `time.ParseDuration`: nothing is trimmed, `t` is true, `+3` and `007` are integers, `0x1p4` and `1_0.5` are floats,
//! `1h2m3.5s` and a bare `0` are durations.
//!
//! Parsers never panic. Their errors name the value and the rule, but not the key, which the caller knows.

mod boolean;
mod duration;
mod float;
mod format;
mod integer;

pub use boolean::parse_bool;
pub use duration::{GoDuration, parse_duration};
pub use float::parse_float;
pub use format::{escape_html, quote};
pub use integer::parse_integer;

use std::borrow::Cow;

/// Splits off an optional sign. Returns true for a minus.
fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Error of a text that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} {problem}")]
pub struct ParseError {
    /// Text that was parsed.
    pub value: String,
    /// Rule that the text breaks, as the end of a sentence.
    pub problem: Cow<'static, str>,
}

impl ParseError {
    fn new(value: &str, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { value: value.to_owned(), problem: problem.into() }
    }
}
