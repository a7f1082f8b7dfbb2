//! One HTTP/1.1 connection to a pod, driven by whoever uses it.
//!
//! No task of its own: the request's task polls the connection while it waits for the head, and the response body polls
//! it while it streams. That saves two hand-overs between tasks for each request, and closes the pod's connection
//! the moment a client goes away, since dropping the exchange drops the connection.
//!
//! Most answers arrive whole with their head. Then the connection is idle again before the head is passed on, and goes
//! back to its pool at once.
//!
//! # Odd cases
//!
//! - A pod that answers before the upload is complete: the rest of the exchange gets a task, because response and upload
//!   must make progress independently of each other.
//! - `Expect: 100-continue`: the upload stays with the client until the pod says 100, or [`EXPECT_WAIT`] has passed, so that a
//!   pod may refuse it unread. The client's own 100 follows from its body being read.
//! - An idle connection is looked at only when it is taken: what the pod closed meanwhile is found then, without a
//!   system call on those that are fine and of the same lane.

use crate::body::{Gate, RequestBody, Upload};
use crate::forward::headers::framing_problem;
use crate::forward::pool::Pool;
use crate::forward::tls::PodIo;
use crate::forward::watch::Watched;
use crate::lanes;
use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Largest response head (upstream's is 10 MiB). hyper's buffers grow up to this for bodies too, so it bounds what a connection
/// occupies.
const HEAD_MAX: usize = 400 * 1024;

/// Most bytes that may come before an answer's head is complete, answers on the way (1xx) included.
const BEFORE_ANSWER_MAX: u64 = 1024 * 1024;

/// The same while hyper reads on without a pause, in which nobody else looks; with room for the body's first part behind a head.
const IN_ONE_GO_MAX: u64 = BEFORE_ANSWER_MAX + HEAD_MAX as u64;

/// How long an expected upload waits for the pod's 100, as upstream.
const EXPECT_WAIT: Duration = Duration::from_secs(1);

/// A connection and its state machine.
pub(crate) struct Http1 {
    sender: http1::SendRequest<RequestBody>,
    /// None once it has ended.
    driver: Option<http1::Connection<TokioIo<PodIo>, RequestBody>>,
    /// Whether a response came through it before.
    pub(crate) reused: bool,
    /// Since when it is idle.
    pub(crate) idle_since: Instant,
    /// Where it was used last.
    lane: Option<usize>,
    /// Tells the stream that the pod has taken everything.
    taken: Arc<AtomicBool>,
    /// Whoever looks after it.
    watched: Option<Arc<Watched>>,
    /// An empty line can be sent beside what hyper sends.
    plain: bool,
    /// Not to be used again: an empty line followed the request, which may be answered too, or the answer's end is in doubt.
    pub(crate) spent: bool,
}

/// Why an exchange brought no response.
pub(crate) struct Failed {
    /// What hyper says.
    pub(crate) error: hyper::Error,
    /// The request, where none of it was sent.
    pub(crate) unsent: Option<Request<RequestBody>>,
}

impl Http1 {
    /// Takes over a connected stream. Sends nothing.
    pub(crate) async fn new(stream: impl Into<PodIo>) -> hyper::Result<Box<Self>> {
        let mut stream = stream.into();
        let taken = stream.stream_mut().taken_on_mark();
        let watched = stream.stream_mut().watched();
        let plain = matches!(stream, PodIo::Plain(_));
        let (sender, driver) = http1::Builder::new()
            .max_header_size(HEAD_MAX)
            .max_buf_size(HEAD_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let (driver, idle_since, lane) = (Some(driver), Instant::now(), lanes::current());
        Ok(Box::new(Self { sender, driver, reused: false, idle_since, lane, taken, watched, plain, spent: false }))
    }

    /// Whether it was used where the caller runs.
    pub(crate) fn is_here(&self) -> bool {
        self.lane == lanes::current()
    }

    /// Notes that an exchange is over and the connection idle.
    pub(crate) fn exchange_over(&mut self) {
        self.reused = true;
        self.lane = lanes::current();
        self.taken.store(true, Ordering::Relaxed);
    }

    /// Looks whether the pod has closed the connection. An idle connection is driven by nobody, so nobody is woken.
    pub(crate) fn is_alive(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.drive(&mut nobody);
        // Of another lane's, the kernel alone may know that it has ended: lanes look for input only between their tasks.
        let unseen_end = !self.is_here() && self.watched.as_ref().is_some_and(|watched| watched.has_ended());
        self.driver.is_some() && self.sender.is_ready() && !unseen_end
    }

    /// Makes progress. An ended driver is dropped at once, which tells whoever still waits for something from it.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if self.driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
            self.driver = None;
        }
    }

    /// Asks whether the pod is there, if somebody is to. The request has been handed over, and was written if there were
    /// more than so many writes.
    fn question(&mut self, writes: u32) {
        let written = |watched: &Watched| watched.writes() != writes;
        if let Some(watched) = self.watched.as_ref().filter(|watched| self.plain && !self.spent && written(watched)) {
            self.spent = watched.question();
        }
    }

    /// Sends `request`; the future waits for the response's head. Dropping it closes the connection.
    pub(crate) fn exchange(
        mut self: Box<Self>,
        mut request: Request<RequestBody>,
        pool: &Arc<Pool>,
    ) -> impl Future<Output = Result<Response<Http1Body>, Failed>> {
        let upload = request.body().upload();
        let expected = Expected::of(&mut request);
        let before = self.watched.as_ref().map_or((0, 0), |watched| {
            watched.bound_reads(Some(IN_ONE_GO_MAX));
            (watched.writes(), watched.received())
        });
        let answer = self.sender.try_send_request(request);
        Exchange { answer, under_way: Some(UnderWay { connection: self, upload, expected, before, pool }) }
    }

    /// Sends a request that asks for an upgrade, on a connection that will not come back.
    pub(crate) async fn upgrade(self: Box<Self>, request: Request<RequestBody>) -> Result<Response<Http1Body>, Failed> {
        let Self { mut sender, driver, .. } = *self;
        tokio::spawn(async move {
            let Some(driver) = driver else { return };
            if let Err(error) = driver.with_upgrades().await {
                tracing::debug!(%error, "connection of an upgrade ended");
            }
        });
        let response = sender.try_send_request(request).await?;
        Ok(response.map(|body| Http1Body { body, driver: Driver::None }))
    }
}

pin_project! {
    /// A request that was handed to its connection. By hand, so that the request is not moved into a future of ours.
    struct Exchange<'a, F> {
        #[pin]
        answer: F,
        under_way: Option<UnderWay<'a>>,
    }
}

/// What belongs to an exchange until its response's head.
struct UnderWay<'a> {
    connection: Box<Http1>,
    upload: Option<Arc<Upload>>,
    expected: Option<Expected>,
    /// Writes to the connection, and bytes read from it, before the request.
    before: (u32, u64),
    pool: &'a Arc<Pool>,
}

impl<F> Future for Exchange<'_, F>
where
    F: Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>>,
{
    type Output = Result<Response<Http1Body>, Failed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // The answer only ever comes out of the driver, here in this task: its own waker is of no use.
        let mut nobody = Context::from_waker(Waker::noop());
        if let Some(under_way) = this.under_way {
            under_way.drive(cx);
        }
        let mut answered = this.answer.as_mut().poll(&mut nobody);
        if let (Poll::Pending, Some(under_way)) = (&answered, &mut *this.under_way)
            && under_way.is_cut(cx)
        {
            answered = this.answer.poll(&mut nobody);
        }
        let answered = std::task::ready!(answered);
        let under_way = this.under_way.take();
        Poll::Ready(match answered {
            Ok(response) => {
                let driver = under_way.map_or(Driver::None, |under_way| under_way.answered(&response));
                Ok(response.map(|body| Http1Body { body, driver }))
            }
            Err(failed) => Err(failed.into()),
        })
    }
}

impl UnderWay<'_> {
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(expected) = &mut self.expected {
            expected.poll(cx);
        }
        self.connection.drive(cx);
    }

    /// While there is no answer: whether the connection was cut, because too much came in place of one.
    fn is_cut(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(watched) = &self.connection.watched else { return false };
        let (writes, received) = self.before;
        if watched.received() - received > BEFORE_ANSWER_MAX {
            watched.cut_flood();
            self.connection.drive(cx);
            return true;
        }
        if watched.is_question_wanted() && self.upload.as_ref().is_none_or(|upload| upload.finished()) {
            self.connection.question(writes);
        }
        false
    }

    /// Who drives the connection from the response's head on.
    fn answered(self, response: &Response<Incoming>) -> Driver {
        let Self { mut connection, upload, expected, pool, .. } = self;
        connection.watched.iter().for_each(|watched| watched.bound_reads(None));
        connection.spent |= framing_problem(response.headers()).is_some();
        if connection.sender.is_ready() {
            pool.put(connection);
            Driver::None
        } else if upload.is_some_and(|upload| !upload.finished()) && !expected.is_some_and(|e| e.is_waiting()) {
            let driver = connection.driver.take();
            tokio::spawn(async move {
                let Some(driver) = driver else { return };
                if let Err(error) = driver.await {
                    tracing::debug!(%error, "pod answered before the upload was complete");
                }
            });
            Driver::None
        } else {
            Driver::Own { connection, pool: pool.clone() }
        }
    }
}

/// An upload that waits for the pod's word.
struct Expected {
    gate: Arc<Gate>,
    patience: Pin<Box<Sleep>>,
    opened: Arc<AtomicBool>,
}

impl Expected {
    /// If `request` expects a 100: its body is closed until one comes.
    fn of(request: &mut Request<RequestBody>) -> Option<Self> {
        let expects = request.headers().get(EXPECT)?.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let gate = expects.then(|| request.body_mut().hold_back()).flatten()?;
        let opened = Arc::new(AtomicBool::new(false));
        let (told, seen) = (gate.clone(), opened.clone());
        hyper::ext::on_informational(request, move |interim| {
            if interim.status() == StatusCode::CONTINUE {
                seen.store(true, Ordering::Release);
                told.open();
            }
        });
        Some(Self { gate, patience: Box::pin(sleep(EXPECT_WAIT)), opened })
    }

    fn is_waiting(&self) -> bool {
        !self.opened.load(Ordering::Acquire)
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        if self.is_waiting() && self.patience.as_mut().poll(cx).is_ready() {
            self.opened.store(true, Ordering::Release);
            self.gate.open();
        }
    }
}

impl From<TrySendError<Request<RequestBody>>> for Failed {
    fn from(mut failed: TrySendError<Request<RequestBody>>) -> Self {
        let unsent = failed.take_message();
        Self { error: failed.into_error(), unsent }
    }
}

/// A response body that drives its connection, and gives it back at the end.
pub(crate) struct Http1Body {
    body: Incoming,
    driver: Driver,
}

enum Driver {
    /// Driven elsewhere, or not at all any more.
    None,
    /// By this body.
    Own { connection: Box<Http1>, pool: Arc<Pool> },
}

impl Http1Body {
    /// Returns the connection if the exchange is over, else drops it, which closes it.
    fn finish(&mut self) {
        if let Driver::Own { mut connection, pool } = std::mem::replace(&mut self.driver, Driver::None)
            && connection.is_alive()
        {
            pool.put(connection);
        }
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        let frame = match &mut this.driver {
            Driver::None => std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)),
            Driver::Own { connection, .. } => {
                let mut nobody = Context::from_waker(Waker::noop());
                match Pin::new(&mut this.body).poll_frame(&mut nobody) {
                    Poll::Ready(frame) => frame,
                    Poll::Pending => {
                        connection.drive(cx);
                        std::task::ready!(Pin::new(&mut this.body).poll_frame(cx))
                    }
                }
            }
        };
        if frame.is_none() || this.body.is_end_stream() {
            this.finish();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.finish();
        }
    }
}
