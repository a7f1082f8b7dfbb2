//! A front end's part in the passes: from its own objects to a [`Workload`], from a path to the cluster, and from what a
//! pass has found out to its own status.
//!
//! A pass asks for its parts in the order in which they stand here.

use super::scaler::Scaled;
use super::workload::{NotReady, Path, Previous, Reading, Workload};
use crate::cluster::error::Error;
use autoscaler_core::active::ActiveCondition;
use autoscaler_core::orders::Step;
use common::RevisionKey as Key;
use common::time::Timestamp;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

/// Object of a front end with a name.
pub(crate) enum Found<S> {
    /// There is none that is ours to scale.
    Gone,
    /// It is being deleted, and has nothing to give back.
    Over,
    /// It is being deleted, and gives its target back first.
    Leaving(S),
    /// It is to be scaled.
    Present(S),
}

/// Observations that do not depend on how the pass ends.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Failure of a metric: a reason, and words for users.
    pub(crate) unmeasured: Option<(&'static str, String)>,
    /// Answer of the API server to a patch that adds pods, if it refuses one.
    pub(crate) refused: Option<Arc<str>>,
    /// Another writer that keeps changing the replicas.
    pub(crate) contest: Option<String>,
    /// Controllers whose pods the target's selector finds as well; none: that is not known yet.
    pub(crate) strangers: Option<Vec<String>>,
}

/// Result of a pass that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Pods that are wanted; none: unknown.
    pub(crate) want: Option<i32>,
    /// Pods that are ready.
    pub(crate) ready: i32,
    /// The first scale has been reached.
    pub(crate) initialized: bool,
    /// What the workload is now; none: as before.
    pub(crate) activity: Option<ActiveCondition>,
    /// What was done about a request for a wake or a sleep, if there is one.
    pub(crate) step: Option<Step>,
}

/// Translates between its own objects and the engine. Chosen once, when the process starts.
pub(crate) trait FrontEnd: Send + Sync + Sized + 'static {
    /// Its object in the course of a pass, with the status that is being made.
    type Subject: Send + Sync;

    /// Time for which a wake that was given up is reported, unless the workload is woken before. With none, the next pass
    /// reports a workload without traffic.
    const REPORTS_GIVEN_UP_FOR: Duration;

    /// Finds the object of a key.
    fn find(&self, key: &Key, now: Timestamp) -> Found<Self::Subject>;

    /// Reads all that a decision depends on. Nothing is written.
    ///
    /// # Errors
    /// Something is not known yet.
    fn read(&self, key: &Key, subject: &mut Self::Subject, now: Timestamp) -> Result<Reading, Error>;

    /// Asks for the Services that [`Reading::AwaitServices`] lacks, by the first path. Returns whether the public Service is
    /// known.
    ///
    /// # Errors
    /// The API server's.
    fn ask_for_services(
        &self,
        _key: &Key,
        _subject: &mut Self::Subject,
        _path: Path,
        _now: Timestamp,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        ready(Ok(false))
    }

    /// Reports why nothing, or nothing new, is done.
    fn refuse(&self, subject: &mut Self::Subject, why: NotReady, now: Timestamp);

    /// Returns whether the target is taken up, so that nothing has to be written before it may be scaled.
    fn is_taken_up(&self, _subject: &Self::Subject) -> bool {
        true
    }

    /// Takes the target up, unless it is.
    ///
    /// # Errors
    /// The API server's; a conflict if somebody wrote first.
    fn take_up(
        &self,
        _key: &Key,
        _subject: &mut Self::Subject,
        _workload: &Workload,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Returns what the last pass has reported.
    fn previous(&self, subject: &Self::Subject, now: Timestamp) -> Previous;

    /// Reports a change of replicas.
    fn scaled(&self, key: &Key, subject: &Self::Subject, scaled: Scaled);

    /// Warns in an event.
    fn warn(&self, subject: &Self::Subject, reason: &'static str, message: String);

    /// Takes in observations, also of a pass that fails afterwards.
    fn notice(&self, subject: &mut Self::Subject, workload: &Workload, notices: Notices);

    /// Has the workload measured, and its traffic follow the path. Returns whether the public Service is known.
    ///
    /// # Errors
    /// The API server's.
    fn route(
        &self,
        key: &Key,
        subject: &mut Self::Subject,
        workload: &Workload,
        path: Path,
        now: Timestamp,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Takes in the result.
    fn conclude(&self, subject: &mut Self::Subject, outcome: &Outcome, now: Timestamp);

    /// Ends a pass, which may have failed: reports the status and the failure. Returns the failure.
    ///
    /// # Errors
    /// The pass's, or the one that kept the status from being written.
    fn finish(
        &self,
        key: &Key,
        subject: Self::Subject,
        outcome: Result<(), Error>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Gives target and Service back; each change that this waits for leads to another pass.
    ///
    /// # Errors
    /// The API server's.
    fn give_back(&self, _key: &Key, _subject: &Self::Subject) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Takes away all that was made for the object, and leaves the replicas as they are.
    ///
    /// # Errors
    /// The API server's.
    fn let_go(&self, _key: &Key, _subject: &Self::Subject) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Forgets a workload that is gone, or led by another process.
    fn forget(&self, key: &Key);
}
