//! CPU time and memory of processes, from `/proc`.
//!
//! The processes of a container are its process group and all descendants, so a child in a separate process group
//! still counts. The time of ended children is included in their parents' (`cutime`, `cstime`). Only the time of an
//! orphan that another process adopted is lost. Memory is the resident set; memory shared by several processes counts
//! for each.

use procfs::process::{self, all_processes};
use std::collections::HashMap;
use std::time::Duration;

/// Usage of a container's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// CPU time since their start.
    pub(super) cpu: Duration,
    /// Resident memory in bytes.
    pub(super) memory: u64,
}

/// Needed part of the kernel's statistics of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    group: i32,
    used: Used,
}

/// Returns the usage of each of these groups. Groups without processes are absent.
pub(super) fn survey(groups: &[i32]) -> HashMap<i32, Used> {
    let stats = all_processes().into_iter().flatten().filter_map(|process| process.ok()?.stat().ok());
    sum(groups, &stats.map(|stat| (stat.pid, Stat::from(stat))).collect())
}

impl From<process::Stat> for Stat {
    fn from(stat: process::Stat) -> Self {
        let of_children = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
        let tick = Duration::from_secs(1).as_nanos() as u64 / rustix::param::clock_ticks_per_second().max(1);
        let ticks = stat.utime + stat.stime + of_children;
        let memory = stat.rss * rustix::param::page_size() as u64;
        let used = Used { cpu: Duration::from_nanos(ticks.saturating_mul(tick)), memory };
        Stat { parent: stat.ppid, group: stat.pgrp, used }
    }
}

fn sum(groups: &[i32], stats: &HashMap<i32, Stat>) -> HashMap<i32, Used> {
    let mut sums = HashMap::new();
    for (pid, stat) in stats {
        if let Some(group) = group_of(*pid, groups, stats) {
            let sum: &mut Used = sums.entry(group).or_default();
            sum.cpu += stat.used.cpu;
            sum.memory += stat.used.memory;
        }
    }
    sums
}

/// Returns the first of `groups` to which a process or one of its ancestors belongs.
fn group_of(pid: i32, groups: &[i32], stats: &HashMap<i32, Stat>) -> Option<i32> {
    let mut next = pid;
    // Parents are read at slightly different times, so a cycle is possible.
    for _ in 0..stats.len() {
        let stat = stats.get(&next)?;
        if groups.contains(&stat.group) {
            return Some(stat.group);
        }
        next = stat.parent;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, parent: i32, group: i32, millis: u64, memory: u64) -> (i32, Stat) {
        (pid, Stat { parent, group, used: Used { cpu: Duration::from_millis(millis), memory } })
    }

    /// Goal: the group and its descendants count once each, and no other process counts.
    #[test]
    fn a_containers_processes_are_its_group_and_their_descendants() {
        let stats = HashMap::from([
            stat(10, 1, 10, 1250, 10),
            stat(11, 10, 10, 500, 1),
            stat(12, 11, 12, 250, 2), // Its own group, but a child.
            stat(20, 1, 20, 70, 4),
            stat(30, 1, 30, 999, 99),
            stat(40, 41, 40, 1, 1), // A cycle.
            stat(41, 40, 41, 1, 1),
        ]);
        let sums = sum(&[10, 20, 50], &stats);
        assert_eq!(sums.len(), 2);
        assert_eq!(sums[&10], Used { cpu: Duration::from_secs(2), memory: 13 });
        assert_eq!(sums[&20], Used { cpu: Duration::from_millis(70), memory: 4 });
    }

    /// Goal: the numbers match the kernel's. Method: measure this process, which has run and holds memory.
    #[test]
    fn this_process_is_measured() {
        let group = process::Process::myself().and_then(|own| own.stat()).expect("readable").pgrp;
        let used = survey(&[group]);
        assert!(used[&group].memory > 100_000, "{used:?}");
    }
}
