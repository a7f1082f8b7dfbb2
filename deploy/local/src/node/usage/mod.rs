//! Current CPU and memory usage of containers.
//!
//! CPU usage is a rate between two reads of `/proc`. A container's first rate counts from its start, later ones from
//! the previous read. The kernel counts CPU time in ticks of usually 10 ms. A rate over less than [`WINDOW_MIN`] would
//! be mostly rounding, so none is computed. [`crate::usage`] is the interface for readers.

mod processes;

use super::listeners::RunningContainer;
use crate::usage::{ContainerUsage, Usage, WINDOW_MIN};
use jiff::Timestamp;
use processes::Used;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Measures the running containers of the node. Reads much of `/proc`.
pub(super) fn measure(running: &[Arc<RunningContainer>], meter: &mut Meter) -> Vec<ContainerUsage> {
    let groups: Vec<i32> = running.iter().map(|container| container.group).collect();
    let used = if groups.is_empty() { HashMap::new() } else { processes::survey(&groups) };
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
            let cpu = used.cpu.saturating_sub(last.cpu); // A descendant's time may have been lost.
            let cpu_nanos = (cpu.as_secs_f64() / window.as_secs_f64() * 1e9) as u64;
            let usage = Usage { at, window, cpu_nanos, memory: used.memory };
            *last = LastRead { at: now, cpu: used.cpu, usage: Some(usage) };
        }
        last.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Goal: a container that reuses the process group of an ended one does not inherit its CPU time.
    #[test]
    fn a_reused_process_group_starts_from_zero() {
        let (mut meter, start, at) = (Meter::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        let later = |millis| start + Duration::from_millis(millis);
        meter.rate(GROUP, used(1000), start, later(1000), at);
        meter.last_reads.clear();
        let usage = meter.rate(GROUP, used(500), later(1000), later(2000), at).expect("a rate");
        assert_eq!(usage.cpu_nanos, 500_000_000);
    }
}
