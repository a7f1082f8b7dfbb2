//! Detects HTTP/2 fields that are sent once and referenced often.
//!
//! HPACK lets a client reference a field of its table with one byte. A thousand such bytes are a thousand fields of 4
//! KB. They share memory while they are held, but are written one by one when the request goes to a pod. No
//! well-behaved client repeats so much.

use http::HeaderMap;

/// Total length of values that is always allowed.
const ALWAYS_ALLOWED: usize = 64 * 1024;

/// Average number of references to each value that is allowed beyond that.
const REPEATED_MAX: usize = 4;

/// Reports whether the fields repeat the same text too often.
pub(crate) fn exceeds_repetition(fields: &HeaderMap) -> bool {
    let total: usize = fields.values().map(|value| value.len()).sum();
    if total <= ALWAYS_ALLOWED {
        return false;
    }
    // Copies of a text have the same address.
    let mut texts: Vec<(usize, usize)> = fields.values().map(|v| (v.as_bytes().as_ptr().addr(), v.len())).collect();
    texts.sort_unstable();
    texts.dedup();
    let texts: usize = texts.iter().map(|(_, length)| length).sum();
    total > texts.saturating_mul(REPEATED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// Returns `number` fields, of which each `shared` in a row have the same text.
    fn fields(number: usize, size: usize, shared: usize) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let mut value = HeaderValue::from_static("");
        for n in 0..number {
            if n % shared == 0 {
                value = HeaderValue::from_bytes(&vec![b'v'; size]).expect("text");
            }
            fields.append("x-a", value.clone());
        }
        fields
    }

    #[test]
    fn repeated_values_are_distinguished_from_large_ones() {
        let rows = [
            ("nothing", fields(0, 0, 1), false),
            ("much, each once", fields(20, 40_000, 1), false),
            ("little, often", fields(60, 1000, 60), false),
            ("much, four times", fields(80, 1000, 4), false),
            ("much, eight times", fields(80, 1000, 8), true),
            ("much, often", fields(10_000, 100, 10_000), true),
        ];
        for (name, fields, expected) in rows {
            assert_eq!(exceeds_repetition(&fields), expected, "{name}");
        }
    }
}
