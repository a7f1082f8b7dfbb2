//! Validity of a request's head, checked before the request is handled.
//!
//! hyper rejects most malformed heads. This module checks the rest, so that no other server on the way reads a request
//! differently:
//!
//! | request | response |
//! |---|---|
//! | `CONNECT` | 400 |
//! | HTTP/1.1 without `Host`; more than one `Host`; an invalid or multiple host in `Host` or the authority | 400 |
//! | a target that is neither a path nor a URI, or has user information | 400 |
//! | a transfer coding other than a single `chunked` | 501 |
//! | an expectation other than `100-continue` | 417 |
//! | HTTP/2 fields that repeat the same text too often ([`crate::server::heads::field_repetition`]) | 431 |
//! | more fields than [`FIELDS_MAX`] (over HTTP/1 from hyper) | 431 |
//! | `OPTIONS *` over HTTP/1 | 200, from us |
//!
//! The connection is closed after each of these except the last. An absolute target's authority has priority over
//! `Host` (RFC 9112, 3.2.2), both for the choice of the revision and for the pod.

use crate::error::ProxyError;
use crate::limits::FIELDS_MAX;
use crate::server::heads::field_repetition;
use http::header::{EXPECT, HOST, TRANSFER_ENCODING};
use http::{Method, Request, StatusCode, Version};
use http_body::Body;

pub(crate) fn is_for_server<B>(request: &Request<B>) -> bool {
    *request.method() == Method::OPTIONS && is_http1(request) && request.uri().path() == "*"
}

fn is_http1<B>(request: &Request<B>) -> bool {
    request.version() < Version::HTTP_2
}

pub(crate) fn check<B: Body>(request: &Request<B>) -> Result<(), ProxyError> {
    let unsupported = |status, rule| Err(ProxyError::Unsupported { status, rule });
    if request.headers().len() > FIELDS_MAX {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return unsupported(status, "the request has more than 1024 header fields");
    }
    if *request.method() == Method::CONNECT {
        return unsupported(StatusCode::BAD_REQUEST, "the method CONNECT is not supported");
    }
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(ProxyError::Malformed("the request target must not contain user information"));
    }
    if !is_host(authority.as_bytes()) {
        return Err(ProxyError::Malformed("malformed authority"));
    }
    if is_http1(request) && request.uri().scheme().is_none() && request.uri().authority().is_some() {
        return Err(ProxyError::Malformed("the request target is neither a path nor a URI"));
    }
    let fields = request.headers();
    let mut hosts = fields.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => {
            return Err(ProxyError::Malformed("missing required Host header"));
        }
        (Some(_), Some(_)) => return Err(ProxyError::Malformed("more than one Host header")),
        (Some(host), None) if !is_host(host.as_bytes()) => return Err(ProxyError::Malformed("malformed Host header")),
        _ => {}
    }
    if !is_http1(request) && field_repetition::exceeds_repetition(fields) {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return unsupported(status, "the header fields repeat the same values too often");
    }
    if !is_http1(request) || request.body().is_end_stream() {
        return Ok(());
    }
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {}
        _ => {
            let rule = "the only supported transfer coding is chunked, applied once";
            return unsupported(StatusCode::NOT_IMPLEMENTED, rule);
        }
    }
    let expected = fields.get_all(EXPECT).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    match expected {
        true => Ok(()),
        false => unsupported(StatusCode::EXPECTATION_FAILED, "the only supported expectation is 100-continue"),
    }
}

/// Reports whether all bytes are allowed in a host and port of RFC 3986, except the comma: servers that join fields
/// would read two hosts. An empty value is allowed.
fn is_host(value: &[u8]) -> bool {
    value.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%[]:".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::HeaderValue;
    use http_body_util::{Empty, Full};

    fn head(target: &str, version: Version, fields: &[(&str, &[u8])]) -> http::request::Builder {
        let mut request = Request::builder().uri(target).version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request
    }

    fn status(checked: &Result<(), ProxyError>) -> u16 {
        match checked {
            Err(ProxyError::Unsupported { status, .. }) => status.as_u16(),
            Err(_) => 400,
            Ok(()) => 0,
        }
    }

    #[test]
    fn one_valid_host_is_required() {
        type Row<'a> = (&'a str, Version, &'a [(&'a str, &'a [u8])], u16);
        let rows: [Row<'_>; 16] = [
            ("nowhere", Version::HTTP_11, &[("host", b"a")], 400),
            ("/", Version::HTTP_11, &[("host", b"a")], 0),
            ("/", Version::HTTP_11, &[("host", b"")], 0),
            ("/", Version::HTTP_11, &[("host", b"[::1]:80")], 0),
            ("/", Version::HTTP_11, &[], 400),
            ("/", Version::HTTP_10, &[], 0),
            ("http://a/", Version::HTTP_2, &[], 0),
            ("/", Version::HTTP_11, &[("host", b"a"), ("host", b"a")], 400),
            ("/", Version::HTTP_10, &[("host", b"a"), ("host", b"b")], 400),
            ("/", Version::HTTP_11, &[("host", b"a b")], 400),
            ("/", Version::HTTP_11, &[("host", b"a/b@c")], 400),
            ("/", Version::HTTP_11, &[("host", b"\xe9")], 400),
            ("/", Version::HTTP_11, &[("host", b"a,b")], 400),
            ("http://a,b/", Version::HTTP_2, &[], 400),
            ("http://a,b/", Version::HTTP_11, &[("host", b"a")], 400),
            ("http://user@a/", Version::HTTP_11, &[("host", b"a")], 400),
        ];
        for (target, version, fields, expected) in rows {
            let request = head(target, version, fields).body(Empty::<Bytes>::new()).expect("a request");
            assert_eq!(status(&check(&request)), expected, "{target} {version:?} {fields:?}");
        }
    }

    #[test]
    fn only_chunked_and_100_continue_are_supported() {
        let rows: [(&str, &[&[u8]], u16); 9] = [
            ("transfer-encoding", &[b"chunked"], 0),
            ("transfer-encoding", &[b"CHUNKED"], 0),
            ("transfer-encoding", &[b"gzip, chunked"], 501),
            ("transfer-encoding", &[b"identity"], 501),
            ("transfer-encoding", &[b"\x0bchunked"], 501),
            ("transfer-encoding", &[b"chunked", b"chunked"], 501),
            ("expect", &[b"100-Continue"], 0),
            ("expect", &[b"100-continue, more"], 417),
            ("expect", &[b"200-ok"], 417),
        ];
        for (name, values, expected) in rows {
            let values: Result<Vec<_>, _> = values.iter().map(|value| HeaderValue::from_bytes(value)).collect();
            let Ok(values) = values else { continue }; // hyper has rejected it already.
            let mut request =
                head("/", Version::HTTP_11, &[("host", b"a")]).body(Full::<Bytes>::from("x")).expect("a request");
            for value in &values {
                request.headers_mut().append(http::HeaderName::from_static(name), value.clone());
            }
            assert_eq!(status(&check(&request)), expected, "{name}: {values:?}");
        }
    }

    #[test]
    fn only_over_http1_is_options_asterisk_for_the_server() {
        for (version, ourselves) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
            let request = Request::options("*").version(version).header("host", "a").body(Empty::<Bytes>::new());
            let request = request.expect("a request");
            assert!(check(&request).is_ok());
            assert_eq!(is_for_server(&request), ourselves);
        }
    }
}
