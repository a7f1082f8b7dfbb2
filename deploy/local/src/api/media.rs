//! Media types: accepted forms of a client, and encoding of responses.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::status::ApiError;

/// Body of a response.
pub(crate) type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// Minimum size in bytes of bodies that are compressed for clients that accept it.
const PACK_FROM: usize = 128 * 1024;

/// Form of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Unchanged.
    Plain,
    /// Table for people.
    Table,
    /// Metadata only.
    Partial,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accept {
    pub(crate) form: Form,
    /// Version of aggregated discovery, if the client accepts it.
    pub(crate) discovery: Option<&'static str>,
    /// True if the body may be compressed.
    pub(crate) gzip: bool,
}

impl Accept {
    /// Plain JSON, which errors use.
    pub(crate) const JSON: Accept = Accept { form: Form::Plain, discovery: None, gzip: false };

    /// Returns the first supported type of the header, or `None` if no type is supported.
    pub(crate) fn parse(headers: &HeaderMap) -> Option<Accept> {
        let packed = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let gzip = packed.split(',').any(|coding| coding.split(';').next().unwrap_or_default().trim() == "gzip");
        let Some(header) = headers.get(http::header::ACCEPT) else { return Some(Accept { gzip, ..Accept::JSON }) };
        let header = header.to_str().unwrap_or_default();
        header.split(',').find_map(|term| Self::term(term.trim())).map(|accept| Accept { gzip, ..accept })
    }

    fn term(term: &str) -> Option<Accept> {
        let mut parts = term.split(';').map(str::trim);
        if !["*/*", "application/*", "application/json", ""].contains(&parts.next().unwrap_or_default()) {
            return None;
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| *value);
        let meta = parameter("g") == "meta.k8s.io" && parameter("v") == "v1";
        let accept = Accept::JSON;
        match parameter("as") {
            "" => Some(accept),
            "Table" if meta => Some(Accept { form: Form::Table, ..accept }),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if meta => {
                Some(Accept { form: Form::Partial, ..accept })
            }
            "APIGroupDiscoveryList" if parameter("g") == "apidiscovery.k8s.io" => match parameter("v") {
                "v2" => Some(Accept { discovery: Some("v2"), ..accept }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Builds a complete body.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// Builds a plain-text response, as health endpoints do.
pub(crate) fn text(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", text.into())
}

/// Builds a response of a content type.
pub(crate) fn respond(code: u16, content_type: &str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}

/// Builds a JSON response, compressed if it is large and the client accepts that.
pub(crate) fn encode(code: u16, json: Bytes, accept: Accept) -> Response<Body> {
    if accept.gzip && json.len() >= PACK_FROM {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        if packer.write_all(&json).is_ok()
            && let Ok(packed) = packer.finish()
        {
            let mut response = respond(code, "application/json", packed.into());
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            return response;
        }
    }
    respond(code, "application/json", json)
}

/// Builds a JSON response from a value.
pub(crate) fn encode_value(code: u16, value: &Value, accept: Accept) -> Response<Body> {
    encode(code, value.to_string().into(), accept)
}

impl From<ApiError> for Response<Body> {
    fn from(error: ApiError) -> Self {
        let mut response = encode_value(error.code, &error.body, Accept::JSON);
        if let Some(seconds) = error.body.pointer("/details/retryAfterSeconds").and_then(Value::as_u64) {
            response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
