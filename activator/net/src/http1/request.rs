//! Writes the head of a request, and frames its body.

use super::decoder::one_length;
use crate::hop_by_hop::elements;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::request;
use http_body::Body;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Number of bytes still to be written.
    Length(u64),
    Chunked,
}

/// Writes `head` and the field that determines the end of `body`. The body's own length has priority over the length in
/// the head.
pub(super) fn write_head(head: &request::Parts, body: &impl Body, to: &mut Vec<u8>) -> Coding {
    let declared = || one_length(&head.headers);
    let coding = match body.size_hint().exact() {
        _ if body.is_end_stream() => Coding::Length(0),
        Some(length) => Coding::Length(length),
        None => declared().map_or(Coding::Chunked, Coding::Length),
    };
    to.extend_from_slice(head.method.as_str().as_bytes());
    to.push(b' ');
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    if !target.starts_with(['/', '*']) {
        to.push(b'/'); // The URI is absolute, and its query may directly follow the host.
    }
    to.extend_from_slice(target.as_bytes());
    to.extend_from_slice(b" HTTP/1.1\r\n");
    let mut has_length = false;
    for (name, value) in &head.headers {
        match *name {
            CONTENT_LENGTH => has_length = true,
            TRANSFER_ENCODING => {}
            _ => write_field(name, value.as_bytes(), to),
        }
    }
    match coding {
        Coding::Chunked => to.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Coding::Length(0) if !has_length => {}
        Coding::Length(length) => write_field(&CONTENT_LENGTH, length.to_string().as_bytes(), to),
    }
    to.extend_from_slice(b"\r\n");
    coding
}

pub(super) fn write_field(name: &HeaderName, value: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(name.as_str().as_bytes());
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// Returns the trailers that a head announces and that may be sent as trailers (RFC 9110, 6.5.1). No others are sent,
/// because a receiver may merge them into the head.
pub(super) fn announced_trailers(headers: &HeaderMap) -> Vec<HeaderName> {
    let names = elements(headers, TRAILER).filter_map(|name| HeaderName::from_bytes(name).ok());
    names.filter(|name| !is_forbidden_in_trailers(name)).collect()
}

/// Reports whether a field is used for framing, routing, authentication or interpretation of a message, as listed by
/// hyper.
fn is_forbidden_in_trailers(name: &HeaderName) -> bool {
    matches!(
        *name,
        AUTHORIZATION
            | CACHE_CONTROL
            | CONTENT_ENCODING
            | CONTENT_LENGTH
            | CONTENT_RANGE
            | CONTENT_TYPE
            | HOST
            | MAX_FORWARDS
            | SET_COOKIE
            | TE
            | TRAILER
            | TRANSFER_ENCODING
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::body::RequestBody;
    use bytes::Bytes;
    use http::Request;
    use http_body_util::{Empty, StreamBody};

    pub(crate) fn head(method: &str, uri: &str, fields: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).expect("valid").into_parts().0
    }

    fn endless() -> impl Body {
        StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>())
    }

    fn written(head: &request::Parts, body: &impl Body) -> (String, Coding) {
        let mut bytes = Vec::new();
        let coding = write_head(head, body, &mut bytes);
        (String::from_utf8(bytes).expect("text"), coding)
    }

    #[test]
    fn the_body_determines_its_framing() {
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, Coding);
        fn assert_framing(body: &impl Body, rows: &[Row<'_>]) {
            for (fields, framing, coding) in rows {
                // For any method: a body without framing would be taken for the next request.
                for method in ["POST", "GET"] {
                    let output = written(&head(method, "/", fields), body);
                    assert_eq!(output, (format!("{method} / HTTP/1.1\r\n{framing}\r\n"), *coding), "{fields:?}");
                }
            }
        }
        let chunked = "transfer-encoding: chunked\r\n";
        let of_unknown_length: [Row<'_>; 4] = [
            (&[], chunked, Coding::Chunked),
            (&[("content-length", "5")], "content-length: 5\r\n", Coding::Length(5)),
            (&[("content-length", "5x")], chunked, Coding::Chunked),
            (&[("transfer-encoding", "gzip")], chunked, Coding::Chunked),
        ];
        assert_framing(&endless(), &of_unknown_length);
        let whole = RequestBody::Whole(Some(Bytes::from_static(b"body")));
        let [four, zero] = ["content-length: 4\r\n", "content-length: 0\r\n"];
        let length = Coding::Length;
        assert_framing(&whole, &[(&[], four, length(4)), (&[("content-length", "9")], four, length(4))]);
        let nothing: Empty<Bytes> = Empty::new();
        assert_framing(&nothing, &[(&[], "", length(0)), (&[("content-length", "9")], zero, length(0))]);
    }

    #[test]
    fn target_and_fields_are_written_unchanged() {
        let head = head("GET", "/a%20b?c=d&e", &[("host", "app.ns"), ("x-twice", "1"), ("x-twice", "")]);
        let nothing: Empty<Bytes> = Empty::new();
        for (target, expected) in [("http://app.ns?x", "/?x"), ("http://app.ns", "/"), ("*", "*")] {
            let (bytes, _) = written(&self::head("OPTIONS", target, &[]), &nothing);
            assert_eq!(bytes, format!("OPTIONS {expected} HTTP/1.1\r\n\r\n"), "{target}");
        }
        let (bytes, _) = written(&head, &nothing);
        assert_eq!(bytes, "GET /a%20b?c=d&e HTTP/1.1\r\nhost: app.ns\r\nx-twice: 1\r\nx-twice: \r\n\r\n");
    }

    #[test]
    fn only_announced_trailers_may_be_sent() {
        let head = head("POST", "/", &[("trailer", "X-Sum, x-more"), ("trailer", "x y,x-last, Host,content-length")]);
        assert_eq!(announced_trailers(&head.headers), ["x-sum", "x-more", "x-last"]);
    }
}
