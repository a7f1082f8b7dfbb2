//! What pods use, between the node that measures it and the API server that serves it.
//!
//! The node measures when it is asked, so an idle node costs nothing. A rate counts from the question before; one over
//! more than [`WINDOW_MAX`] would say little of now, so it is taken anew over a moment.
//!
//! Odd case: a foreign API server asks kubelets' own port for this, which our node does not have. There its pods have
//! no metrics.

use jiff::Timestamp;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Shortest time that a rate is taken over.
pub(crate) const WINDOW_MIN: Duration = Duration::from_millis(500);
/// Longest time that a rate is taken over.
const WINDOW_MAX: Duration = Duration::from_secs(30);

/// What a container uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// End of the time that it was measured over.
    pub at: Timestamp,
    /// Length of that time.
    pub window: Duration,
    /// Billionths of a processor, on average over that time.
    pub cpu_nanos: u64,
    /// Bytes of memory at its end.
    pub memory: u64,
}

/// Usage of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// `NAMESPACE/POD`.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// What it uses.
    pub usage: Usage,
}

/// Measures the running containers of a node.
type Measure = dyn Fn() -> Vec<ContainerUsage> + Send + Sync;

/// The usage of a node's running containers. Clones share it; empty until a node measures.
#[derive(Clone, Default)]
pub struct UsageTable(Arc<OnceLock<Box<Measure>>>);

impl UsageTable {
    /// Measures now.
    pub async fn latest(&self) -> Vec<ContainerUsage> {
        let usages = self.measured().await;
        if usages.iter().all(|container| container.usage.window <= WINDOW_MAX) {
            return usages;
        }
        tokio::time::sleep(WINDOW_MIN).await;
        self.measured().await
    }

    async fn measured(&self) -> Vec<ContainerUsage> {
        let table = self.0.clone(); // Much of /proc is read.
        let measured = tokio::task::spawn_blocking(move || table.get().map(|measure| measure()).unwrap_or_default());
        measured.await.unwrap_or_default()
    }

    /// Lets `measure` answer from now on.
    pub(crate) fn measure_by(&self, measure: impl Fn() -> Vec<ContainerUsage> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(measure)); // There is one node.
    }
}

impl fmt::Debug for UsageTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UsageTable")
    }
}
