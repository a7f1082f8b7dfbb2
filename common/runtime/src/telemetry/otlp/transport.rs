//! One OTLP message to a collector and its response, over HTTP/1.1 or gRPC.
//!
//! gRPC uses hyper and five bytes of framing that are written here. A call has one message in each direction and no
//! stream. So a gRPC library and the exporter built on it would add a dozen crates to every binary for two requests a
//! minute.

use super::Environment;
use crate::api_server::chain;
use crate::tls::{Roots, add_roots, rustls::RootCertStore};
use bytes::{BufMut, Bytes, BytesMut};
use common::config::{ConfigError, OtlpProtocol};
use http::header::{CONTENT_TYPE, TE};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for a collector, as OpenTelemetry's default.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest response that is read.
const ANSWER_MAX: usize = 64 * 1024;

/// Kind of exported data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Metrics.
    Metrics,
    /// Spans.
    Traces,
}

/// Connection settings for a collector.
#[derive(Clone, Debug)]
pub struct Sender {
    protocol: OtlpProtocol,
    uri: Uri,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Signal {
    fn path(self, protocol: OtlpProtocol) -> &'static str {
        match (protocol, self) {
            (OtlpProtocol::HttpProtobuf, Self::Metrics) => "/v1/metrics",
            (OtlpProtocol::HttpProtobuf, Self::Traces) => "/v1/traces",
            (OtlpProtocol::Grpc, Self::Metrics) => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            (OtlpProtocol::Grpc, Self::Traces) => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        }
    }
}

impl Sender {
    /// Creates a sender to `configured`, unless the environment overrides it. Fails if the endpoint is not a URL with a
    /// host, or if its CAs cannot be read.
    pub fn new(
        protocol: OtlpProtocol,
        signal: Signal,
        configured: &str,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let (key, own, own_variable) = match signal {
            Signal::Metrics => {
                ("metrics-endpoint", &environment.metrics_endpoint, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
            }
            Signal::Traces => ("tracing-endpoint", &environment.traces_endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        };
        let (setting, value, is_base) = match (own, &environment.endpoint) {
            (Some(own), _) => (own_variable, own.as_str(), false),
            (None, Some(base)) => ("OTEL_EXPORTER_OTLP_ENDPOINT", base.as_str(), true),
            (None, None) => (key, configured, false),
        };
        let refused = |rule: &str| ConfigError::new(setting, value, rule);
        let url = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
        let uri: Uri = url.parse().map_err(|_| refused("must be a URL such as http://collector:4318"))?;
        uri.host().filter(|host| !host.is_empty()).ok_or_else(|| refused("must name a host"))?;
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
        let scheme = scheme.ok_or_else(|| refused("must begin with http:// or https://"))?;
        let path = match (protocol, uri.path()) {
            (OtlpProtocol::Grpc, _) => signal.path(protocol).to_owned(),
            (_, base) if is_base => format!("{}{}", base.trim_end_matches('/'), signal.path(protocol)),
            (_, "" | "/") => signal.path(protocol).to_owned(),
            (_, path) => path.to_owned(),
        };
        let mut authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if uri.port().is_none() && !value.contains("://") {
            authority.push_str(if protocol == OtlpProtocol::Grpc { ":4317" } else { ":4318" });
        }
        let uri = format!("{scheme}://{authority}{path}").parse().map_err(|_| refused("must be a URL"))?;
        let roots = if scheme == "https" { roots(environment)? } else { RootCertStore::empty() };
        let roots = Roots::new(roots).map_err(|error| refused(&error.to_string()))?;
        let connector = HttpsConnectorBuilder::new().with_tls_config((*roots.config()).clone()).https_or_http();
        let connector = match protocol {
            OtlpProtocol::Grpc => connector.enable_http2().build(),
            OtlpProtocol::HttpProtobuf => connector.enable_http1().build(),
        };
        let client = Client::builder(TokioExecutor::new())
            .http2_only(protocol == OtlpProtocol::Grpc)
            .pool_max_idle_per_host(0)
            .build(connector);
        Ok(Self { protocol, uri, client })
    }

    /// Sends one message, within ten seconds. The error describes why the collector could not be reached or rejected
    /// the message. Dropping the future closes the connection; the message may have been accepted.
    pub async fn send(&self, message: Vec<u8>) -> Result<(), String> {
        match timeout(PATIENCE, self.exchange(message)).await {
            Ok(sent) => sent,
            Err(_) => Err(format!("no response within {PATIENCE:?}")),
        }
    }

    async fn exchange(&self, message: Vec<u8>) -> Result<(), String> {
        let request = Request::post(self.uri.clone());
        let request = match self.protocol {
            OtlpProtocol::HttpProtobuf => {
                request.header(CONTENT_TYPE, "application/x-protobuf").body(Full::new(Bytes::from(message)))
            }
            OtlpProtocol::Grpc => {
                let mut framed = BytesMut::with_capacity(message.len() + 5);
                framed.put_u8(0); // Not compressed.
                framed.put_u32(u32::try_from(message.len()).map_err(|_| "the message is too long".to_owned())?);
                framed.put_slice(&message);
                let request = request.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers");
                request.body(Full::new(framed.freeze()))
            }
        };
        let request = request.map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| chain(&error))?;
        match self.protocol {
            OtlpProtocol::HttpProtobuf => plain(response).await,
            OtlpProtocol::Grpc => grpc(response).await,
        }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

async fn plain(response: Response<Incoming>) -> Result<(), String> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let text = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let text = text.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    Err(format!("the collector responded {status}: {text}"))
}

async fn grpc(response: Response<Incoming>) -> Result<(), String> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        return Err(format!("the collector responded {}", head.status));
    }
    let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|error| error.to_string())?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let field = |name: &str| {
        let value = trailers.get(name).or_else(|| head.headers.get(name));
        value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    match field("grpc-status").as_deref() {
        Some("0") => Ok(()),
        code => Err(format!(
            "the collector responded with gRPC status {}: {}",
            code.unwrap_or("missing"),
            field("grpc-message").unwrap_or_default()
        )),
    }
}

fn roots(environment: &Environment) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    match &environment.certificate {
        Some(file) => {
            let name = file.display().to_string();
            let key = "OTEL_EXPORTER_OTLP_CERTIFICATE";
            let refused = |rule: String| ConfigError::new(key, &name, rule);
            let pem = std::fs::read(file).map_err(|error| refused(error.to_string()))?;
            add_roots(&mut store, &name, &pem).map_err(|error| refused(error.to_string()))?;
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(system.certs);
        }
    }
    Ok(store)
}
