//! Reasons why the API server accepts no pod of a target, if only events show them.
//!
//! A Deployment has a condition for this. A StatefulSet and most other kinds have none; their controllers write the
//! event FailedCreate. These events are read while pods are wanted and none exists. An event of an earlier wake may
//! still exist, so an old event counts only after there has been no pod for a while.

use crate::pods::warnings;
use autoscaler_core::cause::{self, Cause};
use common::RevisionKey as Key;
use common::time::Timestamp;
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client};
use std::time::Duration;

/// Time without a pod before events are read, and interval between two reads.
const AGAIN: Duration = Duration::from_secs(3);
/// Time without a pod after which an old event counts.
const LONG: Duration = Duration::from_secs(10);
/// Maximum age of an event that counts. Controllers that fail to create pods retry at least about that often.
const OLD: Duration = Duration::from_secs(1000);
/// Margin, because events have whole seconds from the clock of another machine.
const MARGIN: Duration = Duration::from_secs(2);

/// Targets that lack their pods.
pub(super) struct CreationFailures {
    client: Client,
    lacking: DashMap<Key, MissingPods>,
}

/// State of a target that lacks its pods.
struct MissingPods {
    since: Timestamp,
    next: Timestamp,
    cause: Option<Cause>,
}

impl CreationFailures {
    pub(super) fn new(client: Client) -> Self {
        Self { client, lacking: DashMap::new() }
    }

    /// Reads the events of the target with this uid, which lacks its pods, if a read is due. Returns the time until the
    /// next read.
    ///
    /// Cancel safe: a cancelled read is repeated with the next call.
    pub(super) async fn read_events(&self, key: &Key, uid: &str, now: Timestamp) -> Duration {
        let fresh = || MissingPods { since: now, next: now + AGAIN, cause: None };
        let (since, next) = {
            let lacking = self.lacking.entry(key.clone()).or_insert_with(fresh);
            (lacking.since, lacking.next)
        };
        let left = next.saturating_since(now);
        if !left.is_zero() {
            return left;
        }
        let events = Api::<Event>::namespaced(self.client.clone(), key.namespace());
        let last = warnings::last(&events, &format!("involvedObject.uid={uid},reason=FailedCreate")).await;
        let current = last.filter(|(at, ..)| counts(*at, since, now));
        if let Some(mut lacking) = self.lacking.get_mut(key) {
            lacking.next = now + AGAIN;
            lacking.cause = current.and_then(|(_, reason, message)| cause::warned(&reason, &message, None));
        }
        AGAIN
    }

    /// Returns the reason why the API server accepts no pod of a workload, according to the events.
    pub(super) fn cause(&self, key: &Key) -> Option<Cause> {
        self.lacking.get(key)?.cause.clone()
    }

    /// Forgets a workload that has its pods, or wants none.
    pub(super) fn forget(&self, key: &Key) {
        self.lacking.remove(key);
    }
}

/// Reports whether an event at time `at` explains why there has been no pod since `since`.
fn counts(at: Timestamp, since: Timestamp, now: Timestamp) -> bool {
    let is_long = now.saturating_since(since) >= LONG;
    since.saturating_since(at) <= if is_long { OLD } else { MARGIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_event_counts_only_after_a_while() {
        let at = Timestamp::from_secs;
        for (event, now, expected) in
            [(100, 103, true), (98, 103, true), (97, 103, false), (97, 109, false), (97, 110, true), (-901, 110, false)]
        {
            assert_eq!(counts(at(event), at(100), at(now)), expected, "{event}, {now}");
        }
    }
}
