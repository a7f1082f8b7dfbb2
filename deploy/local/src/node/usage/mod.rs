//! Current CPU and memory usage of containers.
//!
//! CPU usage is a rate between two reads of `/proc`. A container's first rate counts from its start, later ones from
//! the previous read. The kernel counts CPU time in ticks of usually 10 ms. A rate over less than [`WINDOW_MIN`] would
//! be mostly rounding, so none is computed. [`crate::usage`] is the interface for readers.
//!
//! The processes of a container are its process group; a child that starts a group of its own does not count. The time
//! of ended children is included in their parents' (`cutime`, `cstime`). Memory is the resident set; memory shared by
//! several processes counts for each.

use super::listeners::RunningContainer;
use crate::usage::{ContainerUsage, Usage, WINDOW_MIN};
use jiff::Timestamp;
use procfs::process::{Stat, all_processes};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Measures the running containers of the node. Reads much of `/proc`.
pub(super) fn measure(running: &[Arc<RunningContainer>], meter: &mut Meter) -> Vec<ContainerUsage> {
    let groups: Vec<i32> = running.iter().map(|container| container.group).collect();
    let used = if groups.is_empty() { HashMap::new() } else { survey(&groups) };
    let (now, at) = (Instant::now(), Timestamp::now());
    meter.last_reads.retain(|group, _| groups.contains(group));
    let usage = |running: &Arc<RunningContainer>| {
        let usage = meter.rate(running.group, *used.get(&running.group)?, running.since, now, at)?;
        Some(ContainerUsage { pod: running.pod.clone(), container: running.container.clone(), usage })
    };
    running.iter().filter_map(usage).collect()
}

/// Converts totals to rates, by process group.
#[derive(Debug, Default)]
pub(super) struct Meter {
    last_reads: HashMap<i32, LastRead>,
}

#[derive(Debug)]
struct LastRead {
    at: Instant,
    cpu: Duration,
    usage: Option<Usage>,
}

impl Meter {
    /// Returns the usage of `group` from its total `used` and the previous read. A new group had used nothing at
    /// `since`.
    fn rate(&mut self, group: i32, used: Used, since: Instant, now: Instant, at: Timestamp) -> Option<Usage> {
        let last = self.last_reads.entry(group).or_insert(LastRead { at: since, cpu: Duration::ZERO, usage: None });
        let window = now.saturating_duration_since(last.at);
        if window >= WINDOW_MIN {
            let cpu = used.cpu.saturating_sub(last.cpu); // The time of a process that has ended is lost.
            let cpu_nanos = (cpu.as_secs_f64() / window.as_secs_f64() * 1e9) as u64;
            let usage = Usage { at, window, cpu_nanos, memory: used.memory };
            *last = LastRead { at: now, cpu: used.cpu, usage: Some(usage) };
        }
        last.usage
    }
}

/// Usage of a container's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    /// CPU time since their start.
    cpu: Duration,
    /// Resident memory in bytes.
    memory: u64,
}

/// Returns the usage of each of these groups. Groups without processes are absent.
fn survey(groups: &[i32]) -> HashMap<i32, Used> {
    let stats = all_processes().into_iter().flatten().filter_map(|process| process.ok()?.stat().ok());
    let mut sums: HashMap<i32, Used> = HashMap::new();
    for stat in stats.filter(|stat| groups.contains(&stat.pgrp)) {
        let sum = sums.entry(stat.pgrp).or_default();
        sum.cpu += cpu_time(&stat);
        sum.memory += stat.rss * rustix::param::page_size() as u64;
    }
    sums
}

/// Returns the CPU time of a process and of its ended children.
fn cpu_time(stat: &Stat) -> Duration {
    let of_children = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
    let tick = Duration::from_secs(1).as_nanos() as u64 / rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos((stat.utime + stat.stime + of_children).saturating_mul(tick))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    const GROUP: i32 = 7;

    fn used(millis: u64) -> Used {
        Used { cpu: Duration::from_millis(millis), memory: 1 << 20 }
    }

    /// Rows: time of the read and CPU time until then in ms; thousandths of a core and window in ms.
    #[test]
    fn usage_is_the_rate_between_two_reads() {
        let (mut meter, start, at) = (Meter::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        let mut read = |millis, cpu| {
            let usage = meter.rate(GROUP, used(cpu), start, start + Duration::from_millis(millis), at);
            usage.map(|usage| (usage.cpu_nanos / 1_000_000, usage.window.as_millis()))
        };
        assert_eq!(read(100, 90), None, "the window is too short");
        assert_eq!(read(1000, 500), Some((500, 1000)), "since the start");
        assert_eq!(read(2000, 2000), Some((1500, 1000)));
        assert_eq!(read(2100, 2000), Some((1500, 1000)), "the previous rate");
        assert_eq!(read(4000, 2000), Some((0, 2000)));
        assert_eq!(read(5000, 10), Some((0, 1000)), "never negative");
    }

    /// Goal: the numbers match the kernel's, and only requested groups count. Method: measure this process, which has
    /// run and holds memory, and a child with a group of its own.
    #[test]
    fn requested_process_groups_are_measured() {
        let mut child = std::process::Command::new("sleep").arg("100").process_group(0).spawn().expect("started");
        let group = i32::try_from(child.id()).expect("a group");
        let own = procfs::process::Process::myself().and_then(|own| own.stat()).expect("readable").pgrp;
        let used = survey(&[own]);
        assert!(used[&own].memory > 100_000 && !used.contains_key(&group), "{used:?}");
        assert!(survey(&[own, group]).contains_key(&group));
        child.kill().and_then(|()| child.wait()).expect("ended");
    }
}
