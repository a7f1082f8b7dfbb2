//! Finds out whether somebody listens on the port of a pod that Kubernetes calls ready without having asked it.
//!
//! A pod without a readiness probe is ready for Kubernetes as soon as its program runs. So a TCP connect stands for the
//! probe: until one is accepted the pod counts as not ready. Only a refusal proves that nobody listens; where a policy
//! bars the way, Kubernetes' word counts.

use super::index::PodIndex;
use common::RevisionKey as PodName;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Connects under way at once.
const AT_ONCE: usize = 64;
/// Longest wait for one.
const WITHIN: Duration = Duration::from_secs(1);
/// Shortest and longest pause after a refusal; between them a tenth of the time waited.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Asks each pod that comes in, until it listens or need not.
pub(super) async fn run(index: Arc<PodIndex>, mut asked: UnboundedReceiver<PodName>) {
    let (mut asking, places) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    loop {
        tokio::select! {
            pod = asked.recv() => match pod {
                Some(pod) => drop(asking.spawn(ask(index.clone(), places.clone(), pod))),
                None => return,
            },
            Some(_) = asking.join_next() => {}
        }
    }
}

async fn ask(index: Arc<PodIndex>, places: Arc<Semaphore>, pod: PodName) {
    let begun = Instant::now();
    while let Some((address, port)) = index.unproven(&pod) {
        let place = places.acquire().await; // Never closed.
        let answer = timeout(WITHIN, TcpStream::connect((address, port))).await;
        drop(place);
        let is_refused = matches!(answer, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused);
        index.asked(&pod, port, !is_refused);
        if !is_refused {
            return;
        }
        sleep((begun.elapsed() / 10).clamp(PAUSE.0, PAUSE.1)).await;
    }
}
