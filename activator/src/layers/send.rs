//! Attempts to send one request: to pods ([`super::hold`]), or to the addresses of a fallback ([`super::fallback`]).
//!
//! The caller chooses the address of each attempt. [`Sending`] contains the common part: it maintains the clock of the
//! timeouts and the spans, and charges a large response head. If an attempt finds no room for a connect, it monitors
//! the client, because nothing else does then, and charges the request's memory.

use super::charge;
use super::hold::{Waits, unless_it_gives_way};
use crate::layers::call::Released;
use crate::layers::trace::{AtPod, Trace};
use crate::refusal::Refusal;
use crate::registry::revision::Revision;
use activator_net::{Disconnect, Evidence, Failure, HeadCharge, HeldCharge, Peer, PodBody, Pool, Prepared};
use http::{Response, Version};
use std::fmt::Display;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use tokio::time::Instant;

pub(super) struct Sending<'a> {
    client: Client<'a>,
    trace: Option<Arc<Trace>>,
    /// Span of the attempts.
    pub(super) at_pod: Option<Box<AtPod>>,
    /// Time from which the wait for a pod counts.
    pub(super) since: Instant,
    /// A pod has had the request.
    has_run: bool,
    /// Disconnect signal of the client, from the first lack of room on.
    disconnect: Option<Option<Disconnect>>,
    /// Charge of the request, while it waits for room for a connect.
    pub(super) waiting: Option<HeldCharge>,
}

impl<'a> Sending<'a> {
    /// Starts the attempts for a client's request.
    pub(super) fn new(client: Client<'a>, trace: Option<Arc<Trace>>) -> Self {
        let at_pod = trace.as_ref().map(|trace| Box::new(trace.proxying()));
        Self { client, trace, at_pod, since: client.received, has_run: false, disconnect: None, waiting: None }
    }

    /// Sends the request once. Fails if its charge must give way to others.
    pub(super) async fn attempt(
        &mut self,
        revision: &Revision,
        mut request: Box<Prepared>,
        pool: &Arc<Pool>,
    ) -> Result<Result<Response<PodBody>, Failure>, Refusal> {
        self.client.release(Some(Instant::now()));
        if let (Some(trace), Some(at_pod)) = (&self.trace, &mut self.at_pod) {
            trace.sending(at_pod, &mut request.head);
        }
        // Pinned here: passed by value, the future would be stored and copied twice.
        let exchange = pin!(request.send(pool));
        let sent = unless_it_gives_way(self.waiting.as_ref(), &revision.memory, exchange).await;
        let sent = sent.inspect_err(|refusal| self.failed(refusal))?;
        match &sent {
            Ok(response) => self.at_pod.iter().for_each(|at_pod| at_pod.answered(response.status())),
            Err(Failure::Final { error, .. }) => self.failed(error),
            Err(Failure::Elsewhere { request, .. }) => {
                self.client.release(None);
                if request.may_have_run() && !std::mem::replace(&mut self.has_run, true) {
                    self.since = Instant::now(); // A pod had it, so this is another wait.
                }
            }
        }
        Ok(sent)
    }

    fn failed(&mut self, cause: &dyn Display) {
        self.at_pod.iter_mut().for_each(|at_pod| at_pod.failed(cause));
    }

    pub(super) fn charge(&self, revision: &Revision, response: &mut Response<PodBody>) -> Result<(), Refusal> {
        if let Some(size) = charge::response_head(response.headers(), self.client.version) {
            let charge = revision.memory.hold(self.client.address(), size).map_err(|full| Refusal::AnswerFull {
                needed: size,
                bound: full.limit,
                own: full.own,
            })?;
            response.extensions_mut().insert(HeadCharge::new(charge));
        }
        Ok(())
    }

    /// Records a failed attempt and returns true if it counts. A wait for room consists of many attempts, of which only
    /// the first counts.
    pub(super) fn record_failure(&mut self, cause: &str, evidence: Evidence) -> bool {
        let counts = evidence != Evidence::None || self.disconnect.is_none();
        if counts {
            self.failed(&cause);
        }
        counts
    }

    /// Checks that the request may be sent again, and charges it if it does not queue for a permit before that.
    pub(super) fn prepare_retry(
        &mut self,
        revision: &Revision,
        request: &Prepared,
        evidence: Evidence,
    ) -> Result<(), Refusal> {
        if let Some(refusal) = revision.bounds().waited_out(self.since) {
            return Err(refusal);
        }
        if evidence == Evidence::None {
            let disconnect = || self.client.peer.disconnect(self.client.version, &request.body);
            if self.disconnect.get_or_insert_with(disconnect).as_ref().is_some_and(Disconnect::has_gone) {
                return Err(Refusal::ClientGone);
            }
        }
        match evidence {
            Evidence::None | Evidence::LocalShortage => {
                self.waiting.get_or_insert_with(|| {
                    revision.memory.hold_again(self.client.address(), self.client.keeps(request))
                });
            }
            _ => self.waiting = None,
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) peer: &'a Arc<Peer>,
    pub(super) version: Version,
    /// True if the request is not the first of its connection.
    pub(super) is_subsequent: bool,
    pub(super) counts: bool,
    pub(super) received: Instant,
    /// Clock that starts when a pod has the request.
    pub(super) clock: Option<&'a Released>,
    /// Address of the client, if it decides on the pod.
    pub(super) affinity: Option<IpAddr>,
}

impl Client<'_> {
    /// Records when a pod got the request, or that the request waits for a pod.
    pub(super) fn release(self, at: Option<Instant>) {
        if let Some(clock) = self.clock {
            *clock.lock() = at;
        }
    }

    /// Returns the address whose share of memory the request uses.
    fn address(self) -> IpAddr {
        self.peer.address.ip()
    }

    /// Returns the conditions of the wait for another pod. `since`: start of that wait.
    pub(super) fn waits(self, prepared: &Prepared, since: Instant) -> Waits {
        Waits {
            since,
            bytes: self.keeps(prepared),
            client: self.address(),
            disconnect: self.peer.disconnect(self.version, &prepared.body),
            counts: self.counts,
        }
    }

    /// Returns the charge of the request while it waits, in bytes.
    fn keeps(self, request: &Prepared) -> u64 {
        charge::charge_of(self.version, request, self.is_subsequent)
    }
}
