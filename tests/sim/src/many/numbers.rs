//! Allocation of port numbers for all workloads, with enough numbers or too few.

use super::key;
use autoscaler_core::ports::{Access, Plan, Problem, View, Wanted, Workload, plan};
use common::config::PortRange;
use common::ports::ledger::{Ledger, PortId};
use common::time::Timestamp;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Result of a plan for all workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Numbers that are allocated.
    pub allocated: usize,
    /// Workloads without a number because none is left, or none for their namespace.
    pub exhausted: usize,
    /// Maps that are written.
    pub maps: usize,
    /// Duration of planning.
    pub duration: Duration,
}

/// Plans for this many new workloads with one port each.
#[allow(clippy::disallowed_methods, reason = "the duration of planning is measured")]
pub fn allocate(workloads: usize, range: PortRange) -> Allocation {
    let wanted = || Wanted { port: PortId { name: "http".to_owned(), port: 80 }, in_slices: None, in_status: None };
    let workload = |workload| {
        let key = key(workload);
        Workload { uid: key.as_str().into(), key, ports: vec![wanted()], access: Access::Open }
    };
    let all: Vec<Workload> = (0..workloads).map(workload).collect();
    let view = View {
        range,
        guarded: None,
        start: range.first,
        ledger: &Ledger::new(),
        unreadable: &BTreeSet::new(),
        listed: &BTreeSet::new(),
        in_use: &BTreeSet::new(),
        workloads: &all.iter().collect::<Vec<_>>(),
        is_mine: &|_| true,
    };
    let begin = Instant::now();
    let Plan { changes, ports, .. } = plan(&view, Timestamp::from_secs(1_795_000_000));
    let duration = begin.elapsed();
    let is_exhausted = |problem: &Option<Problem>| matches!(problem, Some(Problem::Exhausted(_) | Problem::Quota(_)));
    Allocation {
        allocated: changes.values().map(Vec::len).sum(),
        exhausted: ports.values().flatten().filter(|outcome| is_exhausted(&outcome.problem)).count(),
        maps: changes.len(),
        duration,
    }
}
