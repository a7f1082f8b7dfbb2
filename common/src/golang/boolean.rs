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
