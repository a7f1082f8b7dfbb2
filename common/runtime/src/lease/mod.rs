//! Ownership by lease: assigns shares of the keys to several processes.
//!
//! There is one `coordination.k8s.io/v1` Lease for each owner bucket, with Knative's names, fields and identity, so
//! that replicas of either implementation may share them. Every process competes for every lease and watches all of
//! them.
//!
//! # Timing
//!
//! A holder renews each [`Timing::retry_period`]. If it could not renew for [`Timing::renew_deadline`], it steps down.
//! Other processes take over once they have observed no change for the recorded lease duration. With the watch this
//! happens at most a second later, without polling. An orderly exit clears the holder, and the watch reports that, so
//! the takeover takes a fraction of a second.
//!
//! # Fair shares
//!
//! Upstream's first replica keeps all leases. With [`ElectorOptions::balance`], a process that holds at least two
//! leases fewer than the largest holder *claims* one of that holder's leases by an annotation, and the holder hands it
//! over in one write. This needs no membership list, every lease always has an owner, and shares end up at most one
//! apart. Off in the drop-in, whose upstream peers would not yield.
//!
//! # Readiness
//!
//! A process that cannot act yet, because it has not listed its objects, only watches. If it took a lease from a holder
//! that can act, that share would have no working owner until then.
//!
//! # Not here
//!
//! The rules of holding leases (`common::election`), the bucket of a key (`common::ownership`); Knative's StatefulSet
//! mode, which has no leases.

mod elector;
#[cfg(test)]
mod tests;
mod writers;

pub use common::election::{Timing, WRITE_MARGIN};
pub use elector::{ElectorOptions, start};
pub use writers::{CANCEL_MARGIN, WriteGuard};

use common::ownership::Holder;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use writers::Writers;

/// Longer than any process lives; an `Instant` has no maximum value.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Current state of all leases, kept up to date by an elector. Cheap to clone and to query.
#[derive(Clone, Debug)]
pub struct Ownership {
    views: Arc<RwLock<Vec<View>>>,
    writers: Writers,
    changes: watch::Receiver<u64>,
}

/// Sets the state of an [`Ownership`] manually.
#[derive(Debug)]
pub struct Assign {
    views: Arc<RwLock<Vec<View>>>,
    changed: watch::Sender<u64>,
}

impl Assign {
    /// Sets the holder of a bucket; `ours` means that it is this process, forever. Unknown buckets are ignored.
    pub fn set(&self, bucket: usize, holder: Option<Holder>, ours: bool) {
        let until = ours.then(|| Instant::now() + FOR_EVER);
        if let Some(view) = self.views.write().get_mut(bucket) {
            let believed_until = holder.is_some().then(|| Instant::now() + FOR_EVER);
            *view = View { holder, until, believed_until };
        }
        self.changed.send_modify(|version| *version += 1);
    }
}

/// Known state of one lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct View {
    holder: Option<Holder>,
    /// Time until which this process certainly holds it; `None`: it does not.
    until: Option<Instant>,
    /// Time until which the holder counts without another renewal; `None`: there is no holder.
    believed_until: Option<Instant>,
}

impl Ownership {
    /// Creates a state that is set manually, initially without holders: for static assignments and tests.
    pub fn manual(buckets: usize) -> (Assign, Self) {
        let views = Arc::new(RwLock::new(vec![View::default(); buckets]));
        let (changed, changes) = watch::channel(0);
        (Assign { views: views.clone(), changed }, Self { views, writers: Writers::new(buckets), changes })
    }

    /// Creates a state that never changes, in which this process holds every bucket: for a single process and tests.
    pub fn alone(buckets: usize, me: &Holder) -> Self {
        let (assign, ownership) = Self::manual(buckets);
        (0..buckets).for_each(|bucket| assign.set(bucket, Some(me.clone()), true));
        ownership
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.views.read().len()
    }

    /// Reports whether this process currently holds the bucket.
    pub fn owns(&self, bucket: usize) -> bool {
        self.views.read().get(bucket).is_some_and(|view| view.until.is_some_and(|until| Instant::now() < until))
    }

    /// Returns the holder of the bucket. `None` means: no holder, an identity that cannot be parsed, or a lease that
    /// has expired according to this process's observations.
    pub fn holder(&self, bucket: usize) -> Option<Holder> {
        let views = self.views.read();
        let view = views.get(bucket)?;
        view.believed_until.filter(|until| Instant::now() < *until)?;
        view.holder.clone()
    }

    /// Begins a write for the bucket, or returns `None` if it may not be started now. The lease does not change hands
    /// during the write.
    pub fn begin_write(&self, bucket: usize) -> Option<WriteGuard> {
        // The lock is held until the guard is counted. So the elector, which locks the views to give up the bucket,
        // then waits for the guard.
        let views = self.views.read();
        let until = views.get(bucket)?.until?;
        let open = until.checked_sub(WRITE_MARGIN).is_some_and(|last| Instant::now() <= last);
        if open { self.writers.begin(bucket, until) } else { None }
    }

    /// Counts changes of holders and of this process's leases; renewals do not count.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}
