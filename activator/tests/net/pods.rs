//! Requests whose pods fail, selection of revisions by bare names, and limits under load.

use crate::fair::{Counting, assert_limit_of_one};
use crate::rig::{self, Pod, Rig, listen, patient};
use activator::discovery::{Event, Listing};
use bytes::Bytes;
use common::RevisionKey;
use common::backend::Backend;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Goal: a request on which every pod closes is not tried on all of them.
#[tokio::test]
async fn a_request_that_breaks_two_pods_is_not_tried_on_a_third() {
    let rig = Rig::with_revision(|_| {}).await;
    let mut pods = Vec::new();
    for _ in 0..4 {
        pods.push(closing_after(0).await);
    }
    rig.pods(&pods.iter().map(|pod| pod.address).collect::<Vec<_>>()).await;
    let answer = rig.get("app.ns", "/").await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(pods.iter().map(Pod::requests).sum::<usize>(), 2);
}

/// Goal: a pod that listens again at its address, without a change in Kubernetes, is found by our probe.
#[tokio::test]
async fn a_pod_that_comes_back_is_used_again() {
    let rig = Rig::with_revision(|_| {}).await;
    let address = rig::own_address();
    let pod = rig.only_pod(Pod::saying_at(address, "first life").await).await;
    assert_eq!(rig.get("app.ns", "/").await.body, "first life");
    pod.kill().await;
    let (answer, _second) = tokio::join!(rig.get("app.ns", "/"), async {
        rig.until(|load| load.queued == 1).await;
        Pod::saying_at(address, "second life").await
    });
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "second life"));
}

/// Starts a pod that serves `before_close` requests on each connection, and closes it at the next without a response. It
/// counts only the latter.
async fn closing_after(before_close: usize) -> Pod {
    Pod::raw(listen().await, move |mut stream, closed| async move {
        let mut buffer = [0; 4096];
        for _ in 0..before_close {
            if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("writable");
        }
        if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
            closed.fetch_add(1, Ordering::SeqCst);
        }
    })
}

/// Goal: if the pod closes a reused connection at a request, a GET does not fail, but a POST does. A POST does not use
/// a connection that has been idle for some milliseconds.
#[tokio::test]
async fn a_request_on_a_stale_connection_is_retried_if_safe() {
    let pod = closing_after(1).await;
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    for _ in 0..10 {
        assert_eq!(rig.get("app.ns", "/").await.status, StatusCode::OK);
    }
    assert_eq!(pod.requests(), 9, "every second request met a stale connection");
    assert_eq!(rig.send(rig::post("/").header("idempotency-key", "1")).await.status, StatusCode::OK);
    for _ in 0..10 {
        assert_eq!(rig.get("app.ns", "/").await.status, StatusCode::OK);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(rig.send(rig::post("/")).await.status, StatusCode::OK, "the pod may be closing the idle connection");
    }
    // A POST reuses only a connection that was idle for less than 5 ms, so that on a busy machine most get a new one.
    for _ in 0..1000 {
        let posted = rig.send(rig::post("/")).await;
        if posted.status != StatusCode::OK {
            assert_eq!((posted.status, posted.header("x-zeroscale-reason")), (StatusCode::BAD_GATEWAY, "pod"));
            return;
        }
    }
    panic!("no POST met a connection that the pod closed");
}

/// Creates a revision with a pod that returns the revision's name, with the namespace unless that is `ns`.
async fn serve(rig: &Rig, namespace: &str, name: &str, change: impl FnOnce(&mut Backend)) {
    let mut backend = Backend { timeout_ms: 5_000, ..rig::backend(name) };
    change(&mut backend);
    let key = RevisionKey::new(namespace, name);
    rig.emit(Event::Revision(Arc::new(activator::discovery::Spec::standalone(namespace, name, backend)))).await;
    let text = if namespace == "ns" { name.to_owned() } else { key.to_string() };
    let pod = Pod::start(move |_| std::future::ready(Response::new(rig::full(text.clone())))).await;
    let listing = Listing { ready: [pod.address.into()].into(), ..Listing::default() };
    rig.emit(Event::Pods { key: key.clone(), listing }).await;
    rig::until(|| rig.activator.load(&key).is_some()).await;
}

/// Goal: a bare name is resolved in the only namespace that has the caller's address. It is not resolved if two have
/// the address, or if the pods share it with their node. Later listings of one namespace do not affect the other.
#[tokio::test]
async fn a_bare_name_resolves_in_the_only_namespace_with_the_callers_address() {
    let rig = Rig::start().await;
    serve(&rig, "ns", "app", |_| {}).await;
    rig::until_async(async || rig.get("app", "/").await.body == "app").await;
    serve(&rig, "node", "app", |backend| backend.host_network = true).await;
    rig.settled().await;
    assert_eq!(rig.get("app", "/").await.body, "app", "the address of a node selects no namespace");
    serve(&rig, "other", "app", |_| {}).await;
    rig::until_async(async || rig.get("app", "/").await.status == StatusCode::NOT_FOUND).await;
    let none = |namespace: &str| Event::Pods { key: RevisionKey::new(namespace, "app"), listing: Listing::default() };
    rig.emit(none("ns")).await;
    rig::until_async(async || rig.get("app", "/").await.body == "other/app").await;
    rig.emit(none("ns")).await;
    rig.revision(|_| {}).await;
    assert_eq!(rig.get("app", "/").await.body, "other/app", "a late listing affects no other namespace");
    rig.emit(none("other")).await;
    rig::until_async(async || rig.get("app", "/").await.status == StatusCode::NOT_FOUND).await;
    assert_eq!(rig.get("app.node", "/").await.body, "node/app", "full names still resolve");
}

/// Goal: under load from many kept-alive clients, with bodies of both framings and a limit on each pod, every response
/// is complete and its own, no pod exceeds its limit, and all counts return to zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_on_limited_pods_every_response_is_complete() {
    const CLIENTS: usize = 48;
    const REQUESTS: usize = 60;
    const LIMIT: usize = 4;
    let rig = Arc::new(Rig::with_revision(|backend| backend.container_concurrency = LIMIT as u32).await);
    let worst = Arc::new(AtomicUsize::new(0));
    let mut pods = Vec::new();
    for _ in 0..3 {
        let (running, worst) = (Arc::new(AtomicUsize::new(0)), worst.clone());
        let echo = move |request: Request<Incoming>| {
            let (running, worst) = (running.clone(), worst.clone());
            async move {
                worst.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let body = request.into_body().collect().await.expect("whole").to_bytes();
                running.fetch_sub(1, Ordering::SeqCst);
                let known = body.len() % 2 == 0;
                let body: rig::AnyBody = match known {
                    true => rig::full(body),
                    false => StreamBody::new(futures::stream::iter([Ok(Frame::data(body))])).boxed_unsync(),
                };
                Response::new(body)
            }
        };
        pods.push(Pod::start(echo).await);
    }
    rig.pods(&pods.iter().map(|pod| pod.address).collect::<Vec<_>>()).await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let rig = rig.clone();
        clients.spawn(async move {
            let mut connection = rig::http1_client(rig.address).await;
            for n in 0..REQUESTS {
                let text = format!("{client}/{n}/{}", "x".repeat((client * n * 37) % 20_000));
                let body = Full::new(Bytes::from(text.clone()));
                patient(connection.ready()).await.expect("kept alive");
                let request = rig::post("/").body(body).expect("valid");
                let answer = rig::FullResponse::receive(connection.send_request(request)).await;
                assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
                assert!(answer.body == text, "{client}/{n}: {} bytes of {}", answer.body.len(), text.len());
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("every answer is right");
    }
    assert_eq!(pods.iter().map(Pod::requests).sum::<usize>(), CLIENTS * REQUESTS);
    assert!(worst.load(Ordering::SeqCst) <= LIMIT, "{} at once on one pod", worst.load(Ordering::SeqCst));
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Goal: all held requests get responses, without a limit, and with a limit of one, with which no pod runs two at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_held_requests_on_ten_pods_keep_the_limit() {
    for limit in [0, 1] {
        let rig = Arc::new(Rig::with_revision(|backend| backend.container_concurrency = limit).await);
        let pods = Counting::start_many(10).await;
        let mut sent = rig.get_many("/", 100);
        rig.until(|load| load.queued == 100).await;
        rig.pods(&pods.iter().map(|counting| counting.pod.address).collect::<Vec<_>>()).await;
        while let Some(answer) = patient(sent.join_next()).await {
            assert_eq!(answer.expect("no panic").status, StatusCode::OK);
        }
        assert_eq!(pods.iter().map(|counting| counting.pod.requests()).sum::<usize>(), 100);
        if limit == 1 {
            assert_limit_of_one(&pods);
        }
        rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
    }
}
