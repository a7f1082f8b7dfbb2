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
pub use integer::{parse_i32, parse_i64};

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
    /// Rule that the text breaks.
    pub problem: Problem,
}

impl ParseError {
    fn new(value: &str, problem: Problem) -> Self {
        Self { value: value.to_owned(), problem }
    }

    /// Reports whether the text is well-formed but too large or too small.
    pub fn is_out_of_range(&self) -> bool {
        matches!(self.problem, Problem::IntegerRange | Problem::FloatRange | Problem::DurationRange)
    }
}

/// Rule that a text breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not one of the twelve accepted spellings.
    #[error("is not a boolean (true, false, 1, 0, t, f)")]
    Boolean,
    /// Not an integer.
    #[error("is not a whole number in base 10")]
    Integer,
    /// An integer that does not fit.
    #[error("is a whole number out of range")]
    IntegerRange,
    /// Not a float.
    #[error("is not a number")]
    Float,
    /// A float that does not fit.
    #[error("is a number out of range")]
    FloatRange,
    /// Not a duration.
    #[error("is not a duration such as 1h30m, 90s or 1.5s")]
    Duration,
    /// A duration that does not fit into 64 bits of nanoseconds.
    #[error("is a duration out of range")]
    DurationRange,
    /// A number without a unit.
    #[error("is a duration without a unit (ns, us, ms, s, m, h)")]
    MissingUnit,
    /// A number with an unknown unit.
    #[error("is a duration with the unknown unit {0:?} (ns, us, ms, s, m, h)")]
    UnknownUnit(String),
}
