//! Fields of HTTP/2 that are said once and named often.
//!
//! HPACK lets a client name a field of its table in a byte. A thousand such bytes are a thousand fields of 4 KB, which
//! all lie at one place as long as they are held, and are written out one by one when the request goes to a pod. Nobody
//! who means well repeats so much.

use http::HeaderMap;

/// What values may say in all, however often they say it.
const SAID_MAX: usize = 64 * 1024;

/// Beyond that, how often each is said on average.
const REPEATED_MAX: usize = 4;

/// Whether the fields say much more than there is of them.
pub(super) fn are_repeated(fields: &HeaderMap) -> bool {
    let said: usize = fields.values().map(|value| value.len()).sum();
    if said <= SAID_MAX {
        return false;
    }
    // Copies of one text lie at one address.
    let mut texts: Vec<(usize, usize)> = fields.values().map(|v| (v.as_bytes().as_ptr().addr(), v.len())).collect();
    texts.sort_unstable();
    texts.dedup();
    let texts: usize = texts.iter().map(|(_, length)| length).sum();
    said > texts.saturating_mul(REPEATED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// So many fields, of which each `shared` in a row are one text.
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
    fn much_that_is_said_often_is_told_from_much() {
        let rows = [
            ("nothing", fields(0, 0, 1), false),
            ("much, each once", fields(20, 40_000, 1), false),
            ("little, often", fields(60, 1000, 60), false),
            ("much, four times", fields(80, 1000, 4), false),
            ("much, eight times", fields(80, 1000, 8), true),
            ("much, often", fields(10_000, 100, 10_000), true),
        ];
        for (name, fields, expected) in rows {
            assert_eq!(are_repeated(&fields), expected, "{name}");
        }
    }
}
