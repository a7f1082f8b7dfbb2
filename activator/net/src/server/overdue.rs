//! Ends an exchange whose time is over although nobody asks for more of its answer.
//!
//! # Why
//!
//! Bounds of time are kept by the answer's body, which looks at them when it is polled. As long as a client reads nothing
//! hyper has enough to write, and polls it no more: the exchange would keep its pod's slot for as long as the client stays.
//! Over HTTP/2 hyper keeps a body also when it has given all, until the client lets its last data through.
//!
//! # How
//!
//! With the head of an answer, and whenever its body has given something, it is said until when ([`until()`]); when the
//! body has ended or is dropped, that this holds no longer ([`never()`]). Whoever polls hyper listens ([`Overdue`]), and
//! [`GRACE`] after that time, in which a body that is polled would have ended it, ends all of it: a stream of HTTP/2, a
//! connection of HTTP/1. What is said is heard by whoever polls right now, on the same thread.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// A body that is polled ends its exchange itself within this time.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
enum Said {
    Nothing,
    Until(Instant),
    Never,
}

thread_local!(static SAID: Cell<Said> = const { Cell::new(Said::Nothing) });

/// For an answer whose head, or a part of whose body, was handed out: its exchange is over then.
pub fn until(at: Instant) {
    SAID.set(Said::Until(at));
}

/// For a body that has ended, or is dropped.
pub fn never() {
    SAID.set(Said::Never);
}

/// What has been said of an exchange.
#[derive(Default)]
pub struct Overdue {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Overdue {
    /// Polls what serves an exchange. Ready without a value once the exchange is overdue.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        serve: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Option<T>> {
        SAID.set(Said::Nothing);
        if let Poll::Ready(served) = serve(cx) {
            return Poll::Ready(Some(served));
        }
        match SAID.replace(Said::Nothing) {
            Said::Nothing => {}
            Said::Until(at) => self.at = Some(at + GRACE),
            Said::Never => self.at = None,
        }
        let Some(at) = self.at else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if at < timer.deadline() {
            timer.as_mut().reset(at);
        }
        // To a later time it is moved when it fires, and not each time that something is said.
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= at {
                return Poll::Ready(None);
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Runs what says something at certain milliseconds and is never done; says when it was ended.
    async fn ended(said: &[(u64, Said)]) -> u64 {
        let begun = Instant::now();
        let (mut overdue, mut left) = (Overdue::default(), said.iter().copied().peekable());
        let mut next = Box::pin(sleep_until(begun));
        let serving = poll_fn(|cx| {
            overdue.poll(cx, |cx| {
                while let Some((at, say)) = left.peek() {
                    next.as_mut().reset(begun + Duration::from_millis(*at));
                    if next.as_mut().poll(cx).is_pending() {
                        break;
                    }
                    SAID.set(*say);
                    left.next();
                }
                Poll::<()>::Pending
            })
        });
        let bound = tokio::time::timeout(Duration::from_secs(3600), serving);
        bound.await.map_or(u64::MAX, |_| begun.elapsed().as_millis().try_into().unwrap_or(u64::MAX))
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_is_over_soon_after_what_was_said_last() {
        let at = |millis| Said::Until(Instant::now() + Duration::from_millis(millis));
        assert_eq!(ended(&[(0, at(500))]).await, 1500);
        assert_eq!(ended(&[(0, at(500)), (400, at(5000))]).await, 6000, "it is later by then");
        assert_eq!(ended(&[(0, at(5000)), (400, at(500))]).await, 1500, "it is earlier by then");
        assert_eq!(ended(&[(0, at(500)), (400, Said::Never)]).await, u64::MAX);
        assert_eq!(
            ended(&[(0, at(500)), (400, Said::Never), (3000, at(4000))]).await,
            5000,
            "the next on a connection"
        );
    }
}
