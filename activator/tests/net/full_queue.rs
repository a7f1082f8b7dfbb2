//! Pods whose program accepts no connection for a while: the kernel's accept queue is full, and connects get no
//! response.

use crate::fallback::{Names, workload};
use crate::ports::{FIRST, id, ledger, port};
use crate::rig::{self, Rig, backend, free, own_address, patient};
use crate::tracing::traced;
use activator::discovery::{Event, Spec};
use activator::{Options, WorkerRuntimes};
use common::backend::Protocol;
use common::ports::NumberState;
use common_api::zeroscaler::PortProtocol;
use http::StatusCode;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Returns a listener with room for one connection in its queue.
fn listen_narrow() -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(free()).expect("a free port");
    socket.listen(0).expect("bound")
}

/// Reads a request without a body.
async fn read_request(stream: &mut TcpStream) {
    let text = rig::read_until(stream, "\r\n\r\n").await;
    assert!(text.ends_with("\r\n\r\n"), "{text:?}");
}

/// Goal: the requests of such a pod continue, regardless of the fate of connects beside them, and nothing is sent there
/// to check whether the pod is alive.
#[tokio::test]
async fn a_pod_with_a_full_queue_finishes_what_it_runs() {
    let listener = listen_narrow();
    let address = listener.local_addr().expect("bound");
    let rig = Arc::new(Rig::with_revision(|_| {}).await);
    rig.pods(&[address]).await;
    let mut client = rig.raw().await;
    rig::write(&mut client, "POST /first HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 0\r\n\r\n").await;
    let (mut running, _) = patient(listener.accept()).await.expect("dialled");
    read_request(&mut running).await;
    let _filling = patient(TcpStream::connect(address)).await.expect("room for one");

    let second = tokio::spawn({
        let rig = rig.clone();
        async move { rig.get("app.ns", "/second").await }
    });
    // Longer than it takes to doubt the pod, and to trust it again.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut more = [0; 16];
    assert_eq!(running.try_read(&mut more).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock), "{more:?}");
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst";
    running.write_all(answer).await.expect("open");
    let answer = rig::read_until(&mut client, "first").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(running);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("open");
                }
            });
        }
    });
    assert_eq!(patient(second).await.expect("no panic").status, StatusCode::OK);
}

/// Starts a pod with a narrow queue that serves one connection after the other, 40 ms each. Returns its address.
fn busy() -> SocketAddr {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    let listener = listen_narrow();
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            let reading = async {
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|n| n > 0) {}
            };
            // A probe's connection may bring nothing. Segments dropped by a full queue are retransmitted, perhaps
            // seconds later.
            let _ = tokio::time::timeout(Duration::from_secs(5), reading).await;
            if head.ends_with(b"\r\n\r\n") {
                tokio::time::sleep(Duration::from_millis(40)).await;
                let _ = stream.write_all(ANSWER).await; // The client may have gone.
            }
        }
    });
    address
}

/// Uses one worker. With two, two connects may meet at a queue with room for one; the kernel accepts both, and loses
/// one.
fn one_worker(options: &mut Options) {
    options.workers = Some(WorkerRuntimes::start(NonZeroUsize::MIN).expect("a thread"));
}

/// Sends `requests` requests at once and checks that all get a response. Those that wait for room are charged
/// meanwhile.
async fn all_are_answered(rig: &Arc<Rig>, requests: usize) {
    let mut sent = JoinSet::new();
    for _ in 0..requests {
        let rig = rig.clone();
        sent.spawn(async move { rig.get("app.ns", "/").await });
    }
    charged(rig, requests / 4).await;
    while let Some(answer) = patient(sent.join_next()).await {
        let answer = answer.expect("no panic");
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
    rig::until(|| rig.activator.held() == (0, 0)).await;
}

/// Waits until at least `number` requests are charged.
async fn charged(rig: &Rig, number: usize) {
    let number = u64::try_from(number).expect("a few");
    rig::until(|| rig.activator.held().0 >= number).await;
}

/// Goal: a request that repeatedly finds a pod's queue full may wait up to its workload's timeout. Method: more
/// requests at once than the pod serves in 64 waits of 50 ms, after which an earlier version gave up.
#[tokio::test]
async fn requests_wait_for_room_in_a_busy_pods_queue() {
    let rig = Arc::new(Rig::start_with(one_worker).await);
    rig.revision(|_| {}).await;
    rig.pods(&[busy()]).await;
    rig.until_open().await;
    all_are_answered(&rig, 150).await;
    // The timeout ends it, too.
    rig.revision(|backend| backend.timeout_ms = 500).await;
    let mut sent = JoinSet::new();
    for _ in 0..50 {
        let rig = rig.clone();
        sent.spawn(async move { rig.get("app.ns", "/").await.status });
    }
    let statuses = patient(sent.join_all()).await;
    let timed_out = statuses.iter().filter(|status| **status == StatusCode::GATEWAY_TIMEOUT).count();
    let served = statuses.iter().filter(|status| **status == StatusCode::OK).count();
    assert_eq!(timed_out + served, 50, "{statuses:?}");
    assert!(timed_out > 0, "{statuses:?}");
}

/// Goal: a request that waits for room is one failed attempt in metrics, and two spans, not one of each every 50 ms.
#[tokio::test]
async fn a_wait_for_room_is_told_once() {
    const REQUESTS: usize = 40;
    let (rig, mut spans) = traced(|options| {
        options.admin = Some(free());
        one_worker(options);
    })
    .await;
    let rig = Arc::new(rig);
    rig.revision(|_| {}).await;
    rig.pods(&[busy()]).await;
    rig.until_open().await;
    // They wait for 800 ms on average, which is sixteen attempts.
    all_are_answered(&rig, REQUESTS).await;
    let page = rig.admin_page("/metrics").await;
    let attempts = page.lines().filter(|line| line.starts_with("http_client_request_duration_seconds_count{"));
    let failed = attempts.filter(|line| line.contains("error_type=\"connection\""));
    let failed: usize = failed.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum();
    // If threads stall, some attempts fail for other reasons, too.
    assert!((1..4 * REQUESTS).contains(&failed), "{failed} failed attempts: {page}");

    patient(Arc::into_inner(rig).expect("all are answered").activator.stop()).await;
    let (mut answered, mut attempts) = (0, 0);
    while answered < REQUESTS {
        match patient(spans.recv()).await.expect("a span").name.as_str() {
            "GET" => answered += 1,
            "GET /" => attempts += 1,
            _ => {}
        }
    }
    assert!((1..5 * REQUESTS).contains(&attempts), "{attempts} spans of attempts");
}

/// Goal: connections that are passed on as bytes wait for room as well.
#[tokio::test]
async fn connections_wait_for_room_in_a_busy_pods_queue() {
    let ip = own_address().ip();
    let rig = Rig::start_with(|options| {
        options.http1 = SocketAddr::new(ip, 0);
        one_worker(options);
    })
    .await;
    let id = id("tcp", 5432);
    let port = port(&id, PortProtocol::Tcp);
    let spec = Spec { uid: "u-app".into(), ports: [port].into(), ..Spec::standalone("ns", "app", backend("app")) };
    rig.tell(Event::Revision(Arc::new(spec))).await;
    ledger(&rig, &[(FIRST, "app", id, NumberState::Held)]).await;
    rig.pods(&[busy()]).await;
    rig.until_open().await;
    let mut sent = JoinSet::new();
    for _ in 0..150 {
        sent.spawn(async move {
            let mut client = patient(TcpStream::connect((ip, FIRST))).await.expect("bound");
            rig::write(&mut client, "hello\r\n\r\n").await;
            rig::read_to_end(&mut client).await
        });
    }
    charged(&rig, 150 / 4).await;
    while let Some(answer) = patient(sent.join_next()).await {
        let answer = answer.expect("no panic");
        assert!(answer.ends_with("\r\n\r\nok"), "{answer:?}");
    }
}

/// Goal: requests to a fallback wait for room as well; an earlier version gave up after two such waits.
#[tokio::test]
async fn requests_wait_for_room_in_a_busy_fallbacks_queue() {
    let names = Names::resolving_to(&[busy()]);
    let rig = Arc::new(Rig::start_knowing_nothing(one_worker, activator::Configs::default(), names).await);
    rig.tell(Event::Synced).await;
    workload(&rig, 0, Protocol::Http1, |_| {}).await;
    // Until one connect has succeeded, others get more time.
    all_are_answered(&rig, 1).await;
    all_are_answered(&rig, 40).await;
}
