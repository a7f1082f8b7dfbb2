//! Timeout of a request's head. It runs from the first byte of the head, not from the end of the previous request.
//!
//! hyper's own timer starts as soon as it waits for a head, and would close idle connections. Clients would then lose
//! requests that cross the close on the wire. But hyper gets the timer from a [`Timer`], and polls it only after it has
//! tried to read. So [`HeadTimer`] returns timers that do not run before the next read. The first byte of a connection
//! has its own deadline ([`crate::server::connection`]).

use crate::limits::HEAD_TIMEOUT;
use crate::server::progress::Progress;
use hyper::rt::{Sleep, Timer};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Factory of timers that start with the next read of the connection.
#[derive(Clone)]
pub(crate) struct HeadTimer {
    /// Counts the reads of the connection.
    pub(crate) progress: Arc<Progress>,
}

/// Timer that completes [`HEAD_TIMEOUT`] after the first read since its creation.
struct HeadSleep {
    progress: Arc<Progress>,
    reads_before: u32,
    running: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Timer for HeadTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        let reads_before = self.progress.reads.load(Ordering::Relaxed);
        Box::pin(HeadSleep { progress: self.progress.clone(), reads_before, running: None })
    }

    fn sleep_until(&self, _: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(HEAD_TIMEOUT)
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.running.is_none() && self.progress.reads.load(Ordering::Relaxed) == self.reads_before {
            return Poll::Pending; // No wake-up is needed: the next read comes with its own poll.
        }
        self.running.get_or_insert_with(|| Box::pin(tokio::time::sleep(HEAD_TIMEOUT))).as_mut().poll(cx)
    }
}

impl Sleep for HeadSleep {}
