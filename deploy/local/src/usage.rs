//! What pods use, between the node that measures it and the API server that serves it.
//!
//! The node looks every [`LIVELY`] while somebody asks, else every [`QUIET`], so that an idle node costs next to
//! nothing and a first question is answered all the same.
//!
//! Odd case: a foreign API server asks kubelets' own port for this, which our node does not have. There its pods have
//! no metrics.

use jiff::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Between looks while somebody asks.
const LIVELY: Duration = Duration::from_secs(1);
/// Between looks otherwise (a metrics server's usual resolution).
const QUIET: Duration = Duration::from_secs(15);
/// Somebody asks if the last question is no older.
const INTEREST: Duration = Duration::from_secs(60);

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

/// The latest usage of a node's running containers that were measured. Clones share it; empty until a node fills it in.
#[derive(Clone, Debug, Default)]
pub struct UsageTable {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    latest: Mutex<Vec<ContainerUsage>>,
    /// When somebody last asked.
    asked: Mutex<Option<Instant>>,
    question: Notify,
}

impl UsageTable {
    /// The latest usage. Asking keeps it fresh.
    pub fn latest(&self) -> Vec<ContainerUsage> {
        if self.shared.asked.lock().replace(Instant::now()).is_none_or(|last| last.elapsed() > INTEREST) {
            self.shared.question.notify_one();
        }
        self.shared.latest.lock().clone()
    }

    pub(crate) fn put(&self, usages: Vec<ContainerUsage>) {
        *self.shared.latest.lock() = usages;
    }

    /// Waits until it is time to look again.
    pub(crate) async fn next_look(&self) {
        let period = period(*self.shared.asked.lock(), Instant::now());
        tokio::select! {
            () = self.shared.question.notified() => {}
            () = tokio::time::sleep(period) => {}
        }
    }
}

/// Between two looks, by when somebody last asked.
fn period(asked: Option<Instant>, now: Instant) -> Duration {
    if asked.is_some_and(|asked| now.saturating_duration_since(asked) <= INTEREST) { LIVELY } else { QUIET }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_frequent_only_while_somebody_asks() {
        let asked = Instant::now();
        assert_eq!(period(None, asked), QUIET);
        assert_eq!(period(Some(asked), asked + INTEREST), LIVELY);
        assert_eq!(period(Some(asked), asked + INTEREST + Duration::from_secs(1)), QUIET);
    }

    #[tokio::test]
    async fn a_first_question_is_heard_at_once() {
        let table = UsageTable::default();
        table.latest();
        let looked = tokio::time::timeout(Duration::from_secs(30), table.next_look()).await;
        assert!(looked.is_ok(), "well before the quiet period has passed");
    }
}
