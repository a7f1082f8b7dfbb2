//! One HTTP/1.1 connection to a pod, driven by its user.
//!
//! The connection has no task. The request's task writes and reads until the head arrives ([`exchange`]), then the
//! response's body reads while it is streamed ([`body`]). That saves two task switches per request. It also closes the
//! pod's connection as soon as a client disconnects, because dropping the exchange drops the connection.
//!
//! Most responses arrive complete with their head. Then the connection returns to its pool before the head is
//! forwarded. An idle connection has no buffer.
//!
//! # Edge cases
//!
//! - A pod responds before the upload is complete: the rest of the upload moves to its own task, because response and
//!   upload must progress independently. The upload ends with the response, and the connection with both: otherwise it
//!   would go on uncounted and without limits.
//! - A pod that stops reading an upload may have said why: its response is read before the upload's failure counts.
//! - `Expect: 100-continue`: the upload stays with the client until the pod sends 100, or a second has passed. So a pod
//!   may reject it unread. Then the client's connection ends with the response, which says so (RFC 9110, 10.1.1). The
//!   client's own 100 follows when its body is read.
//! - Other interim responses (1xx) are forwarded one by one: nothing more is read before the client has the previous
//!   one.
//! - An idle connection is checked only when it is taken. That detects a close by the pod, without a system call for
//!   healthy connections of the same worker.

mod body;
mod exchange;
mod expected;
pub(crate) mod idle;
mod input;

use crate::http1::ExchangeError;
use crate::liveness::Tracked;
use crate::pod::tls::{PodIo, tcp_of};
use crate::worker;
pub(crate) use body::Http1Body;
pub(crate) use expected::ToActivator;
use input::Input;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

/// A connection between two exchanges, or in one.
pub(crate) struct Http1 {
    io: PodIo,
    /// Bytes that were read, but not parsed.
    input: Input,
    /// A response came over this connection before.
    pub(crate) reused: bool,
    /// The connection was idle in the pool, so the pod may have closed it.
    pub(crate) was_idle: bool,
    /// Time of creation or of the last return to the pool.
    pub(crate) idle_since: Instant,
    /// Worker that used it last.
    worker: Option<usize>,
    tracked: Option<Arc<Tracked>>,
    /// The connection must not be reused: the pod says so, the request was not sent completely, or the end of the
    /// response is ambiguous.
    pub(crate) spent: bool,
}

/// An exchange without a response.
pub(crate) struct Failed {
    pub(crate) error: ExchangeError,
    /// The request is unchanged, and the pod has received nothing of it.
    pub(crate) unsent: bool,
    /// A part of a response arrived.
    pub(crate) begun: bool,
}

impl Http1 {
    /// Wraps a connected stream. Sends nothing.
    pub(crate) fn new(stream: impl Into<PodIo>) -> Box<Self> {
        let mut io: PodIo = stream.into();
        let tracked = tcp_of(&mut io).tracked.clone();
        let (input, idle_since, worker) = (Input::default(), Instant::now(), worker::current());
        let (reused, was_idle, spent) = (false, false, false);
        Box::new(Self { io, input, reused, was_idle, idle_since, worker, tracked, spent })
    }

    /// Reports whether the connection was last used by the caller's worker.
    pub(crate) fn is_here(&self) -> bool {
        self.worker == worker::current()
    }

    /// Records that an exchange is over and the connection is idle.
    fn exchange_over(&mut self) {
        self.reused = true;
        self.worker = worker::current();
        self.input = Input::default();
        self.idle_since = Instant::now();
    }

    /// Reports whether the connection is open and has no unexpected input. No task waits on an idle connection, so none
    /// is woken.
    ///
    /// Workers poll for input only between their tasks. So the kernel is asked too if `ask_kernel` is set, or if the
    /// connection belongs to another worker.
    pub(crate) fn is_alive(&mut self, ask_kernel: bool) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        let mut byte = [0];
        let is_quiet = Pin::new(&mut self.io).poll_read(&mut nobody, &mut ReadBuf::new(&mut byte)).is_pending();
        let trusts_poll = !ask_kernel && self.is_here();
        is_quiet && (trusts_poll || self.tracked.as_ref().is_none_or(|tracked| tracked.socket.is_quiet()))
    }
}
