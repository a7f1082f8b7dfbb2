//! Single requests to the API server by path, with JSON bodies and upstream's error texts.

use super::wording::{Failure, failure};
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum wait for one response.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response: the usage of some hundred thousand pods.
const RESPONSE_MAX: usize = 128 << 20;
/// Characters that need no encoding in a path segment or parameter.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'*');

/// REST client of the API server.
pub(super) struct Rest(pub(super) Client);

impl Rest {
    /// Sends `GET path` with the parameters that are not empty. `resource` names resource and object for the text of
    /// a failure.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        resource: &str,
    ) -> Result<T, Failure> {
        let set = parameters.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<_> = set.map(|(key, value)| format!("{key}={}", segment(value))).collect();
        let uri = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
        self.send(Method::GET, &uri, Vec::new(), resource).await
    }

    /// Sends `PUT path`. Client and server give up after `within`.
    pub(super) async fn put(&self, path: &str, body: &Value, within: Duration, resource: &str) -> Result<(), Failure> {
        let uri = format!("{path}?timeout={}ms", within.as_millis().max(1));
        let sent = self.send::<Value>(Method::PUT, &uri, body.to_string().into_bytes(), resource);
        // The duration depends on the rest of the lease. The text omits it, so that conditions do not change with each
        // reconcile.
        timeout(within, sent).await.unwrap_or_else(|_| Err(Failure::client("no response in time"))).map(drop)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        uri: &str,
        body: Vec<u8>,
        resource: &str,
    ) -> Result<T, Failure> {
        let verb = method.as_str().to_lowercase();
        let operation = if resource.is_empty() { String::new() } else { format!("{verb} {resource}") };
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|e| Failure::client(format!("{uri:?} cannot be requested: {e}")))?;
        let exchange = async {
            let response = self.0.send(request).await.map_err(|e| Failure::client(e.to_string()))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, RESPONSE_MAX).collect().await;
            let body = body.map_err(|e| Failure::client(format!("the response could not be read: {e}")))?.to_bytes();
            if !head.status.is_success() {
                return Err(failure(head.status, &media_type(&head.headers), &body, &operation));
            }
            serde_json::from_slice(&body).map_err(|e| Failure::client(format!("the response cannot be parsed: {e}")))
        };
        let late = |_| Err(Failure::client(format!("no response within {} s", REQUEST_TIMEOUT.as_secs())));
        timeout(REQUEST_TIMEOUT, exchange).await.unwrap_or_else(late)
    }
}

/// Returns the media type of a response without parameters; empty if the header is absent.
fn media_type(headers: &HeaderMap) -> String {
    let header_value = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let header_value = String::from_utf8_lossy(header_value);
    header_value.split(';').next().unwrap_or_default().trim().to_lowercase()
}

/// Encodes a path segment, or the value of a parameter.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Returns a resource as `RESOURCE.GROUP`, or `RESOURCE` in the core group.
pub(super) fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_media_type_is_read_without_its_parameters() {
        for (value, media) in [("Text/Plain; charset=utf-8", "text/plain"), ("application/json", "application/json")] {
            let headers: HeaderMap = [(header::CONTENT_TYPE, HeaderValue::from_static(value))].into_iter().collect();
            assert_eq!(media_type(&headers), media);
        }
        assert_eq!(media_type(&HeaderMap::new()), "");
    }

    #[test]
    fn a_segment_cannot_change_the_structure_of_the_path() {
        assert_eq!(segment("*"), "*");
        assert_eq!(segment("ingresses.networking.k8s.io"), "ingresses.networking.k8s.io");
        assert_eq!(segment("../x?y=z&é"), "..%2Fx%3Fy%3Dz%26%C3%A9");
    }
}
