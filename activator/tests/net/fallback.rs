//! Fallback: another Service responds for a workload that does not wake in time.

use crate::rig::{FullResponse, Pod, Rig, ask, ask_http2, ask_with, backend, full, key, listen, patient, post, until};
use activator::discovery::{Event, Spec};
use common::backend::{Backend, Protocol};
use common_api::zeroscaler::{Answers, FallbackStatus};
use common_runtime::resolve::{Dns, Resolve};
use futures::future::BoxFuture;
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Longer than any of these tests.
const NEVER_MS: u64 = 3_600_000;

/// Resolver that knows the addresses of `sorry.ns`, and records the requested names.
#[derive(Default)]
pub(crate) struct Names {
    sorry: Mutex<Vec<SocketAddr>>,
    lookups: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn resolving_to(sorry: &[SocketAddr]) -> Arc<Self> {
        Arc::new(Self { sorry: Mutex::new(sorry.to_vec()), ..Self::default() })
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        if host.parse::<IpAddr>().is_ok() {
            return Dns.resolve(host, port); // The autoscaler's address.
        }
        self.lookups.lock().push(format!("{host}:{port}"));
        let found = self.sorry.lock().clone();
        let found = if found.is_empty() { Err(io::Error::other("unknown")) } else { Ok(found) };
        Box::pin(std::future::ready(found))
    }
}

async fn start_rig(sorry: &[SocketAddr]) -> (Rig, Arc<Names>) {
    let names = Names::resolving_to(sorry);
    (Rig::start_with_all(|_| {}, activator::Configs::default(), names.clone()).await, names)
}

/// Creates `ns/app`, whose requests fall back on `sorry` after a time.
pub(crate) async fn workload(rig: &Rig, after_ms: u64, protocol: Protocol, change: impl FnOnce(&mut Backend)) {
    let fallback =
        FallbackStatus { matching: Default::default(), service: "sorry".into(), port: 80, protocol, after_ms };
    let answers = Some(Arc::new(Answers { fallback: Some(fallback), ..Answers::default() }));
    let mut backend = backend("app");
    change(&mut backend);
    rig.emit(Event::Revision(Arc::new(Spec { answers, ..Spec::standalone("ns", "app", backend) }))).await;
    rig.settled().await;
}

/// Starts a Service that returns the protocol, request line, host, fallback mark and body of a request.
async fn sorry() -> Pod {
    Pod::start(|request: Request<Incoming>| async move {
        let version = if request.version() == Version::HTTP_2 { "h2" } else { "h1" };
        let field = |name: &str| request.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
        let mark = field("x-zeroscale-fallback").unwrap_or_default();
        let host = request.uri().authority().map(ToString::to_string).or_else(|| field("host")).unwrap_or_default();
        let text = format!("sorry, {version} {} {} for {mark} at {host}: ", request.method(), request.uri().path());
        let body = request.into_body().collect().await.expect("a whole body").to_bytes();
        Response::new(full([text.into_bytes(), body.to_vec()].concat()))
    })
    .await
}

/// Goal: the fallback gets the request with its complete body and a mark. The workload is woken anyway, and requests
/// after that get its own response.
#[tokio::test]
async fn a_request_that_waited_too_long_gets_the_fallbacks_response() {
    let fallback = sorry().await;
    let (mut rig, names) = start_rig(&[fallback.address]).await;
    workload(&rig, 300, Protocol::Http1, |_| {}).await;
    let begun = tokio::time::Instant::now();
    let answer = rig.get("app.ns", "/a?b").await;
    assert!(begun.elapsed() >= Duration::from_millis(300), "not before the limit");
    assert_eq!((answer.status.as_u16(), answer.header("x-zeroscale-fallback")), (200, "sorry"));
    assert_eq!(answer.body, "sorry, h1 GET /a for app at app.ns: ");
    assert_eq!(*names.lookups.lock(), ["sorry.ns.svc.cluster.local.:80"]);
    assert_eq!(rig.next_stat().await.name, "app", "it wakes");

    let answer = ask_with(rig.address, post("/p"), vec![b'x'; 100_000]).await;
    assert_eq!(answer.body.len(), "sorry, h1 POST /p for app at app.ns: ".len() + 100_000);
    assert_eq!(names.lookups.lock().len(), 1, "the address is cached");

    workload(&rig, NEVER_MS, Protocol::Http1, |_| {}).await;
    let held = tokio::spawn(get(rig.address, "/own"));
    rig.until(|load| load.queued == 1).await;
    let _pod = rig.only_pod(Pod::saying("awake").await).await;
    let answer = held.await.expect("no panic");
    assert_eq!((answer.body.as_str(), answer.header("x-zeroscale-fallback")), ("awake", ""));
    assert_eq!(fallback.requests(), 2);
}

/// Goal: it falls back if the queue is full, or if pods are known to fail. A request of a deleted workload is refused
/// instead.
#[tokio::test]
async fn a_request_that_cannot_be_held_falls_back_at_once() {
    let fallback = sorry().await;
    let (rig, _) = start_rig(&[fallback.address]).await;
    workload(&rig, NEVER_MS, Protocol::Http1, |backend| backend.max_held = 1).await;
    let held = tokio::spawn(get(rig.address, "/held"));
    rig.until(|load| load.queued == 1).await;
    assert_eq!(rig.get("app.ns", "/beyond").await.body, "sorry, h1 GET /beyond for app at app.ns: ");
    workload(&rig, NEVER_MS, Protocol::Http1, |backend| backend.failing = Some("CrashLoopBackOff".into())).await;
    assert_eq!(held.await.expect("no panic").body, "sorry, h1 GET /held for app at app.ns: ");
    assert_eq!(rig.get("app.ns", "/late").await.header("x-zeroscale-fallback"), "sorry");
    workload(&rig, NEVER_MS, Protocol::Http1, |_| {}).await;
    let held = tokio::spawn(get(rig.address, "/held"));
    rig.until(|load| load.queued == 1).await;
    rig.emit(Event::Deleted(key("app"))).await;
    let refused = held.await.expect("no panic");
    assert_eq!((refused.status.as_u16(), refused.header("x-zeroscale-reason")), (503, "deleted"));
}

/// Goal: the workload may sleep meanwhile.
#[tokio::test]
async fn a_slow_fallback_is_no_load_of_the_workload() {
    let go = Arc::new(Notify::new());
    let waiting = go.clone();
    let fallback = Pod::start(move |_| {
        let waiting = waiting.clone();
        async move {
            waiting.notified().await;
            Response::new(full("at last"))
        }
    })
    .await;
    let (mut rig, _) = start_rig(&[fallback.address]).await;
    workload(&rig, 100, Protocol::Http1, |_| {}).await;
    let slow = tokio::spawn(get(rig.address, "/"));
    until(|| fallback.requests() == 1).await;
    rig.is_load().await; // It was held before.
    assert!(!rig.is_load().await, "only a held request is load");
    assert_eq!(rig.activator.load(&key("app")).expect("known").queued, 0);
    go.notify_one();
    assert_eq!(slow.await.expect("no panic").body, "at last");
}

/// Goal: the error names the fallback, also for gRPC. Once the fallback is back, it is used after the next lookup.
#[tokio::test]
async fn a_fallback_that_does_not_answer_is_named() {
    let gone = listen().await.local_addr().expect("bound");
    let (rig, names) = start_rig(&[gone]).await;
    workload(&rig, 0, Protocol::H2c, |_| {}).await;
    let answer = rig.get("app.ns", "/").await;
    assert_eq!((answer.status.as_u16(), answer.header("x-zeroscale-reason")), (502, "fallback"), "{answer:?}");
    assert!(answer.body.contains("its fallback Service sorry did not respond: connect"), "{}", answer.body);
    names.sorry.lock().clear();
    let grpc = || Request::post("http://app.ns/a.B/C").header("content-type", "application/grpc");
    let answer = ask_http2(rig.address, grpc(), "").await;
    assert_eq!((answer.status.as_u16(), answer.header("grpc-status")), (200, "14"));

    let fallback = sorry().await;
    names.sorry.lock().push(fallback.address);
    let back = async {
        loop {
            let answer = ask_http2(rig.address, grpc(), "frame").await;
            if answer.header("x-zeroscale-fallback") == "sorry" {
                return answer.body;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert_eq!(patient(back).await, "sorry, h2 POST /a.B/C for app at app.ns: frame");
}

async fn get(address: SocketAddr, path: &'static str) -> FullResponse {
    ask(address, Request::get(path).header("host", "app.ns")).await
}
