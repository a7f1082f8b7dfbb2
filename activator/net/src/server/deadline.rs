//! Ends an exchange whose deadline has passed even if its response is not polled.
//!
//! # Why
//!
//! The response's body enforces the deadlines when it is polled. While a client does not read, hyper has enough to
//! write, and does not poll the body: the exchange would hold its pod's slot as long as the client stays. Over HTTP/2,
//! hyper also keeps a completed body until the client's window admits its last data.
//!
//! # How it works
//!
//! The deadline is reported with a response's head, and each time that its body yields something
//! ([`report_deadline()`]). It is withdrawn when the body has ended or is dropped ([`withdraw_deadline()`]). The task
//! that polls hyper receives the reports ([`ExchangeDeadline`]). [`GRACE`] after the deadline, it ends the HTTP/2
//! stream or the HTTP/1 connection; a body that is polled ends the exchange before that. Reports pass through a
//! thread-local to the poll that is running.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Time in which a body that is polled ends its exchange itself.
const GRACE: Duration = Duration::from_secs(1);

thread_local! {
    /// Report of the poll that is running: a deadline, or that there is none.
    static REPORTED: Cell<Option<Option<Instant>>> = const { Cell::new(None) };
}

/// Reports the deadline of an exchange whose response's head, or a part of its body, was returned.
pub fn report_deadline(at: Instant) {
    REPORTED.set(Some(Some(at)));
}

/// Withdraws the deadline, because the body has ended or is dropped.
pub fn withdraw_deadline() {
    REPORTED.set(Some(None));
}

/// Deadline of an exchange.
#[derive(Default)]
pub struct ExchangeDeadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ExchangeDeadline {
    /// Polls the server of an exchange. Ready with `None` once the deadline has passed.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        serve: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Option<T>> {
        REPORTED.set(None);
        if let Poll::Ready(served) = serve(cx) {
            return Poll::Ready(Some(served));
        }
        if let Some(reported) = REPORTED.take() {
            self.at = reported.map(|at| at + GRACE);
        }
        let Some(at) = self.at else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if at < timer.deadline() {
            timer.as_mut().reset(at);
        }
        // A later deadline takes effect when the timer fires, not with each report.
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

    /// Runs a server that makes reports at these milliseconds and never completes. Returns the time at which it was
    /// ended.
    async fn ended(reports: &[(u64, Option<Instant>)]) -> u64 {
        let begun = Instant::now();
        let (mut deadline, mut left) = (ExchangeDeadline::default(), reports.iter().copied().peekable());
        let mut next = Box::pin(sleep_until(begun));
        let serving = poll_fn(|cx| {
            deadline.poll(cx, |cx| {
                while let Some((at, reported)) = left.peek() {
                    next.as_mut().reset(begun + Duration::from_millis(*at));
                    if next.as_mut().poll(cx).is_pending() {
                        break;
                    }
                    REPORTED.set(Some(*reported));
                    left.next();
                }
                Poll::<()>::Pending
            })
        });
        let bound = tokio::time::timeout(Duration::from_secs(3600), serving);
        bound.await.map_or(u64::MAX, |_| begun.elapsed().as_millis().try_into().unwrap_or(u64::MAX))
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_ends_soon_after_its_last_reported_deadline() {
        let at = |millis| Some(Instant::now() + Duration::from_millis(millis));
        assert_eq!(ended(&[(0, at(500))]).await, 1500);
        assert_eq!(ended(&[(0, at(500)), (400, at(5000))]).await, 6000, "it is later by then");
        assert_eq!(ended(&[(0, at(5000)), (400, at(500))]).await, 1500, "it is earlier by then");
        assert_eq!(ended(&[(0, at(500)), (400, None)]).await, u64::MAX);
        assert_eq!(ended(&[(0, at(500)), (400, None), (3000, at(4000))]).await, 5000, "the next on a connection");
    }
}
