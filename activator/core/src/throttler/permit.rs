//! Steps of a request through the throttler: it waits for a permit, is admitted, and picks a pod. Each step is a value
//! that releases its resources on drop.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use rand::Rng;

use super::pod::{PodTracker, Slot};
use super::{Targets, Throttler};
use crate::breaker::{self, Breaker};
use crate::destination::Destination;

/// Wait for a permit.
pub type Acquire = breaker::Acquire<Handle>;

/// Permit of the breaker without a pod.
pub type Admitted = breaker::Permit<Handle>;

/// Permit and pod. Drop releases both, the pod first, so that a request woken by the permit finds the slot.
#[derive(Debug)]
pub struct Permit {
    slot: Slot,
    admitted: Admitted,
}

/// Owned handle of a throttler's breaker.
#[derive(Debug)]
pub struct Handle(pub(super) Arc<Throttler>);

impl Deref for Handle {
    type Target = Breaker;

    fn deref(&self) -> &Breaker {
        &self.0.breaker
    }
}

// === impl Admitted ===

impl Admitted {
    /// Number of scans before the request queues again. A scan can fail because other requests overtook it.
    const SCANS: u32 = 4;

    /// Chooses a pod. If there is none, call [`Admitted::requeue`].
    pub fn pick<R: Rng + ?Sized>(self, rng: &mut R) -> Result<Permit, Self> {
        self.pick_for(None, rng)
    }

    /// Chooses a pod. If `client` is given, prefers the pod assigned to that client.
    pub fn pick_for<R: Rng + ?Sized>(self, client: Option<IpAddr>, rng: &mut R) -> Result<Permit, Self> {
        let throttler = &self.handle().0;
        for _ in 0..Self::SCANS {
            let snapshot = throttler.snapshot.load();
            let slot = match &snapshot.targets {
                Targets::ClusterIp(only) => Some(only.reserve()),
                Targets::Pods(pods) => {
                    let slot = match client {
                        Some(client) => snapshot.policy.pick_own(pods, client),
                        None => snapshot.policy.pick(pods, &throttler.cursor.0, rng),
                    };
                    // Check again: the pod may have been given up since the snapshot.
                    slot.filter(|slot| !slot.pod.is_retired())
                }
            };
            if let Some(slot) = slot {
                return Ok(Permit { slot, admitted: self });
            }
        }
        Err(self)
    }
}

// === impl Permit ===

impl Permit {
    /// Returns the destination of the request.
    pub fn destination(&self) -> &Destination {
        &self.slot.pod.destination
    }

    /// Gives up the pod and keeps the permit, so that a request of which nothing was sent can [`pick`](Admitted::pick)
    /// again.
    pub fn give_up_pod(self) -> Admitted {
        self.admitted
    }

    /// Moves to another pod of this activator that has a free slot, or stays if there is none. Keeps the permit.
    ///
    /// The slot of the other pod is taken before the current one is released, so that a request without an alternative
    /// cannot lose its slot. For that instant there is one slot too few. A request that is admitted then and finds no
    /// slot returns to the head of the queue, and gets its permit back at once.
    #[must_use = "dropping it gives up the permit"]
    pub fn prefer_another<R: Rng + ?Sized>(self, rng: &mut R) -> Self {
        self.prefer_another_that(|_| true, rng)
    }

    /// Like [`Permit::prefer_another`], but moves only to a pod that `suits`.
    #[must_use = "dropping it gives up the permit"]
    pub fn prefer_another_that<R: Rng + ?Sized>(mut self, suits: impl Fn(&Destination) -> bool, rng: &mut R) -> Self {
        let throttler = &self.admitted.handle().0;
        let snapshot = throttler.snapshot.load();
        if let Targets::Pods(pods) = &snapshot.targets {
            let is_other = |pod: &Arc<PodTracker>| !Arc::ptr_eq(pod, &self.slot.pod) && suits(&pod.destination);
            let others: Vec<_> = pods.iter().filter(|pod| is_other(pod)).cloned().collect();
            let slot = snapshot.policy.pick(&others, &throttler.cursor.0, rng);
            let slot = slot.filter(|slot| !slot.pod.is_retired()); // Check again, as in `pick_for`.
            if let Some(slot) = slot {
                self.slot = slot;
            }
        }
        self
    }
}
