//! Event stream that tells a page when its workload is ready.
//!
//! ```text
//! waking ──a pod is ready──> ready, end
//!    │ ─────pods fail──────> failed with its cause, end; a cause that may pass is sent before
//!    └─ STREAM_MAX has passed, the workload is deleted, or this activator drains ──> end; the browser reconnects
//! ```

use crate::answers::wakes::Wakes;
use crate::registry::readiness::Readiness;
use crate::registry::revision::Revision;
use activator_core::accounting::InFlight;
use activator_net::{HeldCharge, deadline};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

pub(crate) const STREAM_MAX: Duration = Duration::from_secs(300);
/// Longest silence of a stream. Proxies in between may close a stream that is silent for longer.
const BEAT: Duration = Duration::from_secs(10);
/// Interval of checks for changes that no notification reports, such as a drain.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const BYTES: u64 = 4 * 1024;

/// Turns off nginx's buffering of the stream.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Response body created by the activator.
pub(crate) type OwnBody = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

/// Deadline of a stream, among the extensions of its response.
#[derive(Clone, Copy)]
pub(super) struct StreamDeadline(pub(super) Instant);

pub(super) fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(UNBUFFERED, HeaderValue::from_static("no"));
    headers
}

pub(super) struct Events {
    revision: Arc<Revision>,
    changes: watch::Receiver<()>,
    readiness: Arc<Readiness>,
    pub(super) until: Instant,
    next_beat: Instant,
    is_begun: bool,
    last_cause: Option<Arc<str>>,
    is_over: bool,
    _counted: Option<InFlight>,
    held: HeldCharge,
}

impl Drop for Events {
    fn drop(&mut self) {
        deadline::withdraw_deadline();
    }
}

impl Events {
    /// Opens a stream for a workload and a client; returns `None` if their share of memory is used up.
    pub(super) fn open(
        client: IpAddr,
        revision: &Arc<Revision>,
        counted: Option<InFlight>,
        readiness: Arc<Readiness>,
    ) -> Option<Self> {
        let held = revision.memory.hold(client, BYTES).ok()?;
        let now = Instant::now();
        Some(Self {
            changes: revision.wakes.changes(),
            revision: revision.clone(),
            readiness,
            until: now + STREAM_MAX,
            next_beat: now + BEAT,
            is_begun: false,
            last_cause: None,
            is_over: false,
            _counted: counted,
            held,
        })
    }

    /// Returns the body of the stream. Each part reports the deadline to the server of the connection, because the
    /// client may never read on.
    pub(super) fn body(self) -> OwnBody {
        let stream = unfold(self, |mut events| async move {
            let bytes = events.next().await?;
            deadline::report_deadline(events.until);
            Some((Ok(Frame::data(bytes)), events))
        });
        Either::Right(StreamBody::new(stream.boxed()))
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over || self.revision.is_gone() {
                return None;
            }
            if !self.revision.is_cold() {
                return Some(self.end(&b"event: ready\ndata:\n\n"[..]));
            }
            if self.revision.live().is_failing() {
                let cause = self.revision.cause();
                let failed = format!("event: failed\ndata: {}\n\n", cause.as_deref().unwrap_or_default());
                return Some(self.end(failed));
            }
            let now = Instant::now();
            if now >= self.until || self.readiness.is_draining() {
                return None;
            }
            self.revision.wakes.record_waiting(now);
            if !self.is_begun {
                self.is_begun = true;
                return Some(self.first(now));
            }
            let cause = self.revision.cause();
            if cause != self.last_cause {
                self.last_cause = cause;
                let cause = self.last_cause.as_deref().unwrap_or_default();
                return Some(format!("event: cause\ndata: {cause}\n\n").into());
            }
            if now >= self.next_beat {
                self.next_beat = now + BEAT;
                return Some(Bytes::from_static(b":\n\n"));
            }
            // The channel keeps the last change, so a change between the check above and this wait is not lost.
            tokio::select! {
                () = self.held.gives_way() => return None, // The page reconnects later, when there may be room.
                _ = timeout(CHECK_INTERVAL, self.changes.changed()) => {}
            }
        }
    }

    fn end(&mut self, last: impl Into<Bytes>) -> Bytes {
        self.is_over = true;
        last.into()
    }

    /// Returns the first event: the time since the wake began and its typical duration, in seconds.
    fn first(&self, now: Instant) -> Bytes {
        let wakes: &Wakes = &self.revision.wakes;
        let elapsed = now.saturating_duration_since(wakes.record_waiting(now)).as_secs_f64();
        let typical =
            wakes.typical().map_or_else(|| "null".to_owned(), |typical| format!("{:.3}", typical.as_secs_f64()));
        format!("retry: 2000\nevent: waking\ndata: {{\"elapsed\":{elapsed:.3},\"typical\":{typical}}}\n\n").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::revision::fixture;
    use activator_net::deadline::ExchangeDeadline;
    use http_body::Body;
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    /// Goal: the deadline counts from the head on, and a dropped stream has none. Rows: number of parts that are read,
    /// body kept after that, connection ended.
    #[tokio::test(start_paused = true)]
    async fn a_stream_that_its_client_does_not_read_ends_at_its_deadline() {
        for (parts, keeps, ended) in [(0, true, true), (1, true, true), (1, false, false)] {
            let revision = fixture::revision(|_| {});
            let events = Events::open([127, 0, 0, 1].into(), &revision, None, Readiness::new(Instant::now()).into())
                .expect("room");
            let until = events.until;
            let (mut body, mut exchange) = (Some(events.body()), ExchangeDeadline::default());
            let mut left = parts;
            let connection = poll_fn(|cx| {
                exchange.poll(cx, |cx| {
                    if let Some(body) = &mut body {
                        if parts == 0 {
                            deadline::report_deadline(until); // As for the head.
                        }
                        for _ in 0..std::mem::take(&mut left) {
                            assert!(Pin::new(&mut *body).poll_frame(cx).is_ready());
                        }
                    }
                    body = body.take().filter(|_| keeps);
                    Poll::<()>::Pending
                })
            });
            let over = timeout(2 * STREAM_MAX, connection).await;
            assert_eq!(over.is_ok(), ended, "{parts} parts, kept: {keeps}");
        }
    }
}
