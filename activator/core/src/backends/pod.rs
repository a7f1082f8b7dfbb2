//! One address: whether it is believed, and when it is asked again. Knows nothing of other addresses.

use std::time::{Duration, Instant};

use super::schedule::{is_eager, pause};
use super::{Attempt, Proof};

/// What is known of one address.
#[derive(Debug)]
pub(super) struct ProbedPod {
    pub(super) ready: bool,
    /// Since when it has been waited for.
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

impl ProbedPod {
    /// A newly listed address. `attempt` is the next free one, here and below.
    pub(super) fn listed(ready: bool, proof: Proof, attempt: Attempt, now: Instant) -> (Self, Step) {
        let mut pod = Self { ready, since: now, state: State::Unready, valid_from: attempt, maybe_mesh: None };
        let step = pod.begin(proof, attempt);
        (pod, step)
    }

    pub(super) fn is_healthy(&self) -> bool {
        matches!(self.state, State::Healthy | State::Suspect { .. })
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { due } => Some(due),
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
        match (before, ready, self.is_healthy()) {
            (false, true, true) => Step::Nothing,
            // (Probing | Waiting | Unready) => (Healthy | Probing): news, so ask at once, whatever hangs.
            (false, true, false) => self.begin(proof, attempt),
            // (Healthy | Suspect) => (Suspect | Unready): still in use while a probe decides, if a probe can.
            (true, false, true) => match proof {
                Proof::Probe | Proof::ReadyOrProbe => {
                    self.since = now;
                    self.state = State::Suspect { attempt };
                    self.valid_from = attempt;
                    Step::Probe
                }
                Proof::Ready | Proof::ProbeAndReady => {
                    self.state = State::Unready;
                    Step::Nothing
                }
            },
            (true, false, false) => {
                if matches!(proof, Proof::Ready | Proof::ProbeAndReady) {
                    self.state = State::Unready;
                }
                Step::Nothing
            }
            (true, true, _) | (false, false, _) => Step::Nothing,
        }
    }

    /// A probe passed.
    pub(super) fn passed(&mut self, proof: Proof, attempt: Attempt) {
        let counts = self.ready || matches!(proof, Proof::Probe | Proof::ReadyOrProbe);
        if attempt >= self.valid_from && counts {
            self.state = State::Healthy; // (Probing | Suspect | Waiting) => Healthy
            self.maybe_mesh = None;
        }
    }

    /// A probe failed. Only the last one's failure counts: an earlier one may have been overtaken by a ready event.
    /// The pause is that of one of `sharers` eager addresses.
    pub(super) fn failed_probe(
        &mut self,
        attempt: Attempt,
        maybe_mesh: bool,
        now: Instant,
        sharers: usize,
        slowest: Option<Duration>,
    ) {
        match self.state {
            // (Probing | Suspect) => Waiting
            State::Probing { attempt: last } | State::Suspect { attempt: last } if last == attempt => {
                let pause = pause(self.waited(now), sharers);
                self.state = State::Waiting { due: now + slowest.map_or(pause, |slowest| pause.max(slowest)) };
                self.maybe_mesh = Some(maybe_mesh);
            }
            _ => {}
        }
    }

    /// A request could not be delivered. Says what to do; the pod is out of use from now on.
    pub(super) fn failed(&mut self, proof: Proof, attempt: Attempt, now: Instant) -> Step {
        // (Healthy | Suspect) => (Waiting | Probing)
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
            _ => Step::Nothing,
        }
    }

    /// From nothing known, or from new readiness, to what the proof asks for.
    fn begin(&mut self, proof: Proof, attempt: Attempt) -> Step {
        let (state, step) = match (proof, self.ready) {
            (Proof::Ready | Proof::ReadyOrProbe, true) => (State::Healthy, Step::Nothing),
            (Proof::Ready | Proof::ProbeAndReady, false) => (State::Unready, Step::Nothing),
            (Proof::Probe, _) | (Proof::ProbeAndReady, true) | (Proof::ReadyOrProbe, false) => {
                (State::Probing { attempt }, Step::Probe)
            }
        };
        self.state = state;
        step
    }
}
