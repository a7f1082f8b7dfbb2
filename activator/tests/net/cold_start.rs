//! Requests for a revision without pods: held, signalled, released, and never lost. Also requests to an activator that
//! has just started and has not received the first lists.

use crate::rig::{self, Pod, Rig, key, patient};
use activator::discovery::Event;
use common_runtime::resolve::Dns;
use http::{Request, StatusCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Goal: the first request signals at once, waits, and gets the response of the first pod whose probe passes.
#[tokio::test]
async fn a_held_request_is_released_by_the_first_pod() {
    let mut rig = Rig::with_revision(|_| {}).await;
    let pod = Pod::saying("awake").await;

    let asking = tokio::spawn(rig::ask(rig.address, Request::get("/").header("host", "app.ns")));
    rig.until(|load| load.queued == 1).await;
    let signal = rig.next_stat().await;
    let stat = signal.stat.expect("a stat");
    assert_eq!((signal.namespace.as_str(), signal.name.as_str()), ("ns", "app"));
    assert_eq!((stat.average_concurrent_requests, stat.request_count), (1.0, 1.0));
    rig.pods(&[pod.address]).await;
    let answer = patient(asking).await.expect("no panic");
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "awake"));
    assert_eq!(pod.connections.load(Ordering::SeqCst), 1, "the probe's connection was used");

    let cold = patient(rig.cold_starts.recv()).await.expect("reported");
    assert_eq!(cold.key, key("app"));
    assert!(cold.received <= cold.address_known && cold.address_known <= cold.probed, "{cold:?}");
    assert!(cold.probed <= cold.released && cold.released <= cold.first_byte, "{cold:?}");
    assert!(cold.signalled.is_some_and(|signalled| signalled >= cold.received), "{cold:?}");
}

/// Method: the autoscaler's port opens only after the request is held.
#[tokio::test]
async fn a_signal_that_could_not_be_sent_is_sent_on_connect() {
    let address = rig::own_address(); // Nothing listens there yet.
    let mut rig = start_unsynced(|options| options.stat_url = format!("ws://{address}")).await;
    rig.emit(Event::Synced).await;
    rig.revision(|_| {}).await;
    let _client = rig.send_raw(rig::GET).await;
    rig.until(|load| load.queued == 1).await;

    let listener = tokio::net::TcpListener::bind(address).await.expect("still free");
    let (sender, stats) = tokio::sync::mpsc::unbounded_channel();
    let _autoscaler = Pod::raw(listener, move |stream, _| rig::receive_stats(stream, sender.clone()));
    rig.stats = stats;
    let stat = rig.next_stat().await.stat.expect("a stat");
    assert!(stat.average_concurrent_requests > 0.0, "{stat:?}");
}

#[tokio::test]
async fn a_reset_of_a_held_stream_leaves_other_streams_held() {
    let rig = Rig::with_revision(|_| {}).await;
    let client = rig::http2_client(rig.address).await;
    let send = || {
        let mut client = client.clone();
        let request = Request::get("http://app.ns/").body(http_body_util::Empty::<bytes::Bytes>::new());
        tokio::spawn(async move { client.send_request(request.expect("valid")).await })
    };
    let (leaving, staying) = (send(), send());
    rig.until(|load| load.queued == 2).await;
    leaving.abort();
    rig.until(|load| load.queued == 1).await;
    let _pod = rig.only_pod(Pod::saying("awake").await).await;
    let answer = patient(staying).await.expect("no panic").expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n";

async fn start_unsynced(change: impl FnOnce(&mut activator::Options)) -> Rig {
    Rig::start_unsynced(change, activator::Configs::default(), Arc::new(Dns)).await
}

/// Goal: a request is refused if the lists do not come in time. Method: when a probe before the request on the same
/// connection has a response, the request has been read, too.
#[tokio::test]
async fn a_request_before_the_first_lists_waits_for_them() {
    let rig = start_unsynced(|_| {}).await;
    let answer = rig::read_to_end(&mut rig.send_raw(REQUEST).await).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("x-zeroscale-reason: not-synced"), "{answer}");

    let probe = "GET / HTTP/1.1\r\nhost: x\r\nuser-agent: kube-probe/1.34\r\n\r\n";
    let mut client = rig.send_raw(&format!("{probe}{REQUEST}")).await;
    rig::read_until(&mut client, "list of revisions yet\n").await;
    rig.revision(|_| {}).await;
    let _pod = rig.only_pod(Pod::saying("served").await).await;
    rig.emit(Event::Synced).await;
    let answer = rig::read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("served"), "{answer}");
}
