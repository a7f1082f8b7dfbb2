//! Sends metrics and spans to a collector: OTLP over HTTP or gRPC, both with protobuf.
//!
//! | setting | overridden by |
//! |---|---|
//! | `metrics-endpoint` | `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, then `OTEL_EXPORTER_OTLP_ENDPOINT` |
//! | `tracing-endpoint` | `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, then `OTEL_EXPORTER_OTLP_ENDPOINT` |
//! | `metrics-export-interval` | `OTEL_METRIC_EXPORT_INTERVAL`, in milliseconds; default: 60 s |
//! | the plane's name | `OTEL_SERVICE_NAME` |
//!
//! An endpoint is a URL; a bare `host:port` means `http://`. `https://` trusts the system's CAs, or those in the file
//! that `OTEL_EXPORTER_OTLP_CERTIFICATE` names. Over HTTP, a URL without a path gets the signal's own path.
//!
//! Each export uses a new connection, since exports are seconds apart. A failed export is logged once
//! ([`crate::failure_log`]) and dropped. Metrics are cumulative, so only one data point is lost.
//!
//! # Not here
//!
//! Compression, headers (`OTEL_EXPORTER_OTLP_HEADERS`), retries.

mod metrics;
mod text;
mod transport;

pub(super) use text::Sample;
pub use transport::{Sender, Signal};

use crate::environment::optional;
use crate::failure_log::FailureLog;
use crate::telemetry::Metrics;
use common::config::{ConfigError, MetricsConfig, MetricsProtocol};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// OpenTelemetry's default interval.
const INTERVAL: Duration = Duration::from_secs(60);
/// Longest wait for the last export.
const LAST: Duration = Duration::from_secs(5);

/// OpenTelemetry's own variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `OTEL_SERVICE_NAME`.
    pub service_name: Option<String>,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`.
    pub metrics_endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
    pub traces_endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`.
    pub certificate: Option<PathBuf>,
    /// `OTEL_METRIC_EXPORT_INTERVAL`; a value that is not a number is ignored, as the specification requires.
    pub metric_interval: Option<Duration>,
    /// `OTEL_TRACES_SAMPLER`.
    pub sampler: Option<String>,
    /// `OTEL_TRACES_SAMPLER_ARG`.
    pub sampler_argument: Option<String>,
}

impl Environment {
    /// Reads the variables with `get`.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Self {
        let read = |variable: &str| optional(get, variable);
        let millis = read("OTEL_METRIC_EXPORT_INTERVAL").and_then(|value| value.parse().ok());
        Self {
            service_name: read("OTEL_SERVICE_NAME"),
            endpoint: read("OTEL_EXPORTER_OTLP_ENDPOINT"),
            metrics_endpoint: read("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
            traces_endpoint: read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            certificate: read("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from),
            metric_interval: millis.filter(|ms| *ms > 0).map(Duration::from_millis),
            sampler: read("OTEL_TRACES_SAMPLER"),
            sampler_argument: read("OTEL_TRACES_SAMPLER_ARG"),
        }
    }
}

/// Identity of the process in its exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Name of the service: `activator` or `autoscaler`.
    pub service: &'static str,
    /// Namespace of the process's pod.
    pub namespace: String,
    /// Name of the process's pod.
    pub pod: String,
}

impl ProcessIdentity {
    /// Returns upstream's attributes that describe the process.
    pub(crate) fn attributes(&self, environment: &Environment) -> Vec<(&'static str, String)> {
        let service = environment.service_name.clone().unwrap_or_else(|| self.service.to_owned());
        vec![
            ("service.name", service),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("k8s.namespace.name", self.namespace.clone()),
            ("k8s.pod.name", self.pod.clone()),
        ]
    }

    fn resource(&self, environment: &Environment) -> Resource {
        let attributes = self.attributes(environment);
        let attributes = attributes.iter().map(|(key, value)| metrics::attribute(key, value)).collect();
        Resource { attributes, ..Resource::default() }
    }
}

/// Starts to send `metrics`, if `config` requires it, until `shutdown`. The task ends after one more export. Fails if
/// the endpoint cannot be used.
pub fn push(
    metrics: Metrics,
    config: &MetricsConfig,
    identity: &ProcessIdentity,
    environment: &Environment,
    shutdown: CancellationToken,
) -> Result<Option<JoinHandle<()>>, ConfigError> {
    let MetricsProtocol::Otlp(protocol) = config.protocol else { return Ok(None) };
    let sender = Sender::new(protocol, Signal::Metrics, &config.endpoint, environment)?;
    let every = environment.metric_interval.or(config.export_interval).unwrap_or(INTERVAL);
    let (resource, scope) = (identity.resource(environment), format!("knative.dev/serving/pkg/{}", identity.service));
    let start = since_1970();
    tracing::info!(to = %sender, ?every, "metrics are exported");
    Ok(Some(tokio::spawn(async move {
        let mut failures = FailureLog::for_operation(format!("the export of metrics to {sender}"));
        let mut next = Instant::now() + every;
        loop {
            let last = tokio::time::timeout_at(next, shutdown.cancelled()).await.is_ok();
            next += every;
            let (metrics, resource, scope) = (metrics.clone(), resource.clone(), scope.clone());
            // For tens of thousands of workloads this is a hundred megabytes and takes seconds.
            let made = tokio::task::spawn_blocking(move || {
                let span = metrics::Span { start, now: since_1970() };
                metrics::request(&metrics, resource, scope, span).map(|request| request.encode_to_vec())
            });
            let sent = match made.await {
                Ok(Ok(request)) => match timeout(if last { LAST } else { every }, sender.send(request)).await {
                    Ok(sent) => sent,
                    Err(_) => Err(format!("{sender} did not respond in time")),
                },
                _ => Err("a metric could not be written".to_owned()),
            };
            match sent {
                Ok(()) => failures.recovered(),
                Err(error) => failures.failed(&error),
            }
            if last {
                return;
            }
        }
    })))
}

/// Returns the nanoseconds since 1970. Only this function reads the system's clock: OTLP data points have timestamps.
fn since_1970() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "what leaves the process is dated by the wall clock")]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
