//! What a request must be before anybody looks at what it asks for.
//!
//! hyper reads heads and refuses most of what is malformed; here is what it leaves to its users, so that nobody on
//! the way of a request can take it for another one than we do:
//!
//! | request | answer |
//! |---|---|
//! | `CONNECT` | 400 |
//! | HTTP/1.1 without `Host`; any with two; a `Host` or an authority that is no host, or names several | 400 |
//! | a target that is neither a path nor a URI, or one with user information | 400 |
//! | a transfer coding other than `chunked`, once | 501 |
//! | an expectation other than `100-continue` | 417 |
//! | fields of HTTP/2 that repeat one text for many ([`super::references`]) | 431 |
//! | more fields than [`FIELDS_MAX`] (over HTTP/1 hyper's) | 431 |
//! | `OPTIONS *` over HTTP/1 | 200, from us |
//!
//! After each of these the connection is closed, except after the last. An absolute target's authority counts and
//! `Host` does not (RFC 9112, 3.2.2), for the choice of the revision and for what the pod sees alike.

use super::references;
use crate::error::ProxyError;
use crate::limits::FIELDS_MAX;
use http::header::{EXPECT, HOST, TRANSFER_ENCODING};
use http::{Method, Request, StatusCode, Version};
use http_body::Body;

/// What is to be done with a request.
#[derive(Debug)]
pub(super) enum Checked {
    /// It goes through the chain.
    Pass,
    /// It asks for the server itself.
    ForServer,
    Refused(ProxyError),
}

/// Checks a request's head.
pub(super) fn check<B: Body>(request: &Request<B>) -> Checked {
    match rules(request) {
        Err(error) => Checked::Refused(error),
        Ok(()) if *request.method() == Method::OPTIONS && is_http1(request) && request.uri().path() == "*" => {
            Checked::ForServer
        }
        Ok(()) => Checked::Pass,
    }
}

fn is_http1<B>(request: &Request<B>) -> bool {
    request.version() < Version::HTTP_2
}

fn rules<B: Body>(request: &Request<B>) -> Result<(), ProxyError> {
    if request.headers().len() > FIELDS_MAX {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(ProxyError::Unsupported { status, rule: "a head has 1024 fields at most" });
    }
    if *request.method() == Method::CONNECT {
        let rule = "CONNECT is not proxied: there is nothing to connect to but the service itself";
        return Err(ProxyError::Unsupported { status: StatusCode::BAD_REQUEST, rule });
    }
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(ProxyError::Malformed("user information in the request target"));
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
    if !is_http1(request) && references::are_repeated(fields) {
        let rule = "these fields repeat what they say too often";
        return Err(ProxyError::Unsupported { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, rule });
    }
    if !is_http1(request) || request.body().is_end_stream() {
        return Ok(());
    }
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {}
        _ => {
            let rule = "the only transfer coding that is understood here is chunked, once";
            return Err(ProxyError::Unsupported { status: StatusCode::NOT_IMPLEMENTED, rule });
        }
    }
    let expected = fields.get_all(EXPECT).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if !expected {
        let rule = "the only expectation that can be met here is 100-continue";
        return Err(ProxyError::Unsupported { status: StatusCode::EXPECTATION_FAILED, rule });
    }
    Ok(())
}

/// RFC 3986's host and port, as far as its alphabet goes, but for the comma: servers that join fields read two hosts there.
/// An empty one is allowed.
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

    fn status(checked: &Checked) -> u16 {
        match checked {
            Checked::Refused(ProxyError::Unsupported { status, .. }) => status.as_u16(),
            Checked::Refused(_) => 400,
            Checked::Pass | Checked::ForServer => 0,
        }
    }

    #[test]
    fn a_host_is_named_once_and_is_one() {
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
    fn a_body_comes_in_one_coding_and_with_one_expectation() {
        let rows: [(&str, &[u8], u16); 8] = [
            ("transfer-encoding", b"chunked", 0),
            ("transfer-encoding", b"CHUNKED", 0),
            ("transfer-encoding", b"gzip, chunked", 501),
            ("transfer-encoding", b"identity", 501),
            ("transfer-encoding", b"\x0bchunked", 501),
            ("expect", b"100-Continue", 0),
            ("expect", b"100-continue, more", 417),
            ("expect", b"200-ok", 417),
        ];
        for (name, value, expected) in rows {
            let value = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(value));
            let Ok(value) = value else { continue }; // hyper has refused it already.
            let mut request =
                head("/", Version::HTTP_11, &[("host", b"a")]).body(Full::<Bytes>::from("x")).expect("a request");
            request.headers_mut().insert(http::HeaderName::from_static(name), value);
            assert_eq!(status(&check(&request)), expected, "{name}: {:?}", request.headers()[name]);
        }
        let mut twice =
            head("/", Version::HTTP_11, &[("host", b"a")]).body(Full::<Bytes>::from("x")).expect("a request");
        twice.headers_mut().append(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        twice.headers_mut().append(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        assert_eq!(status(&check(&twice)), 501);
    }

    #[test]
    fn only_http1_asks_the_server_itself() {
        for (version, ourselves) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
            let request = Request::options("*").version(version).header("host", "a").body(Empty::<Bytes>::new());
            let checked = check(&request.expect("a request"));
            assert_eq!(matches!(checked, Checked::ForServer), ourselves, "{checked:?}");
        }
    }
}
