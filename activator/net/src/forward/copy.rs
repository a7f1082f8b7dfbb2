//! Copy of the head of a request sent over HTTP/2, in case of a retry: `h2` consumes the original.
//!
//! Nearly every request is copied and nearly none is retried, so the copy must be cheap: one allocation for all fields,
//! and no reference counts.

use bytes::{Buf, BufMut};
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version, request};

pub(super) struct HeadCopy {
    method: Method,
    uri: Uri,
    version: Version,
    /// Each field: lengths of name and value in native byte order, then name and value.
    fields: Vec<u8>,
}

/// Size of the two lengths in bytes.
const LENGTHS: usize = 2 * size_of::<u32>();

impl HeadCopy {
    /// Copies a head. Returns `None` if a field is longer than any valid head.
    pub(super) fn from_head(head: &request::Parts) -> Option<Self> {
        let length = |(name, value): (&HeaderName, &HeaderValue)| LENGTHS + name.as_str().len() + value.len();
        let mut fields = Vec::with_capacity(head.headers.iter().map(length).sum());
        for (name, value) in &head.headers {
            fields.put_u32_ne(u32::try_from(name.as_str().len()).ok()?);
            fields.put_u32_ne(u32::try_from(value.len()).ok()?);
            fields.extend_from_slice(name.as_str().as_bytes());
            fields.extend_from_slice(value.as_bytes());
        }
        Some(Self { method: head.method.clone(), uri: head.uri.clone(), version: head.version, fields })
    }

    /// Restores the head, without extensions.
    pub(super) fn into_parts(self) -> request::Parts {
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.version) = (self.method, self.uri, self.version);
        let mut rest = self.fields.as_slice();
        while !rest.is_empty() {
            let (name_length, value_length) = (rest.get_u32_ne() as usize, rest.get_u32_ne() as usize);
            let (name, value) = rest[..name_length + value_length].split_at(name_length);
            // Both were valid when they were copied.
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                head.headers.append(name, value);
            }
            rest.advance(name_length + value_length);
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_head_equals_the_original() {
        let request = Request::builder()
            .method("PURGE")
            .uri("/a?b=c")
            .version(Version::HTTP_2)
            .header("host", "a.example.com")
            .header("x-empty", "")
            .header("x-twice", "1")
            .header("x-twice", "2")
            .header("x-bytes", HeaderValue::from_bytes(&[0xe4, b' ', 0xff]).expect("a value"));
        let (head, ()) = request.body(()).expect("valid").into_parts();
        let restored = HeadCopy::from_head(&head).expect("short").into_parts();
        assert_eq!((restored.method, restored.uri, restored.version), (head.method, head.uri, head.version));
        assert_eq!(restored.headers, head.headers);
    }
}
