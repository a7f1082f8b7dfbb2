//! One HTTP/2 connection to a pod, by prior knowledge, shared by as many requests as the pod permits.
//!
//! The pod's limit (`SETTINGS_MAX_CONCURRENT_STREAMS`) is followed as it changes. A request first reserves a
//! [`Stream`], which holds its place until the response has ended. So a request does not wait behind the limit while
//! another connection could carry it. Until the pod's settings arrive, which takes a round trip, the connection carries
//! one request. A pod with a low limit would refuse the rest of a burst, and bodies that were largely sent could not be
//! sent again. Requests that arrive meanwhile wait ([`Http2::settled`]). A pod that sends no settings for a while is
//! assumed to permit [`STREAMS_ASSUMED`].
//!
//! A task drives the connection: it reads, writes, and wakes the tasks whose responses arrive. The requests' own tasks
//! do the rest: they open their stream, send the body and wait for the response. After each poll the driver stores the
//! limit, and whether the connection accepts more streams, so that a request that picks a connection need not ask `h2`.
//!
//! # Windows
//!
//! Windows bound the bytes that a pod may send before they are read, per stream and per connection. If the streams'
//! windows exceeded the connection's, responses that clients do not read would use that up, and all other streams of
//! the connection would stall. So the number of streams is limited to those that fit ([`STREAMS_MAX`]).
//!
//! No PINGs are sent. TCP tells whether the pod is alive ([`crate::liveness`]), and gRPC servers close connections with
//! more than one PING every few minutes, together with their long responses.

use crate::body::{Guard, RequestBody};
use crate::http2::exchange::{Exchange, Failed, Outgoing};
use crate::http2::{Received, Sending};
use crate::limits::HEAD_MAX;
use crate::pod::tls::{PodIo, tcp_of};
use crate::worker;
use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body;
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::SetOnce;
use tokio::time::{Instant, timeout_at};

/// Receive window of a connection: bytes on all its streams that are not yet forwarded.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Maximum number of concurrent streams of a connection, which share its window: large responses are fast, also from
/// distant pods.
const STREAMS_MAX: u32 = 32;

/// Maximum decoded head of a response. `h2` resets the stream of a larger one, and closes the connection at four times
/// the size.
const HEADER_LIST_MAX: u32 = HEAD_MAX as u32;

/// Number of streams that a pod is assumed to accept: the minimum that RFC 9113 (6.5.2) recommends.
const STREAMS_ASSUMED: usize = 100;

/// Maximum number of streams before the pod's settings arrive.
const STREAMS_AT_FIRST: usize = 1;

/// `h2`'s limit until then: a value that no pod can send, which shows that its settings have not arrived. (A pod
/// without a limit has `usize::MAX`.)
const UNKNOWN_LIMIT: usize = usize::MAX - 1;

/// Maximum number of bytes of one stream that wait to be written.
const SEND_BUFFER_MAX: usize = 1024 * 1024;

/// A handle to the connection, which is closed when its last handle and last stream are dropped.
#[derive(Clone)]
pub(crate) struct Http2 {
    shared: Arc<Http2Shared>,
    /// Worker that drives the connection. Stored here, so that other workers can compare it without touching memory
    /// that changes with each request.
    worker: Option<usize>,
}

struct Http2Shared {
    sender: Mutex<SendRequest<Bytes>>,
    // State of the connection that is read without asking `h2`.
    answered: AtomicBool,
    closed: AtomicBool,
    in_flight: AtomicUsize,
    /// Maximum number of concurrent streams: the pod's limit, bounded by the number that fits into the window.
    limit: AtomicUsize,
    made: Instant,
    /// Set when the wait for the pod's limit is over: to true if it has arrived, to false if the time is over or the
    /// connection has ended.
    settled: SetOnce<bool>,
}

/// A request's place on a connection, returned on drop.
pub(crate) struct Stream {
    shared: Arc<Http2Shared>,
    /// The connection was idle before this stream.
    pub(crate) was_idle: bool,
}

impl Guard for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Http2 {
    /// Sends preface and settings over a connected stream.
    pub(crate) async fn new(stream: impl Into<PodIo>) -> Result<Self, h2::Error> {
        let mut stream: PodIo = stream.into();
        tcp_of(&mut stream).limit_turns();
        let (sender, connection) = Builder::new()
            .initial_window_size(CONNECTION_WINDOW / STREAMS_MAX)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST_MAX)
            .initial_max_send_streams(UNKNOWN_LIMIT)
            .max_send_buffer_size(SEND_BUFFER_MAX)
            .enable_push(false)
            .handshake(stream)
            .await?;
        let (answered, closed, in_flight, settled) = Default::default();
        let (sender, limit, made) = (Mutex::new(sender), AtomicUsize::new(STREAMS_AT_FIRST), Instant::now());
        let shared = Arc::new(Http2Shared { sender, answered, closed, in_flight, limit, made, settled });
        tokio::spawn(drive(connection, shared.clone()));
        Ok(Self { shared, worker: worker::current() })
    }

    /// Reports whether the caller's worker drives the connection.
    pub(crate) fn is_here(&self) -> bool {
        self.worker == worker::current()
    }

    pub(crate) fn is_made_since(&self, since: Option<Instant>) -> bool {
        since.is_none_or(|since| self.shared.made >= since)
    }

    pub(crate) fn is_of(&self, stream: &Stream) -> bool {
        Arc::ptr_eq(&self.shared, &stream.shared)
    }

    /// Reports whether the connection accepts no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// Reports whether the wait for the pod's stream limit is over.
    pub(crate) fn is_settled(&self) -> bool {
        self.shared.settled.initialized()
    }

    /// Waits until the pod's settings have arrived, the connection has ended, or `within` has passed since it was
    /// created. Returns whether the settings have arrived, which proves that the pod speaks HTTP/2.
    pub(crate) async fn settled(&self, within: Duration) -> bool {
        if timeout_at(self.shared.made + within, self.shared.settled.wait()).await.is_err() {
            self.shared.assume_limit();
        }
        self.shared.settled.get() == Some(&true)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.shared.in_flight.load(Ordering::Acquire) == 0
    }

    /// Reserves a place, if the pod permits another stream.
    pub(crate) fn try_reserve(&self) -> Option<Stream> {
        let limit = self.shared.limit.load(Ordering::Acquire);
        self.shared
            .in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1))
            .ok()
            .map(|before| Stream { shared: self.shared.clone(), was_idle: before == 0 })
    }

    /// Reserves a place regardless of the limit: on a new connection, or where the request waits for another one to
    /// end.
    pub(crate) fn reserve(&self) -> Stream {
        self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
        Stream { shared: self.shared.clone(), was_idle: false }
    }
}

impl Stream {
    /// Reports whether a response has arrived on the connection before.
    pub(crate) fn has_answered(&self) -> bool {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Records that a response has arrived.
    pub(crate) fn answered(&self) {
        if !self.has_answered() {
            self.shared.answered.store(true, Ordering::Relaxed);
        }
    }

    /// Sends `request`. The future completes with the response's head; dropping it resets the stream.
    pub(crate) fn exchange(
        &self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Received>, Failed>> + use<> {
        let (head, mut body) = request.into_parts();
        let mut request = Request::from_parts(head, ());
        body.keep_sent();
        if let Some(length) = body.size_hint().exact().filter(|length| *length > 0 || expects_body(request.method()))
            && !request.headers().contains_key(CONTENT_LENGTH)
        {
            // Not by `entry`, which may enlarge the map even if the field exists.
            request.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        let ended = body.is_end_stream();
        let exchange = match self.shared.open(request, ended) {
            Ok((answer, _)) if ended => Ok(Exchange { answer, upload: Outgoing::Over(Some(body)) }),
            Ok((answer, stream)) => Ok(Exchange { answer, upload: Outgoing::Going(Sending::new(stream, body)) }),
            Err(error) => Err(Failed::Unsent(error, body)),
        };
        async move { exchange?.await }
    }
}

/// Reports whether the method usually has a body, so that even a length of zero is sent (RFC 9110, 8.6).
fn expects_body(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT)
}

impl Http2Shared {
    /// Opens a stream and sends its head. An error means that the connection accepts no more streams.
    fn open(&self, request: Request<()>, ended: bool) -> Result<(ResponseFuture, h2::SendStream<Bytes>), h2::Error> {
        let mut sender = self.sender.lock();
        let opened = sender.send_request(request, ended);
        if opened.is_err() {
            self.closed.store(true, Ordering::Release);
        } else if sender.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
            // This handle waits for its stream to be opened. A new handle can queue further streams.
            let another = sender.clone();
            *sender = another;
        }
        opened
    }

    /// Stores what the connection accepts, after each poll of the driver.
    fn update(&self) {
        let mut sender = self.sender.lock();
        if let Poll::Ready(Err(_)) = sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            self.closed.store(true, Ordering::Release);
        }
        self.store_limit(&sender);
    }

    /// Stores the number of streams that the pod accepts, as far as it is known.
    fn store_limit(&self, sender: &SendRequest<Bytes>) {
        let announced = sender.current_max_send_streams();
        let limit = match announced {
            UNKNOWN_LIMIT if self.settled.initialized() => STREAMS_ASSUMED,
            UNKNOWN_LIMIT => STREAMS_AT_FIRST,
            announced => announced,
        };
        self.limit.store(limit.min(STREAMS_MAX as usize), Ordering::Release);
        if announced != UNKNOWN_LIMIT {
            self.settle(true);
        }
    }

    /// Ends the wait for the pod's settings.
    fn assume_limit(&self) {
        let sender = self.sender.lock();
        self.settle(false);
        self.store_limit(&sender);
    }

    fn settle(&self, has_settings: bool) {
        let _ = self.settled.set(has_settings); // It may have been over before.
    }
}

async fn drive(mut connection: Connection<PodIo, Bytes>, shared: Arc<Http2Shared>) {
    let shared = Arc::downgrade(&{ shared });
    let ended = poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        if let Some(shared) = shared.upgrade() {
            shared.update();
        }
        polled
    });
    let ended = ended.await;
    if let Some(shared) = shared.upgrade() {
        shared.closed.store(true, Ordering::Release);
        shared.settle(false);
    }
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP/2 connection to a pod ended");
    }
}
