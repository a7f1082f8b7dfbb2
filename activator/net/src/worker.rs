//! Worker threads for clients' connections, each with its own runtime.
//!
//! # Why
//!
//! On a multi-threaded runtime, one worker waits for input and hands the tasks to others. Under load, most requests
//! then wake another thread, and an HTTP/2 request, which passes from task to task, wakes several. A thread that does
//! all the work of its connections wakes no other thread, and finds more input each time it polls.
//!
//! # The rule
//!
//! Clients' connections are assigned to workers in turn when they are accepted. They stay there with all tasks that
//! they spawn. TLS connections stay on the main runtime, so that handshakes do not delay other connections of a worker.
//! A pod's HTTP/1.1 connection belongs to the worker that used it last, and that worker's requests take it first. A
//! pod's HTTP/2 connection belongs to the worker that dialled it, and carries only requests of that worker
//! ([`crate::pool`]). Connections made by probes belong to no worker.
//!
//! The price: a client's connection is limited to one core, and connections on a busy worker wait even if another
//! worker is idle.
//!
//! # Number of workers
//!
//! There are [`PER_CORE`] workers for each core. The kernel preempts a worker when the worker wakes another process on
//! its core, such as a pod on the same machine. With one worker for each core, the worker's input then waits even if
//! another core is idle. A second worker keeps serving its own connections. More workers only add context switches.
//! Measured with 2, 3, 4, 6, 8 and 16 workers on two cores shared with client and pod: 75, 78, 89, 78, 75 and 62
//! thousand requests per second (`http1-rate` of the benchmarks).
//!
//! # Shutdown
//!
//! Workers end when the last handle is dropped, which also drops their remaining tasks.

use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Number of workers for each core.
const PER_CORE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

thread_local! {
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A set of workers.
pub struct WorkerRuntimes {
    handles: Vec<Handle>,
    next: AtomicUsize,
    _open: DropGuard,
}

impl WorkerRuntimes {
    /// Starts the number of workers that suits `cores`.
    ///
    /// # Errors
    /// See [`WorkerRuntimes::start`].
    pub fn for_cores(cores: NonZeroUsize) -> io::Result<Arc<Self>> {
        Self::start(cores.saturating_mul(PER_CORE))
    }

    /// Starts `number` workers.
    ///
    /// # Errors
    /// The system cannot create a thread, or a selector for its input.
    pub fn start(number: NonZeroUsize) -> io::Result<Arc<Self>> {
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
        Ok(Arc::new(Self { handles, next: AtomicUsize::new(0), _open: open }))
    }

    /// Returns the next worker in turn.
    pub fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.handles[turn % self.handles.len()]
    }
}

/// Returns the number of the worker that the caller runs on, if any.
pub(crate) fn current() -> Option<usize> {
    CURRENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn workers_are_assigned_in_turn_and_report_their_number() {
        let workers = WorkerRuntimes::start(NonZeroUsize::MIN.saturating_add(1)).expect("two threads");
        let mut observed = Vec::new();
        for _ in 0..4 {
            // A task that a worker spawns stays on it.
            let on_it =
                workers.next().spawn(async { (current(), tokio::spawn(async { current() }).await.ok().flatten()) });
            observed.push(on_it.await.expect("no panic"));
        }
        assert_eq!(observed, [0, 1, 0, 1].map(|worker| (Some(worker), Some(worker))));
        assert_eq!(current(), None);
        let handle = workers.next().clone();
        drop(workers);
        // A pending task is cancelled with its worker.
        assert!(handle.spawn(std::future::pending::<()>()).await.is_err_and(|error| error.is_cancelled()));
    }
}
