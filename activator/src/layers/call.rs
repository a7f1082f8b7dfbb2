//! Request on its way through the layers, once its revision is known.

use super::fallback::PendingFallback;
use super::trace::Trace;
use crate::refusal::Refusal;
use crate::registry::revision::Revision;
use activator_net::{Peer, RequestBody};
use http::Request;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::Instant;

pub(crate) struct Call {
    pub(crate) request: Request<RequestBody>,
    pub(crate) peer: Arc<Peer>,
    /// Time at which its head had been read.
    pub(crate) received: Instant,
    /// True if it is not the first request of its connection.
    pub(crate) is_subsequent: bool,
    pub(crate) revision: Arc<Revision>,
    pub(crate) trace: Option<Arc<Trace>>,
    pub(crate) counts: bool,
    /// Fallback, in case the request waits too long.
    pub(crate) fallback: Option<Arc<PendingFallback>>,
    /// Time at which a pod got the request, if a timeout counts from then.
    pub(crate) released: Option<Arc<Released>>,
    /// True if another activator relays the request.
    pub(crate) is_relayed: bool,
    /// Handoff of the request, in case another activator must serve it; `None` if that is impossible.
    pub(crate) handoff: Option<Arc<Handoff>>,
}

/// Handoff of an unmodified request that may have to go to another activator.
pub(crate) struct Handoff {
    /// True if another activator relays the request.
    pub(crate) is_relayed: bool,
    call: Mutex<Option<Box<Call>>>,
}

impl Call {
    /// Creates a call without the results of the layers. It is boxed, because each layer moves it.
    pub(crate) fn new(
        request: Request<RequestBody>,
        peer: Arc<Peer>,
        received: Instant,
        is_subsequent: bool,
        revision: Arc<Revision>,
        is_relayed: bool,
    ) -> Box<Self> {
        Box::new(Self {
            request,
            peer,
            received,
            is_subsequent,
            revision,
            trace: None,
            counts: true,
            fallback: None,
            released: None,
            is_relayed,
            handoff: None,
        })
    }

    /// Sets up a handoff for the request, in case another activator must serve it.
    pub(crate) fn prepare_handoff(&mut self) -> Arc<Handoff> {
        let handoff = Handoff { is_relayed: self.is_relayed, call: Mutex::new(None) };
        self.handoff.insert(Arc::new(handoff)).clone()
    }

    /// Hands the request off, because another activator must serve it.
    pub(crate) fn hand_off(&mut self) {
        if let Some(handoff) = &self.handoff {
            let request = std::mem::replace(&mut self.request, Request::new(RequestBody::Empty));
            let (peer, revision) = (self.peer.clone(), self.revision.clone());
            handoff.put(Self::new(request, peer, self.received, self.is_subsequent, revision, self.is_relayed));
        }
    }
}

impl Handoff {
    /// Stores a call without the results of the layers for the handoff.
    pub(crate) fn put(&self, call: Box<Call>) {
        *self.call.lock() = Some(call);
    }

    pub(crate) fn take(&self) -> Result<Box<Call>, Refusal> {
        self.call.lock().take().ok_or(Refusal::Elsewhere { relayed: false })
    }
}

/// Time at which a pod got a request; none while the request waits for a pod.
pub(crate) type Released = Mutex<Option<Instant>>;

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;
    use activator_net::Trust;

    pub(crate) fn call(revision: &Arc<Revision>) -> Box<Call> {
        let peer = Arc::new(Peer::new(([127, 0, 0, 1], 5000).into(), Trust::default(), false));
        Call::new(Request::new(RequestBody::Empty), peer, Instant::now(), false, revision.clone(), false)
    }
}
