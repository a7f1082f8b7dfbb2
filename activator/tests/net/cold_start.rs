//! Requests for a revision without pods: held, signalled, released, and never lost.

use crate::rig::{self, Pod, Rig, key, patient};
use common::stat::Stat;
use http::StatusCode;

/// Goal: the first request signals at once, waits, and gets the response of the first pod whose probe passes.
#[tokio::test]
async fn a_held_request_is_released_by_the_first_pod() {
    let mut rig = Rig::with_revision(|_| {}).await;
    let pod = Pod::saying("awake").await;

    let asking = tokio::spawn(rig::ask(rig.address, http::Request::get("/").header("host", "app.ns")));
    rig.until(|load| load.queued == 1).await;
    let signal = rig.next_stat().await;
    let stat = signal.stat.expect("a stat");
    assert_eq!((signal.namespace.as_str(), signal.name.as_str()), ("ns", "app"));
    assert_eq!((stat.average_concurrent_requests, stat.request_count), (1.0, 1.0));
    rig.pods(&[pod.address]).await;
    let answer = patient(asking).await.expect("no panic");
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "awake"));
    assert_eq!(pod.connections.load(std::sync::atomic::Ordering::SeqCst), 1, "the probe's connection was used");

    let cold = patient(rig.cold_starts.recv()).await.expect("reported");
    assert_eq!(cold.key, key("app"));
    assert!(cold.received <= cold.address_known && cold.address_known <= cold.probed, "{cold:?}");
    assert!(cold.probed <= cold.released && cold.released <= cold.first_byte, "{cold:?}");
    assert!(cold.signalled.is_some_and(|signalled| signalled >= cold.received), "{cold:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_held_requests_are_all_answered() {
    let rig = std::sync::Arc::new(Rig::with_revision(|_| {}).await);
    let pod = Pod::saying("awake").await;
    let mut held = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let rig = rig.clone();
        held.spawn(async move { rig.get("app.ns", "/").await.status });
    }
    rig.until(|load| load.queued == 500).await;
    rig.pods(&[pod.address]).await;
    while let Some(status) = patient(held.join_next()).await {
        assert_eq!(status.expect("no panic"), StatusCode::OK);
    }
    assert_eq!(pod.requests(), 500);
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

#[tokio::test]
async fn a_client_that_goes_away_while_held_leaves_no_count() {
    let mut rig = Rig::with_revision(|_| {}).await;
    let mut client = rig.raw().await;
    rig::write(&mut client, "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n").await;
    rig.until(|load| load.queued == 1).await;
    rig::reset(client);
    rig.until(|load| load.queued == 0).await;

    // Its concurrency is released too: the reports fall to zero.
    let is_zero = |stat: Stat| stat.average_concurrent_requests == 0.0 && stat.request_count == 0.0;
    while !rig.next_stat().await.stat.is_some_and(is_zero) {}
}

/// Goal: a signal that could not be sent is sent as soon as the autoscaler is reachable.
#[tokio::test]
async fn a_signal_that_was_lost_is_owed() {
    use futures::StreamExt;
    let address = rig::own_address(); // Nothing listens there yet.
    let (events, receiver) = tokio::sync::mpsc::channel(8);
    let mut options =
        activator::Options::new("a", [127, 0, 0, 1].into(), common_runtime::environment::Mode::Standalone);
    (options.http1, options.h2c) = (rig::free(), rig::free());
    options.stat_url = format!("ws://{address}");
    let activator = activator::start(
        options,
        receiver,
        std::sync::Arc::new(common_runtime::resolve::Dns),
        activator::Configs::default(),
    );
    let activator = activator.await.expect("free ports");
    let spec = activator::discovery::Spec::standalone("ns", "app", rig::backend("app"));
    for event in [activator::discovery::Event::Synced, activator::discovery::Event::Revision(std::sync::Arc::new(spec))]
    {
        events.send(event).await.expect("listens");
    }
    rig::until(|| activator.load(&key("app")).is_some()).await;
    let mut client = tokio::net::TcpStream::connect(activator.http1).await.expect("connected");
    rig::write(&mut client, "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n").await;
    rig::until(|| activator.load(&key("app")).is_some_and(|load| load.queued == 1)).await;

    let listener = tokio::net::TcpListener::bind(address).await.expect("still free");
    let (stream, _) = patient(listener.accept()).await.expect("it dials again");
    let mut socket = tokio_tungstenite::accept_async(stream).await.expect("a handshake");
    loop {
        let message = patient(socket.next()).await.expect("open").expect("readable");
        if message.is_binary() {
            let frame = common::wire::decode(&message.into_data()).expect("a frame");
            if let Some(stat) = frame.messages.iter().find_map(|m| m.stat.as_ref()) {
                assert!(stat.average_concurrent_requests > 0.0, "{stat:?}");
                break;
            }
        }
    }
}

/// Goal: an HTTP/2 stream that is reset while held releases its count; the other streams stay.
#[tokio::test]
async fn a_stream_that_is_reset_while_held_leaves_its_siblings() {
    let rig = Rig::with_revision(|_| {}).await;
    let client = rig::http2_client(rig.address).await;
    let send = || {
        let mut client = client.clone();
        let request = http::Request::get("http://app.ns/").body(http_body_util::Empty::<bytes::Bytes>::new());
        tokio::spawn(async move { client.send_request(request.expect("valid")).await })
    };
    let (leaving, staying) = (send(), send());
    rig.until(|load| load.queued == 2).await;
    leaving.abort();
    rig.until(|load| load.queued == 1).await;
    let pod = Pod::saying("awake").await;
    rig.pods(&[pod.address]).await;
    let answer = patient(staying).await.expect("no panic").expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
}
