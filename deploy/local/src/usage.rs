//! Resource usage of pods: measured by the node, served by the API server.
//!
//! The node measures on request, so an idle node costs nothing. CPU rates are averages since the previous request. An
//! average over more than [`WINDOW_MAX`] would say little about the present, so it is measured again over a short time.
//!
//! A foreign API server would ask the kubelet's port for usage. This node does not serve that port, so its pods have no
//! metrics there.

use jiff::Timestamp;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Minimum time over which a rate is measured.
pub(crate) const WINDOW_MIN: Duration = Duration::from_millis(500);
/// Maximum time over which a rate is measured.
const WINDOW_MAX: Duration = Duration::from_secs(30);

/// Resource usage of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// End of the measured time.
    pub at: Timestamp,
    /// Length of the measured time.
    pub window: Duration,
    /// Average CPU usage over that time, in billionths of a core.
    pub cpu_nanos: u64,
    /// Memory at the end of that time, in bytes.
    pub memory: u64,
}

/// Usage of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// `NAMESPACE/POD`.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Measured usage.
    pub usage: Usage,
}

/// Measures the running containers of a node.
type Measure = dyn Fn() -> Vec<ContainerUsage> + Send + Sync;

/// Usage of a node's running containers. Clones share the state; empty until a node registers its measurement.
#[derive(Clone, Default)]
pub struct UsageTable(Arc<OnceLock<Box<Measure>>>);

impl UsageTable {
    /// Measures now.
    pub async fn latest(&self) -> Vec<ContainerUsage> {
        let usages = self.measure().await;
        if usages.iter().all(|container| container.usage.window <= WINDOW_MAX) {
            return usages;
        }
        tokio::time::sleep(WINDOW_MIN).await;
        self.measure().await
    }

    async fn measure(&self) -> Vec<ContainerUsage> {
        let table = self.0.clone(); // Measuring reads many files of /proc.
        let measured = tokio::task::spawn_blocking(move || table.get().map(|measure| measure()).unwrap_or_default());
        measured.await.unwrap_or_default()
    }

    /// Registers the function that measures.
    pub(crate) fn measure_by(&self, measure: impl Fn() -> Vec<ContainerUsage> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(measure)); // There is only one node.
    }
}
