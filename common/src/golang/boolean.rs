//! Go's `strconv.ParseBool`.

use super::ParseError;

/// Parses a boolean: `1 t T TRUE true True` or `0 f F FALSE false False`.
///
/// # Errors
/// Rejects anything else, including `yes` and ` true`.
pub fn parse_bool(text: &str) -> Result<bool, ParseError> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(ParseError::new(text, "is not a boolean (true, false, 1, 0, t, f)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_twelve_spellings_are_booleans() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(parse_bool(text), Ok(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(parse_bool(text), Ok(false), "{text}");
        }
        for text in ["", " true", "true ", "tRUE", "yes", "on", "2"] {
            assert!(parse_bool(text).is_err(), "{text}");
        }
    }
}
