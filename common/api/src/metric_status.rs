//! What a Metric's status says: whether its samples come in. Reasons are upstream's.

use crate::MetricStatus;
use crate::condition::{Condition, READY};
use crate::condition_set::{HasConditions, has_conditions};
use common::time::Timestamp;

/// Reason: there are no pods to ask.
pub const NO_ENDPOINTS: &str = "NoEndpoints";
/// Reason: no pod that had not been asked yet has answered.
pub const DID_NOT_RECEIVE_STAT: &str = "DidNotReceiveStat";
/// Reason: anything else.
pub const COLLECTION_FAILED: &str = "CollectionFailed";

/// How the last collection went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectionError {
    /// There are no pods to ask.
    NoEndpoints(String),
    /// No pod that had not been asked yet has answered.
    DidNotReceiveStat(String),
    /// Anything else.
    Other(String),
}

has_conditions!(MetricStatus: []);

impl MetricStatus {
    /// Notes how the last collection went.
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
    fn a_metric_is_ready_when_its_samples_come_in() {
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
