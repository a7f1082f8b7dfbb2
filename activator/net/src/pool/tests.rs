//! Tests of the pools with local listeners.

use super::sweep::SWEEP_INTERVAL;
use super::*;
use crate::http1::connection::idle::{IDLE_KEPT, IDLE_MAX};
use crate::tcp::loopback::listen;
use crate::worker::WorkerRuntimes;
use socket2::{SockFilter, SockRef};
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// Returns a listener, and a pool of connections to it that keeps at most `idle_max` idle ones.
async fn listen_and_pool(idle_max: usize) -> (TcpListener, Pool) {
    let (listener, address) = listen().await;
    (listener, Pool::new(address, None, idle_max, Arc::default()))
}

/// Goal: a program that restarts at its old address is found at once, although the kernel does not answer a reused port
/// correctly for some 10 ms. Method: a second connect runs beside the hanging one.
#[tokio::test]
async fn a_hanging_connect_delays_no_other() {
    let (listener, pool) = listen_and_pool(2).await;
    SockRef::from(&listener).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
    let unanswered = pool.connect(pool.address, Duration::from_millis(1)).await.expect_err("dropped");
    assert_eq!(unanswered, ProbeOutcome::Unanswered);
    SockRef::from(&listener).detach_filter().expect("permitted");
    let stream = pool.connect(pool.address, Duration::from_secs(60)).await.expect("beside the one that hangs");
    // As measured by the kernel. The first connect would need a retransmission, after a second.
    assert!(stream.round_trip < Duration::from_secs(1), "{:?}", stream.round_trip);
}

#[tokio::test]
async fn idle_connections_are_reused_up_to_the_limit() {
    let (_listener, pool) = listen_and_pool(2).await;
    let open = futures::future::try_join_all((0..3).map(|_| pool.http1(false))).await.expect("accepted");
    for connection in open {
        assert!(!connection.reused);
        pool.http1.return_idle(connection);
    }
    assert!(pool.http1.take(false).is_some_and(|connection| connection.reused));
    assert!(pool.http1.take(false).is_some());
    assert!(pool.http1.take(false).is_none(), "the third was closed");
}

/// Goal: a worker takes its own idle connections first, and others' only if it has none. Method: one connection on each
/// of two workers, the second worker's on top.
#[tokio::test]
async fn a_worker_takes_its_own_connections_first() {
    let (_listener, pool) = listen_and_pool(2).await;
    let pool = Arc::new(pool);
    let workers = WorkerRuntimes::start(NonZeroUsize::MIN.saturating_add(1)).expect("two threads");
    let (first, second) = (workers.next().clone(), workers.next().clone());
    let dial = |worker: &Handle| {
        let pool = pool.clone();
        worker.spawn(async move { pool.http1(false).await })
    };
    let mut open = Vec::new();
    for worker in [&first, &second] {
        open.push((worker, dial(worker).await.expect("no panic").expect("accepted")));
    }
    for (worker, connection) in open {
        let pool = pool.clone();
        worker.spawn(async move { pool.http1.return_idle(connection) }).await.expect("no panic");
    }
    let taking =
        first.spawn(async move { [(); 3].map(|()| pool.http1.take(false).map(|connection| connection.is_here())) });
    assert_eq!(taking.await.expect("no panic"), [Some(true), Some(false), None]);
}

/// Goal: a sweep closes the connections left by a burst. The last one that was used stays, and is closed when it is
/// old.
#[tokio::test]
async fn a_sweep_closes_unused_connections_except_the_latest() {
    let (_listener, pool) = listen_and_pool(100).await;
    let open = futures::future::try_join_all((0..20).map(|_| pool.http1(false))).await.expect("accepted");
    open.into_iter().for_each(|connection| pool.http1.return_idle(connection));
    let begin = Instant::now();
    let left = |after: Duration| {
        pool.sweep(begin + after);
        pool.http1.idle.lock().len()
    };
    let latest = pool.http1.idle.lock().last().map(|connection| connection.idle_since);
    assert_eq!(left(SWEEP_INTERVAL / 2), 20, "needed lately");
    assert_eq!([2, 3].map(|n| left(SWEEP_INTERVAL * n)), [IDLE_KEPT; 2]);
    assert_eq!(pool.http1.idle.lock().last().map(|connection| connection.idle_since), latest);
    assert_eq!(left(IDLE_MAX + SWEEP_INTERVAL), 0);
}

#[tokio::test]
async fn a_connection_that_the_pod_closed_is_not_taken() {
    let (listener, pool) = listen_and_pool(2).await;
    let connection = pool.http1(false).await.expect("accepted");
    let (mut accepted, _) = listener.accept().await.expect("dialled");
    pool.http1.return_idle(connection);
    accepted.shutdown().await.expect("open");
    drop(accepted);
    // The close has arrived once the kernel reports input.
    let closed = async {
        while pool.http1.idle.lock().first_mut().is_some_and(|connection| connection.is_alive(false)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closed).await.expect("the close arrives");
    assert!(pool.http1.take(false).is_none());
}

#[tokio::test]
async fn idle_connections_of_all_addresses_together_are_limited() {
    let pools = Pools::start((10, 3), None, CancellationToken::new());
    let mut open = Vec::new();
    for _ in 0..5 {
        let (listener, address) = listen().await;
        let pool = pools.get(address, "ns");
        pool.http1.return_idle(pool.http1(false).await.expect("accepted"));
        open.push((pool, listener));
        tokio::time::sleep(Duration::from_millis(2)).await; // So that no two became idle at the same instant.
    }
    pools.sweep(Instant::now());
    let left: Vec<bool> = open.iter().map(|(pool, _)| pool.http1.take(false).is_some()).collect();
    assert_eq!(left, [false, false, true, true, true], "the longest idle ones went");
}

#[tokio::test]
async fn old_connections_are_closed_and_unused_addresses_forgotten() {
    let (listener, address) = listen().await;
    let pools = Pools::start((2, 10), None, CancellationToken::new());
    let pool = pools.get(address, "ns");
    pool.http1.return_idle(pool.http1(false).await.expect("accepted"));
    let (mut accepted, _) = listener.accept().await.expect("dialled");
    let now = Instant::now();
    pools.sweep(now + IDLE_MAX - Duration::from_secs(1));
    assert!(pools.by_address.contains_key(&address));
    drop(pool);
    pools.sweep(now + IDLE_MAX + Duration::from_secs(1));
    assert!(!pools.by_address.contains_key(&address));
    assert_eq!(accepted.read(&mut [0]).await.expect("closed, not reset"), 0);
}

/// Goal: cutting a pod ends the connections to each of its ports, even if the port's pool was removed, as for a tunnel.
#[tokio::test]
async fn cutting_a_pod_ends_the_connections_to_all_its_ports() {
    let pools = Pools::start((2, 10), None, CancellationToken::new());
    let mut running = Vec::new();
    for is_forgotten in [false, false, true] {
        let (listener, address) = listen().await;
        let pool = pools.get(address, "ns");
        let connection = pool.http1(false).await.expect("accepted");
        let (accepted, _) = listener.accept().await.expect("dialled");
        if is_forgotten {
            pools.remove(pool.address);
        }
        running.push((connection, accepted));
    }
    pools.cut(Ipv4Addr::LOCALHOST.into());
    for (_, accepted) in &mut running {
        let end = tokio::time::timeout(Duration::from_secs(60), accepted.read(&mut [0])).await.expect("it ends");
        assert_eq!(end.expect("closed, not reset"), 0);
    }
}

/// Goal: a pod's failures are logged once a minute, independently of other pods.
#[tokio::test]
async fn a_pods_failures_are_logged_once_a_minute() {
    let address = ([127, 0, 0, 1], 1).into();
    let [pool, other] = [(); 2].map(|()| Pool::new(address, None, 2, Arc::default()));
    let start = Instant::now();
    let rows =
        [(0, true), (0, false), (59_999, false), (60_000, true), (60_001, false), (119_999, false), (130_000, true)];
    for (at, expected) in rows {
        assert_eq!(pool.should_log_failure(start + Duration::from_millis(at)), expected, "at {at} ms");
    }
    assert!(other.should_log_failure(start));
}

/// Goal: a new HTTP/2 connection carries one request at once, and more up to the pod's limit once that is known. A
/// connection that fails before that does not delay others. The test repeats if the machine was too slow.
#[tokio::test]
async fn a_new_http2_connection_is_shared_once_its_stream_limit_is_known() {
    for _ in 0..10 {
        if shares_a_new_http2_connection().await {
            return;
        }
    }
    panic!("threads stand still each time");
}

/// Runs the scenario. Returns false if the machine was so slow that the wait for the pod's settings may have ended.
async fn shares_a_new_http2_connection() -> bool {
    const IN_TIME: Duration = Duration::from_millis(400);
    let (listener, pool) = listen_and_pool(2).await;
    let begun = Instant::now();
    let first = pool.http2(None).await.expect("accepted");
    let mut second = Box::pin(pool.http2(None));
    let at_once = futures::poll!(&mut second);
    if begun.elapsed() > IN_TIME {
        return false;
    }
    assert!(at_once.is_pending());
    let (accepted, _) = listener.accept().await.expect("dialled");
    let serving = tokio::spawn(async move {
        let mut pod = h2::server::Builder::new();
        let pod = pod.max_concurrent_streams(2).handshake::<_, bytes::Bytes>(accepted).await;
        pod.expect("a preface").accept().await.is_none()
    });
    let second = second.await.expect("accepted");
    if begun.elapsed() > IN_TIME {
        return false;
    }
    let third = pool.http2(None).await.expect("accepted");
    let on = |stream: &Stream| pool.http2.connections.lock().iter().position(|connection| connection.is_of(stream));
    assert_eq!([&first, &second, &third].map(on), [Some(0), Some(0), Some(1)]);
    let newest = pool.http2.connections.lock()[1].clone();
    drop(listener.accept().await.expect("dialled"));
    let settled = newest.settled(Duration::from_secs(3600));
    tokio::time::timeout(Duration::from_secs(60), settled).await.expect("its end is told");
    assert!(newest.is_closed());
    serving.abort();
    true
}

/// Goal: a request that waits for a pod's stream limit does not prevent other workers from dialling. Method: the pod
/// never sends its settings, and the waiting request is not polled again.
#[tokio::test]
async fn a_wait_for_a_stream_limit_blocks_no_other_worker() {
    let (_listener, pool) = listen_and_pool(2).await;
    let pool = Arc::new(pool);
    let workers = WorkerRuntimes::start(NonZeroUsize::MIN).expect("a thread");
    let _first = pool.http2(None).await.expect("accepted");
    let mut waiting = Box::pin(pool.http2(None));
    // Ready only if the machine was so slow that the wait for the settings ended.
    let _ = futures::poll!(&mut waiting);
    let elsewhere = pool.clone();
    let dialled = workers.next().spawn(async move { elsewhere.http2(None).await });
    let dialled = tokio::time::timeout(Duration::from_secs(60), dialled).await.expect("it waits for nobody");
    dialled.expect("no panic").expect("accepted");
}

/// Goal: retries at the same time share one connection that was made after they began, and none takes an older one.
/// Method: the older connection has room.
#[tokio::test]
async fn retries_share_a_new_http2_connection() {
    let (listener, pool) = listen_and_pool(2).await;
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(
                async move { h2::server::handshake(stream).await.expect("a preface").accept().await.is_none() },
            );
        }
    });
    drop(pool.http2(None).await.expect("accepted"));
    let begun = Some(Instant::now());
    let retries = futures::future::try_join_all((0..4).map(|_| pool.http2(begun))).await.expect("accepted");
    let on = |stream: &Stream| pool.http2.connections.lock().iter().position(|connection| connection.is_of(stream));
    assert_eq!(retries.iter().map(on).collect::<Vec<_>>(), [Some(1); 4]);
    serving.abort();
}
