//! Exchanges of clients and pods: forwarded fields, connections, bodies, disconnects.

use crate::protocols::{Pair, nothing};
use crate::rig::{self, Pod, Rig, read_until};
use activator::Options;
use bytes::Bytes;
use common::backend::{Probe, Protocol};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Goal: fields of an untrusted client neither select the revision nor reach the pod. A trusted peer selects the
/// revision, and its forwarding headers are extended. Other fields pass unchanged, without tracing even a trace's.
#[tokio::test]
async fn only_trusted_peers_set_internal_and_forwarding_fields() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let pod = Pod::echoing().await;
    let untrusted = ("APP.ns.svc.cluster.local:80", "other", "", "127.0.0.1", "http");
    let trusted = ("nobody.example", "app", "for=203.0.113.9, ", "203.0.113.9, 127.0.0.1", "https");
    for (network, row) in [("10.0.0.0/8", untrusted), ("127.0.0.0/8", trusted)] {
        let (host, revision, forwarded, clients, scheme) = row;
        let trusting = |options: &mut Options| {
            options.trusted_proxies = vec![network.parse().expect("a network")];
            options.trust_revision_headers = options.trusted_proxies.clone();
        };
        let rig = Rig::with_options(trusting, |_| {}).await;
        rig.pods(&[pod.address]).await;
        let request = Request::get("//a/../b?q=%zz")
            .header("host", host)
            .header("k-original-host", "forged")
            .header("knative-serving-revision", revision)
            .header("knative-serving-namespace", "ns")
            .header("forwarded", "for=203.0.113.9")
            .header("x-forwarded-for", "203.0.113.9")
            .header("x-forwarded-proto", "https")
            .header("connection", "close, x-drop")
            .header("x-drop", "1")
            .header("x-kept", "1")
            .header("traceparent", TRACE);
        let answer = rig.send(request).await;
        let expected = format!(
            "http/1.1 GET //a/../b?q=%zz\nforwarded: {forwarded}for=127.0.0.1;proto={scheme}\nhost: {host}\n\
             traceparent: {TRACE}\nx-forwarded-for: {clients}\nx-forwarded-proto: {scheme}\nx-kept: 1"
        );
        assert_eq!((answer.status, answer.body), (StatusCode::OK, expected), "{network}");
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
            let answer = pair.ask(&rig, Request::get("/"), nothing()).await;
            assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "here"), "{protocol:?}");
        }
        assert_eq!(pod.connections.load(Ordering::SeqCst), expected, "{protocol:?}");
    }
}

/// Goal: the exchange ends even within a body.
#[tokio::test]
async fn a_client_disconnect_ends_the_exchange_with_the_pod() {
    let body = Arc::new(Mutex::new(Weak::new()));
    let sent = body.clone();
    let pod = Pod::start(move |_| {
        let guard = Arc::new(());
        *sent.lock() = Arc::downgrade(&guard);
        let drip = futures::stream::unfold(guard, |guard| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some((Ok(Frame::data(Bytes::from_static(b"drip"))), guard))
        });
        std::future::ready(Response::new(StreamBody::new(drip).boxed_unsync()))
    })
    .await;
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    let mut client = rig.send_raw(rig::GET).await;
    read_until(&mut client, "drip").await;
    drop(client);
    rig::until(|| body.lock().strong_count() == 0).await; // The pod's body was dropped.
    rig.until(|load| load.in_flight == 0).await;
}
