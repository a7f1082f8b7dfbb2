//! Exchanges of clients and pods: forwarded fields, connections, bodies, disconnects.

use crate::protocols::{Pair, nothing};
use crate::rig::{self, FullResponse, Pod, Rig, ask_http2, patient, read_until};
use activator::Options;
use bytes::Bytes;
use common::backend::{Probe, Protocol};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn a_plain_pod_receives_no_internal_or_forged_fields() {
    let pod = Pod::echoing().await;
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    let request = Request::get("//a/../b?q=%zz")
        .header("host", "APP.ns.svc.cluster.local:80")
        .header("k-original-host", "forged")
        .header("knative-serving-revision", "other")
        .header("knative-serving-namespace", "ns")
        .header("connection", "close, x-drop")
        .header("x-drop", "1")
        .header("x-kept", "1");
    let answer = rig.send(request).await;
    let expected = "http/1.1 GET //a/../b?q=%zz
host: APP.ns.svc.cluster.local:80
x-forwarded-for: 127.0.0.1
x-forwarded-proto: http
x-kept: 1";
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, expected));
}

/// Goal: over HTTP/1.1 and HTTP/2, to pods of either protocol, forwarding headers of an untrusted client are replaced,
/// and those of a trusted proxy are extended.
#[tokio::test]
async fn only_forwarding_headers_of_a_trusted_proxy_are_kept() {
    const FORGED: [(&str, &str); 3] =
        [("forwarded", "for=203.0.113.9"), ("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https")];
    const REPLACED: &str = "forwarded: for=127.0.0.1;proto=http|x-forwarded-for: 127.0.0.1|x-forwarded-proto: http";
    const ADDED: &str = "forwarded: for=203.0.113.9, for=127.0.0.1;proto=https|x-forwarded-for: 203.0.113.9, 127.0.0.1|\
                         x-forwarded-proto: https";
    let pod = Pod::echoing().await;
    for (network, expected) in [("127.0.0.0/8", ADDED), ("10.0.0.0/8", REPLACED)] {
        for protocol in [Protocol::Http1, Protocol::H2c] {
            let trusting = |options: &mut Options| options.trusted_proxies = vec![network.parse().expect("a network")];
            let rig = Rig::with_options(trusting, |backend| backend.protocol = protocol).await;
            rig.pods(&[pod.address]).await;
            let forge = |request: http::request::Builder| {
                FORGED.iter().fold(request, |request, (name, value)| request.header(*name, *value))
            };
            let over_http1 = rig.send(forge(Request::get("/").header("host", "app.ns"))).await;
            let over_http2 = ask_http2(rig.address, forge(Request::get("http://app.ns/")), "").await;
            for answer in [over_http1, over_http2] {
                let fields: Vec<_> = answer.body.lines().filter(|line| line.contains("forwarded")).collect();
                assert_eq!(fields.join("|"), expected, "{network} {protocol:?}");
            }
        }
    }
}

/// Goal: over HTTP/1 client connections on all workers share one idle connection to the pod; over HTTP/2 each worker
/// has its own. Method: four client connections on two workers, one after the other.
#[tokio::test]
async fn connections_to_the_pod_are_shared_by_workers() {
    for (protocol, expected) in [(Protocol::Http1, 1), (Protocol::H2c, 2)] {
        let pod = Pod::saying("here").await;
        // No probe, so that only requests make connections.
        let rig = Rig::with_revision(|backend| (backend.protocol, backend.probe) = (protocol, Probe::default())).await;
        rig.ready_pods(&[pod.address]).await;
        for _ in 0..4 {
            let pair = Pair { client: protocol, pod: protocol };
            let answer = FullResponse::read(pair.send(&rig, Request::get("/"), nothing()).await).await;
            assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "here"), "{protocol:?}");
        }
        assert_eq!(pod.connections.load(Ordering::SeqCst), expected, "{protocol:?}");
    }
}

/// Goal: a body of many megabytes passes in both directions. Most later requests reuse connections to the pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_and_connections_are_reused() {
    let pod = Pod::streaming_back().await;
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    let large = Bytes::from(vec![b'x'; 16 * 1024 * 1024]);
    let mut client = rig.client().await;
    for _ in 0..3 {
        patient(client.ready()).await.expect("kept alive");
        let request = rig::post("/").body(Full::new(large.clone())).expect("valid");
        let response = patient(client.send_request(request)).await.expect("an answer");
        let echoed = patient(response.into_body().collect()).await.expect("whole").to_bytes();
        assert!(echoed == large, "{} bytes came back", echoed.len());
    }
    for _ in 0..20 {
        patient(client.ready()).await.expect("kept alive");
        let response = patient(client.send_request(rig::post("/").body(Full::default()).expect("valid"))).await;
        response.expect("an answer").into_body().collect().await.expect("whole");
    }
    // A response that begins before its upload ends may cost the connection. The other requests share a few
    // connections: one may return to the pool a little after its client has sent the next request.
    let connections = pod.connections.load(Ordering::SeqCst);
    assert!(connections <= 12, "{connections} connections for 23 requests");
}

/// Goal: the exchange ends even within a body.
#[tokio::test]
async fn a_client_disconnect_ends_the_exchange_with_the_pod() {
    let (sender, mut dropped) = tokio::sync::mpsc::unbounded_channel();
    let pod = Pod::start(move |_| {
        let sender = sender.clone();
        async move {
            struct ReportDrop(tokio::sync::mpsc::UnboundedSender<()>);
            impl Drop for ReportDrop {
                fn drop(&mut self) {
                    let _ = self.0.send(());
                }
            }
            let drip = futures::stream::unfold(ReportDrop(sender), |guard| async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Some((Ok(Frame::data(Bytes::from_static(b"drip"))), guard))
            });
            Response::new(StreamBody::new(drip).boxed_unsync())
        }
    })
    .await;
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    let mut client = rig.send_raw(rig::GET).await;
    read_until(&mut client, "drip").await;
    drop(client);
    patient(dropped.recv()).await.expect("the pod's body was dropped");
    rig.until(|load| load.in_flight == 0).await;
}
