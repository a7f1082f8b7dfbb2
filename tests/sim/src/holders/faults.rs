//! Faults: plan, begin and end.

use super::FAULTS_END;
use super::world::{Event, World};
use activator_core::Destination;
use rand::RngExt;
use std::time::Duration;

/// Maximum time that an activator needs to prove a new pod.
const PROOF_MAX: Duration = Duration::from_millis(300);
/// Time after the last fault by which all activators know the lists, and hold their shards and no others.
const SETTLE_TIME: Duration = Duration::from_millis(3500);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// The activator crashes and returns at the same address.
    Crash(usize),
    /// The activator leaves the list, continues for a while, ends, and is replaced.
    Roll(usize),
    /// The activator leaves the list and returns to it.
    Unready(usize),
    /// Two activators cannot reach each other.
    Cut(usize, usize),
    /// The activator reaches no other, and is removed from the list.
    Isolate(usize),
    /// The activator receives the list of ready activators late.
    Stall(usize),
    /// Transit times are long.
    Slow,
    AddPod,
    RemovePod(usize),
    /// The activator believes that a pod has failed.
    FailPod(usize, usize),
}

impl World {
    pub(super) fn plan_faults(&mut self) {
        let mut last = 0;
        for _ in 0..self.rng.random_range(3..25) {
            let fault = self.fault();
            let at = self.rng.random_range(1500..FAULTS_END.as_millis() as u64 - 6_000);
            last = last.max(at);
            self.time.after(Duration::from_millis(at), Event::BeginFault(fault));
        }
        self.fault_free_since = FAULTS_END + SETTLE_TIME;
    }

    fn fault(&mut self) -> Fault {
        let one = self.rng.random_range(0..self.activators.len());
        let other = self.rng.random_range(0..self.activators.len());
        let pod = self.rng.random_range(0..self.pods.len());
        match self.rng.random_range(0..16) {
            0 | 1 => Fault::Crash(one),
            2..=4 => Fault::Roll(one),
            5 => Fault::Unready(one),
            6 | 7 => Fault::Cut(one, other),
            8 | 9 => Fault::Isolate(one),
            10 | 11 => Fault::Stall(one),
            12 => Fault::Slow,
            13 => Fault::AddPod,
            14 => Fault::RemovePod(pod),
            _ => Fault::FailPod(one, pod),
        }
    }

    pub(super) fn begin(&mut self, fault: Fault) {
        self.time.trace(|| format!("FAULT {fault:?}"));
        self.summary.faults += 1;
        let mut lasts = Duration::from_millis(self.rng.random_range(50..5000));
        let late = Duration::from_millis(self.rng.random_range(100..3000));
        match fault {
            Fault::Crash(index) if self.activators[index].up => {
                self.kill(index);
                self.time.after(late, Event::NoticeDown(index));
            }
            Fault::Roll(index) | Fault::Unready(index) => self.time.after(Duration::ZERO, Event::List(index, false)),
            Fault::Cut(one, other) if one != other => self.cut(one, other),
            Fault::Isolate(index) => {
                (0..self.activators.len()).filter(|other| *other != index).for_each(|other| self.cut(index, other));
                self.time.after(late, Event::List(index, false));
            }
            Fault::Stall(index) if self.is_in_touch(index) => {
                self.activators[index].stalled_until = self.time.now + lasts
            }
            Fault::Slow => self.transit_max = Duration::from_millis(40),
            Fault::AddPod => self.add_unproven_pod(),
            Fault::RemovePod(nth) => {
                lasts = lasts.max(Duration::from_secs(1));
                self.list_pod(nth, false);
            }
            Fault::FailPod(index, nth) => {
                let at = self.nth_pod(nth);
                self.activators[index].failed.extend(at);
                self.publish();
            }
            Fault::Crash(_) | Fault::Cut(..) | Fault::Stall(_) => return,
        }
        self.time.after(lasts, Event::EndFault(fault));
    }

    pub(super) fn end(&mut self, fault: &Fault) {
        self.time.trace(|| format!("END {fault:?}"));
        match *fault {
            Fault::Crash(index) => self.time.after(Duration::ZERO, Event::Start(index)),
            Fault::Roll(index) => {
                if self.activators[index].up {
                    self.kill(index);
                }
                self.time.after(Duration::from_millis(300), Event::Start(index));
            }
            Fault::Unready(index) => self.time.after(Duration::ZERO, Event::List(index, true)),
            Fault::Cut(one, other) => self.mend(one, other),
            Fault::Isolate(index) => {
                (0..self.activators.len()).filter(|other| *other != index).for_each(|other| self.mend(index, other));
                self.time.after(Duration::from_secs(3), Event::List(index, true));
            }
            Fault::Slow => self.transit_max = super::TRANSIT_MAX,
            Fault::RemovePod(nth) => self.list_pod(nth, true),
            Fault::FailPod(index, nth) => {
                if let Some(at) = self.nth_pod(nth) {
                    self.activators[index].failed.remove(&at);
                }
                self.publish();
            }
            Fault::Stall(_) | Fault::AddPod => {}
        }
    }

    /// Adds a pod that each activator must prove before it sends requests to it.
    fn add_unproven_pod(&mut self) {
        let at = self.add_pod();
        for index in 0..self.activators.len() {
            self.activators[index].failed.insert(at.clone());
            let proof = PROOF_MAX.mul_f64(self.rng.random_range(0.0..1.0));
            self.time.after(proof, Event::PodProven(index, at.clone()));
        }
    }

    fn cut(&mut self, one: usize, other: usize) {
        *self.cuts.entry((one.min(other), one.max(other))).or_default() += 1;
        [one, other].into_iter().for_each(|index| self.end_stall(index));
    }

    fn mend(&mut self, one: usize, other: usize) {
        if let Some(faults) = self.cuts.get_mut(&(one.min(other), one.max(other))) {
            *faults = faults.saturating_sub(1);
        }
    }

    fn nth_pod(&self, nth: usize) -> Option<Destination> {
        self.pods.keys().nth(nth % self.pods.len()).cloned()
    }

    fn list_pod(&mut self, nth: usize, listed: bool) {
        let others = self.pods.values().filter(|pod| pod.listed).count() > 1;
        if let Some(pod) = self.nth_pod(nth).and_then(|at| self.pods.get_mut(&at))
            && (listed || others)
        {
            pod.listed = listed;
            self.publish();
        }
    }
}
