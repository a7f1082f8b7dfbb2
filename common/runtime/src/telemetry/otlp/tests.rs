//! The exporter against mock collectors: exported data, and the handling of failures.

use super::*;
use bytes::Bytes;
use common::config::OtlpProtocol;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prometheus_client::metrics::gauge::Gauge;
use std::convert::Infallible;
use std::net::SocketAddr;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(60);
const GRPC_PATH: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Request that a collector received: path, content type and body.
type Received = (String, String, Bytes);

/// Starts a collector of either protocol. Each request gets `status`: HTTP's, or gRPC's in trailers.
async fn collector(protocol: OtlpProtocol, status: u16) -> (SocketAddr, mpsc::UnboundedReceiver<Received>) {
    let (listener, address) = crate::tests::listen().await;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let sender = sender.clone();
                    async move {
                        let kind = request.headers()["content-type"].to_str().expect("text").to_owned();
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.expect("whole").to_bytes();
                        let _ = sender.send((path, kind, body));
                        Ok::<_, Infallible>(match protocol {
                            OtlpProtocol::HttpProtobuf => {
                                let words = Full::new(Bytes::from_static(b"words")).boxed_unsync();
                                Response::builder().status(status).body(words).expect("a response")
                            }
                            OtlpProtocol::Grpc => {
                                let mut trailers = HeaderMap::new();
                                trailers.insert("grpc-status", status.into());
                                let frames = [Ok::<_, Infallible>(Frame::trailers(trailers))];
                                Response::new(BodyExt::boxed_unsync(StreamBody::new(futures::stream::iter(frames))))
                            }
                        })
                    }
                });
                let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (address, receiver)
}

/// Goal: over both transports a collector gets the registered metrics, at the interval and once more at the end.
#[tokio::test]
async fn metrics_are_pushed_over_both_transports() {
    let rows = [
        (OtlpProtocol::HttpProtobuf, 200, "/v1/metrics", "application/x-protobuf", 0),
        (OtlpProtocol::Grpc, 0, GRPC_PATH, "application/grpc", 5),
    ];
    for (protocol, status, path, kind, prefix) in rows {
        let (address, mut received) = collector(protocol, status).await;
        let metrics = Metrics::default();
        let gauge: Gauge = metrics.register(crate::telemetry::catalog::PANIC_MODE, Gauge::default());
        gauge.set(1);
        let config = MetricsConfig {
            protocol: MetricsProtocol::Otlp(protocol),
            endpoint: format!("http://{address}"),
            export_interval: Some(Duration::from_millis(20)),
        };
        let identity = ProcessIdentity { service: "autoscaler", namespace: "sys".into(), pod: "as-0".into() };
        let stop = CancellationToken::new();
        let pushing =
            push(metrics, &config, &identity, &Environment::default(), stop.clone()).expect("valid").expect("on");
        for _ in 0..2 {
            let got = timeout(PATIENCE, received.recv()).await.expect("in time").expect("a request");
            assert_eq!((got.0.as_str(), got.1.as_str()), (path, kind));
            let request = ExportMetricsServiceRequest::decode(&got.2[prefix..]).expect("OTLP");
            let sent = &request.resource_metrics[0];
            assert!(sent.resource.as_ref().expect("a resource").attributes.iter().any(|a| a.key == "k8s.pod.name"));
            let scope_metrics = &sent.scope_metrics[0];
            assert_eq!(scope_metrics.scope.as_ref().expect("a scope").name, "knative.dev/serving/pkg/autoscaler");
            assert_eq!(scope_metrics.metrics[0].name, "kn.revision.panic.mode");
        }
        stop.cancel();
        timeout(PATIENCE, pushing).await.expect("in time").expect("no panic");
    }
}

/// Goal: a collector's rejection is an error with the collector's message.
#[tokio::test]
async fn rejections_are_reported_with_the_collectors_message() {
    for (protocol, status, expected) in
        [(OtlpProtocol::HttpProtobuf, 503, "503 Service Unavailable: words"), (OtlpProtocol::Grpc, 8, "gRPC status 8")]
    {
        let (address, _received) = collector(protocol, status).await;
        let endpoint = address.to_string();
        let sender = Sender::new(protocol, Signal::Traces, &endpoint, &Environment::default()).expect("valid");
        let error = sender.send(Vec::new()).await.expect_err("refused");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn endpoints_are_urls_and_the_environment_overrides_the_map() {
    use OtlpProtocol::{Grpc, HttpProtobuf};
    let (none, grpc) = (Environment::default(), format!("http://[::1]:4317{GRPC_PATH}"));
    let base = Environment { endpoint: Some("http://c:4318/otlp/".into()), ..none.clone() };
    let own = Environment { metrics_endpoint: Some("http://m/x".into()), ..base.clone() };
    let rows = [
        (HttpProtobuf, "collector:4318", &none, Ok("http://collector:4318/v1/metrics")),
        (HttpProtobuf, "http://collector:4318/", &none, Ok("http://collector:4318/v1/metrics")),
        (HttpProtobuf, "http://collector/mine", &none, Ok("http://collector/mine")),
        (HttpProtobuf, "http://collector/mine", &base, Ok("http://c:4318/otlp/v1/metrics")),
        (HttpProtobuf, "http://collector/mine", &own, Ok("http://m/x")),
        (Grpc, "[::1]:4317", &none, Ok(grpc.as_str())),
        (Grpc, "ftp://collector", &none, Err("metrics-endpoint")),
        (HttpProtobuf, "http://", &none, Err("metrics-endpoint")),
    ];
    for (protocol, configured, environment, expected) in rows {
        let sender = Sender::new(protocol, Signal::Metrics, configured, environment);
        let got = sender.map(|sender| sender.to_string()).map_err(|error| error.key);
        assert_eq!(got, expected.map(str::to_owned).map_err(str::to_owned), "{configured}");
    }
}
