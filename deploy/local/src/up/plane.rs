//! An activator or autoscaler of the cluster, on its own runtime.
//!
//! Separate runtimes make the planes as independent as processes. One can be drained, or killed at once with all its
//! tasks and sockets, as by SIGKILL. A plane that ends by itself has failed. It is restarted after a pause
//! ([`Plane::must_restart`]).

use crate::node::Handler;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum wait for the response to a probe, as a kubelet's default.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of consecutive missed probes that do not change the readiness of a plane, as a kubelet's default. A busy
/// machine misses one.
const PROBES_MISSED_MAX: u32 = 2;

/// Pause before a failed plane is restarted.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A running plane. Dropping it kills it at once.
pub(super) struct Plane {
    /// Unique number in this process. It prevents confusion of a plane with its successor.
    pub(super) number: u64,
    runtime: Option<Runtime>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    /// Time at which it failed.
    failed: Arc<OnceLock<Instant>>,
    pub(super) is_ready: bool,
    /// Number of consecutive missed probes.
    missed: u32,
}

impl Plane {
    /// Starts `run` on its own runtime, with the token that asks it to drain. Fails if no threads can be created.
    pub(super) fn start<F, Run>(name: &str, run: F) -> anyhow::Result<Self>
    where
        F: FnOnce(CancellationToken) -> Run + Send + 'static,
        Run: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let runtime = Builder::new_multi_thread().thread_name(name).enable_all().build()?;
        let shutdown = CancellationToken::new();
        let failed = Arc::<OnceLock<Instant>>::default();
        let (token, name, fails) = (shutdown.clone(), name.to_owned(), failed.clone());
        let task = runtime.spawn(async move {
            if let Err(error) = run(token).await {
                tracing::error!(plane = %name, error = %format!("{error:#}"), "the plane failed");
                fails.get_or_init(Instant::now);
            }
        });
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        Ok(Self { number, runtime: Some(runtime), shutdown, task, failed, is_ready: false, missed: 0 })
    }

    /// Reports whether the plane has failed and the pause after that is over.
    pub(super) fn must_restart(&self) -> bool {
        self.failed.get().is_some_and(|failed| failed.elapsed() >= RESTART_PAUSE)
    }

    /// Records the response to a probe, or that there was none.
    pub(super) fn record(&mut self, answer: Option<bool>) {
        self.missed = if answer.is_some() { 0 } else { self.missed + 1 };
        self.is_ready = answer.unwrap_or(self.is_ready && self.missed <= PROBES_MISSED_MAX);
    }

    /// Asks the plane to drain, and waits until it has ended.
    pub(super) async fn drain(mut self) {
        self.shutdown.cancel();
        let _ = (&mut self.task).await; // An error means that the plane panicked, so it has ended too.
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Probes a plane at `address`, its data or stat port, as a kubelet does. Returns `None` on a timeout.
pub async fn is_ready(address: SocketAddr) -> Option<bool> {
    let probe = Handler::Http { address, path: "/".to_owned(), headers: Vec::new() };
    let answer = tokio::time::timeout(PROBE_TIMEOUT, probe.check()).await.ok()?;
    Some(answer.is_ok())
}
