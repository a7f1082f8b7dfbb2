//! One revision's way to its siblings.

use super::{Shared, now};
use activator_core::Destination;
use activator_core::slots::{Input, Message, Peer, Peers};
use activator_core::throttler::Siblings;
use common::RevisionKey;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Link {
    key: RevisionKey,
    shared: Arc<Shared>,
    /// When a tick is due, in µs since the epoch; [`NEVER`].
    due: Arc<AtomicU64>,
}

const NEVER: u64 = u64::MAX;

impl Link {
    pub(super) fn new(key: RevisionKey, shared: Arc<Shared>) -> Self {
        Self { key, shared, due: Arc::new(AtomicU64::new(NEVER)) }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.key).finish()
    }
}

impl Siblings for Link {
    fn now(&self) -> Instant {
        now()
    }

    fn peers(&self) -> Arc<Peers> {
        self.shared.peers.load_full()
    }

    fn send(&self, to: &Peer, message: Message) {
        if let Some(session) = self.shared.sessions.load().get(to) {
            session.send_slots(&self.key, message);
        }
    }

    /// Later, on a task: it takes locks of its own.
    fn cut(&self, pod: &Destination, stopped: bool) {
        // A slot is one of the pod, whichever of its ports the request is at.
        let (pools, address) = (self.shared.parts.pools.clone(), pod.address().ip());
        let why = if stopped { "it ends" } else { "it has left and lost touch with who takes over" };
        tracing::warn!(revision = %self.key, pod = %pod, why, "what this activator runs there is cut");
        self.shared.parts.runtime.spawn(async move { pools.cut(address) });
    }

    fn due(&self, at: Instant) {
        let micros = at.saturating_duration_since(self.shared.epoch).as_micros();
        let micros = u64::try_from(micros).unwrap_or(NEVER - 1);
        if self.due.fetch_min(micros, Ordering::AcqRel) <= micros {
            return; // One comes in time.
        }
        let (due, shared, key) = (self.due.clone(), self.shared.clone(), self.key.clone());
        self.shared.parts.runtime.spawn(async move {
            tokio::time::sleep_until((at + Duration::from_micros(1)).into()).await;
            if due.compare_exchange(micros, NEVER, Ordering::AcqRel, Ordering::Acquire).is_err() {
                return; // An earlier one has come.
            }
            let waits_for_entry = || {
                let _roster = shared.roster.lock();
                shared.revision(&key)
            };
            if let Some(throttler) = shared.revision(&key).or_else(waits_for_entry) {
                throttler.tell(Input::Tick);
            }
        });
    }
}
