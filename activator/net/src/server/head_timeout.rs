//! The bound on a request's head: it runs from the head's first byte, not from the end of the request before.
//!
//! hyper's own timer for this starts as soon as it waits for a head, and so would close connections that are merely
//! kept alive; clients would then lose requests that cross the close on the wire. It asks a [`Timer`] for that timer,
//! though, and polls it only after it has tried to read. So [`HeadTimer`] gives out timers that stand still until
//! something was read. A connection that has said nothing yet is bounded before ([`super::connection`]).

use super::HEAD_TIMEOUT;
use super::progress::Progress;
use hyper::rt::{Sleep, Timer};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Makes timers that start with the next read of the connection.
#[derive(Clone)]
pub(super) struct HeadTimer {
    progress: Arc<Progress>,
}

/// Ready [`HEAD_TIMEOUT`] after the first read since it was made.
struct HeadSleep {
    progress: Arc<Progress>,
    reads_before: u32,
    running: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl HeadTimer {
    /// For the connection whose reads are counted here.
    pub(super) fn new(progress: Arc<Progress>) -> Self {
        Self { progress }
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        let reads_before = self.progress.reads();
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
        if self.running.is_none() && self.progress.reads() == self.reads_before {
            return Poll::Pending; // Nobody need be woken: the next read comes with a poll of its own.
        }
        self.running.get_or_insert_with(|| Box::pin(tokio::time::sleep(HEAD_TIMEOUT))).as_mut().poll(cx)
    }
}

impl Sleep for HeadSleep {}
