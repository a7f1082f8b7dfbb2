//! A revision's addresses: from what Kubernetes lists to what requests may be sent to.
//!
//! [`Backends`] is a state machine without I/O. Events go in (a listing, a probe's outcome, a failed request, time),
//! actions come out (send these probes, publish this set), and [`Backends::due`] says when it wants to be called next.
//!
//! # The rule
//!
//! Route by address, believe by probe, forget by failure. Every listed address is probed from the moment it is known,
//! ready or not, on a [schedule] of its own: one that hangs delays no other. A pass is believed until the
//! address disappears, a request fails there, or Kubernetes withdraws its readiness. What counts as proof is [`Proof`].
//! Every change of the proven set is published once.
//!
//! # Odd cases
//!
//! - Kubernetes calls an address ready: it is probed at once, even if an earlier probe still hangs.
//! - Kubernetes withdraws readiness from a pod in use: it stays in use until one probe decides. (A drain answers 503.)
//!   One that passes is believed for a second: then the next one decides, until Kubernetes calls the pod ready again.
//! - A rollout changes what is asked, and pods of the former template fail it while Kubernetes calls them ready: after
//!   a second in which their kernels answered, its word counts ([`Proof::ProbeThenReady`]). Silence is no answer, nor
//!   is 502 or 503, nor a refusal by the port that takes the requests.
//! - A request failed: out at once, probed at once; probes sent before count no more.
//! - An address that is removed and comes back starts anew.
//! - Revision deleted: list nothing.
//! - No address at all: published as the empty set, once.
//! - Mesh mode `enabled` ends: no pod was asked under it, so each is asked as if it had just been listed. The cluster IP
//!   stays in use meanwhile, where it still may be used.
//!
//! # Better than Knative
//!
//! No round waits for its slowest probe, no tick of 200 ms lies between two probes, equal sets are not published again,
//! deletion is noticed, and the [cluster IP](fallback) is no one-way street.
//!
//! # Not here
//!
//! Sending probes, and keeping the connection that passed for the first request: the shell does. Terminating
//! addresses are not to be listed.

mod fallback;
mod pod;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub use self::fallback::Fallback;
use self::fallback::{FallbackState, PODS_PAUSE};
use self::pod::{ProbedPod, Step};
use self::schedule::RoundTrip;
pub use self::schedule::{Timeouts, answer_min};
use crate::destination::{Destination, Destinations};

/// When an address is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A probe passed, whatever Kubernetes says. The usual case in Knative mode.
    Probe,
    /// A probe passed; or Kubernetes calls it ready, and for a second its kernel has answered probes that fail: they are
    /// the readiness probe of the pods' template, which may have been another when this one was made.
    ProbeThenReady,
    /// A probe passed, and Kubernetes calls it ready: for a queue-proxy whose probe does not cover an exec readiness
    /// probe or a startup probe.
    ProbeAndReady,
    /// Kubernetes calls it ready; nothing is sent. For exec probes, and by annotation.
    Ready,
    /// Kubernetes calls it ready, or a probe passed: mesh mode `disabled`.
    ReadyOrProbe,
}

/// What a revision's addresses are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// When an address is believed.
    pub proof: Proof,
    /// Whether the cluster IP may stand in for the pods.
    pub fallback: Fallback,
    /// How long a connected probe may wait for its answer (`PROBE_TIMEOUT`).
    pub answer_timeout: Duration,
}

impl Default for Rules {
    /// Standalone: probes alone, no cluster IP, a second for the answer (Kubernetes' own default).
    fn default() -> Self {
        Self { proof: Proof::Probe, fallback: Fallback::Never, answer_timeout: Duration::from_secs(1) }
    }
}

/// Numbers the probes of one [`Backends`]; a later one is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The whole list of addresses, whenever it may have changed. An address in both sets is ready.
    Listed {
        /// Called ready by Kubernetes.
        ready: BTreeSet<Destination>,
        /// Not, or not yet.
        not_ready: BTreeSet<Destination>,
    },
    /// The private Service's cluster IP and port, or that there is none.
    ClusterIp(Option<Destination>),
    /// A probe is over. Every [`Action::Probe`] must come back as one, whatever becomes of it.
    Probed {
        /// Where the probe was sent.
        destination: Destination,
        /// Which probe it was.
        attempt: Attempt,
        /// How it ended.
        outcome: Outcome,
    },
    /// A request could not be delivered: connection refused, or bytes not acknowledged. Never for a slow answer.
    Failed(Destination),
    /// The time that [`Backends::due`] named has come.
    Due,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed. The time that the connection took, if one was made for it.
    Passed(Option<Duration>),
    /// It was answered, but not as it should be: with a status that a mesh does not give (not 502 or 503).
    Refuted,
    /// It was not answered, or with 502 or 503.
    Unanswered,
    /// The connection was refused, after this time: nobody listens yet, but it is known how far away.
    Refused(Duration),
    /// The same, by a port that takes no requests.
    RefusedBeside(Duration),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a probe.
    Probe {
        /// Where.
        destination: Destination,
        /// To come back in [`Event::Probed`].
        attempt: Attempt,
        /// How long it may take.
        timeouts: Timeouts,
    },
    /// Requests may be sent to these from now on, and to no others.
    Publish(Destinations),
}

/// One revision's addresses. See the module's text.
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
    /// Nothing listed, nothing published.
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

    /// So many addresses, of all revisions, are [eager](Self::eager): from the next event on, they share the probe
    /// budget.
    pub fn share_budget_among(&mut self, sharers: usize) {
        self.sharers = sharers;
    }

    /// Addresses that are waited for, and asked more often than every 50 ms.
    pub fn eager(&self, now: Instant) -> usize {
        if self.proof() == Proof::Ready {
            return 0; // Nothing is sent.
        }
        self.pods.values().filter(|pod| pod.is_eager(now)).count()
    }

    /// Moves on, and says what to do, probes first.
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
                self.each(now, &mut actions, |at, pod, proof, attempt| {
                    if *at == destination { pod.failed(proof, attempt, now) } else { Step::Nothing }
                });
            }
            Event::Due => {}
        }
        self.each(now, &mut actions, |_, pod, proof, attempt| pod.tick(proof, attempt, now));
        self.step_fallback(now, &mut actions);
        self.publish(&mut actions);
        actions
    }

    /// When to call with [`Event::Due`], if nothing else happens first.
    pub fn due(&self) -> Option<Instant> {
        self.pods.values().filter_map(ProbedPod::due).chain(self.fallback.due()).min()
    }

    /// Changes how addresses are judged, from the next event on. What is believed already stays believed, unless the
    /// new proof asks for readiness that is not there, or nobody was asked so far ([`Fallback::Always`]): pods were not in
    /// use then. A cluster IP that was goes on until one of them is, if the rules permit it.
    pub fn set_rules(&mut self, rules: Rules, now: Instant) -> Vec<Action> {
        let before = std::mem::replace(&mut self.rules, rules);
        if rules.fallback == Fallback::Never {
            self.fallback = FallbackState::Off;
        }
        let mut actions = Vec::new();
        if before.fallback == Fallback::Always && rules.fallback != Fallback::Always {
            self.each(now, &mut actions, |_, pod, proof, attempt| pod.begin_anew(proof, attempt, now));
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

    /// Addresses that requests may be sent to directly.
    pub fn healthy(&self) -> impl Iterator<Item = &Destination> {
        self.pods.iter().filter(|(_, pod)| pod.is_healthy()).map(|(at, _)| at)
    }

    /// Addresses listed.
    pub fn listed_count(&self) -> usize {
        self.pods.len()
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
        self.each(now, actions, |at, pod, proof, attempt| pod.readiness(ready.contains(at), proof, attempt, now));
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

    fn probed(&mut self, destination: &Destination, attempt: Attempt, outcome: Outcome, now: Instant) {
        if let Outcome::Passed(Some(connect)) | Outcome::Refused(connect) | Outcome::RefusedBeside(connect) = outcome {
            self.round_trip.measure(connect);
        }
        if self.cluster_ip.as_ref() == Some(destination) {
            self.fallback.probed(attempt, matches!(outcome, Outcome::Passed(_)), now, self.sharers);
        }
        let proof = self.proof();
        let slowest = self.fallback.is_on().then_some(PODS_PAUSE);
        let Some(pod) = self.pods.get_mut(destination) else { return };
        match outcome {
            Outcome::Passed(_) => pod.passed(proof, attempt, now),
            failure => pod.failed_probe(proof, attempt, failure, now, self.sharers, slowest),
        }
    }

    /// Lets every pod take a step, and sends the probes that come of it.
    fn each(
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

    /// Publishes the set that follows from the state, if it is not the one published last.
    fn publish(&mut self, actions: &mut Vec<Action>) {
        let destinations = match (&self.fallback, &self.cluster_ip) {
            (FallbackState::On, Some(cluster_ip)) => Destinations::ClusterIp {
                destination: cluster_ip.clone(),
                ready: self.pods.values().filter(|pod| pod.ready).count() as u32,
            },
            _ if self.rules.fallback == Fallback::Always => Destinations::NONE,
            _ => Destinations::Pods(self.healthy().cloned().collect()),
        };
        // At first, that nothing is proven yet is no news; that nothing is listed is.
        let news = match &self.published {
            Some(published) => *published != destinations,
            None => !destinations.is_empty() || self.pods.is_empty(),
        };
        if news {
            self.published = Some(destinations.clone());
            actions.push(Action::Publish(destinations));
        }
    }

    fn probe(&self, at: &Destination, attempt: Attempt, waited: Duration) -> Action {
        let timeouts = self.round_trip.timeouts(waited, self.rules.answer_timeout);
        Action::Probe { destination: at.clone(), attempt, timeouts }
    }

    /// With mesh mode `enabled` pods are never asked.
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
