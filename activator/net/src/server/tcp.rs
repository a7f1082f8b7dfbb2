//! A connection that is passed on as bytes, from its accepting to its end.
//!
//! 1. **It must be meant.** Load balancers connect to see whether somebody listens, browsers in case they will need it,
//!    and both close again without a byte. So a connection means something with its first byte, or once it has stood for a
//!    while ([`is_meant`]): in protocols in which the server speaks first nothing else comes.
//! 2. **It is held** while a [`Connector`] waits for a pod, and nothing of it is read: its bytes stay in the kernel, whose
//!    window bounds them. If the client leaves ([`has_left`]), the wait is dropped.
//! 3. **It is relayed** ([`crate::relay`]).
//!
//! A connection that is refused, or cut, is reset, so that nobody takes what came so far for all of it.
//!
//! One that another activator relays begins with a mark ([`mark`]), and is told when there is a pod. From an activator's
//! address nothing else is taken for a client's but bytes that begin no mark.
//!
//! # A client that has left, or ended its side
//!
//! Both look alike: FIN. Without a byte before, nobody waits for anything, and the client has left. After some bytes it may
//! have said all that it has to say and wait for the answer: it is held on. If it has left all the same, its kernel says
//! so to keep-alive, a minute later (Linux keeps the rest of a closed connection for that long). Who speaks TLS never
//! ends one side alone, so its FIN is taken for its leaving.

use super::bounded_writes::KeepAlive;
use super::protocol::is_tls;
use super::seat::{Listener, Phase, Seat};
use crate::body::BodyError;
use crate::relay::end::{TcpEnd, reset};
use crate::relay::{Ended, Relay, mark};
use crate::tcp::user_timeout::UserTimeout;
use rustix::net::{RecvFlags, recv};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Finds pods for connections that are passed on as bytes, and counts them.
pub trait Connector: Clone + Send + Sync + 'static {
    /// What such a connection occupies until its end.
    type Place: Place;

    /// Whether connections may begin with a mark.
    fn takes_relayed(&self) -> bool;

    /// Whether another activator has this address: its connections are expected to begin so.
    fn is_sibling(&self, address: SocketAddr) -> bool;

    /// Waits for a pod and connects to it. It is dropped if the client leaves. `mark`: what a connection that is relayed
    /// began with.
    fn connect(self, client: SocketAddr, mark: Option<String>) -> impl Future<Output = Connected<Self::Place>> + Send;

    /// Ready once pods are found to speak first, so that a client may be waiting for that. Else never.
    fn waits_for_pod(&self) -> impl Future<Output = ()> + Send;

    /// A client has stood for a while without a byte, and left.
    fn left_silent(&self);
}

/// What becomes of a connection.
pub enum Connected<P> {
    /// It is passed on to a pod, or to another activator.
    To(TcpEnd, P),
    /// It is reset.
    Refused,
    /// Whoever relays it is told that it has to go elsewhere, or what it asked for: one byte.
    Told(u8),
}

/// What a relayed connection occupies. Given back when dropped.
pub trait Place: Send + 'static {
    /// How long it may be without a byte in either direction; none: as long as it likes.
    fn idle(&self) -> Option<Duration>;

    /// It has ended so, after so many bytes to the pod and from it.
    fn ended(self, how: Ended, passed: [u64; 2]);
}

/// An accepted connection.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) keepalive: Option<KeepAlive>,
    /// What it is told.
    pub(super) listener: Listener,
    pub(super) seat: Arc<Seat>,
    /// Its port carries HTTP too: what is passed on must not be a request.
    pub(super) beside_http: bool,
}

impl Connection {
    /// Holds it once it is meant.
    pub(super) async fn serve<C: Connector>(mut self, connector: C, wake_after: Duration) -> Result<(), BodyError> {
        self.stream.set_nodelay(true)?;
        match unless_finished(is_meant(&self.stream, wake_after), &mut self.listener).await {
            Some(true) => self.hold(connector).await,
            _ => Ok(()),
        }
    }

    /// Waits for a pod, and passes on.
    pub(super) async fn hold<C: Connector>(self, connector: C) -> Result<(), BodyError> {
        let seat = self.seat.clone();
        seat.begins();
        let ended = self.relayed(connector).await;
        seat.ended();
        ended
    }

    async fn relayed<C: Connector>(self, connector: C) -> Result<(), BodyError> {
        let Self { stream, address, keepalive, mut listener, beside_http, .. } = self;
        let mark = match connector.takes_relayed() {
            true => mark::taken(&stream, || connector.is_sibling(address)).await?,
            false => None,
        };
        let is_marked = mark.is_some();
        let connected = tokio::select! {
            biased; // A place that was given is used.
            connected = connector.connect(address, mark) => connected,
            () = has_left(&stream) => return Ok(()),
            () = listener.cut() => Connected::Refused,
        };
        let (pod, place) = match connected {
            Connected::To(pod, place) => (pod, place),
            Connected::Refused => {
                reset(&stream);
                return Ok(());
            }
            Connected::Told(said) => return Ok(mark::say(&stream, said).await?),
        };
        if is_marked {
            mark::say(&stream, mark::CONNECTED).await?;
        }
        // Registered anew: what has been looked at and left in the socket is told again.
        let stream = TcpStream::from_std(stream.into_std()?)?;
        let client = TcpEnd::new(stream, UserTimeout::new(keepalive.map(|k| k.gone_after())), None);
        let relay = Relay::new(client, pod, place.idle());
        let mut relay = if beside_http { relay.without_requests() } else { relay };
        let how = tokio::select! {
            how = relay.run() => how,
            () = listener.cut() => Ended::Cut,
        };
        let passed = relay.passed();
        relay.close(how);
        place.ended(how, passed); // Who comes next finds the pod without this one.
        Ok(())
    }
}

/// What `future` says; none if the server drains first.
pub(super) async fn unless_finished<T>(future: impl Future<Output = T>, listener: &mut Listener) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(said) => Poll::Ready(Some(said)),
        Poll::Pending if listener.phase(cx.waker()) >= Phase::Finish => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Whether the client sends something, or stays for `wake_after` without. Ready as soon as that is known.
async fn is_meant(stream: &TcpStream, wake_after: Duration) -> bool {
    let until = Instant::now() + wake_after;
    loop {
        let waited = timeout_at(until, stream.readable()).await.is_err();
        // The last look is the kernel's own: the timer may be late, and the client have left meanwhile.
        let looked = if waited {
            first(stream).map(drop)
        } else {
            stream.try_io(Interest::READABLE, || first(stream).map(drop))
        };
        match looked {
            Ok(()) => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock && waited => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
}

/// Ready once a client that is held has left. After that, and if it is dropped earlier, the runtime may not tell what
/// lies unread in the socket.
async fn has_left(stream: &TcpStream) {
    while let Ok(ready) = stream.ready(Interest::READABLE | Interest::ERROR).await {
        match first(stream) {
            Ok(begins) if ready.is_read_closed() => {
                if !is_tls(&begins) {
                    let _ = stream.ready(Interest::ERROR).await;
                }
                return;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        // Looked at again when more comes, or the end.
        let _ = stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
    }
}

/// Returns whether the client has sent something that lies unread.
pub(super) fn has_spoken(stream: &TcpStream) -> bool {
    first(stream).is_ok()
}

/// The first two bytes, zeros where there is only one, without taking them.
///
/// # Errors
/// There are none yet (`WouldBlock`), there will be none (`UnexpectedEof`), or the connection is broken.
fn first(stream: &TcpStream) -> io::Result<[u8; 2]> {
    let mut first = [0; 2];
    match recv(stream, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT)? {
        (0, _) => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(first),
    }
}

/// Of ports that carry HTTP alone.
impl Connector for Infallible {
    type Place = Self;

    fn takes_relayed(&self) -> bool {
        match *self {}
    }

    fn is_sibling(&self, _: SocketAddr) -> bool {
        match *self {}
    }

    async fn connect(self, _: SocketAddr, _: Option<String>) -> Connected<Self> {
        match self {}
    }

    async fn waits_for_pod(&self) {
        match *self {}
    }

    fn left_silent(&self) {
        match *self {}
    }
}

impl Place for Infallible {
    fn idle(&self) -> Option<Duration> {
        match *self {}
    }

    fn ended(self, _: Ended, _: [u64; 2]) {
        match self {}
    }
}
