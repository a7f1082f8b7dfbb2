//! `config-observability`, limited to the keys that both planes use: export of metrics and traces.
//!
//! | key | default | values |
//! |---|---|---|
//! | `metrics-protocol` | `prometheus` | `none`, `prometheus`, `grpc`, `http/protobuf` |
//! | `metrics-endpoint` | | required for OTLP, forbidden for `none`, `host:port` to listen on for `prometheus` |
//! | `metrics-export-interval` | 0: 60 s | a duration, not negative |
//! | `tracing-protocol` | `none` | `none`, `stdout`, `grpc`, `http/protobuf` |
//! | `tracing-endpoint` | | required for OTLP, forbidden otherwise |
//! | `tracing-sampling-rate` | 0 | from 0 to 1 |
//! | `runtime-export-interval` | 15 s | a duration, not negative |
//! | `request-metrics-*` | | read and checked like the three `metrics-*` keys; only a queue-proxy acts on them |
//!
//! One difference from Knative: there, a missing `metrics-protocol` means `none`, so no metrics at all.
//!
//! Not here: `logging.*`, which only the activator reads; `runtime-profiling`, as there are no profiles.

use super::{ConfigError, Reader, ensure};
use crate::golang::GoDuration;
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of `config-observability` for both planes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservabilityConfig {
    /// Export of metrics.
    pub metrics: MetricsConfig,
    /// Export of traces.
    pub tracing: TracingConfig,
}

/// Export of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsConfig {
    /// `metrics-protocol`.
    pub protocol: MetricsProtocol,
    /// `metrics-endpoint`, empty if absent.
    pub endpoint: String,
    /// `metrics-export-interval`; `None`: OpenTelemetry's default.
    pub export_interval: Option<Duration>,
}

/// Protocol of exported metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsProtocol {
    /// Metrics are not exported.
    None,
    /// Prometheus scrapes the metrics.
    #[default]
    Prometheus,
    /// Metrics are pushed by OTLP.
    Otlp(OtlpProtocol),
}

/// Export of traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracingConfig {
    /// `tracing-protocol`.
    pub protocol: TracingProtocol,
    /// `tracing-endpoint`, empty if absent.
    pub endpoint: String,
    /// `tracing-sampling-rate`, from 0 to 1.
    pub sampling_rate: f64,
}

/// Protocol of exported traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracingProtocol {
    /// No traces.
    #[default]
    None,
    /// All traces are written to standard output.
    Stdout,
    /// Traces are pushed by OTLP.
    Otlp(OtlpProtocol),
}

/// Transport of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// `grpc`.
    Grpc,
    /// `http/protobuf`.
    HttpProtobuf,
}

impl ObservabilityConfig {
    /// Reads and checks the map's data. Fails with the first value that cannot be parsed or breaks a rule.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let read = Reader(data);
        let metrics = MetricsConfig::read(read, ["metrics-protocol", "metrics-endpoint", "metrics-export-interval"])?;
        let requests = ["request-metrics-protocol", "request-metrics-endpoint", "request-metrics-export-interval"];
        MetricsConfig::read(read, requests)?;
        let tracing = TracingConfig::read(read)?;
        interval(read, "runtime-export-interval")?;
        Ok(Self { metrics, tracing })
    }
}

impl MetricsConfig {
    /// Reads the keys of protocol, endpoint and interval.
    fn read(read: Reader<'_>, keys: [&'static str; 3]) -> Result<Self, ConfigError> {
        let [protocol_key, endpoint_key, interval_key] = keys;
        let protocol = match read.text(protocol_key, "prometheus").as_str() {
            "none" => MetricsProtocol::None,
            "prometheus" | "" => MetricsProtocol::Prometheus,
            "grpc" => MetricsProtocol::Otlp(OtlpProtocol::Grpc),
            "http/protobuf" => MetricsProtocol::Otlp(OtlpProtocol::HttpProtobuf),
            other => {
                return Err(ConfigError::new(protocol_key, other, "must be none, prometheus, grpc or http/protobuf"));
            }
        };
        let endpoint = read.text(endpoint_key, "");
        match protocol {
            MetricsProtocol::None => forbidden(endpoint_key, &endpoint, protocol_key)?,
            MetricsProtocol::Prometheus => {}
            MetricsProtocol::Otlp(_) => required(endpoint_key, &endpoint, protocol_key)?,
        }
        Ok(Self { protocol, endpoint, export_interval: interval(read, interval_key)? })
    }
}

impl TracingConfig {
    fn read(read: Reader<'_>) -> Result<Self, ConfigError> {
        const PROTOCOL: &str = "tracing-protocol";
        const ENDPOINT: &str = "tracing-endpoint";
        const RATE: &str = "tracing-sampling-rate";
        let protocol = match read.text(PROTOCOL, "none").as_str() {
            "none" | "" => TracingProtocol::None,
            "stdout" => TracingProtocol::Stdout,
            "grpc" => TracingProtocol::Otlp(OtlpProtocol::Grpc),
            "http/protobuf" => TracingProtocol::Otlp(OtlpProtocol::HttpProtobuf),
            other => return Err(ConfigError::new(PROTOCOL, other, "must be none, stdout, grpc or http/protobuf")),
        };
        let endpoint = read.text(ENDPOINT, "");
        match protocol {
            TracingProtocol::Otlp(_) => required(ENDPOINT, &endpoint, PROTOCOL)?,
            _ => forbidden(ENDPOINT, &endpoint, PROTOCOL)?,
        }
        let sampling_rate = read.float(RATE, 0.0)?;
        ensure((0.0..=1.0).contains(&sampling_rate), RATE, sampling_rate, "must be from 0 to 1")?;
        Ok(Self { protocol, endpoint, sampling_rate })
    }
}

fn interval(read: Reader<'_>, key: &'static str) -> Result<Option<Duration>, ConfigError> {
    let interval = read.duration(&[key], GoDuration::ZERO)?;
    ensure(interval >= GoDuration::ZERO, key, interval, "must not be negative")?;
    Ok((interval > GoDuration::ZERO).then(|| interval.to_std()))
}

fn required(key: &str, endpoint: &str, protocol: &str) -> Result<(), ConfigError> {
    ensure(!endpoint.is_empty(), key, "\"\"", format!("must be set for this value of {protocol}"))
}

fn forbidden(key: &str, endpoint: &str, protocol: &str) -> Result<(), ConfigError> {
    ensure(endpoint.is_empty(), key, endpoint, format!("must not be set for this value of {protocol}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    fn read(pairs: &[(&str, &str)]) -> Result<ObservabilityConfig, ConfigError> {
        ObservabilityConfig::from_map(&map(pairs))
    }

    #[test]
    fn invalid_settings_are_refused_by_key() {
        for (pairs, refused) in [
            (&[][..], None),
            (&[("_example", "metrics-protocol: nonsense")], None),
            (&[("metrics-protocol", "none")], None),
            (&[("metrics-protocol", "none"), ("metrics-endpoint", "a:1")], Some("metrics-endpoint")),
            (&[("metrics-protocol", "prometheus"), ("metrics-endpoint", "a:1")], None),
            (&[("metrics-protocol", "grpc")], Some("metrics-endpoint")),
            (&[("metrics-protocol", "grpc"), ("metrics-endpoint", "a:1")], None),
            (&[("metrics-protocol", "http/protobuf"), ("metrics-endpoint", "http://a")], None),
            (&[("metrics-protocol", "opencensus")], Some("metrics-protocol")),
            (&[("metrics-export-interval", "-1s")], Some("metrics-export-interval")),
            (&[("metrics-export-interval", "30")], Some("metrics-export-interval")),
            (&[("request-metrics-protocol", "grpc")], Some("request-metrics-endpoint")),
            (&[("tracing-protocol", "zipkin")], Some("tracing-protocol")),
            (&[("tracing-protocol", "stdout")], None),
            (&[("tracing-protocol", "grpc")], Some("tracing-endpoint")),
            (&[("tracing-endpoint", "a:1")], Some("tracing-endpoint")),
            (&[("tracing-sampling-rate", "1.1")], Some("tracing-sampling-rate")),
            (&[("tracing-sampling-rate", "NaN")], Some("tracing-sampling-rate")),
            (&[("runtime-export-interval", "-1s")], Some("runtime-export-interval")),
        ] {
            assert_eq!(read(pairs).err().map(|error| error.key).as_deref(), refused, "{pairs:?}");
        }
    }

    #[test]
    fn valid_settings_are_read() {
        let config = read(&[
            ("metrics-protocol", "http/protobuf"),
            ("metrics-endpoint", "http://collector:4318/v1/metrics"),
            ("metrics-export-interval", "10s"),
            ("tracing-protocol", "grpc"),
            ("tracing-endpoint", "collector:4317"),
            ("tracing-sampling-rate", "0.25"),
        ])
        .expect("valid");
        assert_eq!(config.metrics.protocol, MetricsProtocol::Otlp(OtlpProtocol::HttpProtobuf));
        assert_eq!(config.metrics.export_interval, Some(Duration::from_secs(10)));
        assert_eq!(config.tracing.protocol, TracingProtocol::Otlp(OtlpProtocol::Grpc));
        assert_eq!((config.tracing.endpoint.as_str(), config.tracing.sampling_rate), ("collector:4317", 0.25));
        let default = read(&[]).expect("defaults");
        assert_eq!(default, ObservabilityConfig::default());
        assert_eq!(default.metrics.protocol, MetricsProtocol::Prometheus);
    }
}
