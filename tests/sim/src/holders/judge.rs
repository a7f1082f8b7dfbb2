//! Invariants, checked against the requests that pods run and not against the view of an activator.

use super::world::World;
use super::{ARRIVALS, IDLE_MAX};
use activator_core::holders::Shards;
use activator_core::holders::shards::SHARD_COUNT;

impl World {
    /// Checks that at most one activator holds a shard. (Limits of pods are checked when a request starts.)
    pub(super) fn judge_holders(&mut self) {
        let mut holders = [None; SHARD_COUNT];
        let mut conflict = None;
        for (index, activator) in self.activators.iter().enumerate().filter(|(_, activator)| activator.up) {
            let held = activator.holding.held();
            for (shard, holder) in holders.iter_mut().enumerate() {
                if held.contains(Shards::nth(shard))
                    && let Some(other) = holder.replace(index)
                {
                    conflict = Some(format!("at most one activator holds a shard: {other} and {index} hold {shard}"));
                }
            }
        }
        let moved = |(now, before): &(&Option<usize>, &Option<usize>)| now.is_some() && now != before;
        self.summary.moves += u64::from(holders.iter().zip(&self.holders).any(|pair| moved(&pair)));
        for (now, known) in holders.iter().zip(&mut self.holders) {
            *known = now.or(*known);
        }
        if let Some(conflict) = conflict {
            self.time.violate(conflict);
        }
    }

    /// Checks that without faults no request waits beside an idle slot. Applies to runs with a single holder.
    pub(super) fn judge_waiting(&mut self) {
        if self.time.now < self.fault_free_since || self.time.now > ARRIVALS || self.slots_per_holder < 1000 {
            return;
        }
        let waiting = self.requests.values().filter(|client| client.pod.is_none());
        let Some((since, index)) = waiting.map(|client| (client.since, client.home)).min() else { return };
        let idle = self.pods.iter().filter(|(_, pod)| pod.listed).flat_map(|(at, pod)| {
            pod.slots.iter().filter_map(move |slot| slot.err().map(|since| (since, at.as_str().to_owned())))
        });
        let Some((idle_since, pod)) = idle.min() else { return };
        if self.time.now.saturating_sub(since.max(idle_since).max(self.fault_free_since)) > IDLE_MAX {
            self.time.violate(format!(
                "no request waits beside an idle slot: one at {index} since {since:?}, {pod} idle since {idle_since:?}"
            ));
        }
    }

    /// Checks that in the end all slots are free, and the listed activators hold all shards.
    pub(super) fn judge_end(&mut self) {
        if let Some(request) = self.requests.keys().next() {
            return self.time.violate(format!("in the end every slot is free: {request} is left"));
        }
        let mut all = Shards::NONE;
        for index in self.listed.clone() {
            let holding = &self.activators[index].holding;
            let (held, mut taken, open) = (holding.held(), holding.taken(), holding.needs_ticks());
            taken.retain(|pod, _| held.intersects(Shards::of_pod(pod))); // Other holders count the others.
            all = all.union(held);
            if !taken.is_empty() || open {
                let what = format!("in the end every slot is free: {index} holds {held:?}, {taken:?} is taken");
                return self.time.violate(what);
            }
        }
        if all != Shards::ALL {
            self.time.violate(format!("in the end every slot is free: only {all:?} are held"));
        }
    }
}
