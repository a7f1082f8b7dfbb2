//! Telemetry of a wake.

use anyhow::Context;
use common_runtime::telemetry::catalog;
use e2e::test_env::SOON;
use e2e::{Entry, Load, TestEnv, Workload};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use local::up::PlaneId;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;
use std::convert::Infallible;
use std::io::{Seek, Write};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const PLANES: [PlaneId; 2] = [PlaneId::Autoscaler(0), PlaneId::Activator(0)];

/// Starts a collector; returns its address and the received spans.
async fn collector() -> anyhow::Result<(SocketAddr, mpsc::UnboundedReceiver<Span>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let (sender, spans) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let sender = sender.clone();
                async move {
                    let body = request.into_body().collect().await.expect("whole").to_bytes();
                    let batch = ExportTraceServiceRequest::decode(body).expect("OTLP");
                    for scope in batch.resource_spans.into_iter().flat_map(|of| of.scope_spans) {
                        scope.spans.into_iter().for_each(|span| drop(sender.send(span)));
                    }
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok((address, spans))
}

fn attribute(span: &Span, key: &str) -> Option<Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.clone()?.value
}

/// Goal: a wake is one trace, from the request through the decision to the patch that it waits for, and counted in the
/// metrics of both planes. Method: both planes start with a collector.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_is_one_trace_from_request_to_patch() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let (address, mut received) = collector().await?;
    let (protocol, endpoint) = ("http/protobuf", format!("http://{address}"));
    let data = json!({"tracing-protocol": protocol, "tracing-endpoint": endpoint, "tracing-sampling-rate": "1"});
    env.configure("config-observability", data).await?;
    for plane in PLANES {
        env.cluster.drain_plane(plane).await;
        env.cluster.start_plane(plane)?;
    }
    env.cluster.wait_until_ready(PLANES.len()).await;
    // A signal that was delayed for want of a connection has no span.
    env.until(SOON, "a connection for stats", async || {
        let page = metrics_page(env.cluster.admin(PlaneId::Activator(0)), "text/plain").await?;
        Ok(page.lines().any(|line| line.starts_with("kn_activator_stats_conn_reachable") && line.ends_with(" 1")))
    })
    .await?;
    env.deploy(&Workload::new("traced").set("scale.window", "5m")).await?;
    let load = env.load(Entry::Service, "traced");
    env.until(SOON, "an answer", async || Ok(load.get("/").await?.status == 200)).await?;
    // Spans are sent every few seconds, and the rest at the end, if that takes no time.
    let mut spans: Vec<Span> = Vec::new();
    let is_whole = |spans: &[Span]| {
        let poke = spans.iter().find(|span| span.name == "poke");
        let parent = |poke: &Span| spans.iter().any(|span| span.span_id == poke.parent_span_id);
        poke.is_some_and(parent) && ["decide", "patch"].iter().all(|name| spans.iter().any(|span| span.name == *name))
    };
    while !is_whole(&spans) {
        let more = tokio::time::timeout(SOON, received.recv()).await;
        spans.push(more.with_context(|| format!("no whole wake: {spans:#?}"))?.context("a collector")?);
    }
    metrics_are_listed(&env).await?;
    for plane in PLANES {
        env.cluster.drain_plane(plane).await;
    }
    while let Ok(span) = received.try_recv() {
        spans.push(span);
    }
    let of = |name: &str| -> Vec<&Span> { spans.iter().filter(|span| span.name == name).collect() };
    let [poke] = of("poke")[..] else { panic!("one wake: {spans:#?}") };
    let request = spans.iter().find(|span| span.span_id == poke.parent_span_id).expect("the request's");
    assert_eq!((request.name.as_str(), &request.trace_id), ("GET", &poke.trace_id));
    assert_eq!(attribute(request, "kn.revision.name"), Some(Value::StringValue("traced".into())));
    let [decide, ..] = of("decide")[..] else { panic!("a decision: {spans:#?}") };
    let [patch] = of("patch")[..] else { panic!("one patch: {spans:#?}") };
    for span in [decide, patch] {
        assert_eq!((&span.trace_id, &span.parent_span_id), (&poke.trace_id, &poke.span_id), "{span:?}");
        assert!(poke.start_time_unix_nano <= span.start_time_unix_nano, "{span:?}");
        assert!(span.end_time_unix_nano <= poke.end_time_unix_nano, "{span:?}");
    }
    assert_eq!(attribute(decide, "zeroscale.pods.desired"), Some(Value::IntValue(1)));
    assert_eq!(attribute(patch, "http.response.status_code"), Some(Value::IntValue(200)));
    assert_eq!(attribute(patch, "zeroscale.replicas.after"), Some(Value::IntValue(1)));
    env.end().await
}

/// Returns the metrics of an admin port for this `Accept`.
async fn metrics_page(admin: SocketAddr, accept: &'static str) -> anyhow::Result<String> {
    Ok(Load::new(admin, "admin").with("accept", accept).get("/metrics").await?.text())
}

/// Returns promtool's complaints about a page of metrics, except those about upstream's names.
async fn complaints(page: &str) -> anyhow::Result<Vec<String>> {
    let mut file = tempfile::tempfile()?;
    file.write_all(page.as_bytes())?;
    file.rewind()?;
    let output = tokio::process::Command::new("promtool").args(["check", "metrics"]).stdin(file).output().await?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(text.lines().filter(|line| !line.starts_with("kn_")).map(str::to_owned).collect())
}

/// Goal: the metrics of both processes after a wake are all in the catalog, in both formats, and valid for Prometheus;
/// the wake is counted.
async fn metrics_are_listed(env: &TestEnv) -> anyhow::Result<()> {
    let of = format!("{{k8s_namespace_name=\"{}\",kn_revision_name=\"traced\"", env.namespace);
    let wake = format!("zeroscale_wakes_total{of},outcome=\"ready\"}} 1");
    let admin = env.cluster.admin(PLANES[0]);
    let is_counted = async || Ok(metrics_page(admin, "*/*").await?.lines().any(|line| line == wake));
    env.until(SOON, &wake, is_counted).await?;
    for plane in PLANES {
        let admin = env.cluster.admin(plane);
        let (open, own) =
            (metrics_page(admin, "application/openmetrics-text").await?, metrics_page(admin, "text/plain").await?);
        for page in [&open, &own] {
            assert_eq!(catalog::differences(page), <[String; 0]>::default());
            for name in ["process_resident_memory_bytes ", "zeroscale_build_info{component="] {
                assert!(page.contains(name), "{name} in\n{page}");
            }
        }
        assert!(open.ends_with("\n# EOF\n") && !own.contains("# EOF"));
        assert_eq!(complaints(&own).await?, <[String; 0]>::default(), "{own}");
    }
    Ok(())
}
