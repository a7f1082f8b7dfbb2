//! One HTTP/2 connection to a pod, by prior knowledge, shared by as many requests as the pod permits.
//!
//! The pod's limit (`SETTINGS_MAX_CONCURRENT_STREAMS`) is followed as it changes; whoever picks a connection takes a
//! [`Stream`] first, which holds the request's place until its response has ended, so that a request does not wait behind the
//! limit while another connection could carry it. Until the pod's settings have come, the limit is taken to be hyper's 100;
//! a stream that is refused meanwhile is sent again ([`super`]).
//!
//! The limit is known to the connection alone, which its task drives. So the two share it under a lock, which the task holds
//! only while it polls; who finds it taken goes by the limit seen last.
//!
//! No PINGs: whether the pod is there, TCP tells ([`super::watch`]), and gRPC servers close connections on which pings come more
//! often than every few minutes, long answers and all.

use crate::body::RequestBody;
use crate::forward::http1::Failed;
use crate::forward::tls::PodIo;
use crate::lanes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

/// What we can receive on one stream before it is passed on.
const STREAM_WINDOW: u32 = 256 * 1024;
/// And on all of them.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Largest head of a response, decoded, as upstream (10 MiB).
const HEADER_LIST_MAX: u32 = 10 * 1024 * 1024;

/// A handle on the connection; its own task drives it.
#[derive(Clone)]
pub(crate) struct Http2 {
    sender: http2::SendRequest<RequestBody>,
    /// Where it is driven.
    lane: Option<usize>,
    shared: Arc<Shared>,
}

type Driver = http2::Connection<TokioIo<PodIo>, RequestBody, TokioExecutor>;

struct Shared {
    answered: AtomicBool,
    in_flight: AtomicUsize,
    /// None once it has ended.
    driver: Mutex<Option<Driver>>,
    /// Most streams that the pod took at once when that was seen last.
    limit: AtomicUsize,
}

/// A request's place on a connection, given back on drop.
pub(crate) struct Stream {
    shared: Arc<Shared>,
}

impl Shared {
    fn limit(&self) -> usize {
        if let Some(driver) = self.driver.try_lock()
            && let Some(driver) = driver.as_ref()
        {
            self.limit.store(driver.current_max_send_streams(), Ordering::Release);
        }
        self.limit.load(Ordering::Acquire)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Http2 {
    /// Sends preface and settings over a connected stream.
    pub(crate) async fn new(stream: impl Into<PodIo>) -> hyper::Result<Self> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST_MAX)
            .handshake(TokioIo::new(stream.into()))
            .await?;
        let shared = Arc::new(Shared {
            answered: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            limit: AtomicUsize::new(connection.current_max_send_streams()),
            driver: Mutex::new(Some(connection)),
        });
        let driven = shared.clone();
        tokio::spawn(async move {
            let ended = poll_fn(|cx| match driven.driver.lock().as_mut() {
                Some(driver) => Pin::new(driver).poll(cx),
                None => Poll::Ready(Ok(())),
            });
            if let Err(error) = ended.await {
                tracing::debug!(%error, "HTTP/2 connection to a pod ended");
            }
            *driven.driver.lock() = None;
        });
        Ok(Self { sender, lane: lanes::current(), shared })
    }

    /// Whether it is driven where the caller runs.
    pub(crate) fn is_here(&self) -> bool {
        self.lane == lanes::current()
    }

    /// Whether both are handles on one connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether no further request can be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether an answer came over it before.
    pub(crate) fn has_answered(&self) -> bool {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Whether nothing is under way on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.in_flight.load(Ordering::Acquire) == 0
    }

    /// A place, if the pod permits one more.
    pub(crate) fn try_reserve(&self) -> Option<Stream> {
        let limit = self.shared.limit();
        self.shared
            .in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1))
            .ok()
            .map(|_| Stream { shared: self.shared.clone() })
    }

    /// A place, whatever the pod permits: the request then waits for one of the others to end.
    pub(crate) fn reserve(&self) -> Stream {
        self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
        Stream { shared: self.shared.clone() }
    }

    /// Sends `request` and waits for the response's head. Dropping the future resets the stream.
    pub(crate) async fn exchange(mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, Failed> {
        let response = self.sender.try_send_request(request).await?;
        self.shared.answered.store(true, Ordering::Relaxed);
        Ok(response)
    }
}
