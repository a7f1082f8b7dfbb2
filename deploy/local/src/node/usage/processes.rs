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
    ticks: u64,
    pages: u64,
}

/// Units of the kernel: ticks per second, bytes per page.
#[derive(Clone, Copy, Debug)]
struct Units {
    ticks: u64,
    page: u64,
}

/// Returns the usage of each of these groups. Groups without processes are absent.
pub(super) fn survey(groups: &[i32]) -> HashMap<i32, Used> {
    let units = Units { ticks: rustix::param::clock_ticks_per_second(), page: rustix::param::page_size() as u64 };
    let stats = all_processes().into_iter().flatten().filter_map(|process| process.ok()?.stat().ok());
    sum(groups, &stats.map(|stat| (stat.pid, Stat::from(stat))).collect(), units)
}

impl From<process::Stat> for Stat {
    fn from(stat: process::Stat) -> Self {
        let of_children = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
        Stat { parent: stat.ppid, group: stat.pgrp, ticks: stat.utime + stat.stime + of_children, pages: stat.rss }
    }
}

fn sum(groups: &[i32], stats: &HashMap<i32, Stat>, units: Units) -> HashMap<i32, Used> {
    let mut sums = HashMap::new();
    for (pid, stat) in stats {
        if let Some(group) = group_of(*pid, groups, stats) {
            let used: &mut Used = sums.entry(group).or_default();
            used.cpu += ticks(stat.ticks, units.ticks);
            used.memory += stat.pages * units.page;
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

fn ticks(count: u64, in_a_second: u64) -> Duration {
    Duration::from_nanos(count.saturating_mul(1_000_000_000 / in_a_second.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: Units = Units { ticks: 100, page: 4096 };

    fn stat(pid: i32, parent: i32, group: i32, ticks: u64, pages: u64) -> (i32, Stat) {
        (pid, Stat { parent, group, ticks, pages })
    }

    /// Goal: the group and its descendants count once each, and no other process counts.
    #[test]
    fn a_containers_processes_are_its_group_and_their_descendants() {
        let stats = HashMap::from([
            stat(10, 1, 10, 125, 10),
            stat(11, 10, 10, 50, 1),
            stat(12, 11, 12, 25, 2), // Its own group, but a child.
            stat(20, 1, 20, 7, 4),
            stat(30, 1, 30, 999, 99),
            stat(40, 41, 40, 1, 1), // A cycle.
            stat(41, 40, 41, 1, 1),
        ]);
        let sums = sum(&[10, 20, 50], &stats, UNITS);
        assert_eq!(sums.len(), 2);
        assert_eq!(sums[&10], Used { cpu: Duration::from_secs(2), memory: 13 * 4096 });
        assert_eq!(sums[&20], Used { cpu: Duration::from_millis(70), memory: 4 * 4096 });
    }

    /// Goal: the numbers match the kernel's. Method: measure this process, which has run and holds memory.
    #[test]
    fn this_process_is_measured() {
        let group = process::Process::myself().and_then(|own| own.stat()).expect("readable").pgrp;
        let used = survey(&[group]);
        assert!(used[&group].memory > 100_000, "{used:?}");
    }
}
