//! All connections of clients: how many there are, and who is told to end ([`super::crowd`]), each second.

use super::crowd::{CrowdBounds, Order};
use super::drain::Drain;
use common_runtime::failure_log::FailureLog;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How many connections clients have, and how many were ended to have no more. Cheap to clone.
#[derive(Clone, Default)]
pub struct ClientConnections {
    /// They, and what accepts them.
    pub(super) tasks: TaskTracker,
    /// Of the tasks, those that accept.
    accepting: Arc<AtomicUsize>,
    /// And those that serve connections for which there is no room ([`super::reserve`]).
    reserved: Arc<AtomicUsize>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    refused: AtomicU64,
    room: AtomicU64,
    idle: AtomicU64,
}

impl ClientConnections {
    /// Connections and tunnels, but for those in the reserve for probes.
    pub fn open(&self) -> usize {
        let others = self.accepting.load(Ordering::Relaxed) + self.reserved.load(Ordering::Relaxed);
        self.tasks.len().saturating_sub(others)
    }

    /// How many were turned away for want of room.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }

    /// How many were told to end because others needed their place.
    pub fn ended_for_room(&self) -> u64 {
        self.counts.room.load(Ordering::Relaxed)
    }

    /// How many were told to end because they were idle for too long.
    pub fn ended_idle(&self) -> u64 {
        self.counts.idle.load(Ordering::Relaxed)
    }

    fn told(&self, orders: &[Order]) {
        let count = |which: Order| orders.iter().filter(|order| **order == which).count() as u64;
        self.counts.room.fetch_add(count(Order::MakeRoom), Ordering::Relaxed);
        self.counts.idle.fetch_add(count(Order::TooLong), Ordering::Relaxed);
    }

    /// One more task accepts.
    pub(super) fn accepts(&self) {
        self.accepting.fetch_add(1, Ordering::Relaxed);
    }

    /// One more is in the reserve.
    pub(super) fn enters_reserve(&self) {
        self.reserved.fetch_add(1, Ordering::Relaxed);
    }

    /// One of them has gone.
    pub(super) fn leaves_reserve(&self) {
        self.reserved.fetch_sub(1, Ordering::Relaxed);
    }

    /// One more was turned away.
    pub(super) fn refuse(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps them within `bounds`, until `until`.
    pub(super) async fn look_after(self, drain: Drain, bounds: CrowdBounds, until: CancellationToken) {
        let mut failures = FailureLog::of("room for clients' connections");
        let mut refused = 0;
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.tick().await; // The first one comes at once.
        loop {
            tokio::select! {
                () = until.cancelled() => return,
                _ = seconds.tick() => self.told(&drain.tick(&bounds, self.open())),
            }
            let before = std::mem::replace(&mut refused, self.refused());
            if refused == before {
                failures.recovered();
            } else {
                failures.failed(&format!("{} are open, and others are turned away", bounds.connections));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Inbound;
    use crate::client::disconnects::Disconnects;
    use crate::client::peer::Trust;
    use crate::error::ProxyError;
    use crate::server::{ErrorResponder, Server};
    use bytes::Bytes;
    use http::{Request, Response, Version};
    use http_body_util::{BodyExt, Empty, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    #[derive(Clone)]
    struct Silent;

    impl ErrorResponder<ProxyError> for Silent {
        fn respond(&self, _: &ProxyError, _: bool, _: Version) -> Option<Response<Full<Bytes>>> {
            None
        }
    }

    /// A server that says hello, on `/slow` after so long.
    async fn serve(crowd: CrowdBounds, slow: Duration, until: &CancellationToken) -> (Server<Silent>, SocketAddr) {
        let chain = tower::service_fn(move |inbound: Inbound| async move {
            if inbound.request.uri().path() == "/slow" {
                tokio::time::sleep(slow).await;
            }
            Ok::<_, ProxyError>(Response::new(Full::<Bytes>::from("hello")))
        });
        let server =
            Server::new(Silent, Arc::new(|_| Trust::default()), Disconnects::start(until.clone(), Duration::ZERO));
        let server = server.bounded(None, crowd, until.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        server.listen(listener, chain);
        (server, address)
    }

    async fn ask(address: SocketAddr, path: &str) -> TcpStream {
        let mut client = TcpStream::connect(address).await.expect("connected");
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.expect("open");
        client
    }

    /// Reads an answer; false if the connection ends instead.
    async fn is_answered(client: &mut TcpStream) -> bool {
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            if client.read_buf(&mut answer).await.unwrap_or(0) == 0 {
                return false;
            }
        }
        true
    }

    /// Goal: connections end, in their protocol's gentle way, when no request has come for long; one whose answer takes
    /// longer is left alone. Method: a paused clock.
    #[tokio::test(start_paused = true)]
    async fn what_is_idle_for_too_long_ends_and_what_takes_long_does_not() {
        const SLOW: Duration = Duration::from_secs(100);
        let until = CancellationToken::new();
        let crowd = CrowdBounds { connections: 100, idle: Some(Duration::from_secs(10)) };
        let (server, address) = serve(crowd, SLOW, &until).await;
        let start = Instant::now();
        let mut slow = ask(address, "/slow").await;
        let mut idle = ask(address, "/").await;
        assert!(is_answered(&mut idle).await);
        let stream = TokioIo::new(TcpStream::connect(address).await.expect("connected"));
        let executor = TokioExecutor::new();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(executor, stream).await.expect("nothing is sent yet");
        let http2 = tokio::spawn(connection);
        let request = Request::get("http://a/").body(Empty::<Bytes>::new()).expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.into_body().collect().await.expect("whole").to_bytes(), "hello");

        assert!(!is_answered(&mut idle).await);
        http2.await.expect("no panic").expect("GOAWAY is no error");
        assert!((9..=14).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        assert!(is_answered(&mut slow).await);
        assert!(start.elapsed() >= SLOW);
        let connections = server.connections();
        assert_eq!((connections.ended_idle(), connections.ended_for_room(), connections.refused()), (2, 0, 0));
        until.cancel();
    }

    /// Goal: who comes when there is no room is turned away at once; the longest idle makes room, as does a head that
    /// does not end; requests that run are left alone.
    #[tokio::test(start_paused = true)]
    async fn idle_connections_make_room_and_nobody_comes_beyond() {
        let until = CancellationToken::new();
        let crowd = CrowdBounds { connections: 16, idle: None };
        let (server, address) = serve(crowd, Duration::from_secs(30), &until).await;
        let connections = server.connections();
        let mut unfinished = TcpStream::connect(address).await.expect("connected");
        unfinished.write_all(b"GET / HTTP/1.1\r\nhost:").await.expect("open");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut idle = ask(address, "/").await;
        assert!(is_answered(&mut idle).await);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut running = Vec::new();
        for _ in 0..14 {
            running.push(ask(address, "/slow").await);
        }
        while connections.open() < 16 {
            tokio::task::yield_now().await;
        }
        let start = Instant::now();
        assert!(!is_answered(&mut ask(address, "/").await).await);
        assert_eq!((connections.refused(), start.elapsed() < Duration::from_secs(1)), (1, true));

        // The unfinished head is the oldest, and does not go for being told.
        assert_eq!(unfinished.read(&mut [0; 1]).await.unwrap_or(0), 0);
        assert!((5..=8).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        // So the first newcomer fits in, and the second because the idle one goes.
        running.push(ask(address, "/slow").await);
        assert!(!is_answered(&mut idle).await);
        for client in &mut running {
            assert!(is_answered(client).await, "what runs is served");
        }
        assert_eq!((connections.refused(), connections.ended_for_room(), connections.ended_idle()), (1, 2, 0));
        until.cancel();
    }
}
