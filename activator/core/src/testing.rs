//! Helpers for tests: tasks that are polled by hand, and an origin for made-up instants.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// Future that the test polls by hand, with a flag that is set when the future is woken.
pub(crate) struct Task<F> {
    future: F,
    flag: Arc<Flag>,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<F: Future + Unpin> Task<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future, flag: Arc::default() }
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.flag));
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    /// Polls once and expects the future to be pending.
    #[track_caller]
    pub(crate) fn waiting(mut self) -> Self {
        assert!(self.poll().is_pending(), "should wait");
        self
    }

    /// Expects that the task was woken and that the future is ready.
    #[track_caller]
    pub(crate) fn woken(&mut self) -> F::Output {
        assert!(self.is_woken(), "should have been woken");
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("woken for nothing"),
        }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }
}

#[allow(clippy::disallowed_methods, reason = "an instant comes only from the clock; only differences matter")]
pub(crate) fn origin() -> Instant {
    Instant::now()
}

/// Polls a future that must be ready at once.
#[track_caller]
pub(crate) fn now<F: Future + Unpin>(future: F) -> F::Output {
    match Task::new(future).poll() {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("should not wait"),
    }
}
