//! Current CPU and memory usage of containers.
//!
//! CPU usage is a rate between two reads of `/proc`. A container's first rate counts from its start, later ones from
//! the previous read. The kernel counts CPU time in ticks of usually 10 ms. A rate over less than [`WINDOW_MIN`] would
//! be mostly rounding, so none is computed.
//!
//! # Limits
//!
//! The interface for readers is in [`crate::usage`].

mod processes;

use super::listeners::Occupant;
use crate::usage::{ContainerUsage, Usage, WINDOW_MIN};
use jiff::Timestamp;
use processes::Used;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Measures the running containers of the node. Reads much of `/proc`.
pub(super) fn measure(occupants: &[Arc<Occupant>], meter: &mut Meter) -> Vec<ContainerUsage> {
    let groups: Vec<i32> = occupants.iter().map(|occupant| occupant.group).collect();
    let used = if groups.is_empty() { HashMap::new() } else { processes::survey(&groups) };
    let (now, at) = (Instant::now(), Timestamp::now());
    meter.before.retain(|group, _| groups.contains(group));
    let usage = |occupant: &Arc<Occupant>| {
        let usage = meter.rate(occupant.group, *used.get(&occupant.group)?, occupant.since, now, at)?;
        Some(ContainerUsage { pod: occupant.pod.clone(), container: occupant.container.clone(), usage })
    };
    occupants.iter().filter_map(usage).collect()
}

/// Converts totals to rates, by process group.
#[derive(Debug, Default)]
pub(super) struct Meter {
    before: HashMap<i32, Before>,
}

#[derive(Debug)]
struct Before {
    at: Instant,
    cpu: Duration,
    usage: Option<Usage>,
}

impl Meter {
    /// Returns the usage of `group` from its total `used` and the previous read. A new group had used nothing at
    /// `born`.
    fn rate(&mut self, group: i32, used: Used, born: Instant, now: Instant, at: Timestamp) -> Option<Usage> {
        let before = self.before.entry(group).or_insert(Before { at: born, cpu: Duration::ZERO, usage: None });
        let window = now.saturating_duration_since(before.at);
        if window >= WINDOW_MIN {
            let cpu = used.cpu.saturating_sub(before.cpu); // A descendant's time may have been lost.
            let cpu_nanos = (cpu.as_secs_f64() / window.as_secs_f64() * 1e9) as u64;
            let usage = Usage { at, window, cpu_nanos, memory: used.memory };
            *before = Before { at: now, cpu: used.cpu, usage: Some(usage) };
        }
        before.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: i32 = 7;

    fn used(millis: u64) -> Used {
        Used { cpu: Duration::from_millis(millis), memory: 1 << 20 }
    }

    /// (time of the read in ms, CPU time until then in ms) -> thousandths of a core
    #[test]
    fn usage_is_the_rate_between_two_looks() {
        let (mut meter, born, at) = (Meter::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        let mut look = |millis, cpu| {
            let now = born + Duration::from_millis(millis);
            meter
                .rate(GROUP, used(cpu), born, now, at)
                .map(|usage| (usage.cpu_nanos / 1_000_000, usage.window.as_millis()))
        };
        assert_eq!(look(100, 90), None, "too early to say");
        assert_eq!(look(1000, 500), Some((500, 1000)), "from its start");
        assert_eq!(look(2000, 2000), Some((1500, 1000)));
        assert_eq!(look(2100, 2000), Some((1500, 1000)), "the former rate stands");
        assert_eq!(look(4000, 2000), Some((0, 2000)));
        assert_eq!(look(5000, 10), Some((0, 1000)), "never below nothing");
    }

    #[test]
    fn what_is_gone_is_forgotten_since_its_number_may_come_again() {
        let (mut meter, born, at) = (Meter::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        let later = |millis| born + Duration::from_millis(millis);
        meter.rate(GROUP, used(1000), born, later(1000), at);
        meter.before.clear();
        let usage = meter.rate(GROUP, used(500), later(1000), later(2000), at).expect("a rate");
        assert_eq!(usage.cpu_nanos, 500_000_000);
    }
}
