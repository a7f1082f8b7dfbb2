//! One activator or autoscaler of the cluster, on a runtime of its own.
//!
//! A runtime for each makes the planes independent of each other as processes are: one can be drained, or taken away
//! in an instant together with every task and socket it has, as by SIGKILL. One that ends by itself has failed, and is
//! started again after a pause that grows with failures in a row, as a kubelet does ([`Plane::pause_over`]).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longest wait for the answer to a probe, as a kubelet's default.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// From a plane's failure until it is started again: the first time, and at most. It doubles with each failure in a row.
const RESTARTED_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A plane that has run for so long is the first of a row if it fails, as with a kubelet.
const RUN_FORGETS: Duration = Duration::from_secs(600);

pub(super) struct Plane {
    /// No other plane of this process has it: what was found out about a plane is not true of the one that follows it.
    pub(super) number: u64,
    started: Instant,
    /// After the failure of the plane whose place it takes, if that has failed.
    paused: Option<Duration>,
    runtime: Option<Runtime>,
    shutdown: CancellationToken,
    ended: Option<oneshot::Receiver<()>>,
    /// When it ended in an error.
    failed: Arc<OnceLock<Instant>>,
}

impl Plane {
    /// Starts `run` on a runtime of its own; it gets the token that asks it to drain. `paused` is the pause before it, if
    /// it takes the place of a plane that has failed.
    ///
    /// # Errors
    /// No threads can be made.
    pub(super) fn start<F, Run>(name: &str, paused: Option<Duration>, run: F) -> anyhow::Result<Self>
    where
        F: FnOnce(CancellationToken) -> Run + Send + 'static,
        Run: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let runtime = Builder::new_multi_thread().thread_name(name).enable_all().build()?;
        let shutdown = CancellationToken::new();
        let (end, ended) = oneshot::channel();
        let failed = Arc::<OnceLock<Instant>>::default();
        let (token, name, fails) = (shutdown.clone(), name.to_owned(), failed.clone());
        let started = Instant::now();
        runtime.spawn(async move {
            if let Err(error) = run(token).await {
                tracing::error!(plane = %name, error = %format!("{error:#}"), "ended");
                fails.get_or_init(Instant::now);
            }
            let _ = end.send(()); // Nobody waits if the cluster is going too.
        });
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        Ok(Self { number, started, paused, runtime: Some(runtime), shutdown, ended: Some(ended), failed })
    }

    /// The pause after its failure, if that is over: another one is to take its place.
    pub(super) fn pause_over(&self) -> Option<Duration> {
        let failed = self.failed.get()?;
        let pause = pause(failed.duration_since(self.started), self.paused);
        (failed.elapsed() >= pause).then_some(pause)
    }

    /// Asks it to drain, and waits until it has.
    pub(super) async fn drain(mut self) {
        self.shutdown.cancel();
        if let Some(ended) = self.ended.take() {
            let _ = ended.await; // An error means that it ended already.
        }
    }

    /// Takes it away in an instant.
    pub(super) fn kill(self) {
        drop(self);
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The pause after the failure of a plane that has `run` for so long; `before` is that after the failure before it.
fn pause(run: Duration, before: Option<Duration>) -> Duration {
    let (first, most) = RESTARTED_AFTER;
    before.filter(|_| run < RUN_FORGETS).map_or(first, |before| (before * 2).min(most))
}

/// Asks as a kubelet does whether the plane at `address`, its data or stat port, is ready; none: it has not said in time.
pub async fn is_ready(address: SocketAddr) -> Option<bool> {
    let answer = tokio::time::timeout(PROBE_TIMEOUT, probe(address)).await.ok()?;
    Some(answer.unwrap_or(false))
}

async fn probe(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: probe\r\nUser-Agent: kube-probe/1.36\r\nConnection: close\r\n\r\n")
        .await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(status.ends_with(b" 200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a plane that can do nothing but fail does so once a minute, and one that has worked is back in a second.
    #[test]
    fn the_pause_grows_with_failures_in_a_row_and_a_long_run_forgets_them() {
        let mut before = None;
        let mut after = |run: u64| {
            let pause = pause(Duration::from_secs(run), before);
            before = Some(pause);
            pause.as_secs()
        };
        let rows = [(0, 1), (1, 2), (0, 4), (599, 8), (0, 16), (0, 32), (0, 60), (0, 60), (600, 1), (0, 2)];
        for (run, expected) in rows {
            assert_eq!(after(run), expected, "after {run} s");
        }
    }
}
