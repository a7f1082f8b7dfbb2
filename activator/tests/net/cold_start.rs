//! Requests for a revision without pods: held, signalled, released, and never lost.

use crate::rig::{self, Pod, Rig, key, patient};
use activator::discovery::{Event, Spec};
use common::stat::Stat;
use common_runtime::environment::Mode;
use common_runtime::resolve::Dns;
use futures::StreamExt;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_held_requests_are_all_answered() {
    let rig = Arc::new(Rig::with_revision(|_| {}).await);
    let mut held = rig.get_many("/", 500);
    rig.until(|load| load.queued == 500).await;
    let pod = rig.only_pod(Pod::saying("awake").await).await;
    while let Some(answer) = patient(held.join_next()).await {
        assert_eq!(answer.expect("no panic").status, StatusCode::OK);
    }
    assert_eq!(pod.requests(), 500);
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

#[tokio::test]
async fn a_disconnected_client_is_no_longer_reported_as_load() {
    let mut rig = Rig::with_revision(|_| {}).await;
    let client = rig.send_raw(rig::GET).await;
    rig.until(|load| load.queued == 1).await;
    rig::reset(client);
    rig.until(|load| load.queued == 0).await;

    // The reported concurrency falls to zero.
    let is_zero = |stat: Stat| stat.average_concurrent_requests == 0.0 && stat.request_count == 0.0;
    while !rig.next_stat().await.stat.is_some_and(is_zero) {}
}

/// Method: the autoscaler's port opens only after the request is held.
#[tokio::test]
async fn a_signal_that_could_not_be_sent_is_sent_on_connect() {
    let address = rig::own_address(); // Nothing listens there yet.
    let (events, receiver) = tokio::sync::mpsc::channel(8);
    let mut options = activator::Options::new("a", [127, 0, 0, 1].into(), Mode::Standalone);
    (options.http1, options.h2c) = (rig::free(), rig::free());
    options.stat_url = format!("ws://{address}");
    let activator = activator::start(options, receiver, Arc::new(Dns), activator::Configs::default());
    let activator = activator.await.expect("free ports");
    let spec = Spec::standalone("ns", "app", rig::backend("app"));
    for event in [Event::Synced, Event::Revision(Arc::new(spec))] {
        events.send(event).await.expect("listens");
    }
    rig::until(|| activator.load(&key("app")).is_some()).await;
    let _client = rig::connect_and_write(activator.http1, rig::GET).await;
    rig::until(|| activator.load(&key("app")).is_some_and(|load| load.queued == 1)).await;

    let listener = tokio::net::TcpListener::bind(address).await.expect("still free");
    let (stream, _) = patient(listener.accept()).await.expect("it dials again");
    let mut socket = tokio_tungstenite::accept_async(stream).await.expect("a handshake");
    let stat = loop {
        let message = patient(socket.next()).await.expect("open").expect("readable");
        if message.is_binary() {
            let frame = common::wire::decode(&message.into_data()).expect("a frame");
            if let Some(stat) = frame.messages.into_iter().find_map(|message| message.stat) {
                break stat;
            }
        }
    };
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
