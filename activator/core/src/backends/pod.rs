//! State of one address: whether it may receive requests, and the time of its next probe. Independent of other
//! addresses.

use std::time::{Duration, Instant};

use super::schedule::{is_eager, pause};
use super::{Attempt, ProbeOutcome, Proof};

#[derive(Debug)]
pub(super) struct ProbedPod {
    pub(super) ready: bool,
    /// True if Kubernetes reported the pod as ready before, and no longer does.
    withdrawn: bool,
    /// Time since which Kubernetes reports the pod as ready while its kernel responds to probes that fail.
    contradicted: Option<Instant>,
    /// Time since which the pod is waited for, or is being probed after its readiness was withdrawn.
    since: Instant,
    state: PodState,
    /// First attempt whose pass counts. Earlier probes were sent before an event that invalidated them.
    valid_from: Attempt,
    /// True if the failure of the last probe could have come from a mesh. `None` if no probe failed since the address
    /// was listed or last passed.
    pub(super) maybe_mesh: Option<bool>,
}

#[derive(Debug)]
enum PodState {
    /// In use.
    Healthy,
    /// In use although its readiness was withdrawn, until this probe decides.
    Suspect { attempt: Attempt },
    /// In use because a probe passed after its readiness was withdrawn. Probed again at this time.
    Doubted { due: Instant },
    /// Not in use; a probe is pending.
    Probing { attempt: Attempt },
    /// Not in use. Probed again at this time or, if no probes are sent, used again.
    Waiting { due: Instant },
    /// Not in use until Kubernetes reports it as ready.
    Unready,
}

/// Action that follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Send a probe under the attempt that was passed in.
    Probe,
}

/// Time for which a failed pod is not used if readiness is the only proof. Kubernetes may take that long to notice the
/// failure.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Time for which a pod's kernel must respond to failing probes before readiness overrules them.
const OVERRULED_AFTER: Duration = Duration::from_secs(1);
/// Time between a passed probe and the next one, for a pod whose readiness was withdrawn.
const DOUBTED_PAUSE: Duration = Duration::from_secs(1);

impl ProbedPod {
    /// Creates the state of a newly listed address. `attempt` is the next free number, here and below.
    pub(super) fn listed(ready: bool, proof: Proof, attempt: Attempt, now: Instant) -> (Self, Step) {
        let mut pod = Self {
            ready,
            withdrawn: false,
            contradicted: None,
            since: now,
            state: PodState::Unready,
            valid_from: attempt,
            maybe_mesh: None,
        };
        let step = pod.begin(proof, attempt);
        (pod, step)
    }

    /// Restarts as if the address were newly listed, because it was trusted without a probe.
    pub(super) fn restart(&mut self, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        let (pod, step) = Self::listed(self.ready, proof, attempt, now);
        *self = Self { withdrawn: self.withdrawn, ..pod };
        step
    }

    pub(super) fn is_healthy(&self) -> bool {
        matches!(self.state, PodState::Healthy | PodState::Suspect { .. } | PodState::Doubted { .. })
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            PodState::Waiting { due } | PodState::Doubted { due } => Some(due),
            _ => None,
        }
    }

    pub(super) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Returns true if the pod is waited for and probed at short intervals.
    pub(super) fn is_eager(&self, now: Instant) -> bool {
        matches!(self.state, PodState::Probing { .. } | PodState::Waiting { .. }) && is_eager(self.waited(now))
    }

    pub(super) fn readiness(&mut self, ready: bool, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        let before = std::mem::replace(&mut self.ready, ready);
        self.withdrawn = !ready && (before || self.withdrawn);
        if before != ready {
            self.contradicted = None;
        }
        match (before, ready, self.is_healthy()) {
            (false, true, true) => {
                if matches!(self.state, PodState::Doubted { .. }) {
                    self.state = PodState::Healthy;
                }
                Step::Nothing
            }
            // (Probing | Waiting | Unready) => (Healthy | Probing): probe at once, even if another probe hangs.
            (false, true, false) => self.begin(proof, attempt),
            // (Healthy | Suspect) => (Suspect | Unready): still in use while a probe decides, if the proof includes
            // probes.
            (true, false, true) => match proof {
                Proof::Probe | Proof::ProbeThenReady | Proof::ReadyOrProbe => self.suspect(attempt, now),
                Proof::Ready | Proof::ProbeAndReady => {
                    self.state = PodState::Unready;
                    Step::Nothing
                }
            },
            (true, false, false) => {
                if proof.needs_readiness() {
                    self.state = PodState::Unready;
                }
                Step::Nothing
            }
            (true, true, _) | (false, false, _) => Step::Nothing,
        }
    }

    pub(super) fn passed(&mut self, proof: Proof, attempt: Attempt, now: Instant) {
        let counts = self.ready || !proof.needs_readiness();
        if attempt >= self.valid_from && counts {
            if self.withdrawn {
                self.state = PodState::Doubted { due: now + DOUBTED_PAUSE }; // (Probing | Suspect | Waiting) => Doubted
                self.maybe_mesh = None;
            } else {
                self.set_healthy(); // (Probing | Suspect | Waiting) => Healthy
            }
        }
    }

    /// Handles a failed probe. Only the failure of the last probe counts: an earlier one may have been overtaken by a
    /// ready event. The pause is that of one of `sharers` eager addresses, and at least `slowest`.
    pub(super) fn failed_probe(
        &mut self,
        proof: Proof,
        attempt: Attempt,
        failure: ProbeOutcome,
        now: Instant,
        sharers: usize,
        slowest: Option<Duration>,
    ) {
        match self.state {
            // (Probing | Suspect) => (Healthy | Waiting)
            PodState::Probing { attempt: last } | PodState::Suspect { attempt: last } if last == attempt => {
                if self.is_overruled(proof, failure, now) {
                    return self.set_healthy();
                }
                let pause = pause(self.waited(now), sharers);
                self.state = PodState::Waiting { due: now + slowest.map_or(pause, |slowest| pause.max(slowest)) };
                self.maybe_mesh = Some(failure != ProbeOutcome::WrongResponse);
            }
            _ => {}
        }
    }

    /// Handles a request that could not be delivered. The pod is out of use from now on.
    pub(super) fn failed(&mut self, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        // (Healthy | Suspect | Doubted) => (Waiting | Probing)
        if !self.is_healthy() {
            return Step::Nothing;
        }
        self.since = now;
        self.valid_from = attempt;
        if proof == Proof::Ready {
            self.state = PodState::Waiting { due: now + FAILED_PAUSE };
            return Step::Nothing;
        }
        self.state = PodState::Probing { attempt };
        Step::Probe
    }

    /// Handles the passing of time: the time returned by [`ProbedPod::due`] may have come.
    pub(super) fn tick(&mut self, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        match self.state {
            // Waiting => (Probing | Healthy)
            PodState::Waiting { due } if due <= now => {
                if proof == Proof::Ready {
                    self.state = PodState::Healthy;
                    return Step::Nothing;
                }
                self.state = PodState::Probing { attempt };
                Step::Probe
            }
            // Doubted => (Suspect | Unready)
            PodState::Doubted { due } if due <= now => {
                if proof.needs_readiness() {
                    self.state = PodState::Unready;
                    return Step::Nothing;
                }
                self.suspect(attempt, now)
            }
            _ => Step::Nothing,
        }
    }

    /// Keeps the pod in use while this probe decides. Earlier probes no longer count.
    fn suspect(&mut self, attempt: Attempt, now: Instant) -> Step {
        self.since = now;
        self.state = PodState::Suspect { attempt };
        self.valid_from = attempt;
        Step::Probe
    }

    fn set_healthy(&mut self) {
        self.state = PodState::Healthy;
        self.maybe_mesh = None;
        self.contradicted = None;
    }

    /// Returns true if readiness overrules a failed probe: Kubernetes has reported the pod as ready, and its kernel has
    /// responded, for [`OVERRULED_AFTER`].
    fn is_overruled(&mut self, proof: Proof, failure: ProbeOutcome, now: Instant) -> bool {
        let responded = matches!(failure, ProbeOutcome::WrongResponse | ProbeOutcome::ProbePortRefused(_));
        if proof != Proof::ProbeThenReady || !self.ready || !responded {
            self.contradicted = None;
            return false;
        }
        let since = *self.contradicted.get_or_insert(now);
        now.saturating_duration_since(since) >= OVERRULED_AFTER
    }

    /// Enters the first state that the proof requires, for a new address or new readiness.
    fn begin(&mut self, proof: Proof, attempt: Attempt) -> Step {
        let (state, step) = match (proof, self.ready) {
            (Proof::Ready | Proof::ReadyOrProbe, true) => (PodState::Healthy, Step::Nothing),
            (Proof::Ready | Proof::ProbeAndReady, false) => (PodState::Unready, Step::Nothing),
            (Proof::Probe | Proof::ProbeThenReady, _) | (Proof::ProbeAndReady, true) | (Proof::ReadyOrProbe, false) => {
                (PodState::Probing { attempt }, Step::Probe)
            }
        };
        self.state = state;
        step
    }
}
