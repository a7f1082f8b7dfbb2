//! Turns the addresses of a revision that Kubernetes lists into the destinations of requests.
//!
//! [`Backends`] is a state machine without I/O. Its inputs are events (a listing, a probe result, a failed request,
//! time). Its outputs are actions (probes to send, sets to publish), and [`Backends::due`] returns the time of its next
//! call.
//!
//! # The rule
//!
//! Every listed address is probed from the moment it is known, ready or not, on its own [schedule]: a hanging probe
//! delays no other address. An address that has passed stays in use until it disappears, a request fails there, or
//! Kubernetes withdraws its readiness. [`Proof`] defines what counts as proof. Every change of the proven set is
//! published once.
//!
//! # Edge cases
//!
//! - Kubernetes reports an address as ready: it is probed at once, even if an earlier probe still hangs.
//! - Kubernetes withdraws the readiness of a pod in use: it stays in use until one probe decides. (A draining pod
//!   responds with 503.) A pass is trusted for a second. Then the next probe decides, until Kubernetes reports the pod
//!   as ready again.
//! - A rollout changes the probe, and pods of the former template fail it although Kubernetes reports them as ready.
//!   After a second in which their kernels responded, Kubernetes' report counts ([`Proof::ProbeThenReady`]). A missing
//!   response, 502, 503, or a connection refused by the port that takes requests does not count for this.
//! - A request fails: its pod is removed at once and probed at once. Passes of probes sent before are ignored.
//! - An address that is removed and returns starts from scratch.
//! - The revision is deleted: report an empty list.
//! - No address at all is published as the empty set, once.
//! - Mesh mode `enabled` ends: pods were not probed under it, so each is treated as newly listed. The cluster IP stays
//!   in use meanwhile, if that is still allowed.
//!
//! # Better than Knative
//!
//! No round waits for its slowest probe, there is no tick of 200 ms between two probes, equal sets are not published
//! again, deletion is noticed, and the [cluster IP](fallback) fallback can end.
//!
//! # Not here
//!
//! Sending probes, and keeping the connection of a passed probe for the first request: both belong to the shell.
//! Terminating addresses must not be listed.

mod fallback;
mod pod;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub use self::fallback::Fallback;
use self::fallback::{FallbackState, POD_PAUSE};
use self::pod::{ProbedPod, Step};
use self::schedule::RoundTrip;
pub use self::schedule::{Timeouts, min_response_time};
use crate::destination::{Destination, Destinations};

/// Condition under which an address may receive requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A probe passed, whatever Kubernetes reports. The usual case in Knative mode.
    Probe,
    /// A probe passed. Or Kubernetes reports the pod as ready, and its kernel has responded for a second to probes that
    /// fail: the probe is the readiness probe of the pods' template, which may have differed when this pod was created.
    ProbeThenReady,
    /// A probe passed, and Kubernetes reports the pod as ready. For a queue-proxy whose probe does not cover an exec
    /// readiness probe or a startup probe.
    ProbeAndReady,
    /// Kubernetes reports the pod as ready; no probe is sent. For exec probes, and by annotation.
    Ready,
    /// Kubernetes reports the pod as ready, or a probe passed: mesh mode `disabled`.
    ReadyOrProbe,
}

/// Rules for the addresses of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Condition under which an address may receive requests.
    pub proof: Proof,
    /// Condition under which the cluster IP may replace the pods.
    pub fallback: Fallback,
    /// Maximum time that a connected probe waits for its response (`PROBE_TIMEOUT`).
    pub answer_timeout: Duration,
}

impl Default for Rules {
    /// Returns the rules of standalone mode: probes alone, no cluster IP, a second for the response (Kubernetes' own
    /// default).
    fn default() -> Self {
        Self { proof: Proof::Probe, fallback: Fallback::Never, answer_timeout: Duration::from_secs(1) }
    }
}

/// Number of a probe, unique within one [`Backends`]. Later probes have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u64);

/// Input of the state machine.
#[derive(Clone, Debug)]
pub enum Event {
    /// The complete list of addresses, whenever it may have changed. An address in both sets is ready.
    Listed {
        /// Addresses that Kubernetes reports as ready.
        ready: BTreeSet<Destination>,
        /// Addresses that are not ready.
        not_ready: BTreeSet<Destination>,
    },
    /// The private Service's cluster IP and port, or `None` if it has none.
    ClusterIp(Option<Destination>),
    /// A probe has ended. Every [`Action::Probe`] must be followed by this event, whatever its result.
    Probed {
        /// Destination of the probe.
        destination: Destination,
        /// Number of the probe.
        attempt: Attempt,
        /// Result of the probe.
        outcome: ProbeOutcome,
    },
    /// A request could not be delivered: connection refused, or bytes not acknowledged. Never for a slow response.
    Failed(Destination),
    /// The time returned by [`Backends::due`] has come.
    Due,
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The probe passed. Contains the connect time if a new connection was made.
    Passed(Option<Duration>),
    /// The response was wrong, with a status that a mesh does not return (not 502 or 503).
    WrongResponse,
    /// There was no response, or it was 502 or 503.
    Unanswered,
    /// The connection was refused after this time. No process listens yet, but the round trip is known.
    Refused(Duration),
    /// The connection was refused after this time, by a probe port other than the port that takes requests.
    ProbePortRefused(Duration),
}

/// Output of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a probe.
    Probe {
        /// Destination of the probe.
        destination: Destination,
        /// Number to return in [`Event::Probed`].
        attempt: Attempt,
        /// Maximum duration of the probe.
        timeouts: Timeouts,
    },
    /// Send requests to these destinations only.
    Publish(Destinations),
}

/// Addresses of one revision. See the module documentation.
#[derive(Debug)]
pub struct Backends {
    rules: Rules,
    pods: BTreeMap<Destination, ProbedPod>,
    cluster_ip: Option<Destination>,
    fallback: FallbackState,
    round_trip: RoundTrip,
    sharers: usize,
    next_attempt: u64,
    published: Option<Destinations>,
}

impl Backends {
    /// Creates a state with nothing listed and nothing published.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            pods: BTreeMap::new(),
            cluster_ip: None,
            fallback: FallbackState::Off,
            round_trip: RoundTrip::default(),
            sharers: 0,
            next_attempt: 0,
            published: None,
        }
    }

    /// Sets the number of [eager](Self::eager) addresses of all revisions. From the next event on, they share the probe
    /// budget.
    pub fn share_budget_among(&mut self, sharers: usize) {
        self.sharers = sharers;
    }

    /// Returns the number of addresses that are waited for and probed more often than every 50 ms.
    pub fn eager(&self, now: Instant) -> usize {
        if self.proof() == Proof::Ready {
            return 0; // No probes are sent.
        }
        self.pods.values().filter(|pod| pod.is_eager(now)).count()
    }

    /// Processes an event and returns the resulting actions, probes first.
    pub fn handle(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Listed { ready, not_ready } => self.listed(&ready, &not_ready, now, &mut actions),
            Event::ClusterIp(cluster_ip) => {
                if self.cluster_ip != cluster_ip {
                    self.cluster_ip = cluster_ip;
                    self.fallback = FallbackState::Off;
                }
            }
            Event::Probed { destination, attempt, outcome } => self.probed(&destination, attempt, outcome, now),
            Event::Failed(destination) => {
                self.step_pods(now, &mut actions, |at, pod, proof, attempt| {
                    if *at == destination { pod.failed(proof, attempt, now) } else { Step::Nothing }
                });
            }
            Event::Due => {}
        }
        self.step_pods(now, &mut actions, |_, pod, proof, attempt| pod.tick(proof, attempt, now));
        self.step_fallback(now, &mut actions);
        self.publish(&mut actions);
        actions
    }

    /// Returns the time at which to call with [`Event::Due`] if no other event comes first.
    pub fn due(&self) -> Option<Instant> {
        self.pods.values().filter_map(ProbedPod::due).chain(self.fallback.due()).min()
    }

    /// Changes the rules from the next event on. A proven address stays proven, with two exceptions: the new proof
    /// requires readiness that is missing, or pods were not probed so far ([`Fallback::Always`]) and therefore not in
    /// use. A cluster IP in use stays in use until a pod is, if the rules permit it.
    pub fn set_rules(&mut self, rules: Rules, now: Instant) -> Vec<Action> {
        let before = std::mem::replace(&mut self.rules, rules);
        if rules.fallback == Fallback::Never {
            self.fallback = FallbackState::Off;
        }
        let mut actions = Vec::new();
        if before.fallback == Fallback::Always && rules.fallback != Fallback::Always {
            self.step_pods(now, &mut actions, |_, pod, proof, attempt| pod.restart(proof, attempt, now));
        } else if before.proof != rules.proof {
            let (ready, not_ready) = self.pods.iter().partition::<Vec<_>, _>(|(_, pod)| pod.ready);
            let keys = |pods: Vec<(&Destination, &ProbedPod)>| pods.into_iter().map(|(at, _)| at.clone()).collect();
            let (ready, not_ready): (BTreeSet<_>, BTreeSet<_>) = (keys(ready), keys(not_ready));
            self.pods.retain(|_, pod| pod.is_healthy() && (pod.ready || !rules.proof.needs_readiness()));
            self.listed(&ready, &not_ready, now, &mut actions);
        }
        self.step_fallback(now, &mut actions);
        self.publish(&mut actions);
        actions
    }

    /// Returns the addresses that requests may be sent to directly.
    pub fn healthy(&self) -> impl Iterator<Item = &Destination> {
        self.pods.iter().filter(|(_, pod)| pod.is_healthy()).map(|(at, _)| at)
    }

    fn listed(
        &mut self,
        ready: &BTreeSet<Destination>,
        not_ready: &BTreeSet<Destination>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        self.pods.retain(|at, _| ready.contains(at) || not_ready.contains(at));
        if self.pods.is_empty() {
            self.fallback = FallbackState::Off;
        }
        self.step_pods(now, actions, |at, pod, proof, attempt| pod.readiness(ready.contains(at), proof, attempt, now));
        for at in ready.union(not_ready) {
            if !self.pods.contains_key(at) {
                let attempt = self.take_attempt();
                let (pod, step) = ProbedPod::listed(ready.contains(at), self.proof(), attempt, now);
                if step == Step::Probe {
                    actions.push(self.probe(at, attempt, Duration::ZERO));
                }
                self.pods.insert(at.clone(), pod);
            }
        }
    }

    fn probed(&mut self, destination: &Destination, attempt: Attempt, outcome: ProbeOutcome, now: Instant) {
        if let ProbeOutcome::Passed(Some(connect))
        | ProbeOutcome::Refused(connect)
        | ProbeOutcome::ProbePortRefused(connect) = outcome
        {
            self.round_trip.measure(connect);
        }
        if self.cluster_ip.as_ref() == Some(destination) {
            self.fallback.probed(attempt, matches!(outcome, ProbeOutcome::Passed(_)), now, self.sharers);
        }
        let proof = self.proof();
        let slowest = self.fallback.is_on().then_some(POD_PAUSE);
        let Some(pod) = self.pods.get_mut(destination) else { return };
        match outcome {
            ProbeOutcome::Passed(_) => pod.passed(proof, attempt, now),
            failure => pod.failed_probe(proof, attempt, failure, now, self.sharers, slowest),
        }
    }

    /// Applies `step` to every pod, and sends the resulting probes.
    fn step_pods(
        &mut self,
        now: Instant,
        actions: &mut Vec<Action>,
        mut step: impl FnMut(&Destination, &mut ProbedPod, Proof, Attempt) -> Step,
    ) {
        let (proof, rules, round_trip) = (self.proof(), self.rules, self.round_trip);
        for (at, pod) in &mut self.pods {
            let attempt = Attempt(self.next_attempt);
            if step(at, pod, proof, attempt) == Step::Probe {
                self.next_attempt += 1;
                let timeouts = round_trip.timeouts(pod.waited(now), rules.answer_timeout);
                actions.push(Action::Probe { destination: at.clone(), attempt, timeouts });
            }
        }
    }

    fn step_fallback(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let any_healthy = self.healthy().next().is_some();
        let wanted = self.cluster_ip.is_some()
            && !self.pods.is_empty()
            && match self.rules.fallback {
                Fallback::Never => false,
                Fallback::Always => true,
                Fallback::WhenUnaddressable => {
                    !any_healthy && self.pods.values().all(|pod| pod.maybe_mesh == Some(true))
                }
            };
        if self.fallback.is_on() && any_healthy && self.rules.fallback != Fallback::Always {
            self.fallback = FallbackState::Off;
        }
        let attempt = Attempt(self.next_attempt);
        if let (Some(waited), Some(at)) = (self.fallback.step(wanted, attempt, now), self.cluster_ip.clone()) {
            self.next_attempt += 1;
            actions.push(self.probe(&at, attempt, waited));
        }
    }

    /// Publishes the current set unless it equals the last published one.
    fn publish(&mut self, actions: &mut Vec<Action>) {
        let destinations = match (&self.fallback, &self.cluster_ip) {
            (FallbackState::On, Some(cluster_ip)) => Destinations::ClusterIp {
                destination: cluster_ip.clone(),
                ready: self.pods.values().filter(|pod| pod.ready).count() as u32,
            },
            _ if self.rules.fallback == Fallback::Always => Destinations::NONE,
            _ => Destinations::Pods(self.healthy().cloned().collect()),
        };
        // The first published set may be empty only if no address is listed, not while addresses are merely unproven.
        let is_changed = match &self.published {
            Some(published) => *published != destinations,
            None => !destinations.is_empty() || self.pods.is_empty(),
        };
        if is_changed {
            self.published = Some(destinations.clone());
            actions.push(Action::Publish(destinations));
        }
    }

    fn probe(&self, at: &Destination, attempt: Attempt, waited: Duration) -> Action {
        let timeouts = self.round_trip.timeouts(waited, self.rules.answer_timeout);
        Action::Probe { destination: at.clone(), attempt, timeouts }
    }

    /// Returns the effective proof. With mesh mode `enabled` pods are never probed.
    fn proof(&self) -> Proof {
        if self.rules.fallback == Fallback::Always { Proof::Ready } else { self.rules.proof }
    }

    fn take_attempt(&mut self) -> Attempt {
        let attempt = Attempt(self.next_attempt);
        self.next_attempt += 1;
        attempt
    }
}

impl Proof {
    fn needs_readiness(self) -> bool {
        matches!(self, Self::Ready | Self::ProbeAndReady)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
