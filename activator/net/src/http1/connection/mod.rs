//! One HTTP/1.1 connection to a pod, driven by whoever uses it.
//!
//! No task of its own: the request's task writes and reads while it waits for the head ([`exchange`]), and the
//! response's body reads while it streams ([`body`]). That saves two hand-overs between tasks for each request, and
//! closes the pod's connection the moment a client goes away, since dropping the exchange drops the connection.
//!
//! Most answers arrive whole with their head. Then the connection is idle again before the head is passed on, and goes
//! back to its pool at once. An idle connection has no buffer.
//!
//! # Odd cases
//!
//! - A pod that answers before the upload is complete: the rest of the upload gets a task, because response and upload
//!   must make progress independently of each other. It ends with the response, and the connection with both: else it
//!   would run on where nobody counts or bounds it.
//! - A pod that takes no more of an upload may have said why: its answer is looked for before the upload's failure
//!   counts.
//! - `Expect: 100-continue`: the upload stays with the client until the pod says 100, or a second has passed, so that a
//!   pod may refuse it unread: then the client's connection ends with the answer, which says so (RFC 9110, 10.1.1). The
//!   client's own 100 follows from its body being read.
//! - Other answers on the way (1xx) are passed on, one by one: no more is read before the client has it.
//! - An idle connection is looked at only when it is taken: what the pod closed meanwhile is found then, without a
//!   system call on those that are fine and of the same worker.

mod body;
mod exchange;
mod expected;
mod input;

use crate::body::{BodyError, RequestBody};
use crate::client::peer::Peer;
use crate::http1::Malformed;
use crate::liveness::Tracked;
use crate::pod::tls::PodIo;
use crate::worker;
pub(crate) use body::Http1Body;
use exchange::Exchange;
pub(crate) use expected::ToActivator;
use http::request;
use input::Input;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

/// Where a connection goes that another exchange may follow on.
pub(crate) trait ReturnIdle: Send + Sync + 'static {
    fn return_idle(&self, connection: Box<Http1>);
}

/// A connection between two exchanges, or in one.
pub(crate) struct Http1 {
    io: PodIo,
    /// Read, and not looked at.
    input: Input,
    /// Whether a response came through it before.
    pub(crate) reused: bool,
    /// Whether it was kept for a request to come: the pod may have closed it meanwhile.
    pub(crate) was_idle: bool,
    /// Since when it is there, and since when idle.
    pub(crate) made: Instant,
    pub(crate) idle_since: Instant,
    /// Where it was used last.
    worker: Option<usize>,
    /// Whoever looks after it.
    tracked: Option<Arc<Tracked>>,
    /// Not to be used again: its pod says so, what was sent is not complete, or the answer's end is in doubt.
    pub(crate) spent: bool,
}

/// Why an exchange brought no response, or only a part of one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Http1Error {
    /// It ended in order, and too early.
    #[error("the connection ended before its answer was complete")]
    Closed,
    #[error("connection error")]
    Io(#[source] io::Error),
    /// The pod speaks something else.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The client's part broke off.
    #[error("the request's body broke off")]
    Upload(#[source] BodyError),
    /// The client's part has another length than was told.
    #[error("the request's body has another length than its head says")]
    Length,
}

impl Http1Error {
    /// Returns whether the pod answered in HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Self::Malformed(problem) if *problem == Malformed::HTTP2)
    }

    /// Whether the connection is to blame, rather than what was said over it.
    fn is_of_connection(&self) -> bool {
        matches!(self, Self::Closed | Self::Io(_))
    }
}

/// An exchange without a response.
pub(crate) struct Failed {
    pub(crate) error: Http1Error,
    /// Whether the request is as it was, and the pod has seen nothing of it.
    pub(crate) unsent: bool,
    /// Whether something of an answer came.
    pub(crate) begun: bool,
}

impl Http1 {
    /// Takes over a connected stream. Sends nothing.
    pub(crate) fn new(stream: impl Into<PodIo>) -> Box<Self> {
        let mut io = stream.into();
        let stream = io.stream_mut();
        stream.takes_until_told();
        let tracked = stream.tracked();
        let (input, made, worker) = (Input::default(), Instant::now(), worker::current());
        let (reused, was_idle, spent) = (false, false, false);
        Box::new(Self { io, input, reused, was_idle, made, idle_since: made, worker, tracked, spent })
    }

    /// Whether it was used where the caller runs.
    pub(crate) fn is_here(&self) -> bool {
        self.worker == worker::current()
    }

    /// Notes that an exchange is over and the connection idle.
    pub(crate) fn exchange_over(&mut self) {
        self.reused = true;
        self.worker = worker::current();
        self.io.stream_mut().taken();
        self.input = Input::default();
    }

    /// Looks whether the pod has closed the connection, or says something that nobody asked for. Nobody waits on an
    /// idle connection, so nobody is woken.
    ///
    /// Workers look for input only between their tasks. `surely`, and of a connection of another worker, the kernel is
    /// asked.
    pub(crate) fn is_alive(&mut self, surely: bool) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        let mut byte = [0];
        let is_quiet = Pin::new(&mut self.io).poll_read(&mut nobody, &mut ReadBuf::new(&mut byte)).is_pending();
        is_quiet && (!surely && self.is_here() || self.tracked.as_ref().is_none_or(|tracked| tracked.is_quiet()))
    }

    /// Gives it back, if another exchange may follow.
    fn idle_again(self: Box<Self>, pool: &impl ReturnIdle) {
        // What came without being asked for would be taken for the next answer.
        if !self.spent && self.input.bytes.is_empty() {
            pool.return_idle(self);
        }
    }

    /// Sends a request; the future waits for the response's head. Dropping it closes the connection. After
    /// [`Failed::unsent`], `body` is as it was. Answers on the way go to `client`, which
    /// speaks HTTP/1.1; without one nobody gets them.
    pub(crate) fn exchange<'a, P: ReturnIdle>(
        self: Box<Self>,
        head: &'a request::Parts,
        body: &'a mut RequestBody,
        client: Option<&'a Peer>,
        pool: &'a Arc<P>,
    ) -> Exchange<'a, P> {
        Exchange::new(self, head, body, client, pool)
    }
}
