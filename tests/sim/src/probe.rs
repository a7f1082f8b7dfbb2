//! Probes of a revision's path: one per second until an activator responds or the round ends.

use crate::events::{Local, ProcessId};
use crate::model::Endpoint;
use crate::reconcile::Controller;
use crate::simulation::Simulation;
use rand::RngExt;
use std::time::Duration;

const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// Maximum duration of a round.
const ROUND_MAX: Duration = Duration::from_secs(45);
/// Validity of a probe that reached an activator.
pub(crate) const PROBE_HOLDS: Duration = Duration::from_secs(5);

/// Round of probes of one revision's path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Round {
    Running { failed: bool, until: Duration },
    Proven(Duration),
}

impl Simulation {
    pub(crate) fn start_round(&mut self, index: usize, revision: usize) {
        let until = self.time.now + ROUND_MAX;
        let rounds = &mut self.autoscalers[index].rounds;
        if !matches!(rounds.get(&revision), Some(Round::Running { .. })) {
            rounds.insert(revision, Round::Running { failed: false, until });
            self.schedule(ProcessId::Autoscaler(index), Duration::from_millis(2), Local::Probe(revision));
        }
    }

    /// Sends a probe to some entry, like any request.
    pub(crate) fn probe(&mut self, index: usize, revision: usize) {
        let Some(Round::Running { until, .. }) = self.autoscalers[index].rounds.get(&revision).copied() else { return };
        let entry = self.rng.random_range(0..self.entries.len());
        let endpoints = &self.entries[entry].endpoints[revision];
        let endpoint = (!endpoints.is_empty()).then(|| endpoints[self.rng.random_range(0..endpoints.len())]);
        let proven =
            matches!(endpoint, Some(Endpoint::Activator(activator)) if self.activators[activator].process.runs());
        self.time.trace(|| format!("autoscaler {index} probes revision {revision} at entry {entry}: {endpoint:?}"));
        let is_over = proven || self.time.now >= until;
        let now = self.time.now;
        let rounds = &mut self.autoscalers[index].rounds;
        if proven {
            rounds.insert(revision, Round::Proven(now));
        } else if is_over {
            rounds.remove(&revision);
        } else {
            rounds.insert(revision, Round::Running { failed: true, until });
        }
        if is_over {
            self.enqueue(index, (Controller::Autoscaler, revision));
        } else {
            self.schedule(ProcessId::Autoscaler(index), PROBE_PERIOD, Local::Probe(revision));
        }
    }
}
