//! Serves a client's connection of known protocol with hyper, within the limits below.

use super::protocol::Protocol;
use super::service::ConnectionService;
use super::{Chain, ErrorResponder};
use crate::body::BodyError;
use crate::client::connection_permit::{Phase, PhaseReceiver};
use crate::limits::{FIELDS_MAX, HEAD_MAX, HEAD_TIMEOUT, STREAM_WINDOW};
use crate::server::deadline::ExchangeDeadline;
use crate::server::io::bounded_writes::{BoundedWrites, ClientStream, KeepAlive};
use crate::server::io::head_timeout::HeadTimer;
use crate::server::io::http1::ClientIo;
use crate::server::io::http2::Http2Io;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Maximum number of concurrent streams of one HTTP/2 connection, as upstream.
const STREAMS_MAX: u32 = 250;

/// Receive window of a connection: the sum of its streams' windows. With less, held uploads to a sleeping revision
/// would use up the window, and block uploads to other revisions.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_MAX;

/// Maximum number of streams that a client has reset before they were accepted. Beyond that, its connection ends
/// ("rapid reset").
const RESET_UNSEEN_MAX: usize = 20;

/// Maximum decoded head of an HTTP/2 request, as upstream (1 MiB + 320).
const HEADER_LIST_MAX: u32 = 1024 * 1024 + 320;

/// Number of bytes of a response that an HTTP/2 stream buffers before they are written (hyper's default is 400 KiB).
const SEND_BUFFER_MAX: usize = 32 * 1024;

/// Executor that spawns the tasks of an HTTP/2 connection's requests with boxed futures. Otherwise a future of half a
/// kilobyte would be moved a dozen times into and out of the task. An exchange that exceeds its deadline ends, which
/// resets its stream.
#[derive(Clone, Copy)]
struct BoxingExecutor;

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for BoxingExecutor {
    fn execute(&self, future: F) {
        let (mut future, mut deadline) = (Box::pin(future), ExchangeDeadline::default());
        tokio::spawn(poll_fn(move |cx| deadline.poll(cx, |cx| future.as_mut().poll(cx))));
    }
}

/// Serves a connection until it ends, or has finished after the order to do so.
pub(super) async fn serve<Io: ClientStream + Send + 'static, S: Chain, R: ErrorResponder<S::Error>>(
    protocol: Protocol,
    stream: Io,
    keepalive: Option<KeepAlive>,
    service: ConnectionService<S, R>,
    phases: PhaseReceiver,
) -> Result<(), BodyError> {
    let (io, client, progress) =
        (BoundedWrites::new(stream, keepalive), service.peer.clone(), service.progress().clone());
    match protocol {
        Protocol::Closed | Protocol::Other => Ok(()),
        Protocol::Http1 => {
            let timer = HeadTimer { progress: progress.clone() };
            let io = ClientIo::new(io, client, progress);
            let mut builder = http1::Builder::new();
            builder.timer(timer).header_read_timeout(HEAD_TIMEOUT);
            builder.max_header_size(HEAD_MAX).max_buf_size(HEAD_MAX).max_headers(FIELDS_MAX);
            let connection = pin!(builder.serve_connection(TokioIo::new(io), service).with_upgrades());
            drive(connection, phases, || false, |c| c.graceful_shutdown()).await
        }
        Protocol::Http2 => {
            let unread = client.unread_frames().clone();
            let io = Http2Io::new(io, &client, progress);
            // Boxed, so that an HTTP/1 connection does not carry the size of this future.
            let mut connection = Box::pin(
                http2::Builder::new(BoxingExecutor)
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .max_concurrent_streams(STREAMS_MAX)
                    .max_header_list_size(HEADER_LIST_MAX)
                    .max_send_buf_size(SEND_BUFFER_MAX)
                    .max_pending_accept_reset_streams(RESET_UNSEEN_MAX)
                    .serve_connection(TokioIo::new(io), service),
            );
            drive(connection.as_mut(), phases, || unread.must_be_replaced(), |c| c.graceful_shutdown()).await
        }
    }
}

/// Polls a connection, and makes it finish once: for a drain, or because it `must_be_replaced`. After the deadline of
/// an exchange, ends the connection.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    mut phases: PhaseReceiver,
    must_be_replaced: impl Fn() -> bool,
    finish: impl Fn(Pin<&mut C>),
) -> Result<(), BodyError> {
    let (mut is_finishing, mut deadline) = (false, ExchangeDeadline::default());
    poll_fn(|cx| {
        let phase = phases.phase(cx.waker());
        if matches!(phase, Phase::Cut) {
            return Poll::Ready(Ok(()));
        }
        if !is_finishing && (matches!(phase, Phase::Finish) || must_be_replaced()) {
            is_finishing = true;
            finish(connection.as_mut());
        }
        let served = deadline.poll(cx, |cx| connection.as_mut().poll(cx));
        served.map(|served| served.unwrap_or(Ok(())).map_err(BodyError::from))
    })
    .await
}
