//! Responses without a pod: the page and its event stream, placeholders, static responses.

use crate::rig::{Pod, Rig, ask, backend, key, patient, read_until, until, write};
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
    rig.tell(Event::Revision(Arc::new(Spec { answers, ..Spec::standalone("ns", name, backend) }))).await;
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
    let mut stream = rig.raw().await;
    let request = format!("GET /a/.zeroscale/wake HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n");
    write(&mut stream, &request).await;
    stream
}

/// Returns whether the autoscaler got reports of load since the last call, up to the second attestation from now.
async fn is_load(rig: &mut Rig) -> bool {
    let (mut attested, mut load) = (0, false);
    while let Ok(message) = rig.stats.try_recv() {
        load |= message.stat.is_some_and(|stat| stat.average_concurrent_requests > 0.0 || stat.request_count > 0.0);
    }
    while attested < 2 {
        match patient(rig.stats.recv()).await.expect("the link stays up").stat {
            None => attested += 1,
            Some(stat) => load |= stat.average_concurrent_requests > 0.0 || stat.request_count > 0.0,
        }
    }
    load
}

/// Goal: a browser gets a page at once, which wakes the workload, and then the workload's response. A program waits for
/// the workload's response.
#[tokio::test]
async fn a_visitor_sees_a_page_until_the_workload_is_awake() {
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
    assert!(is_load(&mut rig).await, "whoever looks at the page keeps the wake going");
    let program =
        async { rig.send(Request::get("/").header("host", "app.ns").header("accept", "application/json")).await };
    let wake = async {
        rig.until(|load| load.queued == 1).await;
        let pod = Pod::saying("awake").await;
        rig.pods(&[pod.address]).await;
        pod
    };
    let (answer, pod) = tokio::join!(program, wake);
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "awake"));
    read_until(&mut stream, "event: ready\ndata:\n\n").await;
    assert_eq!(rig.send(browser("/a?b")).await.body, "awake");

    // A browser that opens more streams keeps nothing awake.
    let mut more = events(&rig).await;
    read_until(&mut more, "event: ready\n").await;
    until(|| rig.activator.held() == (0, 0)).await;
    while is_load(&mut rig).await {} // What was before.
    let mut more = events(&rig).await;
    read_until(&mut more, "event: ready\n").await;
    assert!(!is_load(&mut rig).await, "no load");

    // The next page knows the typical duration.
    rig.pods(&[]).await;
    rig.until(|load| load.capacity == activator_core::breaker::Capacity::CLOSED).await;
    let page = rig.send(browser("/")).await;
    assert!(page.body.contains("It usually takes about <span data-typical=\""), "{}", page.body);
    assert!(!page.body.contains("data-typical=\"\">"), "{}", page.body);
    pod.kill().await;
}

/// Goal: no response claims that a paused workload wakes, and no request for it counts as load.
#[tokio::test]
async fn nobody_is_told_that_a_paused_workload_wakes() {
    let mut rig = Rig::start().await;
    let wake = "page: {}\nplaceholder: {response: {status: 202, body: soon}}";
    workload(&rig, wake, |backend| backend.paused = true).await;
    let page = rig.send(browser("/")).await;
    assert_eq!((page.status.as_u16(), page.header("x-zeroscale-reason")), (503, "page-paused"));
    assert!(page.body.contains("app is paused") && page.body.contains("data-zeroscale=\"paused\""), "{page:?}");
    assert!(!is_load(&mut rig).await, "the page wakes nobody");
    let program = rig.send(Request::get("/").header("host", "app.ns")).await;
    assert_eq!((program.status.as_u16(), program.header("x-zeroscale-reason")), (503, "paused"));

    workload(&rig, wake, |_| {}).await;
    assert_eq!(rig.send(browser("/")).await.header("x-zeroscale-reason"), "page");
    let program = rig.send(Request::get("/").header("host", "app.ns")).await;
    assert_eq!((program.status.as_u16(), program.body.as_str()), (202, "soon"));
}

/// Goal: a page learns that pods fail. Streams are bounded: those beyond the workload's share are rejected with a
/// reason, and closed streams free their share. The page itself is always available, and another workload still gets
/// streams.
#[tokio::test]
async fn streams_are_bounded_and_end() {
    let rig = Rig::start_with(|options| options.memory_limit = Some(2 * STREAMS * STREAM)).await;
    workload(&rig, "page: {}", |_| {}).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = events(&rig).await;
        read_until(&mut stream, "event: waking").await;
        open.push(stream);
    }
    let refused = Request::get("/.zeroscale/wake").header("host", "app.ns");
    let answer = rig.send(refused).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-zeroscale-reason")), (503, "page-events-full"), "{answer:?}");
    named(&rig, "other", "page: {}", |_| {}).await;
    let mut other = events_of(&rig, "other.ns").await;
    read_until(&mut other, "event: waking").await;
    until(|| rig.activator.held().0 == STREAMS).await;
    read_until(&mut open.pop().expect("the youngest"), "0\r\n\r\n").await;
    drop(other);
    until(|| rig.activator.held().0 == STREAMS - 1).await;
    assert_eq!(answer.header("retry-after"), "5");
    assert_eq!(rig.send(browser("/")).await.header("x-zeroscale-reason"), "page");
    let held = rig.activator.held();
    assert_eq!(held, (STREAMS - 1, (STREAMS - 1) * STREAM));
    let mut last = open.pop().expect("one");
    drop(open);
    until(|| rig.activator.held().0 == 1).await;
    read_until(&mut events(&rig).await, "event: waking").await;

    workload(&rig, "page: {}", |backend| backend.failing = Some("CrashLoopBackOff: exit 1".into())).await;
    read_until(&mut last, "event: failed\ndata: CrashLoopBackOff: exit 1\n\n").await;
    until(|| rig.activator.held() == (0, 0)).await;
}

/// Goal: a stream ends with its workload. Otherwise it would count as load of the next workload of that name.
#[tokio::test]
async fn a_stream_ends_with_its_workload() {
    let rig = Rig::start().await;
    workload(&rig, "page: {}", |_| {}).await;
    let mut stream = events(&rig).await;
    read_until(&mut stream, "event: waking").await;
    rig.tell(Event::Deleted(key("app"))).await;
    read_until(&mut stream, "0\r\n\r\n").await;
    until(|| rig.activator.held() == (0, 0)).await;
}

/// Goal: if pods fail, a browser gets the page even if its request was already on the way to a pod that vanished.
#[tokio::test]
async fn a_visitor_of_a_pod_that_fails_sees_the_page() {
    let rig = Rig::start().await;
    workload(&rig, "page: {}", |_| {}).await;
    let pod = Pod::start(|_| std::future::pending()).await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    let fail = async {
        until(|| pod.requests() == 1).await;
        pod.kill().await;
        rig.until(|load| load.queued == 1).await;
        workload(&rig, "page: {}", |backend| backend.failing = Some("CrashLoopBackOff: exit 1".into())).await;
    };
    let (page, ()) = tokio::join!(rig.send(browser("/")), fail);
    assert_eq!((page.status.as_u16(), page.header("x-zeroscale-reason")), (503, "page"), "{page:?}");
    read_until(&mut events(&rig).await, "event: failed\n").await;
}

/// Goal: static responses wake nothing and are no load, asleep or awake, unless configured otherwise.
#[tokio::test]
async fn what_is_static_wakes_nobody() {
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
    assert!(!is_load(&mut rig).await, "asleep");

    let pod = Pod::saying("the pod").await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    assert_eq!(rig.get("app.ns", "/healthz").await.body, "the pod");
    assert_eq!(rig.get("app.ns", "/robots.txt").await.body, "Disallow: /");
    assert_eq!(pod.requests(), 1);
    assert!(!is_load(&mut rig).await, "awake, forwarded");
    assert_eq!(rig.get("app.ns", "/live").await.body, "the pod");
    assert!(is_load(&mut rig).await, "told to");
}

/// Goal: an uncounted request does not wait for a pod that nothing wakes, even if its own pod has just vanished.
#[tokio::test]
async fn a_check_that_loses_the_last_pod_gets_the_static_answer() {
    let mut rig = Rig::start().await;
    workload(&rig, "static: [{match: {paths: [/healthz]}, response: {body: fine}}]", |_| {}).await;
    let pod = Pod::start(|_| std::future::pending()).await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    let lose = async {
        until(|| pod.requests() == 1).await;
        pod.kill().await;
    };
    let (answer, ()) = tokio::join!(rig.get("app.ns", "/healthz"), lose);
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "fine"));
    assert_eq!(answer.header("x-zeroscale-reason"), "static");
    rig.until(|load| load.queued == 0 && load.in_flight == 0).await;
    assert!(!is_load(&mut rig).await);
}

/// Goal: a placeholder is sent at once, with the body of a POST unread, and the workload wakes.
#[tokio::test]
async fn a_placeholder_is_answered_at_once_and_wakes() {
    let mut rig = Rig::start().await;
    let wake = "placeholder: {match: {paths: [/jobs/*]}, response: {status: 202, body: '{}', \
                headers: [{name: Content-Type, value: application/json}]}}";
    workload(&rig, wake, |_| {}).await;
    let mut raw = rig.raw().await;
    write(&mut raw, "POST /jobs/1 HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 3\r\n\r\nabc").await;
    let answer = read_until(&mut raw, "{}").await;
    assert!(answer.starts_with("HTTP/1.1 202 ") && answer.contains("application/json"), "{answer}");
    assert!(is_load(&mut rig).await, "it wakes");
    let held = tokio::spawn(ask(rig.address, Request::get("/other").header("host", "app.ns")));
    rig.until(|load| load.queued == 1).await;
    let pod = Pod::saying("awake").await;
    rig.pods(&[pod.address]).await;
    assert_eq!(held.await.expect("no panic").body, "awake");
    assert_eq!(rig.get("app.ns", "/jobs/1").await.body, "awake");
    rig.tell(Event::Deleted(key("app"))).await;
}
