//! Fixed responses from the configuration.

use bytes::Bytes;
use common_api::zeroscaler::FixedResponse;
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

/// Headers that frame a message or belong to the connection.
const FRAMING: [&str; 8] =
    ["connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

const RETRY_AFTER_SECONDS: &str = "1";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fixed {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Fixed {
    /// Builds a static response. The default status is 200.
    pub(crate) fn new(response: &FixedResponse) -> Self {
        Self::with_default(response, StatusCode::OK)
    }

    /// Builds a placeholder. The default status is 503, and a 503 always has `Retry-After`.
    pub(crate) fn placeholder(response: &FixedResponse) -> Self {
        let mut fixed = Self::with_default(response, StatusCode::SERVICE_UNAVAILABLE);
        if fixed.status == StatusCode::SERVICE_UNAVAILABLE && !fixed.headers.contains_key(RETRY_AFTER) {
            fixed.headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        fixed
    }

    fn with_default(response: &FixedResponse, default: StatusCode) -> Self {
        let parse = |status: i32| StatusCode::from_u16(u16::try_from(status).ok()?).ok();
        let status = response.status.and_then(parse).filter(|status| status.as_u16() >= 200).unwrap_or(default);
        let mut headers = HeaderMap::new();
        for header in &response.headers {
            let parsed = HeaderName::try_from(&header.name).ok().zip(HeaderValue::try_from(&header.value).ok());
            let Some((name, value)) = parsed else { continue };
            if !FRAMING.contains(&name.as_str()) {
                headers.append(name, value);
            }
        }
        // These statuses forbid a body; over HTTP/2 a body would make the response malformed.
        let body = match status {
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Bytes::new(),
            _ => Bytes::from(response.body.clone()),
        };
        if !body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        }
        Self { status, headers, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(yaml: &str) -> FixedResponse {
        serde_yaml_ng::from_str(yaml).expect(yaml)
    }

    #[test]
    fn a_response_is_sent_as_configured_without_framing_headers() {
        let written = fixed(
            "{status: 202, body: x, headers: [{name: A, value: '1'}, {name: a, value: '2'}, {name: Content-Length, \
             value: '9'}, {name: Keep-Alive, value: x}, {name: 'B C', value: x}, {name: D, value: \"x\\r\\ny\"}]}",
        );
        let response = Fixed::new(&written);
        let fields: Vec<_> = response.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let kind: (&str, &[u8]) = ("content-type", b"text/plain; charset=utf-8");
        assert_eq!(fields, [("a", &b"1"[..]), ("a", b"2"), kind]);
        assert_eq!((response.status.as_u16(), &response.body[..]), (202, &b"x"[..]));
    }

    /// Goal: a response whose status forbids a body has no body and no default content type.
    #[test]
    fn a_status_that_forbids_a_body_has_none() {
        for (status, body) in [(200, "x"), (204, ""), (304, "")] {
            let response = Fixed::new(&fixed(&format!("{{status: {status}, body: x}}")));
            assert_eq!(&response.body[..], body.as_bytes(), "{status}");
            assert_eq!(response.headers.contains_key(CONTENT_TYPE), !body.is_empty(), "{status}");
        }
        let written = fixed("{status: 304, body: x, headers: [{name: Content-Type, value: image/png}]}");
        assert_eq!(Fixed::new(&written).headers[CONTENT_TYPE], "image/png");
    }

    #[test]
    fn a_missing_or_invalid_status_becomes_the_default() {
        for (yaml, fixed_status, placeholder) in
            [("{}", 200, 503), ("{status: 418}", 418, 418), ("{status: 101}", 200, 503), ("{status: -1}", 200, 503)]
        {
            let written = fixed(yaml);
            assert_eq!(Fixed::new(&written).status.as_u16(), fixed_status, "{yaml}");
            let sent = Fixed::placeholder(&written);
            assert_eq!(sent.status.as_u16(), placeholder, "{yaml}");
            assert_eq!(sent.headers.contains_key(RETRY_AFTER), placeholder == 503, "{yaml}");
        }
    }
}
