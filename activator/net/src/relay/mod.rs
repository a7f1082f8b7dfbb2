//! Two connections made one: bytes both ways, as they are, until both sides have said goodbye or one has broken off.
//!
//! # What each side sees of the other
//!
//! | one side | the other side |
//! |---|---|
//! | ends its direction (FIN) | the end of that direction, once all bytes before it have been passed on |
//! | resets, or is found gone by the kernel or by [`crate::liveness`] | a reset |
//! | has no room | nothing more is read from it |
//!
//! So nobody takes a broken exchange for a complete one. A pod that resets after it has ended its direction has said all
//! that it had to say: its client is not reset, which could lose what is still on its way, but closed. The way from a side
//! that has ended its own direction is not read any more; whether such a side is reset meanwhile is asked of the kernel
//! ([`TcpEnd::is_broken`]), first after [`WATCHED_AFTER`], and then ever more seldom.
//!
//! # What it costs
//!
//! Nothing but the sockets and a kilobyte while nothing flows: [`direction`] says what moves the bytes.

pub(crate) mod direction;
pub(crate) mod end;
pub(crate) mod mark;
mod pipe;

use direction::Direction;
use end::TcpEnd;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// After one side has ended its direction, and the other has not: the time to the first look whether that side is reset.
const WATCHED_AFTER: Duration = Duration::from_millis(20);

/// Longest time between two looks.
const WATCHED_EVERY: Duration = Duration::from_millis(500);

/// How a relayed connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both directions, in order.
    Closed,
    /// The client broke it off, or has gone.
    Client,
    /// The pod broke it off, or has gone.
    Pod,
    /// The client sent what a pod could read as an HTTP request, on a port that carries HTTP as such.
    Request,
    /// Nothing moved for as long as that is allowed.
    Idle,
    /// It was cut from outside: a drain's time was up.
    Cut,
}

/// Which side broke off.
pub(crate) enum Broken {
    /// The one that is read from.
    Source,
    /// The one that is written to.
    Sink,
    /// Neither: an HTTP request has begun, which is not passed on.
    Request,
}

/// Both ends and what flows between them.
pub(crate) struct Relay {
    client: TcpEnd,
    pod: TcpEnd,
    /// From the client to the pod.
    up: Direction,
    down: Direction,
    idle: Option<Idle>,
    /// Since one side has ended its direction.
    half_closed: Option<HalfClosed>,
}

/// One side has ended its direction, the other not yet.
struct HalfClosed {
    pause: Duration,
    next_look: Pin<Box<Sleep>>,
}

/// When the last byte moved.
struct Idle {
    bound: Duration,
    moved: Instant,
    passed: u64,
    timer: Pin<Box<Sleep>>,
}

impl Relay {
    /// Of two connections; at most `idle` may pass without a byte.
    pub(crate) fn new(client: TcpEnd, pod: TcpEnd, idle: Option<Duration>) -> Self {
        let idle = idle.map(|bound| {
            let moved = Instant::now();
            Idle { bound, moved, passed: 0, timer: Box::pin(sleep_until(moved + bound)) }
        });
        Self { client, pod, up: Direction::default(), down: Direction::default(), idle, half_closed: None }
    }

    /// Breaks off if the client sends what a pod could read as an HTTP request.
    pub(crate) fn without_requests(self) -> Self {
        Self { up: Direction::without_requests(), ..self }
    }

    /// Passes on until the end. What is done with the connections then is [`Relay::close`]'s.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn run(&mut self) -> Ended {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Bytes passed on so far, to the pod and from it.
    pub(crate) fn passed(&self) -> [u64; 2] {
        [self.up.passed(), self.down.passed()]
    }

    /// Closes both connections: in order, or else by a reset.
    pub(crate) fn close(self, how: Ended) {
        if how == Ended::Closed {
            return;
        }
        self.pod.reset();
        if how != Ended::Pod || !self.down.has_ended() {
            self.client.reset();
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        let up = self.up.poll(cx, &mut self.client, &mut self.pod);
        let down = self.down.poll(cx, &mut self.pod, &mut self.client);
        match (&up, &down) {
            (Poll::Ready(Err(Broken::Request)), _) | (_, Poll::Ready(Err(Broken::Request))) => {
                return Poll::Ready(Ended::Request);
            }
            (Poll::Ready(Err(Broken::Source)), _) | (_, Poll::Ready(Err(Broken::Sink))) => {
                return Poll::Ready(Ended::Client);
            }
            (Poll::Ready(Err(Broken::Sink)), _) | (_, Poll::Ready(Err(Broken::Source))) => {
                return Poll::Ready(Ended::Pod);
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Ended::Closed),
            (Poll::Pending, Poll::Pending) => {}
            (client_ended, _) => {
                let client_ended = client_ended.is_ready();
                let ended = if client_ended { &self.client } else { &self.pod };
                let half_closed = self.half_closed.get_or_insert_with(HalfClosed::begin);
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
    fn begin() -> Self {
        Self { pause: WATCHED_AFTER, next_look: Box::pin(sleep(WATCHED_AFTER)) }
    }

    /// Ready when the side that has `ended` its direction is reset.
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
    /// Ready when nothing has moved for too long. `passed` is what has moved so far.
    fn poll(&mut self, cx: &mut Context<'_>, passed: u64) -> Poll<()> {
        if std::mem::replace(&mut self.passed, passed) != passed {
            self.moved = Instant::now();
        }
        // The timer is moved when it fires, not with each byte.
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
