//! Clients that go away while they wait, and clients that only say that they will send no more.

use crate::rig::{self, Pod, Rig, patient, read_until, write};
use activator_core::breaker::Capacity;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

/// Requests of every kind, as bytes: without a body, with a whole one, with an incomplete one, of HTTP/1.0.
const REQUESTS: [&str; 4] = [
    "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 4\r\n\r\nbody",
    "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 400000\r\n\r\nbody",
    "GET / HTTP/1.0\r\nhost: app.ns\r\n\r\n",
];

/// Goal: a held request whose client has gone gives its place back, also if a body of it lies unread.
#[tokio::test]
async fn a_client_that_goes_away_gives_its_place_back() {
    let rig = Rig::start().await;
    rig.revision(|_| {}).await;
    let mut clients = Vec::new();
    for request in REQUESTS {
        for _ in 0..3 {
            let mut client = rig.raw().await;
            write(&mut client, request).await;
            clients.push(client);
        }
    }
    let all = u32::try_from(clients.len()).expect("a few");
    rig.until(|load| load.queued == all).await;
    // Only one remains: it was there all the time, and is answered.
    let mut staying = rig.raw().await;
    write(&mut staying, REQUESTS[1]).await;
    rig.until(|load| load.queued == all + 1).await;
    drop(clients);
    rig.until(|load| load.queued == 1).await;
    let pod = Pod::saying("hello").await;
    rig.pods(&[pod.address]).await;
    read_until(&mut staying, "hello").await;
    assert_eq!(pod.requests(), 1, "nobody else was sent there");
    assert_eq!(rig.activator.held(), (0, 0));
}

/// Goal: a client that shuts its sending side and waits is answered: held, and while its pod works.
#[tokio::test]
async fn a_client_that_has_said_all_is_answered() {
    let rig = Rig::start().await;
    rig.revision(|_| {}).await;
    let mut held = rig.raw().await;
    write(&mut held, REQUESTS[0]).await;
    rig.until(|load| load.queued == 1).await;
    held.shutdown().await.expect("open");
    read_until(&mut held, "HTTP/1.1 100 Continue\r\n\r\n").await;
    let taken = Arc::new(AtomicUsize::new(0));
    let go = Arc::new(Notify::new());
    let (count, gone) = (taken.clone(), go.clone());
    let pod = Pod::start(move |request| {
        let (count, gone) = (count.clone(), gone.clone());
        async move {
            let _ = request.into_body().collect().await;
            count.fetch_add(1, Ordering::SeqCst);
            gone.notified().await;
            http::Response::new(rig::full("hello"))
        }
    })
    .await;
    rig.pods(&[pod.address]).await;
    rig::until(|| taken.load(Ordering::SeqCst) == 1).await;
    go.notify_one();
    let answer = rig::read_to_end(&mut held).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");

    for (sent, request) in (2..).zip(&REQUESTS[..2]) {
        let mut client = rig.raw().await;
        write(&mut client, request).await;
        rig::until(|| taken.load(Ordering::SeqCst) == sent).await;
        client.shutdown().await.expect("open");
        read_until(&mut client, "HTTP/1.1 100 Continue\r\n\r\n").await;
        go.notify_one();
        let answer = rig::read_to_end(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{request:?}: {answer}");
    }
    rig.until(|load| load.in_flight == 0).await;
}

/// Goal: a client that goes away while its pod works is not taken for one that waits.
#[tokio::test]
async fn a_client_that_goes_away_ends_its_exchange() {
    let rig = Rig::start().await;
    rig.revision(|_| {}).await;
    let pod = Pod::start(|_| std::future::pending()).await;
    rig.pods(&[pod.address]).await;
    rig.until(|load| load.capacity != Capacity::CLOSED).await;
    for (sent, request) in [REQUESTS[0], REQUESTS[1], REQUESTS[3]].into_iter().enumerate() {
        let mut client = rig.raw().await;
        write(&mut client, request).await;
        rig::until(|| pod.requests() == sent + 1).await;
        drop(client);
        patient(rig.until(|load| load.in_flight == 0)).await;
    }
}
