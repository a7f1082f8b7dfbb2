//! What happens to a PodAutoscaler from its birth to its end, where the front ends differ.

use super::objects::Inherited;
use super::workload::{Reading, Workload};
use crate::reconcile::error::Error;
use common::RevisionKey as Key;
use common_api::{PodAutoscaler, PodAutoscalerStatus};
use futures::future::BoxFuture;
use std::sync::Arc;

/// A front end's part in the passes over PodAutoscalers.
pub(crate) trait Lifecycle: Send + Sync + 'static {
    /// Whether the PodAutoscaler is this process's to scale.
    fn is_ours(&self, object: &PodAutoscaler) -> bool;

    /// One pass over a PodAutoscaler that is not; all that was known of it is forgotten already.
    ///
    /// # Errors
    /// The API server's.
    fn decline<'a>(&'a self, key: &'a Key, object: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>>;

    /// Reads all that a decision depends on. Nothing is written.
    ///
    /// # Errors
    /// Something is not known yet.
    fn read(&self, key: &Key, object: &Arc<PodAutoscaler>, status: &PodAutoscalerStatus) -> Result<Reading, Error>;

    /// Whether its target is taken up, so that nothing has to be written before it may be scaled.
    fn is_taken_up(&self, object: &PodAutoscaler) -> bool;

    /// Takes the target up, unless it is. Returns the object as it is then.
    ///
    /// # Errors
    /// The API server's; a conflict if somebody wrote first.
    fn take_up<'a>(
        &'a self,
        key: &'a Key,
        object: &'a Arc<PodAutoscaler>,
        workload: &'a Workload,
    ) -> BoxFuture<'a, Result<Arc<PodAutoscaler>, Error>>;

    /// Whether there is something to give back before it may be deleted.
    fn must_give_back(&self, object: &PodAutoscaler) -> bool;

    /// Gives its target and its Service back; each change that this waits for leads to another pass.
    ///
    /// # Errors
    /// The API server's.
    fn give_back<'a>(&'a self, key: &'a Key, object: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>>;

    /// Takes away all that was made for it, and leaves its replicas as they are.
    ///
    /// # Errors
    /// The API server's.
    fn let_go<'a>(&'a self, key: &'a Key, object: &'a Arc<PodAutoscaler>) -> BoxFuture<'a, Result<(), Error>>;

    /// Whether a status tells of a patch that is refused. Knative's does not.
    fn tells_refusals(&self) -> bool;

    /// Whether a status goes on telling of a wake that was given up. Knative's tells of it with one pass alone.
    fn keeps_timed_out(&self) -> bool;

    /// Forgets a revision that is gone, or somebody else's.
    fn forget(&self, key: &Key);

    /// Labels and annotations that its ServerlessService and its Metric have from it.
    fn inherited(&self, object: &PodAutoscaler) -> Inherited;
}
