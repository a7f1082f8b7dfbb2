//! Joins two connections: bytes are forwarded unchanged in both directions, until both sides have ended theirs or one
//! has failed.
//!
//! # Propagation
//!
//! | one side | the other side |
//! |---|---|
//! | ends its direction (FIN) | the end of that direction, after all bytes before it |
//! | resets, or is found gone by the kernel or by [`crate::liveness`] | a reset |
//! | has no room | is not read |
//!
//! So a broken exchange never looks complete. A pod that resets after it has ended its direction has sent everything.
//! Its client is closed, not reset, because a reset could lose bytes that are still in transit. After a side has ended
//! its direction, that direction is not read any more. The kernel is asked whether such a side was reset
//! ([`TcpEnd::is_broken`]), first after [`WATCHED_AFTER`], then at growing intervals.
//!
//! # Cost
//!
//! An idle relay costs only its sockets and a kilobyte. [`direction`] describes the transfer of bytes.

pub(crate) mod direction;
pub(crate) mod end;
pub(crate) mod mark;
mod pipe;

use direction::Direction;
use end::{TcpEnd, reset};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Time from one side's end of its direction to the first check whether that side was reset.
const WATCHED_AFTER: Duration = Duration::from_millis(20);

/// Maximum time between two checks.
const WATCHED_EVERY: Duration = Duration::from_millis(500);

/// Reason why a relayed connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both directions ended in order.
    Closed,
    /// The client reset the connection, or is gone.
    Client,
    /// The pod reset the connection, or is gone.
    Pod,
    /// The client sent bytes that a pod could read as an HTTP request, on a port that also serves HTTP.
    Request,
    /// No byte moved during the idle timeout.
    Idle,
    /// The connection was cut by its owner: a drain's deadline passed.
    Cut,
}

/// Both ends and the flow between them.
pub(crate) struct Relay {
    client: TcpEnd,
    pod: TcpEnd,
    /// From the client to the pod.
    up: Direction,
    down: Direction,
    idle: Option<Idle>,
    /// Set once one side has ended its direction.
    half_closed: Option<HalfClosed>,
}

/// State after one side has ended its direction, and the other has not.
struct HalfClosed {
    pause: Duration,
    next_look: Pin<Box<Sleep>>,
}

struct Idle {
    bound: Duration,
    moved: Instant,
    passed: u64,
    timer: Pin<Box<Sleep>>,
}

impl Relay {
    /// Joins two connections. `idle` is the maximum time without a byte.
    pub(crate) fn new(client: TcpEnd, pod: TcpEnd, idle: Option<Duration>) -> Self {
        let idle = idle.map(|bound| {
            let moved = Instant::now();
            Idle { bound, moved, passed: 0, timer: Box::pin(sleep_until(moved + bound)) }
        });
        let up = Direction::new(Ended::Client, Ended::Pod);
        let down = Direction::new(Ended::Pod, Ended::Client);
        Self { client, pod, up, down, idle, half_closed: None }
    }

    /// Ends the relay if the client sends bytes that a pod could read as an HTTP request.
    pub(crate) fn without_requests(mut self) -> Self {
        self.up.watched = Some(Box::default());
        self
    }

    /// Forwards until the end. Call [`Relay::close`] afterwards.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn run(&mut self) -> Ended {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Returns the number of bytes forwarded to the pod and from it.
    pub(crate) fn passed(&self) -> [u64; 2] {
        [self.up.passed, self.down.passed]
    }

    /// Closes both connections: in order, or with a reset.
    pub(crate) fn close(self, how: Ended) {
        if how == Ended::Closed {
            return;
        }
        reset(&self.pod.stream);
        if how != Ended::Pod || !self.down.ended {
            reset(&self.client.stream);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        let up = self.up.poll(cx, &mut self.client, &mut self.pod);
        let down = self.down.poll(cx, &mut self.pod, &mut self.client);
        match (&up, &down) {
            (Poll::Ready(Err(how)), _) | (_, Poll::Ready(Err(how))) => return Poll::Ready(*how),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Ended::Closed),
            (Poll::Pending, Poll::Pending) => {}
            (client_ended, _) => {
                let client_ended = client_ended.is_ready();
                let ended = if client_ended { &self.client } else { &self.pod };
                let half_closed = self.half_closed.get_or_insert_with(|| HalfClosed {
                    pause: WATCHED_AFTER,
                    next_look: Box::pin(sleep(WATCHED_AFTER)),
                });
                if half_closed.poll(cx, ended).is_ready() {
                    return Poll::Ready(if client_ended { Ended::Client } else { Ended::Pod });
                }
            }
        }
        let passed = self.passed().iter().sum();
        match &mut self.idle {
            Some(idle) => idle.poll(cx, passed).map(|()| Ended::Idle),
            None => Poll::Pending,
        }
    }
}

impl HalfClosed {
    /// Becomes ready when the side that has `ended` its direction is reset.
    fn poll(&mut self, cx: &mut Context<'_>, ended: &TcpEnd) -> Poll<()> {
        loop {
            ready!(self.next_look.as_mut().poll(cx));
            if ended.is_broken() {
                return Poll::Ready(());
            }
            self.pause = (self.pause * 2).min(WATCHED_EVERY);
            self.next_look.as_mut().reset(Instant::now() + self.pause);
        }
    }
}

impl Idle {
    /// Becomes ready when no byte has moved for too long. `passed` is the number of bytes moved so far.
    fn poll(&mut self, cx: &mut Context<'_>, passed: u64) -> Poll<()> {
        if std::mem::replace(&mut self.passed, passed) != passed {
            self.moved = Instant::now();
        }
        // The timer is reset when it fires, not with each byte.
        while self.timer.as_mut().poll(cx).is_ready() {
            let until = self.moved + self.bound;
            if self.timer.deadline() >= until {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
        Poll::Pending
    }
}
