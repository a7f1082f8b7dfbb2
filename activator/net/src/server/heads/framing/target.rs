//! Parser for the target in the first line of a head, which selects the bytes to percent-encode.
//!
//! Typed addresses and old browsers put bytes into a target that are not allowed in a URI. hyper rejects some of them,
//! and would cut the target at a `#`. Knative's activator forwards them, and so do we:
//!
//! | where | bytes |
//! |---|---|
//! | path | `"` `<` `>` `\` `^` `` ` `` `{` `\|` `}` `#`, and above 127 |
//! | query | `"` `<` `>` `#`, and above 127 |
//! | scheme and host | `#`, so that hyper rejects it |
//!
//! In a path, upstream encodes the same bytes. Upstream sends a query unchanged, so only the bytes that hyper would
//! reject are encoded. Bytes that a URI may contain stay, including `%` and the bytes after it. Control bytes, blanks
//! and DEL are left to hyper to reject. So no byte that ends a target or a line is ever added or removed.

/// Position in a first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Target {
    /// The method.
    #[default]
    Before,
    /// First byte of the target.
    Start,
    /// Scheme and host of an absolute URI, with the number of slashes: the path begins at the third.
    Origin(u8),
    Path,
    Query,
    /// The version.
    Version,
}

impl Target {
    /// Returns the position after `byte`, and whether `byte` must be encoded.
    pub(super) fn next(self, byte: u8) -> (Self, bool) {
        match (self, byte) {
            (Self::Before, b' ') => (Self::Start, false),
            (Self::Before | Self::Version, _) => (self, false),
            (_, b' ') => (Self::Version, false),
            (Self::Start | Self::Origin(2), b'/') => (Self::Path, false),
            (Self::Start | Self::Origin(_) | Self::Path, b'?') => (Self::Query, false),
            (Self::Start, _) => (Self::Origin(0), byte == b'#'),
            (Self::Origin(slashes), b'/') => (Self::Origin(slashes + 1), false),
            (Self::Origin(_), _) => (self, byte == b'#'),
            (Self::Path, _) => {
                (self, matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{'..=b'}' | b'#' | 0x80..))
            }
            (Self::Query, _) => (self, matches!(byte, b'"' | b'<' | b'>' | b'#' | 0x80..)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Framing;
    use http::Uri;
    use rand::rngs::SmallRng;
    use rand::seq::IndexedRandom;
    use rand::{RngExt, SeedableRng};

    /// Returns the bytes for the parser and the number of valid heads, if the bytes arrive in pieces of `size`.
    fn passed_on(bytes: &[u8], size: usize) -> (Vec<u8>, u64) {
        let mut framing = Framing::default();
        let pieces = bytes.chunks(size).flat_map(|piece| framing.follow(piece).unwrap_or_else(|| piece.to_vec()));
        (pieces.collect(), framing.heads)
    }

    #[test]
    fn bytes_not_allowed_in_a_uri_are_encoded_as_upstream_does() {
        let rows: [(&[u8], &str); 14] = [
            (b"/a?q={\"a\":1}", "/a?q={%22a%22:1}"),
            (b"/\"<>\\^`{|}#x", "/%22%3C%3E%5C%5E%60%7B%7C%7D%23x"),
            (b"/?\"<>\\^`{|}#x", "/?%22%3C%3E\\^`{|}%23x"),
            (b"/caf\xe9?caf\xc3\xa9", "/caf%E9?caf%C3%A9"),
            (b"//a//b/../%2F%zz;p?x=[1]?y'", "//a//b/../%2F%zz;p?x=[1]?y'"),
            (b"/-._~!$&'()*+,;=:@[]%41?/", "/-._~!$&'()*+,;=:@[]%41?/"),
            (b"http://h/<?<", "http://h/%3C?%3C"),
            (b"http://h?<", "http://h?%3C"),
            (b"http://h#<", "http://h%23<"),
            (b"http://<h>/", "http://<h>/"),
            (b"*", "*"),
            (b"#", "%23"),
            (b"h:80", "h:80"),
            (b"/\x7f\x01\t", "/\x7f\x01\t"),
        ];
        for (target, expected) in rows {
            let head = [b"GET ", target, b" HTTP/1.1\r\nx: \"<>\xe9#\r\n\r\n\""].concat();
            let expected = [b"GET ", expected.as_bytes(), b" HTTP/1.1\r\nx: \"<>\xe9#\r\n\r\n\""].concat();
            for size in 1..=head.len() {
                assert_eq!(passed_on(&head, size), (expected.clone(), 1), "{} by {size}", target.escape_ascii());
            }
        }
    }

    #[test]
    fn only_request_targets_are_changed() {
        let rows: [(&[u8], &[u8]); 5] = [
            (b"\r\nGET /< HTTP/1.1\r\n\r\nGET /< HTTP/1.1\r\n", b"\r\nGET /%3C HTTP/1.1\r\n\r\nGET /%3C HTTP/1.1\r\n"),
            (
                b"POST /< HTTP/1.1\r\ncontent-length: 8\r\n\r\nGET /< HGET /< HTTP/1.1\r\n",
                b"POST /%3C HTTP/1.1\r\ncontent-length: 8\r\n\r\nGET /< HGET /%3C HTTP/1.1\r\n",
            ),
            (
                b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n8;\"\r\nGET /< H\r\n0\r\na: /<\r\n\r\nGET /< HTTP",
                b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n8;\"\r\nGET /< H\r\n0\r\na: /<\r\n\r\nGET /%3C HTTP",
            ),
            // These may belong to a tunnel.
            (
                b"GET /< HTTP/1.1\r\nUPGRADE: x\r\n\r\n\x81\x83 /<\xe9#",
                b"GET /%3C HTTP/1.1\r\nUPGRADE: x\r\n\r\n\x81\x83 /<\xe9#",
            ),
            // The start of the next message is unknown.
            (b"GET /a HTTP/1.1\n\r\nGET /< HTTP/1.1\r\n", b"GET /a HTTP/1.1\n\r\nGET /< HTTP/1.1\r\n"),
        ];
        for (bytes, expected) in rows {
            for size in 1..=bytes.len() {
                let (passed, _) = passed_on(bytes, size);
                assert_eq!(passed, expected, "{} by {size}", bytes.escape_ascii());
            }
        }
    }

    /// Goal: every byte is forwarded unchanged or encoded, so that lines, blanks and the number of messages do not
    /// change. Bytes that a URI may contain stay, the result needs no more encoding, and hyper accepts every path
    /// without control bytes. Method: seeded random heads of relevant bytes, split anywhere.
    #[test]
    fn encoding_preserves_message_boundaries() {
        const BYTES: &[u8] = b"//??##\"<>\\^`{|}%2F&=az09:@*. \t\r\n\x00\x01\x7f\x80\xc3\xa9\xff";
        const LEGAL: &[u8] = b"//??%2F&=az09:@*.-_~!$'()+,;[]";
        let (mut encoded, mut legal) = (0, 0);
        for seed in 0..20_000 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let alphabet = if seed % 2 == 0 { BYTES } else { LEGAL };
            let length = rng.random_range(0..20);
            let mut target: Vec<u8> = (0..length).filter_map(|_| alphabet.choose(&mut rng).copied()).collect();
            if rng.random_bool(0.8) {
                target.insert(0, b'/');
            }
            let head =
                [b"GET ", &target[..], b" HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: b\r\n\r\n"].concat();
            let case = || format!("seed {seed}: {}", head.escape_ascii());

            let (passed, heads) = passed_on(&head, rng.random_range(1..40));
            assert_eq!((passed.clone(), heads), passed_on(&head, head.len()), "{}", case());
            let mut rest = &passed[..];
            for byte in &head {
                let code = format!("%{byte:02X}");
                rest = rest
                    .strip_prefix(&[*byte])
                    .or_else(|| rest.strip_prefix(code.as_bytes()).filter(|_| *byte > b' '))
                    .unwrap_or_else(|| panic!("{} became {}", case(), passed.escape_ascii()));
            }
            assert!(rest.is_empty(), "{}", case());
            assert_eq!(passed_on(&passed, 7), (passed.clone(), heads), "{}", case());
            if alphabet == LEGAL {
                assert_eq!(passed, head, "{}", case());
                legal += 1;
            }
            let is_one = target.starts_with(b"/") && target.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
            if is_one {
                let uri = passed[4..].split(|byte| *byte == b' ').next().unwrap_or_default();
                let read = Uri::try_from(uri).unwrap_or_else(|error| panic!("{error}: {}", case()));
                assert_eq!(read.path_and_query().map_or("", |target| target.as_str()).as_bytes(), uri, "{}", case());
                encoded += usize::from(passed != head);
            }
        }
        assert!(encoded > 500 && legal > 5_000, "{encoded} encoded, {legal} legal");
    }
}
