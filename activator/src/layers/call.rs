//! What travels through the chain of layers once its revision is known.

use super::fallback::Standby;
use super::trace::Trace;
use crate::registry::revision::Revision;
use activator_net::{Peer, RequestBody};
use http::Request;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::Instant;

/// A request whose revision is known.
pub(crate) struct Call {
    /// Head and body.
    pub(crate) request: Request<RequestBody>,
    /// Who sent it.
    pub(crate) peer: Arc<Peer>,
    /// When its head had been read.
    pub(crate) received: Instant,
    /// Whether it is not the first of its connection.
    pub(crate) again: bool,
    /// Whom it is for.
    pub(crate) revision: Arc<Revision>,
    /// Its spans, if traces are asked for.
    pub(crate) trace: Option<Arc<Trace>>,
    /// Whether it is load.
    pub(crate) counts: bool,
    /// Who answers if it has to wait for too long.
    pub(crate) standby: Option<Arc<Standby>>,
    /// Time at which a pod got the request, if a bound counts from then.
    pub(crate) released: Option<Arc<Released>>,
}

/// Time at which a pod got a request; none while it waits for one.
#[derive(Debug, Default)]
pub(crate) struct Released(Mutex<Option<Instant>>);

impl Released {
    /// Starts the clock at this time, or stops it.
    pub(crate) fn set(&self, at: Option<Instant>) {
        *self.0.lock() = at;
    }

    /// The time, if a pod has the request.
    pub(crate) fn get(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

/// Calls for tests of the layers.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;
    use activator_net::Trust;

    /// A call of a revision without a body.
    pub(crate) fn call(revision: &Arc<Revision>) -> Call {
        Call {
            request: Request::new(RequestBody::Empty),
            peer: Arc::new(Peer::new(([127, 0, 0, 1], 5000).into(), Trust::default(), false)),
            received: Instant::now(),
            again: false,
            revision: revision.clone(),
            trace: None,
            counts: true,
            standby: None,
            released: None,
        }
    }
}
