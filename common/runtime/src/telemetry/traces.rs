//! Spans, and W3C trace context in headers.
//!
//! Sampling follows upstream. A rate of 1 or more samples all traces, and 0 or less none, whatever the caller decided.
//! In between, the caller's decision holds, and traces that begin here are sampled at that rate. `stdout` samples all.
//! `OTEL_TRACES_SAMPLER` overrides all of this. OpenTelemetry's SDK batches ended spans. [`super::otlp`] sends them, or
//! they are written to standard output, one JSON object per line.
//!
//! Without a protocol there is no [`Tracing`], no span and no cost; callers' headers then pass unchanged.

use super::otlp::{Environment, ProcessIdentity, Sender, Signal};
use crate::failure_log::FailureLog;
use common::config::{ConfigError, TracingConfig, TracingProtocol};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
pub use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
pub use opentelemetry::{Context, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanData, SpanExporter};
use parking_lot::Mutex;
use prost::Message;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

/// Header of the W3C trace context.
const TRACEPARENT: &str = "traceparent";

/// Longest wait for the last spans.
const LAST: Duration = Duration::from_secs(5);

/// Creates spans, and exports them when they have ended. Clones share everything.
#[derive(Clone)]
pub struct Tracing {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Tracing {
    /// Starts the export that `config` requires, or returns `None` if there is none. Must be called within a tokio
    /// runtime. Fails if the endpoint cannot be used.
    pub fn start(
        config: &TracingConfig,
        identity: &ProcessIdentity,
        environment: &Environment,
    ) -> Result<Option<Self>, ConfigError> {
        let collector = match config.protocol {
            TracingProtocol::None => return Ok(None),
            TracingProtocol::Stdout => None,
            TracingProtocol::Otlp(protocol) => {
                let sender = Sender::new(protocol, Signal::Traces, &config.endpoint, environment)?;
                tracing::info!(to = %sender, rate = config.sampling_rate, "traces are exported");
                let failures = Mutex::new(FailureLog::for_operation(format!("the export of spans to {sender}")));
                Some(Collector { sender, runtime: Handle::current(), failures })
            }
        };
        let attributes = identity.attributes(environment).into_iter().map(|(key, value)| KeyValue::new(key, value));
        let exporter = Exporter { collector, resource: ResourceAttributesWithSchema::default() };
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler(config, environment))
            .with_resource(Resource::builder_empty().with_attributes(attributes).build())
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer(format!("knative.dev/serving/pkg/{}", identity.service));
        Ok(Some(Self { provider, tracer }))
    }

    /// Returns the tracer, which creates spans.
    pub fn tracer(&self) -> &SdkTracer {
        &self.tracer
    }

    /// Reads the caller's context from headers.
    pub fn extract(headers: &HeaderMap) -> Context {
        TraceContextPropagator::new().extract_with_context(&Context::new(), &Incoming(headers))
    }

    /// Writes `context` to headers as the caller's context of the next hop.
    pub fn inject(context: &Context, headers: &mut HeaderMap) {
        TraceContextPropagator::new().inject_context(context, &mut Outgoing(headers));
    }

    /// Formats a context as one line, W3C's `traceparent`. Returns `None` if it is not sampled and so need not be
    /// continued.
    pub fn traceparent(context: &Context) -> Option<String> {
        let mut headers = HeaderMap::new();
        Self::inject(context, &mut headers);
        let is_sampled = context.span().span_context().is_sampled();
        headers.get(TRACEPARENT).filter(|_| is_sampled)?.to_str().ok().map(str::to_owned)
    }

    /// Parses a `traceparent`. Returns `None` if it is invalid.
    pub fn parse_traceparent(line: &str) -> Option<Context> {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_str(line).ok()?);
        let context = Self::extract(&headers);
        let is_valid = context.span().span_context().is_valid();
        is_valid.then_some(context)
    }

    /// Sends the remaining spans, within a few seconds.
    pub async fn flushed(self) {
        let provider = self.provider;
        // The call blocks. The exporter has already logged errors.
        let _ = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LAST)).await;
    }
}

fn sampler(config: &TracingConfig, environment: &Environment) -> Sampler {
    let rate = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let parent = |root| Sampler::ParentBased(Box::new(root));
    let argument = &environment.sampler_argument;
    match environment.sampler.as_deref() {
        Some("always_on") => return Sampler::AlwaysOn,
        Some("always_off") => return Sampler::AlwaysOff,
        Some("traceidratio") => return Sampler::TraceIdRatioBased(rate(argument)),
        Some("parentbased_always_on") => return parent(Sampler::AlwaysOn),
        Some("parentbased_always_off") => return parent(Sampler::AlwaysOff),
        Some("parentbased_traceidratio") => return parent(Sampler::TraceIdRatioBased(rate(argument))),
        Some(other) => {
            tracing::warn!(
                OTEL_TRACES_SAMPLER = other,
                "there is no sampler of that name; tracing-sampling-rate applies"
            )
        }
        None => {}
    }
    match config.sampling_rate {
        _ if config.protocol == TracingProtocol::Stdout => Sampler::AlwaysOn,
        rate if rate >= 1.0 => Sampler::AlwaysOn,
        rate if rate <= 0.0 => Sampler::AlwaysOff,
        rate => parent(Sampler::TraceIdRatioBased(rate)),
    }
}

struct Incoming<'a>(&'a HeaderMap);

impl Extractor for Incoming<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Outgoing<'a>(&'a mut HeaderMap);

impl Injector for Outgoing<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

#[derive(Debug)]
struct Exporter {
    /// `None`: standard output.
    collector: Option<Collector>,
    resource: ResourceAttributesWithSchema,
}

/// Collector of spans. The SDK exports from its own thread, so `runtime` sends.
#[derive(Debug)]
struct Collector {
    sender: Sender,
    runtime: Handle,
    failures: Mutex<FailureLog>,
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let failed = |problem: String| OTelSdkError::InternalFailure(problem);
        let Some(Collector { sender, runtime, failures }) = &self.collector else {
            let lines: String = batch.iter().map(line).collect();
            return std::io::stdout().lock().write_all(lines.as_bytes()).map_err(|error| failed(error.to_string()));
        };
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let message = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let sender = sender.clone();
        let sent = runtime.spawn(async move { sender.send(message).await }).await;
        let sent = sent.unwrap_or_else(|error| Err(error.to_string()));
        match &sent {
            Ok(()) => failures.lock().recovered(),
            Err(error) => failures.lock().failed(error),
        }
        sent.map_err(failed)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

/// Formats a span as one line of JSON.
fn line(span: &SpanData) -> String {
    let nanos = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let attributes: serde_json::Map<String, serde_json::Value> =
        span.attributes.iter().map(|pair| (pair.key.to_string(), pair.value.to_string().into())).collect();
    let object = serde_json::json!({
        "name": span.name,
        "kind": format!("{:?}", span.span_kind),
        "traceId": span.span_context.trace_id().to_string(),
        "spanId": span.span_context.span_id().to_string(),
        "parentSpanId": span.parent_span_id.to_string(),
        "startTimeUnixNano": nanos(span.start_time).to_string(),
        "endTimeUnixNano": nanos(span.end_time).to_string(),
        "status": format!("{:?}", span.status),
        "attributes": attributes,
    });
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(protocol: TracingProtocol, sampling_rate: f64, sampler_variable: Option<&str>) -> String {
        let config = TracingConfig { protocol, endpoint: String::new(), sampling_rate };
        let sampler_of = |name: &str| Environment { sampler: Some(name.to_owned()), ..Environment::default() };
        format!("{:?}", sampler(&config, &sampler_variable.map(sampler_of).unwrap_or_default()))
    }

    #[test]
    fn the_environment_overrides_the_sampling_rate() {
        let otlp = TracingProtocol::Otlp(common::config::OtlpProtocol::Grpc);
        assert_eq!(chosen(otlp, 1.0, None), "AlwaysOn");
        assert_eq!(chosen(otlp, 0.0, None), "AlwaysOff");
        assert_eq!(chosen(otlp, 0.5, None), "ParentBased(TraceIdRatioBased(0.5))");
        assert_eq!(chosen(TracingProtocol::Stdout, 0.0, None), "AlwaysOn");
        assert_eq!(chosen(otlp, 1.0, Some("always_off")), "AlwaysOff");
        assert_eq!(chosen(otlp, 1.0, Some("sometimes")), "AlwaysOn");
    }

    #[test]
    fn a_callers_context_is_passed_on_unchanged() {
        let mut headers = HeaderMap::new();
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.insert("traceparent", HeaderValue::from_static(parent));
        headers.insert("tracestate", HeaderValue::from_static("a=1,b=2"));
        let mut next = HeaderMap::new();
        Tracing::inject(&Tracing::extract(&headers), &mut next);
        assert_eq!(next, headers);
        let context = Tracing::parse_traceparent(parent).expect("a context");
        assert_eq!(Tracing::traceparent(&context).as_deref(), Some(parent));
        let unsampled = Tracing::parse_traceparent(&parent.replace("-01", "-00")).expect("a context");
        assert_eq!(Tracing::traceparent(&unsampled), None);
        assert!(["", "00-nonsense", "00-\n"].iter().all(|line| Tracing::parse_traceparent(line).is_none()));
        headers.insert("traceparent", HeaderValue::from_static("00-nonsense"));
        assert!(!Tracing::extract(&headers).span().span_context().is_valid());
    }
}
