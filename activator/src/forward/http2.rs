//! One HTTP/2 connection to a pod, by prior knowledge, shared by all requests.

use crate::body::RequestBody;
use crate::forward::dial::PodStream;
use crate::forward::http1::Failed;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What we can receive on one stream before it is passed on.
const STREAM_WINDOW: u32 = 256 * 1024;
/// And on all of them.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Largest head of a response, decoded, as upstream (10 MiB).
const HEADER_LIST_MAX: u32 = 10 * 1024 * 1024;

/// Pings while requests are in flight, and the wait for an answer: a peer that vanished is found out without cost to an
/// idle connection. (Upstream sends none and waits for TCP to give up.)
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle on the connection; its own task drives it.
#[derive(Clone)]
pub(crate) struct Http2 {
    sender: http2::SendRequest<RequestBody>,
    answered: Arc<AtomicBool>,
}

impl Http2 {
    /// Sends preface and settings over a connected stream.
    pub(crate) async fn new(stream: PodStream) -> hyper::Result<Self> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST_MAX)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "HTTP/2 connection to a pod ended");
            }
        });
        Ok(Self { sender, answered: Arc::default() })
    }

    /// Whether no further request can be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether an answer came over it before.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Sends `request` and waits for the response's head. Dropping the future resets the stream.
    pub(crate) async fn exchange(mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, Failed> {
        let response = self.sender.try_send_request(request).await?;
        self.answered.store(true, Ordering::Relaxed);
        Ok(response)
    }
}
