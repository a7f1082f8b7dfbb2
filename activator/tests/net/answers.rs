//! Responses without a pod: the page and its event stream, placeholders, static responses.

use crate::rig::{Pod, Rig, backend, key, read_until, until};
use activator::discovery::{Event, Spec};
use common::backend::Backend;
use common_api::zeroscaler::Wake;
use http::Request;
use std::sync::Arc;
use tokio::net::TcpStream;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
/// Maximum number of streams of one workload in the test of their bound, and the memory charged for each.
const STREAMS: u64 = 40;
const STREAM: u64 = 4 * 1024;

/// Creates `ns/app` with a `wake` section as users write it.
async fn workload(rig: &Rig, wake: &str, change: impl FnOnce(&mut Backend)) {
    named(rig, "app", wake, change).await;
}

async fn named(rig: &Rig, name: &str, wake: &str, change: impl FnOnce(&mut Backend)) {
    let wake: Wake = serde_yaml_ng::from_str(wake).expect(wake);
    let mut backend = backend(name);
    change(&mut backend);
    let answers = wake.answers(None).map(Arc::new);
    rig.emit(Event::Revision(Arc::new(Spec { answers, ..Spec::standalone("ns", name, backend) }))).await;
    rig.settled().await;
}

fn browser(path: &str) -> http::request::Builder {
    Request::get(path).header("host", "app.ns").header("accept", BROWSER)
}

/// Opens the event stream of a page.
async fn events(rig: &Rig) -> TcpStream {
    events_of(rig, "app.ns").await
}

async fn events_of(rig: &Rig, host: &str) -> TcpStream {
    let request = format!("GET /a/.zeroscale/wake HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n");
    rig.send_raw(&request).await
}

/// Goal: a browser gets a page at once, which wakes the workload, and later the workload's response. Other clients wait
/// for the workload's response.
#[tokio::test]
async fn a_browser_gets_the_page_until_the_workload_is_awake() {
    let mut rig = Rig::start().await;
    workload(&rig, "page: {}", |_| {}).await;
    let page = rig.send(browser("/a?b")).await;
    assert_eq!((page.status.as_u16(), page.header("x-zeroscale-reason")), (503, "page"));
    assert_eq!((page.header("cache-control"), page.header("retry-after")), ("no-store", "5"));
    assert!(page.header("content-type").starts_with("text/html") && page.body.contains("app is waking up"), "{page:?}");
    assert_eq!(rig.next_stat().await.name, "app", "the page wakes");

    let mut stream = events(&rig).await;
    let begun = read_until(&mut stream, "event: waking\ndata: ").await;
    assert!(begun.contains("text/event-stream") && begun.contains("no-store"), "{begun}");
    assert!(rig.is_load().await, "an open page is load");
    let program = Request::get("/").header("host", "app.ns").header("accept", "application/json");
    let (answer, pod) = tokio::join!(rig.send(program), async {
        rig.until(|load| load.queued == 1).await;
        rig.only_pod(Pod::saying("awake").await).await
    });
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "awake"));
    read_until(&mut stream, "event: ready\ndata:\n\n").await;
    assert_eq!(rig.send(browser("/a?b")).await.body, "awake");

    // Streams that are opened while the workload is awake do not keep it awake.
    let mut more = events(&rig).await;
    read_until(&mut more, "event: ready\n").await;
    until(|| rig.activator.held() == (0, 0)).await;
    while rig.is_load().await {} // Earlier load.
    let mut more = events(&rig).await;
    read_until(&mut more, "event: ready\n").await;
    assert!(!rig.is_load().await, "no load");

    // The next page names the typical duration.
    rig.pods(&[]).await;
    rig.until(|load| load.capacity == activator_core::breaker::Capacity::CLOSED).await;
    let page = rig.send(browser("/")).await;
    assert!(page.body.contains("It usually takes about <span data-typical=\""), "{}", page.body);
    assert!(!page.body.contains("data-typical=\"\">"), "{}", page.body);
    pod.kill().await;
}

/// Goal: no response claims that a paused workload wakes, and no request for it counts as load.
#[tokio::test]
async fn no_response_claims_that_a_paused_workload_wakes() {
    let mut rig = Rig::start().await;
    let wake = "page: {}\nplaceholder: {response: {status: 202, body: soon}}";
    workload(&rig, wake, |backend| backend.paused = true).await;
    let page = rig.send(browser("/")).await;
    assert_eq!((page.status.as_u16(), page.header("x-zeroscale-reason")), (503, "page-paused"));
    assert!(page.body.contains("app is paused") && page.body.contains("data-zeroscale=\"paused\""), "{page:?}");
    assert!(!rig.is_load().await, "the page is no load");
    let program = rig.get("app.ns", "/").await;
    assert_eq!((program.status.as_u16(), program.header("x-zeroscale-reason")), (503, "paused"));

    workload(&rig, wake, |_| {}).await;
    assert_eq!(rig.send(browser("/")).await.header("x-zeroscale-reason"), "page");
    let program = rig.get("app.ns", "/").await;
    assert_eq!((program.status.as_u16(), program.body.as_str()), (202, "soon"));
}

/// Goal: a page's event stream reports that pods fail, and ends with its workload: a stream that stayed would count as
/// load of the next workload of that name. Streams are bounded: those beyond the workload's share are rejected with a
/// reason, and closed streams free their share. The page itself is always available, and a stream of another workload
/// replaces the youngest.
#[tokio::test]
async fn event_streams_are_bounded_and_end_when_pods_fail() {
    let rig = Rig::start_with(|options| options.memory_limit = Some(2 * STREAMS * STREAM)).await;
    workload(&rig, "page: {}", |_| {}).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = events(&rig).await;
        read_until(&mut stream, "event: waking").await;
        open.push(stream);
    }
    let answer = rig.get("app.ns", "/.zeroscale/wake").await;
    assert_eq!((answer.status.as_u16(), answer.header("x-zeroscale-reason")), (503, "page-events-full"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), "5");
    named(&rig, "other", "page: {}", |_| {}).await;
    let mut other = events_of(&rig, "other.ns").await;
    read_until(&mut other, "event: waking").await;
    until(|| rig.activator.held().0 == STREAMS).await;
    read_until(&mut open.pop().expect("the youngest"), "0\r\n\r\n").await;
    rig.emit(Event::Deleted(key("other"))).await;
    read_until(&mut other, "0\r\n\r\n").await;
    until(|| rig.activator.held().0 == STREAMS - 1).await;
    assert_eq!(rig.send(browser("/")).await.header("x-zeroscale-reason"), "page");
    assert_eq!(rig.activator.held(), (STREAMS - 1, (STREAMS - 1) * STREAM));
    let mut last = open.pop().expect("one");
    drop(open);
    until(|| rig.activator.held().0 == 1).await;
    read_until(&mut events(&rig).await, "event: waking").await;

    workload(&rig, "page: {}", |backend| backend.failing = Some("CrashLoopBackOff: exit 1".into())).await;
    read_until(&mut last, "event: failed\ndata: CrashLoopBackOff: exit 1\n\n").await;
    until(|| rig.activator.held() == (0, 0)).await;
}

/// Goal: if pods fail, a browser gets the page even if its request was already on the way to a pod that vanished. A
/// request that is no load does not wait for a pod that nothing wakes, even if its own pod has just vanished.
#[tokio::test]
async fn requests_whose_pod_vanished_get_their_responses_without_a_pod() {
    let mut rig = Rig::start().await;
    let wake = "page: {}\nstatic: [{match: {paths: [/healthz]}, response: {body: fine}}]";
    workload(&rig, wake, |_| {}).await;
    let pod = rig.only_pod(Pod::start(|_| std::future::pending()).await).await;
    rig.until_open().await;
    let (answer, ()) = tokio::join!(rig.get("app.ns", "/healthz"), async {
        until(|| pod.requests() == 1).await;
        pod.kill().await;
    });
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "fine"));
    assert_eq!(answer.header("x-zeroscale-reason"), "static");
    rig.until(|load| load.queued == 0 && load.in_flight == 0).await;
    assert!(!rig.is_load().await);

    let pod = rig.only_pod(Pod::start(|_| std::future::pending()).await).await;
    rig.until_open().await;
    let (page, ()) = tokio::join!(rig.send(browser("/")), async {
        until(|| pod.requests() == 1).await;
        pod.kill().await;
        rig.until(|load| load.queued == 1).await;
        workload(&rig, wake, |backend| backend.failing = Some("CrashLoopBackOff: exit 1".into())).await;
    });
    assert_eq!((page.status.as_u16(), page.header("x-zeroscale-reason")), (503, "page"), "{page:?}");
    read_until(&mut events(&rig).await, "event: failed\n").await;
}

/// Goal: static responses wake nothing and are no load, asleep or awake, unless configured otherwise.
#[tokio::test]
async fn static_responses_wake_nothing() {
    let mut rig = Rig::start().await;
    let wake = "static: [{match: {paths: [/healthz]}, response: {body: fine, headers: [{name: X-A, value: b}]}}, \
                {match: {paths: [/robots.txt]}, response: {body: 'Disallow: /'}, answer: Always}, \
                {match: {paths: [/live]}, response: {status: 204}, keepsAwake: true}]";
    workload(&rig, wake, |_| {}).await;
    let answer = rig.get("app.ns", "/healthz").await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str(), answer.header("x-a")), (200, "fine", "b"));
    let head = rig.send(Request::head("/healthz").header("host", "app.ns")).await;
    assert_eq!((head.status.as_u16(), head.header("content-length"), head.body.as_str()), (200, "4", ""));
    assert_eq!(rig.get("app.ns", "/live").await.status.as_u16(), 204);
    assert!(!rig.is_load().await, "asleep");

    let pod = rig.only_pod(Pod::saying("the pod").await).await;
    rig.until_open().await;
    assert_eq!(rig.get("app.ns", "/healthz").await.body, "the pod");
    assert_eq!(rig.get("app.ns", "/robots.txt").await.body, "Disallow: /");
    assert_eq!(pod.requests(), 1);
    assert!(!rig.is_load().await, "awake, forwarded");
    assert_eq!(rig.get("app.ns", "/live").await.body, "the pod");
    assert!(rig.is_load().await, "keepsAwake");
}
