//! Waits for a permit of the revision, then sends the request; unsent requests are retried at other pods.
//!
//! # The rule
//!
//! A request takes a permit of its revision's breaker, or waits for one in order of arrival, and then picks a pod. If
//! the pod is unreachable, it is taken out of use and the request picks another. If there is none, the request returns
//! to the head of the queue, with the same charge and supervision as the first time ([`Waits`]). The same happens,
//! once, to a request that is safe to repeat and whose pod vanished before the first byte of a response. If only a
//! reused connection was lost, the pod stays in use, and the request goes to another pod with a free slot, or else to
//! the same one.
//!
//! If the pod lacks the port that the request came to, the request moves to a pod that has the port and a free slot, or
//! is refused. If the port differs from the one that readiness is checked on, a refused connect only says that the pod
//! does not listen there yet: the pod stays in use, and the request retries at the pace of probes, for at most
//! [`LISTENS_WITHIN`].
//!
//! A request that has lost its last pod reports to the autoscaler at once, not with the next report. The permit and the
//! slot at the pod are held until the response body, or the tunnel, has ended.
//!
//! An uncounted request ([`Call::counts`]) does not wake the workload, so it does not wait for a wake either. It is
//! refused as soon as no pod is ready, and gets the response for that case ([`super::answers`]).
//!
//! A request that arrived while no pod was ready may have a fallback. It is sent there if no pod is ready at its
//! fallback time, or at once if there is no room to hold it or the pods are known to fail. Once a pod is ready, the
//! workload answers, however many requests are queued; if the pods are lost again, the request is sent to the fallback
//! soon after. A request that once had a pod is not sent to the fallback, because a pod may have received a part of it.
//!
//! While another activator holds the workload, waiting requests are handed off unmodified to be relayed
//! ([`super::relay`]).
//!
//! # Bounds
//!
//! - Number of held requests of a revision: `max-held`, enforced by the breaker.
//! - Bytes of held requests: the charge of each ([`super::charge`]) counts against the memory of the process
//!   ([`activator_net::Memory`]). If it is used up, the workload with the largest part gives way: its youngest request
//!   is refused. A request that waits again is charged even beyond the limit, and so is a request that waits for room
//!   in a pod's queue, until its response.
//! - Time: the wait for a pod, here; the exchange, in the surrounding [`crate::layers::timeouts`].
//! - Pods tried: [`ATTEMPTS_MAX`], because pods may pass their probes and still refuse every request. A pod without
//!   room for a connect does not count: that connect has waited for a while, so only the time limits such attempts.
//!
//! A client disconnect drops the future and everything it holds. [`activator_net::Disconnect`] detects it even if the
//! body is unread. No body is read while its request waits.

use super::LayerParts;
use super::charge::charge;
use super::compact::compact;
use super::fallback::{Fallbacks, PendingFallback};
use super::send::{Client, Sending};
use crate::layers::call::{Call, Handoff};
use crate::layers::trace::{AtPod, Trace};
use crate::metrics::ending::Ending;
use crate::metrics::{ExchangeKind, Queued};
use crate::refusal::{Refusal, TimedOut};
use crate::registry::ports::WorkloadPort;
use crate::registry::revision::Revision;
use crate::registry::stats::StatSink;
use activator_core::Destination;
use activator_core::breaker;
use activator_core::ledger::Full;
use activator_core::throttler::{Acquire, Admitted, Permit};
use activator_net::{
    DetectedProtocol, Disconnect, Evidence, Failure, Guard, Guarded, HeldCharge, Memory, Peer, PodBody, Pool, Prepared,
    ProxyError, Share,
};
use futures::future::{BoxFuture, OptionFuture};
use http::{HeaderMap, Response};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tower::Service;

/// Number of held requests above which heads are compacted. Compaction takes a few microseconds, which a short wait
/// need not spend.
const COMPACT_ABOVE: u64 = 32;

/// Error type of a connection failure in metrics.
const LOST: &str = "connection";

/// Pause between two connects to a port on which a pod does not listen yet: this fraction of the time waited, within
/// bounds.
const PAUSE_DIVISOR: u32 = 100;
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Interval at which a queued request checks whether pods are still ready.
const COLD_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for a pod to listen on a port, while it accepts connections on others.
pub(super) const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// Maximum number of pods that one request may fail at.
pub(super) const ATTEMPTS_MAX: usize = 64;

/// Innermost layer: holds and sends requests. Each clone has its own reference counts, because a shared count would be
/// written by every core.
pub(crate) struct Hold {
    shared: Arc<HoldShared>,
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        Self { shared: Arc::new(HoldShared::clone(&self.shared)) }
    }
}

#[derive(Clone)]
struct HoldShared {
    memory: Memory,
    sink: Arc<StatSink>,
    fallbacks: Fallbacks,
}

pub(crate) struct RequestResources {
    /// `None` if the response does not come from a pod.
    pub(super) _permit: Option<(Permit, Active)>,
    pub(super) _trace: Option<Box<AtPod>>,
}

impl Guard for RequestResources {}

enum Admission {
    /// A pod, and true if none was ready when the request arrived.
    Pod(Admitted, bool),
    Fallback(Arc<PendingFallback>),
}

impl Hold {
    pub(crate) fn new(parts: &LayerParts, fallbacks: Fallbacks) -> Self {
        let (memory, sink) = (parts.memory.clone(), parts.sink.clone());
        Self { shared: Arc::new(HoldShared { memory, sink, fallbacks }) }
    }
}

impl Service<Box<Call>> for Hold {
    type Response = Response<Guarded<PodBody, RequestResources>>;
    type Error = Refusal;
    type Future = BoxFuture<'static, Result<Self::Response, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Box<Call>) -> Self::Future {
        exchange(self.shared.clone(), call)
    }
}

/// Admits a request, sends it to a pod or the fallback, and returns the response. Written as a block because an
/// `async fn` would store its arguments twice.
fn exchange(
    shared: Arc<HoldShared>,
    mut call: Box<Call>,
) -> BoxFuture<'static, Result<Response<Guarded<PodBody, RequestResources>>, Refusal>> {
    Box::pin(async move {
        let waiting = call.trace.as_ref().map(|trace| Box::new(trace.waiting()));
        let admitted = admit(&shared, &mut call).await;
        if let (Some(span), Err(refusal)) = (&waiting, &admitted) {
            span.failed(refusal);
        }
        drop(waiting);
        if matches!(admitted, Err(Refusal::Elsewhere { .. })) {
            call.hand_off();
        }
        let (admitted, cold) = match admitted? {
            Admission::Pod(admitted, cold) => (admitted, cold),
            // Boxed, because it is rare.
            Admission::Fallback(fallback) => return Box::pin(shared.fallbacks.answer(call, fallback)).await,
        };
        let Call { request, peer, received, is_subsequent, revision, trace, counts, released: clock, handoff, .. } =
            *call;
        let live = revision.live();
        let (protocol, is_guess) = revision.protocol_for(&live, &request, peer.port());
        let clock = clock.as_deref();
        let affinity = live.spec.backend.client_affinity.then(|| client_of(&peer, request.headers()));
        let client =
            Client { peer: &peer, version: request.version(), is_subsequent, counts, received, clock, affinity };
        // Another activator may take over the workload's pods before this request gets one; then the original request
        // is relayed.
        let may_be_lost = handoff.as_ref().filter(|_| revision.throttler.holds_shards());
        let original = may_be_lost.map(|_| Prepared::keep_original(&request));
        let passthrough = live.spec.passthrough.as_deref().cloned();
        let mut prepared = Prepared::new(request, live.spec.contract, protocol, peer.clone(), passthrough)?;
        if is_guess {
            prepared.guess_protocol();
        }
        original.into_iter().for_each(|original| prepared.with_original(original));
        drop(live);
        let woken = cold.then(|| revision.clone());
        // Boxed, so that a waiting request does not carry the memory that sending needs.
        let sending = Box::pin(send(&shared, Active::new(revision), client, admitted, prepared, trace, handoff));
        let (response, released) = sending.await?;
        if let Some(revision) = woken {
            report_cold_start(&revision, received, released);
        }
        Ok(response)
    })
}

/// Waits for a permit, or for the time at which the request falls back.
async fn admit(shared: &HoldShared, call: &mut Call) -> Result<Admission, Refusal> {
    let mut acquire = call.revision.throttler.acquire();
    if let Poll::Ready(admitted) = futures::poll!(&mut acquire) {
        return admitted.map(|admitted| Admission::Pod(admitted, false)).or_else(|error| refused(call, error));
    }
    let cold = call.revision.is_cold();
    let client = call.peer.address.ip();
    let held = call.revision.memory.hold(client, charge(&call.request, call.is_subsequent));
    let held = match (held, &call.fallback) {
        (Ok(held), _) => held,
        (Err(_), Some(fallback)) => return Ok(Admission::Fallback(fallback.clone())),
        (Err(full), None) => return Err(memory_refusal(full)),
    };
    if shared.memory.held() > COMPACT_ABOVE {
        compact(&mut call.request);
    }
    let _queued = Queued::new(&call.revision.metrics);
    let since = Instant::now();
    let give_up = OptionFuture::from(until_fallback_or_refusal(call, cold));
    let place = |admitted: Result<Admitted, breaker::AdmissionError>| match admitted {
        Ok(admitted) => Ok(Admission::Pod(admitted, cold)),
        Err(error) => refused(call, error),
    };
    let wait = call.revision.bounds().wait;
    let mut timer = wait.map(|wait| call.peer.timers.take(call.received + wait));
    let late = OptionFuture::from(timer.as_mut());
    let mut disconnect = call.peer.disconnect(call.request.version(), call.request.body());
    let gone = OptionFuture::from(disconnect.as_mut().map(Disconnect::gone));
    let outcome = tokio::select! {
        biased; // A permit that was granted is used.
        admitted = acquire => place(admitted),
        Some(()) = gone => return Err(Refusal::ClientGone),
        Some(outcome) = give_up => outcome,
        () = held.gives_way() => {
            call.fallback.clone().map(Admission::Fallback).ok_or_else(|| gives_way(&call.revision))
        }
        Some(()) = late => return Err(TimedOut::Wait(wait.unwrap_or_default()).into()),
    };
    timer.into_iter().for_each(|timer| call.peer.timers.keep(timer));
    call.revision.metrics.held(since.elapsed());
    outcome
}

/// Handles a request that gets no permit and may not wait for one.
fn refused(call: &Call, error: breaker::AdmissionError) -> Result<Admission, Refusal> {
    let fallback = match &error {
        breaker::AdmissionError::Gone | breaker::AdmissionError::Elsewhere => None,
        _ => call.fallback.clone(),
    };
    fallback.map(Admission::Fallback).ok_or_else(|| refusal(error))
}

/// Returns a future that resolves when the request must fall back or be refused, or `None` if only a permit or the
/// timeout ends its wait. Boxed, because few requests need it.
fn until_fallback_or_refusal(call: &Call, cold: bool) -> Option<BoxFuture<'static, Result<Admission, Refusal>>> {
    let fallback = call.fallback.clone().filter(|_| cold);
    if call.counts && fallback.is_none() {
        return None;
    }
    let (revision, received) = (call.revision.clone(), call.received);
    Some(Box::pin(async move {
        let after = fallback.as_ref().map_or(Duration::ZERO, |pending| pending.fallback.after);
        until_cold(received, after, || revision.is_cold()).await;
        fallback.map(Admission::Fallback).ok_or(Refusal::Asleep)
    }))
}

/// Waits until `after` has passed since `received`, and then until no pod is ready. Checks every
/// [`COLD_CHECK_INTERVAL`].
async fn until_cold(received: Instant, after: Duration, is_cold: impl Fn() -> bool) {
    loop {
        match after.saturating_sub(received.elapsed()) {
            Duration::ZERO if is_cold() => return,
            Duration::ZERO => tokio::time::sleep(COLD_CHECK_INTERVAL).await,
            left => tokio::time::sleep(left).await,
        }
    }
}

/// Tries pods one after another until one accepts the request. Returns the response and the time at which that attempt
/// began.
async fn send(
    shared: &HoldShared,
    active: Active,
    client: Client<'_>,
    admitted: Admitted,
    mut prepared: Box<Prepared>,
    trace: Option<Arc<Trace>>,
    handoff: Option<Arc<Handoff>>,
) -> Result<(Response<Guarded<PodBody, RequestResources>>, Instant), Refusal> {
    let (revision, peer) = (active.revision(), client.peer);
    let (method, version, length) = prepared.kind();
    let mut sending = Sending::new(client, trace);
    let report_sent = |pool: &Pool, ending, since: Instant| {
        let kind = ExchangeKind::new(&method, version, pool.is_encrypted());
        revision.metrics.sent(&kind, ending, since.elapsed(), length);
    };
    let (mut failed, begun) = (0, Instant::now());
    let pick = async |admitted, since, request: &Prepared| {
        pick(&shared.sink, revision, client.affinity, admitted, || client.waits(request, since)).await
    };
    let mut picked = pick(admitted, sending.since, &prepared).await;
    loop {
        let permit = match picked {
            Ok(permit) => permit,
            Err(refusal) => return Err(hand_off(refusal, handoff.as_deref(), prepared, client, revision)),
        };
        let (permit, address) = at_port(revision, permit, peer.port())?;
        let pool = shared.fallbacks.pools.get(address, revision.key.namespace());
        let released = Instant::now();
        match sending.attempt(revision, prepared, &pool).await? {
            Ok(mut response) => {
                learn_protocol(revision, peer, &mut response);
                report_sent(&pool, Ending::answered(response.status()), released);
                sending.charge(revision, &mut response)?;
                let resources = RequestResources { _permit: Some((permit, active)), _trace: sending.at_pod };
                return Ok((response.map(|body| Guarded::new(body, resources)), released));
            }
            Err(Failure::Final { error, evidence }) => {
                log_failure(revision, &pool, &permit, &error, evidence);
                let is_lost = matches!(error, ProxyError::Pod { .. });
                let refusal = Refusal::from(error);
                report_sent(&pool, Ending::unanswered(if is_lost { LOST } else { refusal.reason() }), released);
                return Err(refusal);
            }
            Err(Failure::Elsewhere { request, cause, evidence }) => {
                prepared = request;
                let is_secondary_port_failure =
                    concerns_only_port(&pool, evidence) && permit.destination().address() != address;
                if is_secondary_port_failure && begun.elapsed() < LISTENS_WITHIN {
                    sending.waiting = None; // Charged again if it has to wait for a permit.
                    let pause = tokio::time::sleep(until_it_listens(begun));
                    picked = if evidence == Evidence::Refused {
                        let admitted = permit.give_up_pod();
                        pause.await;
                        pick(admitted, sending.since, &prepared).await
                    } else {
                        // The pod itself may have gone, and another one may work.
                        pause.await;
                        Ok(permit.prefer_another(&mut rand::rng()))
                    };
                    continue;
                }
                if sending.record_failure(&cause, evidence) {
                    report_sent(&pool, Ending::unanswered(LOST), released);
                }
                if !is_secondary_port_failure {
                    take_out(revision, &pool, &permit, &cause, evidence);
                }
                failed += usize::from(evidence != Evidence::None);
                if is_secondary_port_failure || failed == ATTEMPTS_MAX {
                    return Err(ProxyError::Pod { dest: pool.address, cause }.into());
                }
                sending.prepare_retry(revision, &prepared, evidence)?;
                if evidence == Evidence::LocalShortage {
                    tokio::time::sleep(PAUSE.1).await;
                }
                picked = match evidence {
                    Evidence::None | Evidence::LocalShortage => Ok(permit.prefer_another(&mut rand::rng())),
                    _ => pick(permit.give_up_pod(), sending.since, &prepared).await,
                };
            }
        }
    }
}

fn learn_protocol(revision: &Revision, peer: &Peer, response: &mut Response<PodBody>) {
    if let Some(DetectedProtocol(protocol)) = response.extensions_mut().remove() {
        revision.learn(peer.port(), protocol);
    }
    if let Some(port) = peer.port::<WorkloadPort>() {
        port.speaker.note_http();
    }
}

/// Logs a failure after which the request is not sent again, and takes the pod out of use if the evidence demands it.
fn log_failure(revision: &Revision, pool: &Pool, permit: &Permit, error: &ProxyError, evidence: Evidence) {
    if let ProxyError::Pod { dest, cause } = error {
        // The metrics count every failure (`zeroscale_refused_total`).
        if pool.should_log_failure(Instant::now()) {
            tracing::warn!(revision = %revision.key, pod = %dest, cause, "no answer from pod");
        }
        take_out(revision, pool, permit, cause, evidence);
    }
}

/// Hands a request without a pod off to be relayed, if another activator must serve it. Returns the refusal.
fn hand_off(
    refusal: Refusal,
    handoff: Option<&Handoff>,
    prepared: Box<Prepared>,
    client: Client<'_>,
    revision: &Arc<Revision>,
) -> Refusal {
    if matches!(refusal, Refusal::Elsewhere { .. })
        && let (Some(handoff), Some(request)) = (handoff, prepared.into_original())
    {
        let (peer, revision) = (client.peer.clone(), revision.clone());
        handoff.put(Call::new(request, peer, client.received, client.is_subsequent, revision, handoff.is_relayed));
    }
    refusal
}

/// Returns true if a failed attempt concerns only the port, provided that readiness is not checked on it: the pod does
/// not listen there, or a policy blocks the port.
fn concerns_only_port(pool: &Pool, evidence: Evidence) -> bool {
    match evidence {
        Evidence::Refused => true,
        Evidence::Unavailable => !pool.has_connected(),
        Evidence::None | Evidence::LocalShortage | Evidence::Silent => false,
    }
}

/// Returns the pause before the next connect to a port on which the pod does not listen yet. `since`: start of the
/// wait.
pub(super) fn until_it_listens(since: Instant) -> Duration {
    (since.elapsed() / PAUSE_DIVISOR).clamp(PAUSE.0, PAUSE.1)
}

/// Returns the address that identifies the client: the last forwarded address if the peer is trusted, or else the
/// peer's.
fn client_of(peer: &Peer, fields: &HeaderMap) -> IpAddr {
    let field = fields.get_all("x-forwarded-for").iter().next_back().and_then(|field| field.to_str().ok());
    let address = field.and_then(|field| field.rsplit(',').next()?.trim().parse().ok());
    address.filter(|_| peer.trust.forwarded).unwrap_or_else(|| peer.address.ip())
}

/// Conditions of a wait for another pod.
pub(super) struct Waits {
    /// Time at which the wait for a pod began.
    pub(super) since: Instant,
    /// Memory that the request keeps, in bytes.
    pub(super) bytes: u64,
    pub(super) client: IpAddr,
    /// Disconnect signal of the client, if nothing else detects it.
    pub(super) disconnect: Option<Disconnect>,
    pub(super) counts: bool,
}

impl Waits {
    /// Waits for a permit at the head of the queue.
    async fn wait(self, waiting: Acquire, revision: &Revision) -> Result<Admitted, Refusal> {
        let Self { since, bytes, client, mut disconnect, counts } = self;
        let bound = revision.bounds().wait;
        let held = revision.memory.hold_again(client, bytes);
        let _queued = Queued::new(&revision.metrics);
        let gone = OptionFuture::from(disconnect.as_mut().map(Disconnect::gone));
        tokio::select! {
            biased; // A permit that was granted is used.
            admitted = waiting => admitted.map_err(refusal),
            Some(()) = gone => Err(Refusal::ClientGone),
            () = held.gives_way() => Err(gives_way(revision)),
            () = until_cold(since, Duration::ZERO, || revision.is_cold()), if !counts => Err(Refusal::Asleep),
            () = tokio::time::sleep_until(since + bound.unwrap_or_default()), if bound.is_some() => {
                Err(TimedOut::Wait(bound.unwrap_or_default()).into())
            }
        }
    }
}

/// Picks a pod for an admitted request, the one of `client` if given. If there is none any more, the request waits at
/// the head of the queue under the conditions of `waits`.
pub(super) async fn pick(
    sink: &StatSink,
    revision: &Arc<Revision>,
    client: Option<IpAddr>,
    mut admitted: Admitted,
    waits: impl Fn() -> Waits,
) -> Result<Permit, Refusal> {
    loop {
        let picked = admitted.pick_for(client, &mut rand::rng());
        match picked {
            Ok(permit) => return Ok(permit),
            Err(nowhere) => {
                let (waiting, waits) = (nowhere.requeue(), waits());
                if waits.counts && revision.is_cold() {
                    sink.still_waiting(revision);
                }
                // Boxed, because it is rare.
                admitted = Box::pin(waits.wait(waiting, revision)).await?;
            }
        }
    }
}

/// Returns a permit for a pod that has `port`, the port that the request came to, and the address of that port. If the
/// picked pod lacks it, another pod with a free slot is taken: during a rollout, pods may have different ports.
pub(super) fn at_port(
    revision: &Revision,
    permit: Permit,
    port: Option<&WorkloadPort>,
) -> Result<(Permit, SocketAddr), Refusal> {
    let address_of = |pod: &Destination| revision.address_of(pod, port);
    if let Some(address) = address_of(permit.destination()) {
        return Ok((permit, address));
    }
    let permit = permit.prefer_another_that(|pod| address_of(pod).is_some(), &mut rand::rng());
    let address = address_of(permit.destination()).ok_or(Refusal::NotServed)?;
    Ok((permit, address))
}

/// Guard of a request at a pod, for the gauge of active requests. It holds the revision, which every request has
/// anyway; a handle of the gauge would be one more count shared by all cores.
pub(crate) struct Active(Arc<Revision>);

impl Active {
    pub(super) fn new(revision: Arc<Revision>) -> Self {
        revision.metrics.active.inc();
        Self(revision)
    }

    pub(super) fn revision(&self) -> &Arc<Revision> {
        &self.0
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.metrics.active.dec();
    }
}

/// Takes a pod out of use if the evidence of a failure demands it.
pub(super) fn take_out(revision: &Revision, pool: &Pool, permit: &Permit, cause: &str, evidence: Evidence) {
    if !matches!(evidence, Evidence::None | Evidence::LocalShortage) {
        revision.take_out(permit.destination(), cause);
        if evidence == Evidence::Silent {
            pool.doubt();
        }
        pool.close(); // Its probe and the first request after that make new connections.
    }
}

/// Reports that a request or connection that arrived without a pod has one now.
pub(super) fn report_cold_start(revision: &Revision, received: Instant, released: Instant) {
    let cold = revision.report_wake(received, released, Instant::now());
    revision.metrics.cold_start(&cold);
}

pub(super) fn memory_refusal(full: Full) -> Refusal {
    match full.is_beyond {
        true => Refusal::MemoryFull { bound: full.limit },
        false => Refusal::ShareFull { bound: full.limit, own: full.own },
    }
}

/// Returns the refusal of a waiting request whose memory a smaller workload needs.
pub(super) fn gives_way(revision: &Revision) -> Refusal {
    memory_refusal(revision.memory.full())
}

/// Waits for `work`, or until the memory in `held`, if any, must give way.
pub(super) async fn unless_it_gives_way<T>(
    held: Option<&HeldCharge>,
    share: &Share,
    work: impl Future<Output = T>,
) -> Result<T, Refusal> {
    let gives_way = OptionFuture::from(held.map(HeldCharge::gives_way));
    tokio::select! {
        biased; // A result that is ready counts.
        done = work => Ok(done),
        Some(()) = gives_way => Err(memory_refusal(share.full())),
    }
}

/// Returns the refusal for a request that gets no permit.
pub(super) fn refusal(error: breaker::AdmissionError) -> Refusal {
    match error {
        breaker::AdmissionError::QueueFull { limit } => Refusal::QueueFull { bound: limit },
        breaker::AdmissionError::Failing { reason } => Refusal::Failing { reason: reason.to_string() },
        breaker::AdmissionError::Paused => Refusal::Paused,
        breaker::AdmissionError::Gone => Refusal::Deleted,
        breaker::AdmissionError::Elsewhere => Refusal::Elsewhere { relayed: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: memory gives way only if another workload needs it. A connect without kept memory is not interrupted.
    #[tokio::test(start_paused = true)]
    async fn memory_kept_during_a_connect_gives_way() {
        let memory = Memory::new(Some(1000));
        let (client, share) = (IpAddr::from([127, 0, 0, 1]), memory.share(1));
        let held = share.hold(client, 1000).expect("room");
        let asks = || tokio::time::sleep(LISTENS_WITHIN);
        assert!(unless_it_gives_way(Some(&held), &share, asks()).await.is_ok(), "no other workload needs it");
        let _other = memory.share(2).hold(client, 100).expect("the first workload has more");
        let refused = unless_it_gives_way(Some(&held), &share, asks()).await;
        assert!(matches!(refused, Err(Refusal::ShareFull { bound: 1000, .. })));
        assert!(unless_it_gives_way(None, &share, asks()).await.is_ok());
    }

    /// Goal: a request that still waits at its fallback time falls back then, or soon after the pods are lost.
    #[tokio::test(start_paused = true)]
    async fn a_waiting_request_falls_back_once_the_pods_are_lost() {
        let ms = Duration::from_millis;
        for (ready, lost, from) in [(0, 0, 100), (50, 80, 100), (50, 5000, 5000)] {
            let begun = Instant::now();
            let is_cold = || !(ms(ready)..ms(lost)).contains(&begun.elapsed());
            let falls_back = until_cold(begun, ms(100), is_cold);
            tokio::time::timeout(ms(60_000), falls_back).await.expect("it falls back");
            let waited = begun.elapsed();
            let allowed = ms(from)..=ms(from + 1) + COLD_CHECK_INTERVAL;
            assert!(allowed.contains(&waited), "lost at {lost} ms: after {waited:?}");
        }
    }
}
