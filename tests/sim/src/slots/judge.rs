//! What must hold, judged from what pods run and never from what an activator believes.

use super::world::World;
use super::{ARRIVALS, IDLE_MAX};
use activator_core::slots::grantor;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// One grants a pod's slots. (That no pod is above its limit is looked at where a request begins.)
    pub(super) fn judge_holders(&mut self) {
        let mut holders = BTreeMap::new();
        let mut double = None;
        for (index, activator) in self.activators.iter().enumerate().filter(|(_, activator)| activator.up) {
            for (at, _) in activator.pool.pods().filter(|(_, state)| state.held) {
                if let Some(other) = holders.insert(at.clone(), index) {
                    double = Some(format!("one grants a pod's slots: {other} and {index} do at {}", at.as_str()));
                }
            }
        }
        let mut moves = 0;
        for (at, pod) in &mut self.pods {
            let holder = holders.get(at).copied();
            moves += u64::from(holder.is_some() && pod.holder != holder);
            pod.holder = holder;
        }
        self.summary.moves += moves;
        if let Some(double) = double {
            self.break_rule(double);
        }
    }

    /// In peace nobody waits beside an idle slot.
    pub(super) fn judge_waiting(&mut self) {
        if self.now < self.peace_since || self.now > ARRIVALS {
            return;
        }
        let waiting =
            self.requests.values().filter(|client| client.on.is_none()).map(|client| (client.since, client.at));
        let Some((since, index)) = waiting.min() else { return };
        let idle = self.pods.iter().filter(|(_, pod)| pod.listed).flat_map(|(at, pod)| {
            pod.slots.iter().filter_map(move |slot| slot.err().map(|since| (since, at.as_str().to_owned())))
        });
        let Some((idle_since, pod)) = idle.min() else { return };
        if self.now.saturating_sub(since.max(idle_since).max(self.peace_since)) > IDLE_MAX {
            self.break_rule(format!(
                "no request waits beside an idle slot: one at {index} since {since:?}, {pod} idle since {idle_since:?}"
            ));
        }
    }

    /// In the end every slot has come back, and all agree.
    pub(super) fn judge_rest(&mut self) {
        let members: BTreeSet<_> = self.listed.iter().map(|index| super::world::name(*index)).collect();
        let wrong = self.pods.iter().filter(|(_, pod)| pod.listed).find_map(|(at, pod)| {
            let at_text = at.as_str();
            if let Some(request) = pod.slots.iter().find_map(|slot| slot.ok()) {
                return Some(format!("{at_text} still runs {request:?}"));
            }
            let holder = pod.holder.map(super::world::name);
            if holder.as_ref() != grantor(at, &members) {
                return Some(format!("{at_text} is granted by {holder:?}, not by {:?}", grantor(at, &members)));
            }
            let states = pod.holder.and_then(|holder| {
                self.activators[holder].pool.pods().find(|(other, _)| *other == at).map(|(_, state)| state)
            });
            states
                .as_ref()
                .is_some_and(|state| state.in_use > 0)
                .then(|| format!("{at_text} has not come back: {states:?}"))
        });
        let left =
            self.activators.iter().position(|activator| activator.pool.queued() + activator.pool.in_flight() > 0);
        let left = left.filter(|index| self.activators[*index].up).map(|index| format!("requests are left at {index}"));
        if let Some(what) = wrong.or(left) {
            self.break_rule(format!("in the end every slot has come back: {what}"));
        }
    }

    /// Keeps the first broken rule.
    pub(super) fn break_rule(&mut self, what: String) {
        if self.broken.is_none() {
            self.say(|| format!("BROKEN {what}"));
            self.broken = Some((self.now, what));
        }
    }
}
