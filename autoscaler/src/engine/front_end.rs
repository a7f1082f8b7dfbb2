//! The front end's part in a reconcile: its objects become a [`Workload`], a path becomes cluster objects, and the
//! result becomes its status.
//!
//! A reconcile calls these methods in the order in which they are declared.

use super::scaler::Scaled;
use super::workload::{NotReady, Path, Previous, Reading, Workload};
use crate::cluster::error::Result;
use autoscaler_core::active::ActiveCondition;
use autoscaler_core::manual_requests::Step;
use autoscaler_core::scale_to_zero::ProbeResult;
use common::RevisionKey as Key;
use common::time::Timestamp;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

/// Result of looking up a front end's object by name.
pub(crate) enum ObjectLookup<S> {
    /// No such object, or it is not ours to scale.
    Gone,
    /// Being deleted, with nothing to restore.
    Over,
    /// Being deleted; its target must be restored first.
    Leaving(S),
    /// To be scaled.
    Present(S),
}

/// Observations that do not depend on the result of the reconcile.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Failure of a metric: its reason, and a message for users.
    pub(crate) unmeasured: Option<(&'static str, String)>,
    /// Error of the API server, if it refuses a patch that adds pods.
    pub(crate) refused: Option<Arc<str>>,
    /// Message about another writer that keeps changing the replicas.
    pub(crate) contest: Option<String>,
    /// Controllers whose pods the target's selector also matches; `None` if not known yet.
    pub(crate) foreign_controllers: Option<Vec<String>>,
}

/// Result of a reconcile that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReconcileOutcome {
    /// Desired pods; `None` if unknown.
    pub(crate) desired: Option<i32>,
    pub(crate) ready: i32,
    /// Set if the initial scale has been reached.
    pub(crate) initialized: bool,
    /// New activity condition; none: unchanged.
    pub(crate) activity: Option<ActiveCondition>,
    /// Action taken on an operator's request to wake or sleep, if there is one.
    pub(crate) step: Option<Step>,
}

/// Translation between a front end's objects and the engine. Chosen once, when the process starts.
pub(crate) trait FrontEnd: Send + Sync + Sized + 'static {
    /// The front end's object during a reconcile, with the status under construction.
    type Subject: Send + Sync;

    /// Time for which a timed-out wake is reported, unless the workload is woken sooner. If zero, the next reconcile
    /// reports that the workload has no traffic.
    const REPORTS_GIVEN_UP_FOR: Duration;

    fn find(&self, key: &Key, now: Timestamp) -> ObjectLookup<Self::Subject>;

    /// Reads everything that a decision depends on. Writes nothing. Fails if required information is not known yet.
    fn read(&self, key: &Key, subject: &mut Self::Subject, now: Timestamp) -> Result<Reading>;

    /// Requests the Services that [`Reading::AwaitServices`] lacks, for the initial path. Returns whether the public
    /// Service is known.
    fn request_services(
        &self,
        _key: &Key,
        _subject: &mut Self::Subject,
        _path: Path,
    ) -> impl Future<Output = Result<bool>> + Send {
        ready(Ok(false))
    }

    /// Reports why the workload is not scaled.
    fn refuse(&self, subject: &mut Self::Subject, why: NotReady, now: Timestamp);

    /// Returns whether the target is already adopted, so that it may be scaled without another write first.
    fn is_adopted(&self, _subject: &Self::Subject) -> bool {
        true
    }

    /// Adopts the target, unless it is adopted already. Fails with a conflict if another writer was first.
    fn adopt(
        &self,
        _key: &Key,
        _subject: &mut Self::Subject,
        _workload: &Workload,
    ) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }

    /// Returns the state that the last reconcile reported.
    fn previous(&self, subject: &Self::Subject, now: Timestamp) -> Previous;

    /// Returns the current proof that activators are in the path, which is needed before the last pod is removed.
    fn probe_result(&self, key: &Key, subject: &Self::Subject) -> ProbeResult;

    /// Requests that proof. The workload is reconciled when there is a result.
    fn request_probe(&self, key: &Key, subject: &Self::Subject);

    /// Reports a change of replicas.
    fn scaled(&self, key: &Key, subject: &Self::Subject, scaled: Scaled);

    fn warn(&self, subject: &Self::Subject, reason: &'static str, message: String);

    /// Records observations, even if the reconcile fails afterwards.
    fn notice(&self, subject: &mut Self::Subject, workload: &Workload, notices: Notices);

    /// Sets up measurement, and routes the traffic by the path. Returns whether the public Service is known.
    fn route(
        &self,
        key: &Key,
        subject: &mut Self::Subject,
        workload: &Workload,
        path: Path,
    ) -> impl Future<Output = Result<bool>> + Send;

    fn conclude(&self, subject: &mut Self::Subject, outcome: &ReconcileOutcome, now: Timestamp);

    /// Ends a reconcile, which may have failed: writes the status and reports the failure. Returns the failure, or the
    /// error that kept the status from being written.
    fn finish(&self, key: &Key, subject: Self::Subject, outcome: Result<()>)
    -> impl Future<Output = Result<()>> + Send;

    /// Restores target and Service. If this must wait for a change, the change triggers another reconcile.
    fn release(&self, _key: &Key, _subject: &Self::Subject) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }

    /// Deletes everything that was made for the object, and leaves the replicas unchanged.
    fn abandon(&self, _key: &Key, _subject: &Self::Subject) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }

    /// Forgets a workload that is gone or owned by another process.
    fn forget(&self, key: &Key);
}
