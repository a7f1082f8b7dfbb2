//! Pods whose program accepts no connection for a while: the kernel's accept queue is full, and connection attempts get
//! no response.

use crate::fallback::{Names, workload};
use crate::ports::{app_with, id, port};
use crate::rig::{self, Pod, Rig, free, patient};
use crate::scripted::read_head;
use crate::tracing::traced;
use activator::{Options, WorkerRuntimes};
use common::backend::Protocol;
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

/// Goal: running requests are not affected by connection attempts that get no response, and nothing is sent on their
/// connections to check whether the pod is alive.
#[tokio::test]
async fn a_pod_with_a_full_accept_queue_completes_its_requests() {
    let listener = listen_narrow();
    let address = listener.local_addr().expect("bound");
    let rig = Arc::new(Rig::with_revision(|_| {}).await);
    rig.pods(&[address]).await;
    let mut client = rig.send_raw("POST /first HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 0\r\n\r\n").await;
    let (mut running, _) = patient(listener.accept()).await.expect("dialled");
    rig::read_until(&mut running, "\r\n\r\n").await;
    let _filling = patient(TcpStream::connect(address)).await.expect("room for one");

    let second = rig.get_many("/second", 1);
    // Longer than it takes to suspect the pod, and to trust it again.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut more = [0; 16];
    assert_eq!(running.try_read(&mut more).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock), "{more:?}");
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst";
    running.write_all(answer).await.expect("open");
    let answer = rig::read_until(&mut client, "first").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(running);
    let _pod = Pod::raw(listener, |mut stream, _| async move {
        while stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("open");
        }
    });
    assert_eq!(patient(second.join_all()).await[0].status, StatusCode::OK);
}

/// Starts a pod with a narrow queue that serves one connection after the other, 40 ms each. Returns its address.
fn busy() -> SocketAddr {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    let listener = listen_narrow();
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // On a probe's connection nothing may arrive. Segments that a full queue dropped are retransmitted, perhaps
            // seconds later.
            if let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(5), read_head(&mut stream)).await {
                tokio::time::sleep(Duration::from_millis(40)).await;
                let _ = stream.write_all(ANSWER).await; // The client may have gone.
            }
        }
    });
    address
}

/// Sets one worker. With two, the kernel may accept two simultaneous connections to a queue with room for one, and lose
/// one of them.
pub(crate) fn one_worker(options: &mut Options) {
    options.workers = Some(WorkerRuntimes::start(NonZeroUsize::MIN).expect("a thread"));
}

/// Sends `requests` requests at once and checks that all succeed. Those that wait for room are charged meanwhile.
async fn assert_all_succeed(rig: &Arc<Rig>, requests: usize) {
    let mut sent = rig.get_many("/", requests);
    until_charged(rig, requests / 4).await;
    while let Some(answer) = patient(sent.join_next()).await {
        let answer = answer.expect("no panic");
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
    rig::until(|| rig.activator.held() == (0, 0)).await;
}

/// Waits until at least `number` requests are charged.
async fn until_charged(rig: &Rig, number: usize) {
    let number = u64::try_from(number).expect("a few");
    rig::until(|| rig.activator.held().0 >= number).await;
}

/// Goal: a request that repeatedly finds the queue full waits up to its workload's timeout. Method: more requests at
/// once than the pod serves in 64 attempts, 50 ms apart, after which an earlier version gave up.
#[tokio::test]
async fn requests_wait_for_room_in_a_busy_pods_queue() {
    let rig = Arc::new(Rig::with_options(one_worker, |_| {}).await);
    rig.pods(&[busy()]).await;
    rig.until_open().await;
    assert_all_succeed(&rig, 150).await;
    // The timeout ends the wait, too.
    rig.revision(|backend| backend.timeout_ms = 500).await;
    let answers = patient(rig.get_many("/", 50).join_all()).await;
    let count = |status: StatusCode| answers.iter().filter(|answer| answer.status == status).count();
    let timed_out = count(StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(timed_out + count(StatusCode::OK), 50, "{answers:?}");
    assert!(timed_out > 0, "{answers:?}");
}

/// Goal: a request that waits for room is one failed attempt in metrics, and has two spans of attempts, instead of one
/// every 50 ms.
#[tokio::test]
async fn a_wait_for_room_is_not_reported_at_each_attempt() {
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
    // Requests wait for 800 ms on average, which is sixteen attempts.
    assert_all_succeed(&rig, REQUESTS).await;
    let page = rig.admin_page("/metrics").await;
    let attempts = page.lines().filter(|line| line.starts_with("http_client_request_duration_seconds_count{"));
    let failed = attempts.filter(|line| line.contains("error_type=\"connection\""));
    let failed: usize = failed.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum();
    // If threads stall, some attempts fail for other reasons, too.
    assert!((1..4 * REQUESTS).contains(&failed), "{failed} failed attempts: {page}");

    patient(Arc::into_inner(rig).expect("all have ended").activator.stop()).await;
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

/// Goal: connections to a TCP port of a workload wait for room like requests.
#[tokio::test]
async fn connections_wait_for_room_in_a_busy_pods_queue() {
    let (rig, [address]) = app_with(one_worker, [port(&id("tcp", 5432), PortProtocol::Tcp)], |_| {}).await;
    rig.pods(&[busy()]).await;
    rig.until_open().await;
    let mut sent = JoinSet::new();
    for _ in 0..150 {
        sent.spawn(async move { rig::read_to_end(&mut rig::connect_and_write(address, "hello\r\n\r\n").await).await });
    }
    until_charged(&rig, 150 / 4).await;
    while let Some(answer) = patient(sent.join_next()).await {
        let answer = answer.expect("no panic");
        assert!(answer.ends_with("\r\n\r\nok"), "{answer:?}");
    }
}

/// An earlier version gave up after two such waits.
#[tokio::test]
async fn requests_wait_for_room_in_a_busy_fallbacks_queue() {
    let names = Names::resolving_to(&[busy()]);
    let rig = Arc::new(Rig::start_with_all(one_worker, activator::Configs::default(), names).await);
    workload(&rig, 0, Protocol::Http1, |_| {}).await;
    // Connection attempts have a longer time limit until one has succeeded.
    assert_all_succeed(&rig, 1).await;
    assert_all_succeed(&rig, 40).await;
}
