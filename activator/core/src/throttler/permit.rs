//! A request's way through the throttler: it waits for a place, is admitted, and picks a pod. Each state is a value
//! that gives back what it holds on drop.

use std::future::Future;
use std::net::IpAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rand::Rng;

use super::pod::{PodTracker, Slot};
use super::{Inner, Targets};
use crate::breaker::{self, AdmissionError, Breaker};
use crate::destination::Destination;

/// A request's wait for a place. Cancel safe: see [`breaker::Acquire`].
#[derive(Debug)]
pub struct Acquire(breaker::Acquire<Handle>);

/// A place in the breaker, without a pod yet. Gives it back on drop.
#[derive(Debug)]
pub struct Admitted(breaker::Permit<Handle>);

/// A place and a pod. Gives both back on drop, the pod first, so that whoever is woken finds it.
#[derive(Debug)]
pub struct Permit {
    slot: Slot,
    admitted: Admitted,
}

/// An owned way to the breaker.
#[derive(Debug)]
struct Handle(Arc<Inner>);

impl Deref for Handle {
    type Target = Breaker;

    fn deref(&self) -> &Breaker {
        &self.0.breaker
    }
}

// === impl Acquire ===

impl Acquire {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self(breaker::Acquire::new(Handle(inner)))
    }
}

impl Future for Acquire {
    type Output = Result<Admitted, AdmissionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(Admitted)
    }
}

// === impl Admitted ===

impl Admitted {
    /// How often a scan that was overtaken by other requests is repeated before the request queues again.
    const SCANS: u32 = 4;

    /// Chooses a pod. If there is none, [`Admitted::requeue`] is what to do.
    pub fn pick<R: Rng + ?Sized>(self, rng: &mut R) -> Result<Permit, Self> {
        self.pick_for(None, rng)
    }

    /// The same; for a `client` the pod that is its own.
    pub fn pick_for<R: Rng + ?Sized>(self, client: Option<IpAddr>, rng: &mut R) -> Result<Permit, Self> {
        let inner = &self.0.handle().0;
        for _ in 0..Self::SCANS {
            let snapshot = inner.snapshot.load();
            let slot = match &snapshot.targets {
                Targets::ClusterIp(only) => Some(only.reserve()),
                Targets::Pods(pods) => {
                    let slot = match client {
                        Some(client) => snapshot.policy.pick_own(pods, client),
                        None => snapshot.policy.pick(pods, &inner.cursor.0, rng),
                    };
                    // Looked at again: it may have been given up since.
                    slot.filter(|slot| !slot.pod.is_retired())
                }
            };
            if let Some(slot) = slot {
                return Ok(Permit { slot, admitted: self });
            }
        }
        Err(self)
    }

    /// Back to the head of the queue.
    pub fn requeue(self) -> Acquire {
        Acquire(self.0.requeue())
    }
}

// === impl Permit ===

impl Permit {
    /// Where to send the request.
    pub fn destination(&self) -> &Destination {
        self.slot.destination()
    }

    /// Gives up the pod and keeps the place: for a request of which nothing was sent, to [`pick`](Admitted::pick)
    /// again.
    pub fn give_up_pod(self) -> Admitted {
        self.admitted
    }

    /// Moves to another pod of this activator's own that has a free slot; stays where there is none. Keeps the place.
    ///
    /// The other's slot is taken before this one's is given back, so that a request without another pod cannot lose the
    /// one it has. For that instant there is a slot too few: whoever is admitted in it and finds none has its place given
    /// back to it at once, at the head of the queue.
    #[must_use = "dropping it gives up the place"]
    pub fn prefer_another<R: Rng + ?Sized>(self, rng: &mut R) -> Self {
        self.prefer_another_that(|_| true, rng)
    }

    /// As [`Permit::prefer_another`], to one that `suits` alone.
    #[must_use = "dropping it gives up the place"]
    pub fn prefer_another_that<R: Rng + ?Sized>(mut self, suits: impl Fn(&Destination) -> bool, rng: &mut R) -> Self {
        let inner = &self.admitted.0.handle().0;
        let snapshot = inner.snapshot.load();
        if let Targets::Pods(pods) = &snapshot.targets {
            let is_other = |pod: &Arc<PodTracker>| !Arc::ptr_eq(pod, &self.slot.pod) && suits(&pod.destination);
            let others: Vec<_> = pods.iter().filter(|pod| is_other(pod)).cloned().collect();
            let slot = snapshot.policy.pick(&others, &inner.cursor.0, rng);
            let slot = slot.filter(|slot| !slot.pod.is_retired()); // As above.
            if let Some(slot) = slot {
                self.slot = slot;
            }
        }
        self
    }
}
