//! Sends the requests of a scenario and reads the responses.

use std::io::Read as _;

use anyhow::Context as _;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::Value;

/// Client of a server, with its token.
pub(super) struct Exchange {
    client: Client,
    pub(super) token: String,
}

/// Response of the server.
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// Body: JSON, or else its text as a JSON string.
    pub(super) body: Value,
}

/// Body of a watch.
pub(super) struct Stream {
    body: Body,
    buffer: Vec<u8>,
}

impl Exchange {
    /// Creates a client without credentials of its own: scenarios specify the credentials of each request.
    pub(super) fn new(url: &str, token: String) -> anyhow::Result<Self> {
        let mut config = Config::new(url.parse().with_context(|| format!("--api {url}"))?);
        config.accept_invalid_certs = true;
        config.read_timeout = None;
        config.default_retry = false;
        Ok(Exchange { client: Client::try_from(config)?, token })
    }

    async fn send(&self, step: &Value, method: &str) -> anyhow::Result<http::Response<Body>> {
        let path = step["path"].as_str().context("a step without a path")?;
        let mut request = Request::builder().method(method).uri(path);
        let headers = request.headers_mut().context("an invalid path")?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        match step["auth"].as_str() {
            Some("none") => {}
            Some(text) => drop(headers.insert(AUTHORIZATION, HeaderValue::from_str(text)?)),
            None => drop(headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {}", self.token))?)),
        }
        let body = match step.get("body") {
            None => Vec::new(),
            Some(body) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                body.as_str().map_or_else(|| body.to_string(), str::to_string).into_bytes()
            }
        };
        for (name, value) in step["headers"].as_object().into_iter().flatten() {
            let name = HeaderName::try_from(name)?;
            match value.as_str() {
                Some(text) => drop(headers.insert(name, HeaderValue::from_str(text)?)),
                None => drop(headers.remove(name)),
            }
        }
        Ok(self.client.send(request.body(Body::from(body))?).await?)
    }

    /// Sends a step and reads the whole response.
    pub(super) async fn request(&self, step: &Value) -> anyhow::Result<HttpResponse> {
        let method = step["method"].as_str().context("a step without a method")?;
        let response = self.send(step, method).await?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
        let packed = parts.headers.get(CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
        let bytes = if packed { unpack(&bytes)? } else { bytes };
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        Ok(HttpResponse { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Opens a watch and reads the head of the response.
    pub(super) async fn open(&self, step: &Value) -> anyhow::Result<(HttpResponse, Stream)> {
        let (parts, body) = self.send(step, "GET").await?.into_parts();
        let answer = HttpResponse { status: parts.status.as_u16(), headers: parts.headers, body: Value::Null };
        Ok((answer, Stream { body, buffer: Vec::new() }))
    }
}

fn unpack(bytes: &[u8]) -> anyhow::Result<Bytes> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).context("gzip")?;
    Ok(plain.into())
}

impl Stream {
    /// Returns the next event, or `None` at the end of the stream. Cancel safe.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).context("an event that is not JSON").map(Some);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.buffer.extend(frame.into_data().unwrap_or_default()),
                Some(Err(error)) => anyhow::bail!("the stream broke: {error}"),
            }
        }
    }
}
