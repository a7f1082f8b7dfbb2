//! Threads for clients' connections, each with a runtime of its own.
//!
//! # Why
//!
//! On a runtime whose workers share their tasks, one of them waits for input and hands what comes to others. Under load
//! most requests then wake another thread, and an HTTP/2 request, which passes from task to task, more than one.
//! A thread that does everything for its connections wakes nobody, and finds more to do each time it looks for input.
//!
//! # The rule
//!
//! Connections of clients are given to workers in turn, as soon as they are accepted, and stay there with all that they
//! start. Those over TLS stay on the runtime of everything else, where a handshake delays nobody. A pod's HTTP/1.1
//! connection belongs to the worker that used it last, and is taken by that worker's requests before others; a pod's HTTP/2
//! connection belongs to the worker that dialled it, and carries requests of that worker alone ([`crate::pool`]).
//! What a probe has made belongs to none.
//!
//! The price: a client's connection gets one core's worth, and neighbours on a busy worker wait while another may be
//! idle.
//!
//! # How many
//!
//! [`PER_CORE`] for each core. The kernel takes a worker off its core whenever the worker has woken somebody there, such
//! as a pod on the same machine. With one worker for each core, what came for it meanwhile waits, and another core may
//! be idle; a second worker goes on with its own connections. More than that only cost switches. Measured with 2, 3, 4,
//! 6, 8 and 16 workers on two cores that client and pod share: 75, 78, 89, 78, 75 and 62 thousand requests a second
//! (`http1-rate` of the benchmarks).
//!
//! # The end
//!
//! Workers end with the last handle on them, and what still runs on them is dropped then.

use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Workers for each core.
const PER_CORE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

thread_local! {
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A number of workers. Cheap to clone.
#[derive(Clone)]
pub struct WorkerRuntimes {
    shared: Arc<Shared>,
}

struct Shared {
    handles: Vec<Handle>,
    next: AtomicUsize,
    _open: DropGuard,
}

impl WorkerRuntimes {
    /// Starts as many as serve `cores` best.
    ///
    /// # Errors
    /// As for [`WorkerRuntimes::start`].
    pub fn for_cores(cores: NonZeroUsize) -> io::Result<Self> {
        Self::start(cores.saturating_mul(PER_CORE))
    }

    /// Starts so many.
    ///
    /// # Errors
    /// The system gives no thread, or no means to wait for input.
    pub fn start(number: NonZeroUsize) -> io::Result<Self> {
        let closed = CancellationToken::new();
        let open = closed.clone().drop_guard();
        let mut handles = Vec::with_capacity(number.get());
        for worker in 0..number.get() {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            handles.push(runtime.handle().clone());
            let closed = closed.clone();
            std::thread::Builder::new().name(format!("worker-{worker}")).spawn(move || {
                CURRENT.set(Some(worker));
                runtime.block_on(closed.cancelled());
            })?;
        }
        Ok(Self { shared: Arc::new(Shared { handles, next: AtomicUsize::new(0), _open: open }) })
    }

    /// The worker whose turn it is.
    pub fn next(&self) -> &Handle {
        let turn = self.shared.next.fetch_add(1, Ordering::Relaxed);
        &self.shared.handles[turn % self.shared.handles.len()]
    }
}

/// The worker that this runs on, if any.
pub(crate) fn current() -> Option<usize> {
    CURRENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn workers_take_turns_and_know_themselves() {
        let workers = WorkerRuntimes::start(NonZeroUsize::MIN.saturating_add(1)).expect("two threads");
        let mut seen = Vec::new();
        for _ in 0..4 {
            // What is spawned from a worker stays on it.
            let on_it =
                workers.next().spawn(async { (current(), tokio::spawn(async { current() }).await.ok().flatten()) });
            seen.push(on_it.await.expect("no panic"));
        }
        assert_eq!(seen, [0, 1, 0, 1].map(|worker| (Some(worker), Some(worker))));
        assert_eq!(current(), None);
        let handle = workers.next().clone();
        drop(workers);
        // A task that waits for ever ends with its worker.
        assert!(handle.spawn(std::future::pending::<()>()).await.is_err_and(|error| error.is_cancelled()));
    }
}
