//! New pods, and the requests that wait for them.

use crate::rig::{self, Pod, Rig, bind, patient, read_until, until};
use activator::discovery::{Event, Spec};
use common::backend::Probe;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Goal: an admitted request that found its pod gone is sent to the next pod before later requests, with its body. It
/// is held like others: it is charged, and ends with its client, although its body is unread.
#[tokio::test]
async fn an_unsent_request_returns_to_the_head_of_the_queue() {
    let rig = Rig::with_revision(|backend| backend.container_concurrency = 1).await;
    let first = Pod::saying("first").await;
    let address = first.address;
    rig.pods(&[address]).await;
    assert_eq!(rig.get("app.ns", "/before").await.body, "first");
    first.kill().await;
    let mut clients = Vec::new();
    for (waiting, path) in (1..).zip(["/1", "/2", "/3"]) {
        let request = format!("POST {path} HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 4\r\n\r\nbody");
        clients.push(rig.send_raw(&request).await);
        // The first is admitted, finds its pod gone, and waits again; from then on the revision has no capacity.
        rig.until(|load| load.queued == waiting && load.in_flight == 0).await;
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let observed = order.clone();
    let next = Pod::start(move |request: Request<Incoming>| {
        observed.lock().push(request.uri().path().to_owned());
        async move { Response::new(request.into_body().boxed_unsync()) }
    })
    .await;
    rig.pods(&[address, next.address]).await;
    for client in &mut clients {
        read_until(client, "body").await;
    }
    assert_eq!(*order.lock(), ["/1", "/2", "/3"]);

    next.kill().await;
    let leaving = rig.send_raw("POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 4\r\n\r\nbody").await;
    rig.until(|load| load.queued == 1 && load.in_flight == 0).await;
    until(|| matches!(rig.activator.held(), (1, 1..))).await;
    rig::reset(leaving);
    rig.until(|load| load.queued == 0 && load.in_flight == 0).await;
    until(|| rig.activator.held() == (0, 0)).await;
}

/// Goal: the probe delays neither pods of its own revision nor those of another. Method: when both have responded, the
/// probe still hangs.
#[tokio::test]
async fn a_probe_that_hangs_delays_no_other_pod() {
    let rig = Rig::start().await;
    let known = async |name: &str, pods: &[std::net::SocketAddr]| {
        let mut spec = Spec::standalone("ns", name, rig::backend(name));
        spec.backend.probe = Probe::http("/ready");
        spec.rules.answer_timeout = rig::PATIENCE;
        rig.emit(Event::Revision(Arc::new(spec))).await;
        rig.pods_of(name, pods).await;
        until(|| rig.activator.load(&rig::key(name)).is_some()).await;
    };
    let ((hanging, address), good, other) = (bind().await, Pod::saying("good").await, Pod::saying("other").await);
    known("app", &[address]).await;
    let (hung, _) = patient(hanging.accept()).await.expect("probed");
    known("app", &[address, good.address]).await;
    assert_eq!(rig.get("app.ns", "/").await.body, "good");
    known("other", &[other.address]).await;
    rig.until_named("other.ns").await;
    assert_eq!(rig.get("other.ns", "/").await.body, "other");

    let mut probe = [0; 4096];
    let is_over = loop {
        match hung.try_read(&mut probe) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(_) => break false,
        }
    };
    assert!(!is_over, "the probe had ended before");
}

/// Goal: if the API server refuses to wake the revision, before the request or while it is held, the error of a timeout
/// names the API server's reason. Without a refusal it does not.
#[tokio::test]
async fn a_timeout_after_a_refused_wake_names_the_reason() {
    let rig = Rig::start().await;
    let bounded = |timeout_ms: u64, refused: Option<&'static str>| {
        move |backend: &mut common::backend::Backend| {
            backend.timeout_ms = timeout_ms;
            backend.wake_refused = refused.map(Into::into);
        }
    };
    rig.revision(bounded(3_000, None)).await;
    let late = async {
        rig.until(|load| load.queued == 1).await;
        rig.revision(bounded(3_000, Some("exceeded quota: pods"))).await;
    };
    let (answer, ()) = tokio::join!(rig.get("app.ns", "/"), late);
    assert_eq!((answer.status.as_u16(), answer.header("x-zeroscale-reason")), (504, "timeout"));
    let bound = "request took longer than the workload's timeout of";
    assert_eq!(answer.body, format!("{bound} 3s; the workload could not be woken: exceeded quota: pods\n"));

    rig.revision(bounded(500, Some("exceeded quota: pods"))).await;
    let grpc = Request::post("/s/m").header("host", "app.ns").header("content-type", "application/grpc");
    let answer = rig.send(grpc).await;
    assert_eq!(answer.header("grpc-status"), "4");
    assert!(answer.header("grpc-message").ends_with("could not be woken: exceeded quota: pods"), "{answer:?}");

    rig.revision(bounded(500, None)).await;
    assert_eq!(rig.get("app.ns", "/").await.body, format!("{bound} 500ms\n"));
}

/// Method: a later request that has waited all the time has a later deadline, and so must be refused later.
#[tokio::test]
async fn a_request_that_is_queued_again_keeps_its_deadline() {
    const APART: Duration = Duration::from_secs(2);
    let rig = Rig::with_revision(|backend| (backend.container_concurrency, backend.timeout_ms) = (1, 6_000)).await;
    let pod = rig.only_pod(Pod::start(|_| std::future::pending()).await).await;
    let address = rig.address;
    let ask = || {
        tokio::spawn(async move {
            let answer = rig::ask(address, Request::get("/").header("host", "app.ns")).await;
            (answer, tokio::time::Instant::now())
        })
    };
    let early = ask();
    rig.until(|load| load.in_flight == 1).await;
    until(|| pod.requests() == 1).await;
    tokio::time::sleep(APART).await; // Difference of the deadlines.
    let late = ask();
    rig.until(|load| load.queued == 1).await;
    pod.kill().await;
    rig.until(|load| load.queued == 2).await;
    let ((early, early_at), (late, late_at)) = (early.await.expect("no panic"), late.await.expect("no panic"));
    for answer in [early, late] {
        assert_eq!((answer.status, answer.header("x-zeroscale-reason")), (StatusCode::GATEWAY_TIMEOUT, "timeout"));
    }
    assert!(early_at < late_at, "the early request got a later deadline");
}
