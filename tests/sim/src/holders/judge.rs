//! Invariants, judged by the requests that pods run and never by the view of an activator.

use super::world::World;
use super::{ARRIVALS, IDLE_MAX};
use activator_core::holders::Lots;
use activator_core::holders::lots::LOTS;

impl World {
    /// Checks that at most one activator holds a lot. (The limit of pods is checked when a request begins.)
    pub(super) fn judge_holders(&mut self) {
        let mut holders = [None; LOTS];
        let mut double = None;
        for (index, activator) in self.activators.iter().enumerate().filter(|(_, activator)| activator.up) {
            let held = activator.holding.held();
            for (lot, holder) in holders.iter_mut().enumerate().filter(|(lot, _)| held.contains(Lots::nth(*lot))) {
                if let Some(other) = holder.replace(index) {
                    double = Some(format!("one holds a lot: {other} and {index} hold {lot}"));
                }
            }
        }
        let moved = |(now, before): &(&Option<usize>, &Option<usize>)| now.is_some() && now != before;
        self.summary.moves += u64::from(holders.iter().zip(&self.holders).any(|pair| moved(&pair)));
        for (now, known) in holders.iter().zip(&mut self.holders) {
            *known = now.or(*known);
        }
        if let Some(double) = double {
            self.time.break_rule(double);
        }
    }

    /// Checks that without faults no request waits beside an idle slot. Applies to runs with a single holder.
    pub(super) fn judge_waiting(&mut self) {
        if self.time.now < self.peace_since || self.time.now > ARRIVALS || self.slots_per_holder < 1000 {
            return;
        }
        let waiting = self.requests.values().filter(|client| client.on.is_none());
        let Some((since, index)) = waiting.map(|client| (client.since, client.home)).min() else { return };
        let idle = self.pods.iter().filter(|(_, pod)| pod.listed).flat_map(|(at, pod)| {
            pod.slots.iter().filter_map(move |slot| slot.err().map(|since| (since, at.as_str().to_owned())))
        });
        let Some((idle_since, pod)) = idle.min() else { return };
        if self.time.now.saturating_sub(since.max(idle_since).max(self.peace_since)) > IDLE_MAX {
            self.time.break_rule(format!(
                "no request waits beside an idle slot: one of {index} since {since:?}, {pod} idle since {idle_since:?}"
            ));
        }
    }

    /// Checks that in the end all slots are free, and the listed activators hold all lots.
    pub(super) fn judge_rest(&mut self) {
        if let Some(request) = self.requests.keys().next() {
            return self.time.break_rule(format!("in the end every slot has come back: {request} is left"));
        }
        let mut all = Lots::NONE;
        for index in self.listed.clone() {
            let holding = &self.activators[index].holding;
            let (held, mut taken, open) = (holding.held(), holding.taken(), holding.needs_ticks());
            taken.retain(|pod, _| held.intersects(Lots::of_pod(pod))); // Other holders count the rest.
            all = all.union(held);
            if !taken.is_empty() || open {
                let what = format!("in the end every slot has come back: {index} holds {held:?}, {taken:?} is taken");
                return self.time.break_rule(what);
            }
        }
        if all != Lots::ALL {
            self.time.break_rule(format!("in the end every slot has come back: {all:?} are held"));
        }
    }
}
