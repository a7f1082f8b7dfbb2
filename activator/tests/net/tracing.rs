//! Spans that a collector receives, and the trace context that pods receive.

use crate::rig::{Pod, Rig, full, patient};
use activator::{Configs, Options};
use common::config::{ObservabilityConfig, OtlpProtocol, TracingConfig, TracingProtocol};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Starts a collector of spans, and an activator that sends them there.
pub(crate) async fn traced(change: impl FnOnce(&mut Options)) -> (Rig, mpsc::UnboundedReceiver<Span>) {
    let (sender, spans) = mpsc::unbounded_channel();
    let collector = Pod::start(move |request: Request<Incoming>| {
        let sender = sender.clone();
        async move {
            assert_eq!(request.uri().path(), "/v1/traces");
            let body = request.into_body().collect().await.expect("whole").to_bytes();
            let batch = ExportTraceServiceRequest::decode(body).expect("OTLP");
            for scope in batch.resource_spans.into_iter().flat_map(|resource| resource.scope_spans) {
                scope.spans.into_iter().for_each(|span| drop(sender.send(span)));
            }
            Response::new(full(""))
        }
    })
    .await;
    let protocol = TracingProtocol::Otlp(OtlpProtocol::HttpProtobuf);
    let tracing = TracingConfig { protocol, endpoint: format!("http://{}", collector.address), sampling_rate: 1.0 };
    let telemetry = watch::channel(Arc::new(ObservabilityConfig { tracing, ..Default::default() })).1;
    (Rig::start_configured(change, Configs { telemetry, ..Configs::default() }).await, spans)
}

/// Goal: Knative's spans are below the caller's span, and the span of the attempt is the pod's parent. A request of no
/// revision has one span.
#[tokio::test]
async fn a_request_has_knatives_spans_and_the_last_is_the_pods_parent() {
    let (rig, mut received) = traced(|_| {}).await;
    let pod = Pod::start(|request: Request<Incoming>| async move {
        let field = |name: &str| request.headers().get(name).map_or("", |value| value.to_str().expect("text"));
        let text = format!("{} {} {}", field("traceparent"), field("tracestate"), field("baggage"));
        Response::new(full(text))
    })
    .await;
    rig.revision(|_| {}).await;
    rig.pods(&[pod.address]).await;
    let request = Request::get("/path?query").header("host", "app.ns");
    let request = request.header("traceparent", PARENT).header("tracestate", "a=1").header("baggage", "b=2");
    let answer = rig.send(request).await;
    assert_eq!(rig.get("nobody.ns", "/").await.status, StatusCode::NOT_FOUND);
    rig.until(|load| load.in_flight == 0).await;
    patient(rig.activator.stop()).await;

    let mut spans = Vec::new();
    while spans.len() < 5 {
        spans.push(patient(received.recv()).await.expect("a span"));
    }
    let (ours, others): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| span.trace_id == hex(&PARENT[3..35]));
    let find = |name: &str| ours.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {ours:?}"));
    let server = find("GET");
    assert_eq!(server.parent_span_id, hex(&PARENT[36..52]));
    assert_eq!(find("throttler_try").parent_span_id, server.span_id);
    assert_eq!(find("activator_proxy").parent_span_id, server.span_id);
    let client = find("GET /path");
    assert_eq!(client.parent_span_id, find("activator_proxy").span_id);
    assert_eq!(client.trace_state, "a=1");
    let context: Vec<&str> = answer.body.split(' ').collect();
    let parent = format!("00-{}-{}-01", &PARENT[3..35], text_of(&client.span_id));
    assert_eq!(context, [parent.as_str(), "a=1", "b=2"]);
    for name in ["kn.revision.name", "k8s.namespace.name", "http.response.status_code"] {
        assert!(server.attributes.iter().any(|attribute| attribute.key == name), "{name}: {server:?}");
    }
    let [span] = &others[..] else { panic!("{others:?}") };
    assert_eq!((span.name.as_str(), span.parent_span_id.len()), ("GET", 0));
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal")).collect()
}

fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
