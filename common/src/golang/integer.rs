//! Go's `strconv.ParseInt` in base 10.

use super::ParseError;
use std::str::FromStr;

/// Parses a signed integer: an optional sign, then digits.
///
/// # Errors
/// Rejects anything else, and integers that do not fit.
pub fn parse_integer<T: FromStr>(text: &str) -> Result<T, ParseError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseError::new(text, "is not a whole number in base 10"));
    }
    text.parse().map_err(|_| ParseError::new(text, "is a whole number out of range"))
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
