//! Counts the writes of slices when one activator shuts down gracefully, returns, and dies.

use super::{Size, address, key, needed_activators};
use crate::timeline::origin;
use autoscaler_core::ports::carriers::endpoints_among;
use autoscaler_core::ports::slices::{Endpoints, Port, is_urgent, may_wait_for_successor, reached};
use autoscaler_core::ports::{Activator, Listed, NumberResponse, PROOF_HOLDS, Proofs, Serving};
use common::RevisionKey;
use common::ports::Listening;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Arbitrary port number, the same for all workloads: each is evaluated separately.
const NUMBER: u16 = 20_000;

/// Time after which former responses are no longer proof.
const LATER: Duration = PROOF_HOLDS.saturating_mul(2);

/// Counts of one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Slices that named the activator.
    pub touched: usize,
    /// Urgent writes: until then clients were routed to an activator that was gone.
    pub urgent: usize,
    /// All writes until the slices were final.
    pub writes: usize,
    /// Maximum number of activators that a workload lacked at any moment, without the one that ended.
    pub lacked: usize,
}

/// Returns activators that are all ready.
pub(super) fn ready_activators(count: usize) -> Vec<Activator> {
    (0..count).map(|index| Activator { address: address(index), serving: Serving::Ready }).collect()
}

/// Returns the activators that carry a workload once its slices are final.
pub(super) fn carriers(key: &RevisionKey, activators: &[Activator]) -> Vec<IpAddr> {
    let (mut workload, now) = (Workload::new(key), origin());
    workload.settle(activators, now);
    workload.listed.iter().map(|listed| listed.address).collect()
}

struct Workload<'a> {
    key: &'a RevisionKey,
    listed: Vec<Listed>,
    proofs: Proofs,
}

/// Writes of one workload.
#[derive(Default)]
struct Writes {
    urgent: usize,
    all: usize,
}

impl<'a> Workload<'a> {
    fn new(key: &'a RevisionKey) -> Self {
        Self { key, listed: Vec::new(), proofs: Proofs::default() }
    }

    fn endpoints(&self, activators: &[Activator], now: Instant) -> Endpoints {
        let port = Port { uid: self.key.as_str(), number: Some(NUMBER), former: &[], listed: &self.listed };
        let (need, name) = (needed_activators(), self.key.name());
        endpoints_among(&[port], activators, need, name, &self.proofs, now).pop().unwrap_or_default()
    }

    /// Writes and probes until nothing is left to do. Writes that may not wait are made before the responses to probes.
    fn settle(&mut self, activators: &[Activator], now: Instant) -> Writes {
        self.proofs.follow(activators, |_| true, now);
        let mut writes = Writes::default();
        for _ in 0..4 {
            let found = self.endpoints(activators, now);
            if found.listed == self.listed && found.to_probe.is_empty() {
                break;
            }
            let reached = |at: &Listed| reached(at, self.key.as_str(), activators, &self.proofs, now);
            let is_served = |at: &Listed| reached(at) == Some(Serving::Ready);
            let urgent = is_urgent(&self.listed, &found.listed, is_served);
            let is_answered = |at: &Listed| reached(at).is_some_and(Serving::takes_requests);
            let may_wait = !urgent || may_wait_for_successor(&self.listed, &found.listed, is_answered);
            if found.listed != self.listed && (found.to_probe.is_empty() || !may_wait) {
                writes.all += 1;
                writes.urgent += usize::from(urgent);
                self.listed = found.listed;
            }
            for (address, number) in found.to_probe {
                let (instance, uid) = (address.to_string(), self.key.as_str().to_owned());
                let listening = Listening { instance, uid, is_held: true };
                self.proofs.record(address, number, NumberResponse::Ours(listening), now);
            }
        }
        writes
    }
}

/// Returns the writes caused by one activator that shuts down gracefully, returns, and dies.
pub fn changes(size: &Size) -> [Changes; 3] {
    let (all, epoch) = (ready_activators(size.activators), origin());
    let (gone, others) = (address(0), &all[1..]);
    let mut ending = all.clone();
    ending[0].serving = Serving::Terminating;
    let [mut ends, mut back, mut dies] = [Changes::default(); 3];
    for workload in 0..size.workloads {
        let key = key(workload);
        let mut workload = Workload::new(&key);
        workload.settle(&all, epoch);
        let before = workload.listed.clone();
        let steps: [(_, &[Activator]); 3] = [(&mut ends, &ending), (&mut back, &all), (&mut dies, others)];
        for (step, (changes, activators)) in (1..).zip(steps) {
            let now = epoch + LATER * step;
            let had: Vec<IpAddr> = workload.listed.iter().map(|listed| listed.address).collect();
            let first = workload.endpoints(activators, now).listed;
            let remaining = had.iter().filter(|address| first.iter().any(|at| at.address == **address)).count();
            let is_back = activators.iter().any(|one| one.address == gone && one.serving == Serving::Ready);
            let lacked = had.len() - remaining - usize::from(had.contains(&gone) && !is_back);
            changes.lacked = changes.lacked.max(lacked);
            let writes = workload.settle(activators, now);
            changes.writes += writes.all;
            changes.urgent += writes.urgent;
            changes.touched += usize::from(before.iter().any(|listed| listed.address == gone));
        }
    }
    [ends, back, dies]
}
