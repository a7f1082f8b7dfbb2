//! What travels through the chain of layers once its revision is known.

use super::fallback::Standby;
use super::trace::Trace;
use crate::refusal::Refusal;
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
    /// Whether another activator relays it.
    pub(crate) is_relayed: bool,
    /// Where it is put if it has its turn elsewhere; none: it has it here.
    pub(crate) back: Option<Arc<Back>>,
}

/// A request that may be needed again as it came, and what goes with it.
pub(crate) struct Back {
    peer: Arc<Peer>,
    received: Instant,
    again: bool,
    revision: Arc<Revision>,
    /// Whether another activator relays it.
    pub(crate) is_relayed: bool,
    request: Mutex<Option<Request<RequestBody>>>,
}

impl Call {
    /// Puts the request there if it has its turn elsewhere.
    pub(crate) fn give_back_to(&mut self) -> Arc<Back> {
        self.back.insert(Arc::new(Back::of(self))).clone()
    }

    /// It has.
    pub(crate) fn give_back(&mut self) {
        if let Some(back) = &self.back {
            back.put(std::mem::replace(&mut self.request, Request::new(RequestBody::Empty)));
        }
    }
}

impl Back {
    /// Of a request that is not there yet.
    pub(crate) fn of(call: &Call) -> Self {
        Self {
            peer: call.peer.clone(),
            received: call.received,
            again: call.again,
            revision: call.revision.clone(),
            is_relayed: call.is_relayed,
            request: Mutex::new(None),
        }
    }

    /// It is there.
    pub(crate) fn put(&self, request: Request<RequestBody>) {
        *self.request.lock() = Some(request);
    }

    /// The request once more, without what has been found out about it.
    pub(crate) fn call(&self) -> Result<Call, Refusal> {
        let request = self.request.lock().take().ok_or(Refusal::Elsewhere { relayed: false })?;
        Ok(Call {
            request,
            peer: self.peer.clone(),
            received: self.received,
            again: self.again,
            revision: self.revision.clone(),
            trace: None,
            counts: true,
            standby: None,
            released: None,
            is_relayed: self.is_relayed,
            back: None,
        })
    }
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
            is_relayed: false,
            back: None,
        }
    }
}
