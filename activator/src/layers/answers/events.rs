//! Event stream that tells a page when its workload is ready.
//!
//! ```text
//! waking ──a pod is ready──> ready, end
//!    │ ─────pods fail──────> failed with its cause, end; a cause that may pass is sent before
//!    └─ LONGEST has passed, the workload is deleted, or this activator drains ──> end; the browser reconnects
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
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Longest duration of a stream.
pub(crate) const LONGEST: Duration = Duration::from_secs(300);
/// Longest silence of a stream. Proxies in between may close a stream that is silent for longer.
const BEAT: Duration = Duration::from_secs(10);
/// Interval of checks for changes that no notification reports, such as a drain.
const LOOK: Duration = Duration::from_secs(1);
/// Memory charged for a stream.
const BYTES: u64 = 4 * 1024;

/// Turns off nginx's buffering of the stream.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Response body created by the activator.
pub(crate) enum Own {
    /// Bytes, until they have been sent.
    Whole(Option<Bytes>),
    /// Event stream, until it has ended.
    Events(Option<EventStream>),
}

/// Sending part of an event stream.
pub(crate) struct EventStream {
    events: BoxStream<'static, Bytes>,
    until: Instant,
}

impl Drop for EventStream {
    fn drop(&mut self) {
        deadline::withdraw_deadline();
    }
}

impl Own {
    /// Reports the deadline of a stream to the server of the connection. Called when the head or a part of the body was
    /// handed out, because the client may never read it.
    pub(super) fn report_deadline(&self) {
        if let Self::Events(Some(stream)) = self {
            deadline::report_deadline(stream.until);
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty())),
            Self::Events(stream) => {
                let next = match stream {
                    Some(stream) => ready!(stream.events.poll_next_unpin(cx)),
                    None => None,
                };
                if next.is_none() {
                    *stream = None;
                }
                self.report_deadline();
                Poll::Ready(next)
            }
        }
    }
}

impl Body for Own {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Events(stream) => stream.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// Returns the headers of a stream.
pub(super) fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(UNBUFFERED, HeaderValue::from_static("no"));
    headers
}

/// State of one stream.
pub(super) struct Events {
    revision: Arc<Revision>,
    changes: watch::Receiver<()>,
    readiness: Arc<Readiness>,
    until: Instant,
    beat: Instant,
    is_begun: bool,
    /// Last cause that was sent.
    said: Option<Arc<str>>,
    is_over: bool,
    _counted: Option<InFlight>,
    held: HeldCharge,
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
            until: now + LONGEST,
            beat: now + BEAT,
            is_begun: false,
            said: None,
            is_over: false,
            _counted: counted,
            held,
        })
    }

    pub(super) fn body(self) -> Own {
        let until = self.until;
        let stream = unfold(self, |mut events| async move { events.next().await.map(|bytes| (bytes, events)) });
        Own::Events(Some(EventStream { events: stream.boxed(), until }))
    }

    /// Returns the next event; `None` at the end.
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
            self.revision.wakes.wait(now);
            if !self.is_begun {
                self.is_begun = true;
                return Some(self.first(now));
            }
            let cause = self.revision.cause();
            if cause != self.said {
                self.said = cause;
                let cause = self.said.as_deref().unwrap_or_default();
                return Some(format!("event: cause\ndata: {cause}\n\n").into());
            }
            if now >= self.beat {
                self.beat = now + BEAT;
                return Some(Bytes::from_static(b":\n\n"));
            }
            // The channel keeps the last change, so a change between the check above and this wait is not lost.
            tokio::select! {
                () = self.held.gives_way() => return None, // The page reconnects later, when there may be room.
                _ = timeout(LOOK, self.changes.changed()) => {}
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
        let elapsed = now.saturating_duration_since(wakes.wait(now)).as_secs_f64();
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
    use std::future::poll_fn;

    /// Goal: a stream that its client does not read ends at its deadline, from its head on; a dropped stream has no
    /// deadline.
    #[tokio::test(start_paused = true)]
    async fn a_stream_that_nobody_reads_is_ended_in_time() {
        for (parts, keeps, ended) in [(0, true, true), (1, true, true), (1, false, false)] {
            let revision = fixture::revision(|_| {});
            let events = Events::open([127, 0, 0, 1].into(), &revision, None, Readiness::new(Instant::now()).into())
                .expect("room");
            let (mut body, mut overdue) = (Some(events.body()), ExchangeDeadline::default());
            let mut left = parts;
            let connection = poll_fn(|cx| {
                overdue.poll(cx, |cx| {
                    if let Some(body) = &mut body {
                        if parts == 0 {
                            body.report_deadline();
                        }
                        while left > 0 {
                            assert!(body.poll_next(cx).is_ready());
                            left -= 1;
                        }
                    }
                    if !keeps {
                        body = None;
                    }
                    Poll::<()>::Pending
                })
            });
            let over = timeout(2 * LONGEST, connection).await;
            assert_eq!(over.is_ok(), ended, "{parts} parts, kept: {keeps}");
        }
    }
}
