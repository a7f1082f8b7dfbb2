//! Status of a Metric: whether its samples arrive. Reasons are upstream's.

use crate::MetricStatus;
use crate::condition::{Condition, READY};
use crate::condition_set::{HasConditions, has_conditions};
use common::time::Timestamp;

/// Reason of [`CollectionError::NoEndpoints`].
pub const NO_ENDPOINTS: &str = "NoEndpoints";
/// Reason of [`CollectionError::DidNotReceiveStat`].
pub const DID_NOT_RECEIVE_STAT: &str = "DidNotReceiveStat";
/// Reason of [`CollectionError::Other`].
pub const COLLECTION_FAILED: &str = "CollectionFailed";

/// Error of the last collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectionError {
    /// There are no pods to scrape.
    NoEndpoints(String),
    /// None of the pods that still had to be scraped responded.
    DidNotReceiveStat(String),
    /// Any other error.
    Other(String),
}

has_conditions!(MetricStatus: []);

impl MetricStatus {
    /// Records the result of the last collection.
    pub fn mark(&mut self, result: Result<(), &CollectionError>, now: Timestamp) {
        let mut manager = self.manage(now);
        match result {
            Ok(()) => manager.mark_true(READY),
            Err(CollectionError::NoEndpoints(message)) => manager.mark_unknown(READY, NO_ENDPOINTS, message),
            Err(CollectionError::DidNotReceiveStat(message)) => {
                manager.mark_false(READY, DID_NOT_RECEIVE_STAT, message);
            }
            Err(CollectionError::Other(message)) => {
                let message = format!("Failed to reconcile metric collection: {message}");
                manager.mark_false(READY, COLLECTION_FAILED, &message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_ready_while_its_collection_succeeds() {
        let now = Timestamp::from_secs(1_700_000_000);
        let mut status = MetricStatus::default();
        status.begin(1, now);
        status.mark(Ok(()), now);
        status.finish(None, 1, now);
        assert!(status.is_ready(1));
        status.mark(Err(&CollectionError::Other("the-error".into())), now);
        let ready = status.condition(READY).cloned().unwrap_or_default();
        assert_eq!(ready.message, "Failed to reconcile metric collection: the-error");
        assert!(ready.is_false());
        status.mark(Err(&CollectionError::NoEndpoints("none".into())), now);
        assert!(status.condition(READY).is_some_and(Condition::is_unknown));
    }
}
