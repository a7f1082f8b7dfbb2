//! A connection that is relayed as bytes, from the accept to its end.
//!
//! 1. **Intent.** Load balancers connect to check a port, and browsers open connections in advance. Both may close
//!    without sending a byte. So a connection counts as intended after its first byte, or once it has stayed open for a
//!    while ([`is_intended`]): if the server speaks first in its protocol, no byte comes.
//! 2. **Hold.** The connection is held while a [`Connector`] waits for a pod. Nothing is read: its bytes stay in the
//!    kernel, bounded by the receive window. If the client disconnects ([`has_left`]), the wait is dropped.
//! 3. **Relay.** Bytes are forwarded both ways ([`crate::relay`]).
//!
//! A connection that is refused or cut is reset, so that the bytes so far do not look complete.
//!
//! A connection that another activator relays begins with a mark ([`mark`]), and that activator is told when there is a
//! pod. From an activator's address, only bytes that cannot be the start of a mark count as a client's.
//!
//! # Disconnect or half-close
//!
//! Both are a FIN. Before any byte, the client expects nothing, and has gone. After some bytes, the client may have
//! sent its complete request and wait for the response, so the connection is held. If the client has gone after all,
//! its kernel answers a keep-alive probe with a reset a minute later (Linux keeps the state of a closed connection for
//! that long). A TLS client never closes only one side, so its FIN counts as a disconnect.

use super::connection::Connection;
use super::protocol::{is_tls, peek_until};
use crate::body::BodyError;
use crate::client::connection_permit::{Phase, PhaseReceiver};
use crate::relay::end::{TcpEnd, reset};
use crate::relay::{Ended, Relay, mark};
use crate::tcp::user_timeout::UserTimeout;
use rustix::net::{RecvFlags, recv};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Strategy that finds pods for relayed connections, and counts these.
pub trait Connector: Clone + Send + Sync + 'static {
    /// Resources that such a connection holds until its end.
    type Guard: ConnectionGuard;

    /// Reports whether connections may begin with a mark.
    fn takes_relayed(&self) -> bool;

    /// Reports whether this is the address of another activator, whose connections are expected to begin with a mark.
    fn is_sibling(&self, address: SocketAddr) -> bool;

    /// Waits for a pod and connects to it. Dropped if the client disconnects. `mark` is the mark of a relayed
    /// connection.
    fn connect(self, client: SocketAddr, mark: Option<String>) -> impl Future<Output = Connected<Self::Guard>> + Send;

    /// Becomes ready once pods are found to speak first, so that a silent client may wait for that. Otherwise never.
    fn waits_for_pod(&self) -> impl Future<Output = ()> + Send;

    /// Records that a client was silent for a while, and disconnected.
    fn record_silent_disconnect(&self);
}

/// Result of a [`Connector`].
pub enum Connected<P> {
    /// The connection is relayed to a pod, or to another activator.
    To(TcpEnd, P),
    /// The connection is reset.
    Refused,
    /// The relaying activator is sent this byte: the reply to its mark, or that the connection must go elsewhere.
    Reply(u8),
}

/// Resources held by a relayed connection, returned on drop.
pub trait ConnectionGuard: Send + 'static {
    /// Returns the maximum time without a byte in either direction; `None`: unlimited.
    fn idle(&self) -> Option<Duration>;

    /// Records the end of the connection, with the bytes to the pod and from it.
    fn ended(self, how: Ended, passed: [u64; 2]);
}

/// Holds a connection once it is intended.
pub(super) async fn serve<C: Connector>(
    mut connection: Connection,
    connector: C,
    wake_after: Duration,
) -> Result<(), BodyError> {
    match unless_finished(is_intended(&connection.stream, wake_after), &mut connection.phases).await {
        Some(true) => hold(connection, connector, false).await,
        _ => Ok(()),
    }
}

/// Waits for a pod, and relays. If the port is `beside_http`, the relayed bytes must not contain a request.
pub(super) async fn hold<C: Connector>(
    connection: Connection,
    connector: C,
    beside_http: bool,
) -> Result<(), BodyError> {
    let permit = connection.permit.clone();
    permit.begin_exchange();
    let ended = relay(connection, connector, beside_http).await;
    permit.end_exchange();
    ended
}

async fn relay<C: Connector>(connection: Connection, connector: C, beside_http: bool) -> Result<(), BodyError> {
    let Connection { mut stream, address, keepalive, mut phases, .. } = connection;
    let mark = match connector.takes_relayed() {
        true => mark::take_mark(&stream, || connector.is_sibling(address)).await?,
        false => None,
    };
    let is_marked = mark.is_some();
    let connected = tokio::select! {
        biased; // A pod that was found is used.
        connected = connector.connect(address, mark) => connected,
        () = has_left(&stream) => return Ok(()),
        () = phases.cut() => Connected::Refused,
    };
    let (pod, guard) = match connected {
        Connected::To(pod, guard) => (pod, guard),
        Connected::Refused => {
            reset(&stream);
            return Ok(());
        }
        Connected::Reply(reply) => return Ok(stream.write_u8(reply).await?),
    };
    if is_marked {
        stream.write_u8(mark::CONNECTED).await?;
    }
    // Registered anew, so that bytes that were peeked at are reported again.
    let stream = TcpStream::from_std(stream.into_std()?)?;
    let client = TcpEnd::new(stream, UserTimeout::new(keepalive.map(|k| k.gone_after())), None);
    let relay = Relay::new(client, pod, guard.idle());
    let mut relay = if beside_http { relay.without_requests() } else { relay };
    let how = tokio::select! {
        how = relay.run() => how,
        () = phases.cut() => Ended::Cut,
    };
    let passed = relay.passed();
    relay.close(how);
    guard.ended(how, passed); // A later connection finds the pod without this one.
    Ok(())
}

/// Awaits `future`. Returns `None` if the server drains first.
pub(super) async fn unless_finished<T>(future: impl Future<Output = T>, phases: &mut PhaseReceiver) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if phases.phase(cx.waker()) >= Phase::Finish => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Reports whether the client sends something, or stays for `wake_after` without. Returns as soon as that is known.
async fn is_intended(stream: &TcpStream, wake_after: Duration) -> bool {
    let has_bytes = peek_until::<1, _>(stream, |first| Ok(!first.is_empty()));
    match timeout(wake_after, has_bytes).await {
        Ok(looked) => matches!(looked, Ok(Some(true))),
        // The timer may be late, and the client may have gone meanwhile, so the kernel is asked.
        Err(_) => first(stream).map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |_| true),
    }
}

/// Becomes ready once a held client has gone. After that, and after a drop, the runtime may not report the unread bytes
/// in the socket.
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
        // Clear the readiness, so that the next wait ends with more bytes, or the end.
        let _ = stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
    }
}

/// Reports whether the client has sent bytes that are unread.
pub(super) fn has_unread(stream: &TcpStream) -> bool {
    first(stream).is_ok()
}

/// Peeks at the first two bytes. A missing second byte is zero. An error means that there are no bytes yet
/// (`WouldBlock`), there will be none (`UnexpectedEof`), or the connection is broken.
fn first(stream: &TcpStream) -> io::Result<[u8; 2]> {
    let mut first = [0; 2];
    match recv(stream, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT)? {
        (0, _) => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(first),
    }
}
