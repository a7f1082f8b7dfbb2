//! Converts the numbers of objects to the form in which Kubernetes stores them.
//!
//! An API server stores 10.0 as 10. A reader that does not know the type of the field regards them as different
//! numbers.

use serde_json::Value;

/// Largest whole number up to which floats represent every whole number exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// Converts all floats of a document that are whole numbers to integers.
pub fn as_stored(document: &mut Value) {
    match document {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= WHOLE_MAX);
            if let Some(whole) = whole {
                *number = (whole as i64).into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(as_stored),
        Value::Object(fields) => fields.values_mut().for_each(as_stored),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_numbers_are_integers_and_others_stay() {
        let mut document = json!({"a": [10.0, -3.0, 2.5, 7], "b": {"c": 1e300, "d": u64::MAX, "e": "1.0", "f": null}});
        as_stored(&mut document);
        let stored = json!({"a": [10, -3, 2.5, 7], "b": {"c": 1e300, "d": u64::MAX, "e": "1.0", "f": null}});
        assert_eq!(document, stored);
    }
}
