//! Media types: accepted forms of a client, and encoding of responses.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::columns::Include;
use super::status::ApiError;

/// Body of a response.
pub(crate) type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// Form of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Unchanged.
    Plain,
    /// Table for people.
    Table(Include),
    /// Metadata only.
    Partial,
}

impl Form {
    /// Returns the first supported form of the `Accept` header, or `None` if no form is supported. `include` is for
    /// tables.
    pub(crate) fn accepted(headers: &HeaderMap, include: Include) -> Option<Form> {
        let Some(header) = headers.get(ACCEPT) else { return Some(Form::Plain) };
        let terms = header.to_str().unwrap_or_default().split(',');
        terms.map(str::trim).find_map(|term| Self::of_term(term, include))
    }

    fn of_term(term: &str, include: Include) -> Option<Form> {
        let mut parts = term.split(';').map(str::trim);
        if !["*/*", "application/*", "application/json", ""].contains(&parts.next().unwrap_or_default()) {
            return None;
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| *value);
        let meta = parameter("g") == "meta.k8s.io" && parameter("v") == "v1";
        match parameter("as") {
            "" => Some(Form::Plain),
            "Table" if meta => Some(Form::Table(include)),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if meta => Some(Form::Partial),
            _ => None,
        }
    }
}

/// Builds a plain-text response, as health endpoints do.
pub(crate) fn text(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", text.into())
}

pub(crate) fn respond(code: u16, content_type: &str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}

pub(crate) fn encode_value(code: u16, value: &Value) -> Response<Body> {
    respond(code, "application/json", value.to_string().into())
}

impl From<ApiError> for Response<Body> {
    fn from(error: ApiError) -> Self {
        let mut response = encode_value(error.code, &error.body);
        if let Some(seconds) = error.body.pointer("/details/retryAfterSeconds").and_then(Value::as_u64) {
            response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
