//! Go's syntax for booleans, integers, floats and durations, and Go's quoting.
//!
//! ConfigMaps and annotations were written for Go programs. So the valid syntax is that of Go's `strconv` and
//! `time.ParseDuration`: nothing is trimmed, `t` is true, `+3` and `007` are integers, `0x1p4` and `1_0.5` are floats,
//! `1h2m3.5s` and a bare `0` are durations.
//!
//! Parsers never panic. Their errors name the value and the rule, but not the key, which the caller knows.

mod duration;
mod float;
mod format;

pub use duration::{GoDuration, parse_duration};
pub use float::parse_float;
pub use format::{escape_html, quote};

use std::borrow::Cow;
use std::str::FromStr;

/// Parses a boolean like `strconv.ParseBool`: `1 t T TRUE true True` or `0 f F FALSE false False`. Rejects anything
/// else, including `yes` and ` true`.
pub fn parse_bool(text: &str) -> Result<bool, ParseError> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(ParseError::new(text, "is not a boolean (true, false, 1, 0, t, f)")),
    }
}

/// Parses a signed integer like `strconv.ParseInt` in base 10: an optional sign, then digits. Rejects anything else, and
/// integers that do not fit.
pub fn parse_integer<T: FromStr>(text: &str) -> Result<T, ParseError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseError::new(text, "is not a whole number in base 10"));
    }
    text.parse().map_err(|_| ParseError::new(text, "is a whole number out of range"))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_a_sign_and_leading_zeros_and_nothing_else() {
        let cases = [("0", 0), ("+3", 3), ("-3", -3), ("007", 7), ("2147483647", i32::MAX), ("-2147483648", i32::MIN)];
        for (text, expected) in cases {
            assert_eq!(parse_integer(text), Ok(expected), "{text}");
        }
        for text in ["", "+", "-", " 3", "3 ", "1.0", "1e1", "0x10", "1_000", "x", "--1"] {
            assert!(parse_integer::<i32>(text).is_err_and(|error| !error.problem.ends_with("out of range")), "{text}");
        }
        for text in ["2147483648", "-2147483649", "9223372036854775808"] {
            assert!(parse_integer::<i32>(text).is_err_and(|error| error.problem.ends_with("out of range")), "{text}");
        }
        assert_eq!(parse_integer("2147483648"), Ok(2_147_483_648_i64));
    }
}
