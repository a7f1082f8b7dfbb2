//! One address: whether it is believed, and when it is asked again. Knows nothing of other addresses.

use std::time::{Duration, Instant};

use super::schedule::{is_eager, pause};
use super::{Attempt, Outcome, Proof};

/// What is known of one address.
#[derive(Debug)]
pub(super) struct ProbedPod {
    pub(super) ready: bool,
    /// Kubernetes has called it ready, and does not now.
    withdrawn: bool,
    /// Since when Kubernetes calls it ready and its kernel answers probes that fail.
    contradicted: Option<Instant>,
    /// Since when it has been waited for, or asked whether it is still to be believed.
    since: Instant,
    state: State,
    /// Passes of earlier attempts are of a time before something happened, and count no more.
    valid_from: Attempt,
    /// The last probe's failure could have come from a mesh. `None`: no failure since it was listed or last passed.
    pub(super) maybe_mesh: Option<bool>,
}

#[derive(Debug)]
enum State {
    /// In use.
    Healthy,
    /// In use, although its readiness was withdrawn, until a probe says more.
    Suspect { attempt: Attempt },
    /// In use, as a probe has passed since its readiness was withdrawn, and asked again at this time.
    Doubted { due: Instant },
    /// Asked, no answer yet.
    Probing { attempt: Attempt },
    /// Asked again at this time; or, where nothing is asked, believed again.
    Waiting { due: Instant },
    /// Out of use until Kubernetes calls it ready.
    Unready,
}

/// What an event asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Send a probe under the attempt that was passed in.
    Probe,
}

/// How long a pod that failed is left alone where only Kubernetes' word counts: it may take that long to notice.
const BENCHED: Duration = Duration::from_secs(1);
/// How long a pod's kernel answers probes that fail before Kubernetes, which calls it ready, is believed.
const CONTRADICTED: Duration = Duration::from_secs(1);
/// When a pod whose readiness was withdrawn is asked again after a probe that passed.
const DOUBTED: Duration = Duration::from_secs(1);

impl ProbedPod {
    /// A newly listed address. `attempt` is the next free one, here and below.
    pub(super) fn listed(ready: bool, proof: Proof, attempt: Attempt, now: Instant) -> (Self, Step) {
        let mut pod = Self {
            ready,
            withdrawn: false,
            contradicted: None,
            since: now,
            state: State::Unready,
            valid_from: attempt,
            maybe_mesh: None,
        };
        let step = pod.begin(proof, attempt);
        (pod, step)
    }

    /// As if it were listed only now: what is believed of it was never asked.
    pub(super) fn begin_anew(&mut self, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        let (pod, step) = Self::listed(self.ready, proof, attempt, now);
        *self = Self { withdrawn: self.withdrawn, ..pod };
        step
    }

    pub(super) fn is_healthy(&self) -> bool {
        matches!(self.state, State::Healthy | State::Suspect { .. } | State::Doubted { .. })
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { due } | State::Doubted { due } => Some(due),
            _ => None,
        }
    }

    pub(super) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether it is asked at a pace that can be felt.
    pub(super) fn is_eager(&self, now: Instant) -> bool {
        matches!(self.state, State::Probing { .. } | State::Waiting { .. }) && is_eager(self.waited(now))
    }

    /// Kubernetes' readiness, on every listing.
    pub(super) fn readiness(&mut self, ready: bool, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        let before = std::mem::replace(&mut self.ready, ready);
        self.withdrawn = !ready && (before || self.withdrawn);
        if before != ready {
            self.contradicted = None;
        }
        match (before, ready, self.is_healthy()) {
            (false, true, true) => {
                if matches!(self.state, State::Doubted { .. }) {
                    self.state = State::Healthy;
                }
                Step::Nothing
            }
            // (Probing | Waiting | Unready) => (Healthy | Probing): news, so ask at once, whatever hangs.
            (false, true, false) => self.begin(proof, attempt),
            // (Healthy | Suspect) => (Suspect | Unready): still in use while a probe decides, if a probe can.
            (true, false, true) => match proof {
                Proof::Probe | Proof::ProbeThenReady | Proof::ReadyOrProbe => self.suspect(attempt, now),
                Proof::Ready | Proof::ProbeAndReady => {
                    self.state = State::Unready;
                    Step::Nothing
                }
            },
            (true, false, false) => {
                if proof.needs_readiness() {
                    self.state = State::Unready;
                }
                Step::Nothing
            }
            (true, true, _) | (false, false, _) => Step::Nothing,
        }
    }

    /// A probe passed.
    pub(super) fn passed(&mut self, proof: Proof, attempt: Attempt, now: Instant) {
        let counts = self.ready || !proof.needs_readiness();
        if attempt >= self.valid_from && counts {
            if self.withdrawn {
                self.state = State::Doubted { due: now + DOUBTED }; // (Probing | Suspect | Waiting) => Doubted
                self.maybe_mesh = None;
            } else {
                self.believe(); // (Probing | Suspect | Waiting) => Healthy
            }
        }
    }

    /// A probe failed. Only the last one's failure counts: an earlier one may have been overtaken by a ready event.
    /// The pause is that of one of `sharers` eager addresses.
    pub(super) fn failed_probe(
        &mut self,
        proof: Proof,
        attempt: Attempt,
        failure: Outcome,
        now: Instant,
        sharers: usize,
        slowest: Option<Duration>,
    ) {
        match self.state {
            // (Probing | Suspect) => (Healthy | Waiting)
            State::Probing { attempt: last } | State::Suspect { attempt: last } if last == attempt => {
                if self.is_overruled(proof, failure, now) {
                    return self.believe();
                }
                let pause = pause(self.waited(now), sharers);
                self.state = State::Waiting { due: now + slowest.map_or(pause, |slowest| pause.max(slowest)) };
                self.maybe_mesh = Some(failure != Outcome::Refuted);
            }
            _ => {}
        }
    }

    /// A request could not be delivered. Says what to do; the pod is out of use from now on.
    pub(super) fn failed(&mut self, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        // (Healthy | Suspect | Doubted) => (Waiting | Probing)
        if !self.is_healthy() {
            return Step::Nothing;
        }
        self.since = now;
        self.valid_from = attempt;
        if proof == Proof::Ready {
            self.state = State::Waiting { due: now + BENCHED };
            return Step::Nothing;
        }
        self.state = State::Probing { attempt };
        Step::Probe
    }

    /// The time that [`ProbedPod::due`] named may have come.
    pub(super) fn tick(&mut self, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        match self.state {
            // Waiting => (Probing | Healthy)
            State::Waiting { due } if due <= now => {
                if proof == Proof::Ready {
                    self.state = State::Healthy;
                    return Step::Nothing;
                }
                self.state = State::Probing { attempt };
                Step::Probe
            }
            // Doubted => (Suspect | Unready)
            State::Doubted { due } if due <= now => {
                if proof.needs_readiness() {
                    self.state = State::Unready;
                    return Step::Nothing;
                }
                self.suspect(attempt, now)
            }
            _ => Step::Nothing,
        }
    }

    /// In use while this probe decides; what was asked before says nothing.
    fn suspect(&mut self, attempt: Attempt, now: Instant) -> Step {
        self.since = now;
        self.state = State::Suspect { attempt };
        self.valid_from = attempt;
        Step::Probe
    }

    fn believe(&mut self) {
        self.state = State::Healthy;
        self.maybe_mesh = None;
        self.contradicted = None;
    }

    /// Whether Kubernetes' word counts for more than a failure: it has called the pod ready, and its kernel has
    /// answered, for as long as [`CONTRADICTED`].
    fn is_overruled(&mut self, proof: Proof, failure: Outcome, now: Instant) -> bool {
        let is_there = matches!(failure, Outcome::Refuted | Outcome::RefusedBeside(_));
        if proof != Proof::ProbeThenReady || !self.ready || !is_there {
            self.contradicted = None;
            return false;
        }
        let since = *self.contradicted.get_or_insert(now);
        now.saturating_duration_since(since) >= CONTRADICTED
    }

    /// From nothing known, or from new readiness, to what the proof asks for.
    fn begin(&mut self, proof: Proof, attempt: Attempt) -> Step {
        let (state, step) = match (proof, self.ready) {
            (Proof::Ready | Proof::ReadyOrProbe, true) => (State::Healthy, Step::Nothing),
            (Proof::Ready | Proof::ProbeAndReady, false) => (State::Unready, Step::Nothing),
            (Proof::Probe | Proof::ProbeThenReady, _) | (Proof::ProbeAndReady, true) | (Proof::ReadyOrProbe, false) => {
                (State::Probing { attempt }, Step::Probe)
            }
        };
        self.state = state;
        step
    }
}
