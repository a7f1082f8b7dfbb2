//! Targets that cannot be woken, because the API server refuses the replicas patch.
//!
//! A request waits for such a patch, so it is retried at least every [`RETRY_WITHIN`]. The API server's error is
//! reported in the status and to the activators, whose requests will run into their deadline. An error is reported
//! only after it has lasted for [`LASTS`]: a conflict is resolved by the next attempt.
//!
//! Any client may read the report, so it is a single line of at most [`REPORTED_CHARS_MAX`] characters without internal
//! addresses. For an API server that does not respond, only that fact is reported.

use common::RevisionKey as Key;
use common::text::excerpt;
use common_controller::WriteError;
use dashmap::DashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest time between two attempts.
pub(crate) const RETRY_WITHIN: Duration = Duration::from_secs(5);
/// Time for which a refusal must last before it is reported.
const LASTS: Duration = Duration::from_secs(1);
/// Longest reported text, in characters.
const REPORTED_CHARS_MAX: usize = 256;

/// Last refusal of each refused target.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    by_target: DashMap<Key, Refusal>,
}

#[derive(Debug)]
struct Refusal {
    since: Instant,
    text: Arc<str>,
    is_reported: bool,
}

impl Refusals {
    /// Records that a patch which adds pods has failed. Returns whether the text to report has changed.
    pub(super) fn record(&self, key: &Key, error: &WriteError) -> bool {
        let Some(text) = report_text(error) else { return false };
        let now = Instant::now();
        let new = || Refusal { since: now, text: text.clone(), is_reported: false };
        let mut refusal = self.by_target.entry(key.clone()).or_insert_with(new);
        let is_due = now.duration_since(refusal.since) >= LASTS;
        let is_changed = is_due && (!refusal.is_reported || refusal.text != text);
        (refusal.text, refusal.is_reported) = (text, is_due);
        is_changed
    }

    /// Records that the patch was accepted, or is no longer needed. Returns whether a reported refusal has ended.
    pub(super) fn clear(&self, key: &Key) -> bool {
        self.by_target.remove(key).is_some_and(|(_, refusal)| refusal.is_reported)
    }

    /// Returns whether the last attempt has failed.
    pub(super) fn is_refused(&self, key: &Key) -> bool {
        self.by_target.contains_key(key)
    }

    pub(crate) fn reported(&self, key: &Key) -> Option<Arc<str>> {
        self.by_target.get(key).filter(|refusal| refusal.is_reported).map(|refusal| refusal.text.clone())
    }
}

/// Returns the text for an error; none if this process itself has refused the write.
fn report_text(error: &WriteError) -> Option<Arc<str>> {
    match error {
        WriteError::Api { source: kube::Error::Api(status), .. } => {
            let text = if status.message.is_empty() { &status.reason } else { &status.message };
            Some(excerpt(text, REPORTED_CHARS_MAX).into())
        }
        WriteError::Api { .. } => Some("the API server could not be reached".into()),
        WriteError::NoAnswer { .. } => Some("the API server did not respond in time".into()),
        WriteError::LeaseEnds | WriteError::Outdated { .. } | WriteError::NotOwned { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refusal(message: &str) -> WriteError {
        WriteError::api("doing")(kube::Error::Api(Box::new(Status::failure(message, "Forbidden").with_code(403))))
    }

    #[test]
    fn a_refusal_is_one_line_of_bounded_length() {
        for (message, text) in [
            ("exceeded quota: pods", "exceeded quota: pods"),
            ("denied:\n\tx\r\n  y\u{0}z\u{1b}[31m", "denied: x y z [31m"),
            ("", "Forbidden"),
        ] {
            assert_eq!(report_text(&refusal(message)).as_deref(), Some(text));
        }
        for filler in ["x", "\u{e9}", "\u{1f600}"] {
            let text = report_text(&refusal(&filler.repeat(10_000))).expect("text");
            assert_eq!(text.chars().count(), REPORTED_CHARS_MAX);
            assert!(text.ends_with('…'));
        }
        let silent = WriteError::NoAnswer { doing: "x".into(), within: Duration::from_millis(9876) };
        assert_eq!(report_text(&silent).as_deref(), Some("the API server did not respond in time"));
        assert_eq!(report_text(&WriteError::LeaseEnds), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_lasting_refusals_are_reported() {
        let (refusals, key) = (Refusals::default(), Key::new("ns", "a"));
        assert!(!refusals.record(&key, &refusal("no")) && refusals.is_refused(&key));
        assert_eq!((refusals.reported(&key), refusals.clear(&key), refusals.is_refused(&key)), (None, false, false));
        refusals.record(&key, &refusal("no"));
        tokio::time::advance(LASTS).await;
        assert_eq!(refusals.reported(&key), None, "no attempt has failed since");
        assert!(refusals.record(&key, &refusal("no")));
        assert!(!refusals.record(&key, &refusal("no")), "reported already");
        assert!(refusals.record(&key, &refusal("never")));
        assert!(!refusals.record(&key, &WriteError::LeaseEnds));
        assert_eq!(refusals.reported(&key).as_deref(), Some("never"));
        assert!(refusals.clear(&key) && !refusals.clear(&key));
        assert_eq!(refusals.reported(&key), None);
    }
}
