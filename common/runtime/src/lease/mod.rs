//! Ownership by lease: which of several processes acts for which share of the keys.
//!
//! There is one `coordination.k8s.io/v1` Lease for each owner bucket, with Knative's names, fields and identity, so
//! that replicas of either implementation may share them. Every process campaigns for every lease and watches all of
//! them.
//!
//! # Timing
//!
//! A holder renews each [`Timing::retry_period`]; when it has not managed to for [`Timing::renew_deadline`] it steps
//! down. Others take over once they have seen no change for the recorded lease duration, which the watch lets them do
//! on the dot: at most a second later, not after the next poll. An orderly exit empties the holder, and the watch makes
//! the takeover a matter of a fraction of a second.
//!
//! # Fair shares
//!
//! Upstream's first replica keeps all leases. With [`ElectorOptions::balance`] a process that holds at least two fewer
//! than the richest *claims* a lease of it, by an annotation, and the holder hands it over in one write. Membership is
//! not needed, nothing is ever without an owner on the way, and shares end up at most one apart. Off in the drop-in,
//! whose upstream peers would not yield.
//!
//! # Readiness
//!
//! Whoever cannot act yet, since it has not listed what it is to act for, only watches: a lease that it took, from a holder
//! that can, would be nobody's for that time.
//!
//! # Not here
//!
//! The rules of holding leases (`common::election`), which bucket a key belongs to (`common::ownership`); Knative's
//! StatefulSet mode, which has no leases.

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

/// Longer than any process lives; an `Instant` has no greatest value.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The current state of all leases, kept up to date by an elector. Cheap to clone, cheap to ask.
#[derive(Clone, Debug)]
pub struct Ownership {
    views: Arc<RwLock<Vec<View>>>,
    writers: Writers,
    changes: watch::Receiver<u64>,
}

/// Sets an [`Ownership`] by hand.
#[derive(Debug)]
pub struct Assign {
    views: Arc<RwLock<Vec<View>>>,
    changed: watch::Sender<u64>,
}

impl Assign {
    /// From now on `holder` holds the bucket; `ours`: which is this process, for ever. Unknown buckets are ignored.
    pub fn set(&self, bucket: usize, holder: Option<Holder>, ours: bool) {
        let until = ours.then(|| Instant::now() + FOR_EVER);
        if let Some(view) = self.views.write().get_mut(bucket) {
            let believed_until = holder.is_some().then(|| Instant::now() + FOR_EVER);
            *view = View { holder, until, believed_until };
        }
        self.changed.send_modify(|version| *version += 1);
    }
}

/// What is known of one lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct View {
    holder: Option<Holder>,
    /// Until when this process holds it for certain; `None`: it does not.
    until: Option<Instant>,
    /// Until when the holder counts without another sign of life; `None`: there is none.
    believed_until: Option<Instant>,
}

impl Ownership {
    /// A state that is set by hand, with nobody holding anything at first: for static assignments, and tests.
    pub fn by_hand(buckets: usize) -> (Assign, Self) {
        let views = Arc::new(RwLock::new(vec![View::default(); buckets]));
        let (changed, changes) = watch::channel(0);
        (Assign { views: views.clone(), changed }, Self { views, writers: Writers::new(buckets), changes })
    }

    /// A state that never changes: this process holds every bucket. For one that is alone, and tests.
    pub fn alone(buckets: usize, me: &Holder) -> Self {
        let (assign, ownership) = Self::by_hand(buckets);
        (0..buckets).for_each(|bucket| assign.set(bucket, Some(me.clone()), true));
        ownership
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.views.read().len()
    }

    /// Whether this process holds the bucket now.
    pub fn owns(&self, bucket: usize) -> bool {
        self.until(bucket).is_some_and(|until| Instant::now() < until)
    }

    /// Who holds the bucket; `None`: nobody, an identity that cannot be read, or one whose lease has run out as far as
    /// can be seen from here.
    pub fn holder(&self, bucket: usize) -> Option<Holder> {
        let views = self.views.read();
        let view = views.get(bucket)?;
        view.believed_until.filter(|until| Instant::now() < *until)?;
        view.holder.clone()
    }

    /// Until when writes for the bucket may be started: the end of the lease less [`WRITE_MARGIN`]. `None`: not at all.
    pub fn writable_until(&self, bucket: usize) -> Option<Instant> {
        self.until(bucket)?.checked_sub(WRITE_MARGIN)
    }

    /// Whether a write for the bucket may be started now.
    pub fn may_write(&self, bucket: usize) -> bool {
        self.writable_until(bucket).is_some_and(|until| Instant::now() <= until)
    }

    /// Begins a write for the bucket; `None`: it may not be started now. The lease does not change hands while it
    /// lasts.
    pub fn begin_write(&self, bucket: usize) -> Option<WriteGuard> {
        let views = self.views.read(); // Held until the guard counts: an elector that closes the bucket waits for either.
        let until = views.get(bucket)?.until?;
        let open = until.checked_sub(WRITE_MARGIN).is_some_and(|last| Instant::now() <= last);
        if open { self.writers.begin(bucket, until) } else { None }
    }

    /// Counts changes of holders and of what this process holds; renewals do not count.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    fn until(&self, bucket: usize) -> Option<Instant> {
        self.views.read().get(bucket)?.until
    }
}
