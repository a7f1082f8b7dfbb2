//! Forwarding of stats to the owners of their revisions, and scrapes of pods.

use crate::activator::SYSTEM;
use crate::autoscaler::Cause;
use crate::events::{Frame, Local, ProcessId};
use crate::plan::Fault;
use crate::simulation::Simulation;
use autoscaler_core::forwarding::{Forwarded, Hop, Route, route};
use common::ownership::Owner;
use common::stat::{Stat, WireStatMessage};
use rand::RngExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for which a stat waits for an owner.
const KEEP: Duration = Duration::from_secs(15);

/// Messages to forward, by receiver and hop.
type Onward = BTreeMap<(usize, Hop), Vec<WireStatMessage>>;

impl Simulation {
    pub(crate) fn frame(&mut self, index: usize, frame: Frame) {
        self.route(index, frame.messages, frame.forwarded.as_ref());
    }

    /// Records stats of own revisions and forwards the others. `forwarded` is the path by which they arrived.
    pub(crate) fn route(&mut self, index: usize, messages: Vec<WireStatMessage>, forwarded: Option<&Forwarded<usize>>) {
        let mut onward = Onward::new();
        for mut message in messages {
            let Some(mut stat) = message.stat.take() else {
                self.attestation(index, &message, forwarded.is_some(), &mut onward);
                continue;
            };
            let Some(revision) = self.revision(&message) else { continue };
            if stat.timestamp == 0 {
                stat.timestamp = self.timestamp().as_secs();
            }
            match route(self.owner(index, revision), forwarded, Duration::ZERO) {
                Route::Record => self.record(index, revision, &stat),
                Route::Drop => self.summary.misrouted += 1,
                Route::Send(other, hop) => {
                    self.summary.second_hops += u64::from(hop == Hop::Second);
                    let message = WireStatMessage { stat: Some(stat), ..message };
                    onward.entry((other, hop)).or_default().push(message);
                }
                Route::Hold => {
                    let until = self.time.now + KEEP;
                    let message = WireStatMessage { stat: Some(stat), ..message };
                    self.autoscalers[index].ownerless.push((until, message, forwarded.cloned()));
                }
            }
        }
        for ((other, hop), messages) in onward {
            if !self.links.peers_cut(index, other) {
                let delay = Duration::from_millis(self.rng.random_range(1..=10));
                let frame = Frame { messages, forwarded: Some(Forwarded { hop, by: Some(index) }) };
                self.schedule(ProcessId::Autoscaler(other), delay, Local::Frame(frame));
            }
        }
    }

    fn attestation(&mut self, index: usize, message: &WireStatMessage, forwarded: bool, onward: &mut Onward) {
        let from = self.activators.iter().position(|activator| activator.name == message.name);
        let (Some(from), true) = (from, message.namespace == SYSTEM) else { return };
        self.autoscalers[index].attested_at[from] = Some(self.time.now);
        let is_settled = (0..self.plan.buckets).all(|bucket| !matches!(self.owner_of(index, bucket), Owner::Nobody));
        if forwarded || !is_settled {
            return;
        }
        for bucket in 0..self.plan.buckets {
            if let Owner::Other(other) = self.owner_of(index, bucket) {
                let messages = onward.entry((other, Hop::First)).or_default();
                if !messages.contains(message) {
                    messages.push(message.clone());
                }
            }
        }
    }

    fn revision(&self, message: &WireStatMessage) -> Option<usize> {
        let same = |key: &common::RevisionKey| key.namespace() == message.namespace && key.name() == message.name;
        self.plan.revisions.iter().position(|revision| same(&revision.key))
    }

    fn owner(&self, index: usize, revision: usize) -> Owner<usize> {
        self.owner_of(index, self.plan.revisions[revision].bucket)
    }

    fn owner_of(&self, index: usize, bucket: usize) -> Owner<usize> {
        if self.owns_bucket(index, bucket) {
            return Owner::Us;
        }
        let (election, now) = (&self.autoscalers[index].election, self.time.instant());
        let is_believed = election.believed_until(bucket).is_some_and(|until| now < until);
        let holder = election.holder(bucket).filter(|_| is_believed);
        let known = |holder: &str| self.autoscalers.iter().position(|other| other.identity == holder);
        // A lease in the name of this process, which no longer holds it, is being handed over.
        holder.and_then(known).filter(|holder| *holder != index).map_or(Owner::Nobody, Owner::Other)
    }

    fn record(&mut self, index: usize, revision: usize, stat: &Stat) {
        let now = self.timestamp();
        let Some(state) = self.autoscalers[index].deciders.get_mut(&revision) else { return };
        if state.metrics.record(stat, now).is_err() {
            return;
        }
        if state.status.wakes(stat.average_concurrent_requests, state.replicas == Some(0)) {
            self.summary.pokes += 1;
            self.time.trace(|| format!("autoscaler {index} is poked for revision {revision}"));
            self.evaluate(index, revision, Cause::Poke);
        }
    }

    /// Scrapes the pods once a second.
    pub(crate) fn scrape(&mut self, index: usize) {
        self.schedule(ProcessId::Autoscaler(index), Duration::from_secs(1), Local::Scrape);
        let now = self.timestamp();
        for revision in 0..self.plan.revisions.len() {
            let autoscaler = &self.autoscalers[index];
            let answered =
                !autoscaler.cache.ready_pods(revision).is_empty() && !self.links.is_active(Fault::CutScrapes(index));
            if !self.plan.revisions[revision].scraped || !answered {
                continue;
            }
            let direct = self.direct.values().filter(|other| **other == revision).count();
            let proxied: usize = self.activators.iter().map(|activator| activator.load(revision).1).sum();
            let stat = Stat {
                average_concurrent_requests: (direct + proxied) as f64,
                average_proxied_concurrent_requests: proxied as f64,
                request_count: (direct + proxied) as f64,
                proxied_request_count: proxied as f64,
                ..Stat::default()
            };
            if let Some(state) = self.autoscalers[index].deciders.get_mut(&revision) {
                let _refused = state.metrics.record(&stat, now);
            }
        }
    }
}
