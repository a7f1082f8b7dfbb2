//! Places for probes alone, for the time in which clients have taken all others.
//!
//! Whoever asks whether this process works takes a refused connection for a no, and sends everybody elsewhere, although
//! all that is missing is room. So who comes when there is none is let in for as long as it takes to say what it wants.
//!
//! - A probe is answered. Anything else is refused, with an answer that says why. Either is the last of its connection.
//! - The connection ends after [`STAY`], whatever it does.
//! - Where all of these places are taken, too, whoever comes takes the place of another: of the address that has most of
//!   them, the one that has been there for longest. A flood from few addresses so ends connections of its own alone. One
//!   from many addresses would have to take every place between a probe's connection and its first bytes, which follow at
//!   once.
//!
//! What a probe is, the caller says, from the headers. On a workload's own port it is who asks whose the port is; where
//! such a port carries TCP, whoever comes is turned away, since nothing that is said there is for us.

use super::client_connections::ClientConnections;
use super::connection;
use super::reserve_places::Places;
use super::{Chain, ErrorResponder, Server};
use crate::client::peer::OwnPort;
use crate::error::ProxyError;
use common_runtime::tls::rustls::ServerConfig;
use http::HeaderMap;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// How long a connection may stay: a second is what probes have by default.
const STAY: Duration = Duration::from_secs(1);

/// Which requests are answered while there is no room, and on how many connections at once.
#[derive(Clone, Copy, Debug)]
pub struct ProbeReserve {
    /// Connections beyond those that clients may have.
    pub places: usize,
    /// Whether a request with these headers is a probe, on a workload's own port or on another.
    pub is_probe: IsProbe,
}

/// Tells a probe by its headers, and by whether it came to a workload's own port.
type IsProbe = fn(&HeaderMap, bool) -> bool;

/// The places of a server.
pub(super) struct Reserve {
    is_probe: IsProbe,
    /// The connections that clients may have.
    room: usize,
    connections: ClientConnections,
    /// Who loses what stands here is to end.
    places: Mutex<Places<oneshot::Sender<Infallible>>>,
}

/// One connection's place. Dropping it gives it back.
struct Place {
    reserve: Arc<Reserve>,
    number: u64,
    only: Arc<OnlyProbes>,
    /// Ready when another has taken it.
    lost: oneshot::Receiver<Infallible>,
}

/// What a connection may ask that has such a place.
pub(super) struct OnlyProbes {
    is_probe: IsProbe,
    own_port: bool,
    room: usize,
    answered: AtomicBool,
}

impl Reserve {
    /// Beyond `room` others.
    pub(super) fn new(probes: ProbeReserve, room: usize, connections: ClientConnections) -> Arc<Self> {
        let ProbeReserve { places, is_probe } = probes;
        Arc::new(Self { is_probe, room, connections, places: Mutex::new(Places::new(places)) })
    }

    /// A place for a connection from there.
    fn enter(self: &Arc<Self>, address: IpAddr, own_port: bool) -> Place {
        let (stays, lost) = oneshot::channel();
        let (number, _ended) = self.places.lock().enter(address, stays);
        self.connections.enters_reserve();
        let only = OnlyProbes { is_probe: self.is_probe, own_port, room: self.room, answered: AtomicBool::new(false) };
        Place { reserve: self.clone(), number, only: Arc::new(only), lost }
    }
}

impl Place {
    /// Runs what serves the connection, within its bounds.
    async fn bound(mut self, serving: impl Future<Output = ()>) {
        tokio::select! {
            biased; // What has come already is answered.
            () = serving => {}
            _ = &mut self.lost => {}
            () = tokio::time::sleep(STAY) => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { reserve, number, only, .. } = self;
        reserve.places.lock().leave(*number);
        reserve.connections.leaves_reserve();
        if !only.answered.load(Ordering::Relaxed) {
            reserve.connections.refuse();
        }
    }
}

impl OnlyProbes {
    /// Lets a request pass with these headers.
    ///
    /// # Errors
    /// It is no probe.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), ProxyError> {
        if !(self.is_probe)(headers, self.own_port) {
            return Err(ProxyError::NoRoom { bound: self.room });
        }
        self.answered.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl<R> Server<R> {
    /// Serves a connection for which there is no room, as far as it brings probes.
    pub(super) fn serve_probes<S: Chain>(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        port: Option<Arc<OwnPort>>,
        chain: S,
    ) where
        R: ErrorResponder<S::Error>,
    {
        let Some(reserve) = &self.reserve else { return self.connections.refuse() };
        let place = reserve.enter(address.ip().to_canonical(), port.is_some());
        let (client, service, drain) = self.connection(address, tls.is_some(), port, chain, Some(place.only.clone()));
        let keepalive = self.keepalive;
        self.tasks.spawn(place.bound(async move {
            let ended = match tls {
                None => connection::serve(stream, client, service, keepalive, drain).await,
                Some(config) => connection::serve_tls(stream, config, client, service, keepalive, drain).await,
            };
            connection::note(address, ended);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Inbound;
    use crate::client::disconnects::Disconnects;
    use crate::client::peer::Trust;
    use crate::server::CrowdBounds;
    use bytes::Bytes;
    use http::{Response, Version};
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    #[derive(Clone)]
    struct Busy;

    impl ErrorResponder<ProxyError> for Busy {
        fn respond(&self, error: &ProxyError, _: bool, _: Version) -> Option<Response<Full<Bytes>>> {
            let mut response = Response::new(Full::from(error.to_string()));
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            Some(response)
        }
    }

    /// A server for one client, which has come.
    async fn full(until: &CancellationToken) -> (Server<Busy>, SocketAddr, TcpStream) {
        let chain =
            tower::service_fn(|_: Inbound| async { Ok::<_, ProxyError>(Response::new(Full::<Bytes>::from("well"))) });
        let crowd = CrowdBounds { connections: 1, idle: None };
        let probes = ProbeReserve { places: 2, is_probe: |headers, _| headers.contains_key("probe") };
        let server =
            Server::new(Busy, Arc::new(|_| Trust::default()), Disconnects::start(until.clone(), Duration::ZERO))
                .bounded(None, crowd, until.clone())
                .reserving(probes);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        server.listen(listener, chain);
        let mut client = TcpStream::connect(address).await.expect("connected");
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("open");
        let n = client.read(&mut [0; 1024]).await.expect("an answer");
        assert!(n > 0);
        (server, address, client)
    }

    /// All that is said to whoever sends this, and how long that took.
    async fn said(address: SocketAddr, bytes: &[u8]) -> (String, Duration) {
        let start = Instant::now();
        let mut client = TcpStream::connect(address).await.expect("connected");
        client.write_all(bytes).await.expect("open");
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await; // A reset is an end as well.
        (String::from_utf8_lossy(&answer).into_owned(), start.elapsed())
    }

    /// Goal: without room a probe is answered and nothing else, once for each connection, and nobody stays for long.
    /// Method: a paused clock; one place, which its client keeps.
    #[tokio::test(start_paused = true)]
    async fn without_room_probes_alone_are_answered() {
        let until = CancellationToken::new();
        let (server, address, client) = full(&until).await;
        let connections = server.connections();
        let probe = "GET / HTTP/1.1\r\nhost: a\r\nprobe: 1\r\n\r\n";
        let other = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        for (sent, answers, refused) in [
            (probe.to_owned(), "200", 0),
            (probe.repeat(2), "200", 0),
            (format!("{probe}{other}"), "200", 0),
            (other.to_owned(), "503", 1),
            ("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), "503", 1),
            (format!("{other}{probe}"), "503", 1),
        ] {
            let before = connections.refused();
            let (answer, took) = said(address, sent.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {answers} ")), "{sent}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{sent}: {answer}");
            assert!(answer.contains("\r\nconnection: close\r\n"), "{sent}: {answer}");
            assert_eq!(answer.contains("1 connections"), answers == "503", "{sent}: {answer}");
            assert!(took < STAY, "{sent}: {took:?}");
            while server.tasks.len() > 2 {
                tokio::task::yield_now().await; // The last of it is to end.
            }
            assert_eq!(connections.refused() - before, refused, "{sent}");
        }
        for silent in ["", "GET / HTTP/1.1\r\nhost: a\r\nprobe:", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let (_, took) = said(address, silent.as_bytes()).await;
            assert!((STAY..STAY * 2).contains(&took), "{silent:?}: {took:?}");
        }
        assert_eq!(connections.open(), 1, "those in the reserve are not counted");
        drop(client);
        until.cancel();
    }
}
