//! Tests whether a pod without a readiness probe listens on its port.
//!
//! Kubernetes reports such a pod ready as soon as its program runs. A TCP connect therefore replaces the probe: until
//! it succeeds, the pod counts as not ready. Only a refused connection proves that the port is closed. If a policy
//! blocks the connection, Kubernetes' condition counts.

use super::index::PodIndex;
use common::RevisionKey as PodName;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// Timeout of one connect.
const WITHIN: Duration = Duration::from_secs(1);
/// Shortest and longest pause after a refusal. Between these limits, the pause is a tenth of the time waited so far.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Tests a pod until it listens, or needs no test any more.
pub(super) async fn probe(index: Arc<PodIndex>, permits: Arc<Semaphore>, pod: PodName) {
    let begun = Instant::now();
    while let Some((address, port)) = index.probe_address(&pod) {
        let permit = permits.acquire().await; // Never closed.
        let answer = timeout(WITHIN, TcpStream::connect((address, port))).await;
        drop(permit);
        let is_refused = matches!(answer, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused);
        index.record_probe(&pod, port, !is_refused);
        if !is_refused {
            return;
        }
        sleep((begun.elapsed() / 10).clamp(PAUSE.0, PAUSE.1)).await;
    }
}
