//! A client's connection whose protocol is known: hyper's, within these limits.

use super::client_io::{ClientIo, ClientStream};
use super::head_timeout::HeadTimer;
use super::http2_io::Http2Io;
use super::overdue::Overdue;
use super::protocol::Protocol;
use super::seat::{Listener, Phase};
use super::service::ConnectionService;
use super::{Chain, ErrorResponder, HEAD_TIMEOUT};
use crate::body::BodyError;
use crate::client::peer::Peer;
use crate::limits::{self, FIELDS_MAX, STREAM_WINDOW};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

/// Concurrent streams of one HTTP/2 connection, as upstream.
const STREAMS_MAX: u32 = 250;

/// Receive window of a connection: all of its streams' together. With less, the held uploads of a revision that sleeps
/// would use it up, and uploads to one that is awake would stand still beside them.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_MAX;

/// Streams that a client has reset before they were looked at; beyond that, its connection ends ("rapid reset").
const RESET_UNSEEN_MAX: usize = 20;

/// Largest head of an HTTP/1 request, in bytes.
const HEAD_MAX: usize = limits::HEAD_MAX as usize;

/// Largest head of an HTTP/2 request, decoded, as upstream (1 MiB + 320).
const HEADER_LIST_MAX: u32 = 1024 * 1024 + 320;

/// Bytes of an answer that a stream of HTTP/2 takes ahead of what is written (hyper's is 400 KiB).
const SEND_BUFFER_MAX: usize = 32 * 1024;

/// Spawns the tasks of an HTTP/2 connection's requests, each with its future in a box. Otherwise the future is moved a
/// dozen times on its way into the task and out of it, half a kilobyte each time. One that is overdue ends, and its stream is
/// reset.
#[derive(Clone, Copy)]
struct InBoxes;

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for InBoxes {
    fn execute(&self, future: F) {
        let (mut future, mut overdue) = (Box::pin(future), Overdue::default());
        tokio::spawn(poll_fn(move |cx| overdue.poll(cx, |cx| future.as_mut().poll(cx))));
    }
}

/// Serves it until it ends, or until it has finished after being told to.
pub(super) async fn serve<Io, S, R>(
    protocol: Protocol,
    stream: Io,
    client: Arc<Peer>,
    service: ConnectionService<S, R>,
    drain: Listener,
) -> Result<(), BodyError>
where
    Io: ClientStream + Send + 'static,
    S: Chain,
    R: ErrorResponder<S::Error>,
{
    match protocol {
        Protocol::Closed => Ok(()),
        Protocol::Http1 => {
            let progress = service.progress().clone();
            let timer = HeadTimer::new(progress.clone());
            let io = ClientIo::new(stream, client, progress);
            let mut builder = http1::Builder::new();
            builder.timer(timer).header_read_timeout(HEAD_TIMEOUT);
            builder.max_header_size(HEAD_MAX).max_buf_size(HEAD_MAX).max_headers(FIELDS_MAX);
            let connection = pin!(builder.serve_connection(TokioIo::new(io), service).with_upgrades());
            drive(connection, drain, || false, |c| c.graceful_shutdown()).await
        }
        Protocol::Http2 => {
            let unread = client.unread().clone();
            let io = Http2Io::new(stream, &client, service.progress().clone());
            // Boxed: a connection of HTTP/1 must not carry the room that this one needs.
            let mut connection = Box::pin(
                http2::Builder::new(InBoxes)
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .max_concurrent_streams(STREAMS_MAX)
                    .max_header_list_size(HEADER_LIST_MAX)
                    .max_send_buf_size(SEND_BUFFER_MAX)
                    .max_pending_accept_reset_streams(RESET_UNSEEN_MAX)
                    .serve_connection(TokioIo::new(io), service),
            );
            drive(connection.as_mut(), drain, || unread.is_worn(), |c| c.graceful_shutdown()).await
        }
    }
}

/// Polls a connection, and tells it once when to finish: for a drain, or since it is worn. One that is overdue ends.
async fn drive<C>(
    mut connection: Pin<&mut C>,
    mut drain: Listener,
    is_worn: impl Fn() -> bool,
    finish: impl Fn(Pin<&mut C>),
) -> Result<(), BodyError>
where
    C: Future<Output = hyper::Result<()>>,
{
    let (mut told, mut overdue) = (false, Overdue::default());
    poll_fn(|cx| {
        let phase = drain.phase(cx.waker());
        if matches!(phase, Phase::Cut) {
            return Poll::Ready(Ok(()));
        }
        if !told && (matches!(phase, Phase::Finish) || is_worn()) {
            told = true;
            finish(connection.as_mut());
        }
        let served = overdue.poll(cx, |cx| connection.as_mut().poll(cx));
        served.map(|served| served.unwrap_or(Ok(())).map_err(BodyError::from))
    })
    .await
}
