//! Connections passed on as bytes: held until their workload has a pod, then connected to it.
//!
//! # The rule
//!
//! To a workload, a connection is like a request. It counts as in progress from its first sign of use
//! ([`activator_net::CarriedProtocol`]) to its end. It takes a permit of the breaker or waits for one in order of
//! arrival, and then picks a pod. So the hard limit is a number of connections per pod, and a workload scales to zero
//! when no connection is open. Each client connection gets a new connection to the pod. A pod that refuses it is taken
//! out of use, and the client connection goes to the next pod, because nothing of it was sent.
//!
//! If the port differs from the one that readiness is checked on, a failed connect says nothing about the pod, which
//! stays in use. If the connect was refused, the pod does not listen there yet: the activator retries in the rhythm of
//! probes. If there was no answer, a policy may block the port or the pod has gone: the activator tries other pods as
//! well, for a while.
//!
//! If another activator holds a workload with a hard limit, the connection is relayed there once, to the same port,
//! with a mark ([`crate::holders::Mark`]). The holder reports when it has a pod. The question whether pods speak first
//! is relayed as well.
//!
//! # Bounds
//!
//! The bounds of requests apply ([`super::hold`]): number and bytes held, time until there is a pod, number of pods
//! tried. A connection beyond a bound is reset and counted in `zeroscale_refused_total` by the same reasons. Once bytes
//! are passed on, only `idle` limits its time.

use super::hold::{
    ATTEMPTS_MAX, Active, LISTENS_WITHIN, PAUSE, Waits, at_port, gives_way, memory_refusal, pick, refusal,
    report_cold_start, take_out, unless_it_gives_way, until_it_listens,
};
use super::report::enter;
use super::{LayerParts, relay};
use crate::holders::{Mark, Relayed, Target};
use crate::metrics::Queued;
use crate::refusal::{Refusal, TimedOut};
use crate::registry::ports::WorkloadPort;
use crate::registry::revision::Revision;
use crate::registry::speaker::Next;
use activator_core::accounting::InFlight;
use activator_core::throttler::{Admitted, Permit};
use activator_net::{
    CONNECTED, Connected, ConnectionGuard, Connector, Ended, Evidence, ProxyError, TcpEnd, evidence_of_connect,
};
use common_api::zeroscaler::PortProtocol;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longest wait for the first byte of a pod that speaks first.
const GREETS_WITHIN: Duration = Duration::from_secs(1);

/// Interval at which a silent connection checks for a pod that can be asked.
const POD_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Memory charged for a held connection: its task.
const HELD_BYTES: u64 = 4 * 1024;

/// Replies to the activator that relays a connection: it must go elsewhere; pods speak first; clients speak first.
const ELSEWHERE: u8 = b'-';
const POD_FIRST: u8 = b'1';
const CLIENT_FIRST: u8 = b'0';
/// Reply that this activator rejects the connection, and has counted it.
const REFUSED: u8 = b'x';

/// Finds pods for the connections of one port of a workload.
#[derive(Clone)]
pub(crate) struct PortConnector {
    pub(crate) parts: Arc<LayerParts>,
    pub(crate) port: Arc<WorkloadPort>,
}

/// Resources of a connection that is passed on: a permit and a pod's slot, or neither if it is relayed.
pub(crate) enum ConnectionResources {
    Pod { _permit: Permit, active: Active, _in_flight: InFlight },
    Sibling { _relayed: Relayed },
}

impl Connector for PortConnector {
    type Guard = ConnectionResources;

    fn takes_relayed(&self) -> bool {
        self.parts.holders.is_some()
    }

    fn is_sibling(&self, address: SocketAddr) -> bool {
        self.parts.holders.as_ref().is_some_and(|holders| holders.knows(address.ip()))
    }

    async fn connect(self, client: SocketAddr, mark: Option<String>) -> Connected<ConnectionResources> {
        let relayed = match mark.map(|mark| self.parts.holders.as_ref()?.relayed(&mark)) {
            Some(None) => return Connected::Refused, // Only activators mark connections.
            relayed => relayed.flatten(),
        };
        if relayed.as_ref().is_some_and(|mark| mark.asks_speaker) {
            return self.answer().await;
        }
        let client = relayed.as_ref().map_or(client, |mark| mark.client);
        match self.connect_or_relay(client, relayed.is_some()).await {
            Ok((end, resources)) => Connected::To(end, resources),
            Err(Refusal::Elsewhere { .. }) if relayed.is_some() => Connected::Reply(ELSEWHERE),
            Err(refusal) => {
                let reason = refusal.reason();
                tracing::debug!(workload = %self.port.workload(), %client, reason, error = %refusal, "connection refused");
                if !matches!(refusal, Refusal::Elsewhere { .. }) {
                    self.parts.metrics.refused.count(reason);
                }
                if relayed.is_some() { Connected::Reply(REFUSED) } else { Connected::Refused }
            }
        }
    }

    async fn waits_for_pod(&self) {
        while !self.port.speaker.is_pod() {
            let Some(revision) = self.parts.registry.awake(&self.port) else {
                sleep(POD_CHECK_INTERVAL).await;
                continue;
            };
            let pods = revision.pods_hash();
            match self.port.speaker.next(pods) {
                Next::PassOn => return,
                Next::Wait => std::future::pending().await,
                Next::Later => sleep(PAUSE.1).await,
                Next::Ask(asking) => match self.ask(&revision, false).await {
                    Some(is_pod) => asking.report(is_pod, pods),
                    None => {
                        drop(asking);
                        sleep(POD_CHECK_INTERVAL).await;
                    }
                },
            }
        }
    }

    fn record_silent_disconnect(&self) {
        let registry = &self.parts.registry;
        if self.port.speaker.is_known() || registry.awake(&self.port).is_some() {
            return;
        }
        if let Some(revision) = registry.by_port(&self.port)
            && let Some(port) = self.undeclared_port(&revision)
        {
            revision.observations.silent(port);
            self.parts.sink.include_in_report(&revision);
        }
    }
}

impl ConnectionGuard for ConnectionResources {
    fn idle(&self) -> Option<Duration> {
        match self {
            Self::Pod { active, .. } => active.revision().bounds().idle,
            Self::Sibling { .. } => None, // The holder enforces it.
        }
    }

    fn ended(self, how: Ended, [sent, received]: [u64; 2]) {
        let Self::Pod { active, .. } = &self else { return };
        let revision = active.revision();
        tracing::debug!(revision = %revision.key, ?how, sent, received, "connection ended");
        revision.metrics.connection_ended(how);
    }
}

impl PortConnector {
    /// Asks a pod whether it speaks first; returns `None` if no pod could be asked. A question from another activator
    /// is not relayed again.
    async fn ask(&self, revision: &Arc<Revision>, is_relayed: bool) -> Option<bool> {
        let target = revision.link().as_ref().and_then(|link| link.target(is_relayed));
        if let Some(target) = target {
            if is_relayed {
                return None;
            }
            let client = SocketAddr::from(([0, 0, 0, 0], 0)); // No client is involved.
            let (_, reply) = self.connect_to_sibling(revision, &target, client, Instant::now(), true).await.ok()?;
            return match reply {
                POD_FIRST => Some(true),
                CLIENT_FIRST => Some(false),
                _ => None,
            };
        }
        let mut acquire = revision.throttler.acquire();
        let Poll::Ready(Ok(admitted)) = futures::poll!(&mut acquire) else { return None };
        let permit = admitted.pick(&mut rand::rng()).ok()?;
        // Permit and slot are released at once, because nothing is served.
        let (_, target) = at_port(revision, permit, Some(&self.port)).ok()?;
        let pool = self.parts.pools.get(target, revision.key.namespace());
        let is_pod = pool.speaks_first(GREETS_WITHIN).await.ok()?;
        if is_pod {
            tracing::info!(workload = %revision.key, pod = %target, "the pods speak first: the port carries tcp");
        }
        Some(is_pod)
    }

    /// Returns the Service's number of the port if its protocol is not known.
    fn undeclared_port(&self, revision: &Revision) -> Option<u16> {
        let live = revision.live();
        let declared = self.port.among(&live.spec.ports)?;
        (declared.protocol == PortProtocol::Auto && declared.spoken.is_none()).then_some(declared.id.port)
    }

    /// Answers another activator's question whether pods speak first.
    async fn answer(&self) -> Connected<ConnectionResources> {
        let revision = self.parts.registry.by_port(&self.port);
        let speaks_first = match &revision {
            Some(revision) => self.ask(revision, true).await,
            None => None,
        };
        Connected::Reply(match speaks_first {
            Some(true) => POD_FIRST,
            Some(false) => CLIENT_FIRST,
            None => ELSEWHERE,
        })
    }

    /// Connects to a pod, or to the holder of the workload.
    async fn connect_or_relay(
        &self,
        client: SocketAddr,
        is_relayed: bool,
    ) -> Result<(TcpEnd, ConnectionResources), Refusal> {
        let (received, mut pause) = (Instant::now(), relay::PAUSE.0);
        loop {
            let known = self.parts.registry.by_port(&self.port);
            // The revision may be known here a little later than at the activator that relays.
            let revision = known.ok_or(if is_relayed { ELSEWHERE_REFUSED } else { Refusal::NotServed })?;
            let target = revision.link().as_ref().and_then(|link| link.target(is_relayed));
            let Some(target) = target else {
                match self.find_pod(&revision, client.ip(), received).await {
                    Err(Refusal::Elsewhere { .. }) if is_relayed => return Err(ELSEWHERE_REFUSED),
                    Err(Refusal::Elsewhere { .. }) => {
                        sleep(pause).await; // The holder will be known soon.
                        continue;
                    }
                    found => return found,
                }
            };
            if is_relayed {
                return Err(ELSEWHERE_REFUSED);
            }
            let bound = revision.bounds().wait.unwrap_or(Duration::MAX);
            let left = bound.saturating_sub(received.elapsed());
            let relayed = target.enter();
            self.parts.metrics.relayed.inc();
            match timeout(left, self.connect_to_sibling(&revision, &target, client, received, false)).await {
                Ok(Ok((end, CONNECTED))) => return Ok((end, ConnectionResources::Sibling { _relayed: relayed })),
                Ok(Ok((_, REFUSED))) => return Err(Refusal::Elsewhere { relayed: false }),
                Ok(_) => {}
                Err(_) => return Err(TimedOut::Wait(bound).into()),
            }
            // The holder turned the connection away, or is gone and has received nothing of it.
            relay::wait(&mut pause).await;
        }
    }

    /// Connects to another activator and returns its reply.
    async fn connect_to_sibling(
        &self,
        revision: &Revision,
        target: &Target,
        client: SocketAddr,
        received: Instant,
        asks_speaker: bool,
    ) -> std::io::Result<(TcpEnd, u8)> {
        let (workload, age) = (revision.key.clone(), received.elapsed());
        let mark = Mark { client, tls: false, age, expects_continue: false, workload, asks_speaker };
        let address = SocketAddr::new(target.address.ip(), self.port.number());
        self.parts.pools.of_activator(address).connect_marked(&mark.text(&target.key)).await
    }

    /// Connects to a pod within the workload's wake timeout.
    async fn find_pod(
        &self,
        revision: &Arc<Revision>,
        client: IpAddr,
        received: Instant,
    ) -> Result<(TcpEnd, ConnectionResources), Refusal> {
        let in_flight = enter(&self.parts.sink, revision, None);
        if self.port.speaker.is_pod()
            && let Some(port) = self.undeclared_port(revision)
        {
            revision.observations.pod_speaks_first(port);
        }
        let bound = revision.bounds().wait.unwrap_or(Duration::MAX);
        let connected = timeout(bound, self.connect_to_pod(revision.clone(), in_flight, received, client)).await;
        let connected = connected.unwrap_or_else(|_| {
            let refusal = Refusal::from(TimedOut::Wait(bound));
            Err(match revision.wake_refused() {
                Some(why) => refusal.unwoken(&why),
                None => refusal,
            })
        });
        connected.inspect_err(|refusal| revision.record_refusal(received, refusal))
    }

    /// Waits for a permit, and connects to one pod after another until one accepts.
    async fn connect_to_pod(
        &self,
        revision: Arc<Revision>,
        in_flight: InFlight,
        received: Instant,
        client: IpAddr,
    ) -> Result<(TcpEnd, ConnectionResources), Refusal> {
        let (address, client) = (client, revision.live().spec.backend.client_affinity.then_some(client));
        let (admitted, cold) = admit(&revision, address).await?;
        let active = Active::new(revision.clone());
        // The task that holds the connection detects a disconnect of the client.
        let waits = || Waits { since: received, bytes: HELD_BYTES, client: address, disconnect: None, counts: true };
        let mut picked = pick(&self.parts.sink, &revision, client, admitted, waits).await?;
        let (mut failed, mut waiting, mut silent) = (0, None, None);
        loop {
            let released = Instant::now();
            let (permit, target) = at_port(&revision, picked, Some(&self.port))?;
            let pod = permit.destination().address();
            // Each port has its own pool: a timeout on one port says nothing about the other.
            let pool = self.parts.pools.get(target, revision.key.namespace());
            let connecting = unless_it_gives_way(waiting.as_ref(), &revision.memory, pool.connect_tcp());
            let error = match connecting.await? {
                Ok(end) => {
                    if cold {
                        report_cold_start(&revision, received, released);
                    }
                    return Ok((end, ConnectionResources::Pod { _permit: permit, active, _in_flight: in_flight }));
                }
                Err(error) => error,
            };
            let evidence = evidence_of_connect(&error);
            let cause = format!("connect: {error}");
            // The pod does not listen yet on a port that its readiness does not cover.
            if target != pod && evidence == Evidence::Refused {
                (silent, waiting) = (None, None);
                let admitted = permit.give_up_pod();
                sleep(until_it_listens(received)).await;
                picked = pick(&self.parts.sink, &revision, client, admitted, waits).await?;
                continue;
            }
            // A policy blocks the port, or the pod itself has gone and another one may work.
            if target != pod && evidence == Evidence::Unavailable {
                if silent.get_or_insert(released).elapsed() >= LISTENS_WITHIN {
                    // The pod's own port tells whether the pod still exists.
                    self.parts.pools.get(pod, revision.key.namespace()).doubt();
                    return Err(ProxyError::Pod { dest: target, cause }.into());
                }
                sleep(until_it_listens(received)).await;
                picked = permit.prefer_another(&mut rand::rng());
                continue;
            }
            take_out(&revision, &pool, &permit, &cause, evidence);
            // Without room for this connect, the attempt has already waited: only the time limits such attempts.
            failed += usize::from(evidence != Evidence::None);
            if failed == ATTEMPTS_MAX {
                return Err(ProxyError::Pod { dest: pod, cause }.into());
            }
            match evidence {
                Evidence::None => _ = waiting.get_or_insert_with(|| revision.memory.hold_again(address, HELD_BYTES)),
                Evidence::LocalShortage => sleep(PAUSE.1).await,
                Evidence::Unavailable | Evidence::Silent | Evidence::Refused => {}
            }
            let picking = pick(&self.parts.sink, &revision, client, permit.give_up_pod(), waits);
            picked = unless_it_gives_way(waiting.as_ref(), &revision.memory, picking).await??;
        }
    }
}

/// Refusal that turns a relayed connection away.
const ELSEWHERE_REFUSED: Refusal = Refusal::Elsewhere { relayed: true };

/// Waits for a permit. Also returns whether there was no pod when the connection came.
async fn admit(revision: &Revision, client: IpAddr) -> Result<(Admitted, bool), Refusal> {
    let mut acquire = revision.throttler.acquire();
    if let Poll::Ready(admitted) = futures::poll!(&mut acquire) {
        return Ok((admitted.map_err(refusal)?, false));
    }
    let cold = revision.is_cold();
    let held = revision.memory.hold(client, HELD_BYTES).map_err(memory_refusal)?;
    let _queued = Queued::new(&revision.metrics);
    let since = Instant::now();
    let admitted = tokio::select! {
        biased; // A permit that was granted is used.
        admitted = acquire => admitted,
        () = held.gives_way() => return Err(gives_way(revision)),
    };
    revision.metrics.held(since.elapsed());
    Ok((admitted.map_err(refusal)?, cold))
}
