//! Rules of comparison: integers, booleans and names must be equal; floating-point values must agree to one part in a
//! million, and to a billionth near zero.

use std::fmt::{self, Debug};

use common::time::Timestamp;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Maximum length of printed expectations, in characters.
pub(crate) const PRINTED_MAX: usize = 600;
/// Maximum relative difference of two floating-point values that count as equal.
const RELATIVE: f64 = 1e-6;
/// Maximum absolute difference; decisive near zero.
const ABSOLUTE: f64 = 1e-9;

/// Difference between a case and our code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A value differs: its place in the case, like `steps[3].desired_pod_count`, and both values.
    Differs(String),
    /// The case could not be read or run.
    Broken(String),
}

impl Mismatch {
    /// Creates the mismatch of a value at `at`.
    pub fn differs(at: &str, wanted: impl Debug, got: impl Debug) -> Self {
        Self::Differs(format!("{at}: wanted {wanted:?}, got {got:?}"))
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(what) => f.write_str(what),
            Self::Broken(why) => write!(f, "cannot run: {why}"),
        }
    }
}

/// Parses a case into the struct of its kind. A failure names the field that is missing, unknown or of another type.
pub fn parse<T: DeserializeOwned>(case: &Value) -> Result<T, Mismatch> {
    T::deserialize(case).map_err(|e| Mismatch::Broken(e.to_string()))
}

/// Checks equality of anything but floating-point values.
pub fn equal<W: Debug + PartialEq<G> + ?Sized, G: Debug + ?Sized>(
    at: &str,
    wanted: &W,
    got: &G,
) -> Result<(), Mismatch> {
    if wanted == got { Ok(()) } else { Err(Mismatch::differs(at, wanted, got)) }
}

/// Checks equality of floating-point values, within the tolerances above.
pub fn close(at: &str, wanted: f64, got: f64) -> Result<(), Mismatch> {
    let is_close = wanted == got || (wanted - got).abs() <= (RELATIVE * wanted.abs()).max(ABSOLUTE);
    if is_close { Ok(()) } else { Err(Mismatch::differs(at, wanted, got)) }
}

/// Compares whole trees. Floating-point numbers in `got` are compared with tolerance, everything else exactly. Absent
/// and null are equal, and so are null and an empty list. Fails with the first difference, in its place below `at`.
pub fn tree(at: &str, wanted: &Value, got: &Value) -> Result<(), Mismatch> {
    match (wanted, got) {
        (Value::Object(w), Value::Object(g)) => {
            for key in w.keys().chain(g.keys().filter(|k| !w.contains_key(*k))) {
                tree(&format!("{at}.{key}"), w.get(key).unwrap_or(&Value::Null), g.get(key).unwrap_or(&Value::Null))?;
            }
            Ok(())
        }
        (Value::Array(w), Value::Array(g)) if w.len() == g.len() => {
            w.iter().zip(g).enumerate().try_for_each(|(i, (w, g))| tree(&format!("{at}[{i}]"), w, g))
        }
        (Value::Null, Value::Array(list)) | (Value::Array(list), Value::Null) if list.is_empty() => Ok(()),
        // An integer of our code and `3.0` are the same number.
        (Value::Number(w), Value::Number(g)) if g.is_f64() || w.is_f64() => {
            close(at, w.as_f64().unwrap_or(f64::NAN), g.as_f64().unwrap_or(f64::NAN))
        }
        _ => equal(at, wanted, got),
    }
}

/// Unix nanoseconds, written as a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let nanos =
            text.parse::<i64>().map_err(|e| Error::custom(format!("{text:?} is not a number of nanoseconds: {e}")))?;
        Ok(Self(Timestamp::from_nanos(nanos)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_agree_to_a_millionth_and_near_zero_to_a_billionth() {
        for (wanted, got, same) in [
            (1.0, 1.000_000_9, true),
            (1.0, 1.000_002, false),
            (1e9, 1e9 + 900.0, true),
            (0.0, 9e-10, true),
            (0.0, 2e-9, false),
            (f64::INFINITY, f64::INFINITY, true),
            (f64::NAN, f64::NAN, false),
        ] {
            assert_eq!(close("", wanted, got).is_ok(), same, "{wanted} and {got}");
        }
    }

    #[test]
    fn trees_differ_in_place_length_and_type() {
        assert_eq!(tree("", &json!({"a": [1, 2.0]}), &json!({"a": [1, 2.000_000_1]})), Ok(()));
        assert_eq!(tree("", &json!({"a": null}), &json!({"a": []})), Ok(()));
        assert_eq!(
            tree("", &json!({"a": [1]}), &json!({"a": [1], "b": 2})),
            Err(Mismatch::differs(".b", Value::Null, json!(2)))
        );
        assert_eq!(tree("x", &json!([1, 2]), &json!([1, 3])), Err(Mismatch::differs("x[1]", json!(2), json!(3))));
        assert!(tree("", &json!([1]), &json!([1, 1])).is_err());
        assert!(tree("", &json!("1"), &json!(1)).is_err());
        assert!(tree("", &json!(1_000_000_000), &json!(1_000_000_001)).is_err(), "integers are exact");
    }
}
