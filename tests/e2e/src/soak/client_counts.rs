//! Counts results of each kind of client.
//!
//! [`Ends`] records when pods of each workload ended, which explains broken exchanges.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum number of different failures that are reported for one kind.
const FAILURES_MAX: usize = 12;

/// Exchanges of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    /// Complete exchanges.
    pub(super) ok: u64,
    /// Failed exchanges.
    pub(super) failed: u64,
    /// Number of failures by error.
    pub(super) errors: BTreeMap<String, u64>,
    /// Number of failures by error whose pod did not end meanwhile.
    pub(super) unexplained: BTreeMap<String, u64>,
}

/// Counts by kind.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, Count>>);

impl Tally {
    /// Records one exchange.
    pub(super) fn add<T>(&self, kind: &'static str, result: anyhow::Result<T>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(kind).or_default();
        let Err(error) = result else {
            count.ok += 1;
            return;
        };
        count.failed += 1;
        count_error(&mut count.errors, &error);
    }

    /// Records a failure that no pod's end explains. The caller also passes it to `Tally::add`.
    pub(super) fn unexplained(&self, kind: &'static str, error: &anyhow::Error) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count_error(&mut counts.entry(kind).or_default().unexplained, error);
    }

    /// Returns the counts so far.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn count_error(errors: &mut BTreeMap<String, u64>, error: &anyhow::Error) {
    let text = format!("{error:#}");
    if errors.len() < FAILURES_MAX || errors.contains_key(&text) {
        *errors.entry(text).or_default() += 1;
    }
}

/// Longest delay between a pod's end, the event about it, and the effect on the pod's clients.
pub(super) const EVENT_DELAY_MAX: Duration = Duration::from_secs(2);

/// Last end of a pod of each workload: deleted, rolled over, or scaled down.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<HashMap<String, Instant>>);

impl Ends {
    /// Records ends, forever.
    pub(super) async fn watch(self: Arc<Self>, pods: Api<Pod>) {
        let events = watcher(pods, watcher::Config::default().labels("app")).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(pod)) if pod.metadata.deletion_timestamp.is_some() => self.record(&pod),
                Ok(Event::Delete(pod)) => self.record(&pod),
                Ok(_) => {}
                Err(error) => eprintln!("the watch of pods: {error}"),
            }
        }
    }

    fn record(&self, pod: &Pod) {
        let Some(workload) = pod.labels().get("app") else { return };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(workload.clone(), Instant::now());
    }

    /// Reports whether a pod of `workload` has ended since `begun`, once events about that must have arrived.
    pub(super) async fn any_since(&self, begun: Instant, workload: &str) -> bool {
        sleep(EVENT_DELAY_MAX).await;
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get(workload).is_some_and(|end| *end + EVENT_DELAY_MAX >= begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: an end explains exchanges in flight and those that began while its event was delayed, and no others.
    #[tokio::test(start_paused = true)]
    async fn a_pods_end_explains_exchanges_of_its_time_and_workload() {
        let ends = Ends::default();
        let before = Instant::now();
        assert!(!ends.any_since(before, "a").await, "no pod has ended");
        ends.record(&serde_json::from_value(json!({"metadata": {"labels": {"app": "a"}}})).expect("a pod"));
        assert!(ends.any_since(before, "a").await);
        assert!(!ends.any_since(before, "b").await, "another workload's");
        sleep(EVENT_DELAY_MAX).await;
        assert!(!ends.any_since(Instant::now(), "a").await, "long ago");
    }
}
