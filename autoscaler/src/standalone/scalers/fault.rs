//! Fault of a workload that keeps its pods from serving. It stays from its detection until a wake succeeds, or its
//! object or target changes. It is therefore still reported while the workload sleeps after a failed wake.
//!
//! Held requests fail with the fault once it has lasted for [`HEALS_WITHIN`], because a Secret may arrive a moment
//! after the pod that needs it. A program that does not respond yet, or a pod without a node, may need minutes
//! ([`Cause::may_be_slow`]). Requests then wait for `wake.timeout`, and the response after a timeout names the cause.

use crate::scale::Failing;
use autoscaler_core::cause::Cause;
use common::backend::Backend;
use common::time::Timestamp;
use common_api::zeroscaler::{Fault, conditions};
use std::time::Duration;
use tokio::time::Instant;

/// Time that a cause must last before held requests fail with it: ten seconds, after which a kubelet retries, and a
/// margin.
pub(crate) const HEALS_WITHIN: Duration = Duration::from_secs(12);
/// Time that a workload after a crash loop must be awake before its fault is cleared: in each loop it may be ready for
/// a moment.
const CLEARED_AFTER: Duration = Duration::from_secs(10);

/// Known failures of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultEvidence {
    /// Present failure.
    pub(crate) failing: Option<Failing>,
    /// Versions of the object and of its target; `None` if the target is unknown.
    pub(crate) of: Option<String>,
    /// Time for which the workload has been awake; `None` if it is not awake.
    pub(crate) awake_for: Option<Duration>,
}

impl FaultEvidence {
    /// Returns the fault that follows from this evidence and from the fault `before`.
    pub(crate) fn fault(&self, before: Option<&Fault>, now: Timestamp) -> Option<Fault> {
        let former = before.filter(|before| self.of.as_ref().is_none_or(|of| *of == before.of));
        let Some(Failing { cause: Cause { reason, message, remedy }, .. }) = self.failing.clone() else {
            return former.filter(|_| self.awake_for.is_none() || self.clears_in(before).is_some()).cloned();
        };
        let since = former.filter(|former| former.reason == reason).map(|former| former.since.clone());
        let (since, of) = (since.unwrap_or_else(|| conditions::time(now)), self.of.clone().unwrap_or_default());
        Some(Fault { reason, message, remedy, since, of })
    }

    /// Returns the time after which the fault or its effect may change by itself.
    pub(crate) fn again_in(&self, before: Option<&Fault>, now: Instant) -> Option<Duration> {
        let failing = self.failing.as_ref().filter(|failing| !failing.cause.may_be_slow());
        let lasts = failing.map(|failing| HEALS_WITHIN.saturating_sub(now - failing.since));
        lasts.filter(|left| !left.is_zero()).or_else(|| self.clears_in(before))
    }

    fn clears_in(&self, before: Option<&Fault>) -> Option<Duration> {
        let left = CLEARED_AFTER.saturating_sub(self.awake_for?);
        before.filter(|before| before.reason == "CrashLoop" && !left.is_zero()).map(|_| left)
    }

    /// Adds the failure to the backend for the activators. Held requests fail at once if the failure has lasted long
    /// enough.
    pub(crate) fn apply_to_backend(&self, backend: Backend, now: Instant) -> Backend {
        let Some(failing) = &self.failing else { return Backend { failing: None, ..backend } };
        let words = Some(failing.cause.to_string().into());
        if !failing.cause.may_be_slow() && now.duration_since(failing.since) >= HEALS_WITHIN {
            Backend { failing: words, ..backend }
        } else {
            Backend { failing: None, wake_refused: backend.wake_refused.or(words), ..backend }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(reason: &str) -> Failing {
        let cause = Cause { reason: reason.into(), message: "m".into(), remedy: "r".into() };
        Failing { cause, pod: "p".into(), since: Instant::now() }
    }

    /// Goal: a fault stays after its wake until a wake succeeds, or the object or target has another version.
    #[tokio::test(start_paused = true)]
    async fn a_fault_stays_until_a_wake_succeeds_or_something_changes() {
        let at = Timestamp::from_secs;
        let found = |failing: Option<Failing>, of: &str, awake: Option<u64>| FaultEvidence {
            failing,
            of: Some(of.into()),
            awake_for: awake.map(Duration::from_secs),
        };
        let first = found(Some(failing("ImagePull")), "1/a", None).fault(None, at(5)).expect("a fault");
        assert_eq!((first.message().as_str(), first.to_string().as_str()), ("m; r", "ImagePull: m; r"));
        let again = found(Some(failing("ImagePull")), "1/a", None).fault(Some(&first), at(9));
        assert_eq!(again.as_ref(), Some(&first), "since its first detection");
        let crash = Fault { reason: "CrashLoop".into(), ..first.clone() };
        let rows = [
            (&first, found(None, "1/a", None), true),
            (&first, FaultEvidence::default(), true),
            (&first, found(None, "1/a", Some(0)), false),
            (&first, found(None, "2/a", None), false),
            (&first, found(None, "1/b", None), false),
            (&crash, found(None, "1/a", Some(9)), true),
            (&crash, found(None, "1/a", Some(10)), false),
        ];
        for (before, found, stays) in rows {
            assert_eq!(found.fault(Some(before), at(9)).is_some(), stays, "{found:?}");
        }
    }

    /// Goal: held requests fail with a lasting cause, unless the start may be slow. Before that, they only receive its
    /// description.
    #[tokio::test(start_paused = true)]
    async fn held_requests_fail_with_a_lasting_cause() {
        for (reason, fails) in [("SecretMissing", true), ("PortClosed", false), ("Unschedulable", false)] {
            let found = FaultEvidence { failing: Some(failing(reason)), ..FaultEvidence::default() };
            let reported = |found: &FaultEvidence| {
                let backend = found.apply_to_backend(Backend::default(), Instant::now());
                (backend.failing.is_some(), backend.wake_refused.is_some())
            };
            let again = fails.then_some(HEALS_WITHIN);
            assert_eq!((reported(&found), found.again_in(None, Instant::now())), ((false, true), again));
            tokio::time::advance(HEALS_WITHIN).await;
            assert_eq!((reported(&found), found.again_in(None, Instant::now())), ((fails, !fails), None));
        }
    }
}
