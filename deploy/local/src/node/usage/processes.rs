//! What processes have used, from `/proc`: time on a processor, and memory held.
//!
//! A container's processes are those of its process group and all their descendants, so a child that has made a group
//! of its own still counts. Time of children that have ended is in their parents' (`cutime`, `cstime`); only that of an
//! orphan, taken in by another process, is lost. Memory is the resident set, what processes share counted for each.

use std::collections::HashMap;
use std::time::Duration;

/// What a container's processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Time on a processor since they were started.
    pub(super) cpu: Duration,
    /// Resident memory in bytes.
    pub(super) memory: u64,
}

/// One line of `/proc/PID/stat`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    group: i32,
    ticks: u64,
    pages: u64,
}

/// How the kernel counts: ticks in a second, bytes in a page.
#[derive(Clone, Copy, Debug)]
struct Units {
    ticks: u64,
    page: u64,
}

/// What the processes of each of these groups have used; a group without processes is absent.
pub(super) fn survey(groups: &[i32]) -> HashMap<i32, Used> {
    let units = Units { ticks: rustix::param::clock_ticks_per_second(), page: rustix::param::page_size() as u64 };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let stats = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, parse(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?))
    });
    sum(groups, &stats.collect(), units)
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

/// The group of ours that a process or one of its ancestors belongs to.
fn group_of(pid: i32, groups: &[i32], stats: &HashMap<i32, Stat>) -> Option<i32> {
    let mut next = pid;
    // Parents come from reads at slightly different times, so a ring is conceivable.
    for _ in 0..stats.len() {
        let stat = stats.get(&next)?;
        if groups.contains(&stat.group) {
            return Some(stat.group);
        }
        next = stat.parent;
    }
    None
}

/// Reads a line such as `12 (name) S 1 12 …`; the name may hold anything.
fn parse(line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    // proc(5) counts from 1, pid and name included.
    let field = |number: usize| fields.get(number - 3).copied();
    let times = (14..=17).map(|number| field(number)?.parse::<i64>().ok()).sum::<Option<i64>>()?;
    Some(Stat {
        parent: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        ticks: u64::try_from(times).ok()?,
        pages: field(24)?.parse().ok()?,
    })
}

fn ticks(count: u64, in_a_second: u64) -> Duration {
    Duration::from_nanos(count.saturating_mul(1_000_000_000 / in_a_second.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: Units = Units { ticks: 100, page: 4096 };

    fn line(pid: i32, parent: i32, group: i32, times: [u64; 4], pages: u64) -> (i32, Stat) {
        let [u, s, cu, cs] = times;
        let line =
            format!("{pid} (a) b) S {parent} {group} 1 0 -1 0 0 0 0 0 {u} {s} {cu} {cs} 20 0 1 0 77 1000 {pages} 9");
        (pid, parse(&line).expect("a line of the kernel's"))
    }

    /// Goal: group and descendants count, each once, and nobody else's.
    #[test]
    fn a_containers_processes_are_its_group_and_their_descendants() {
        let stats = HashMap::from([
            line(10, 1, 10, [100, 20, 3, 2], 10),
            line(11, 10, 10, [50, 0, 0, 0], 1),
            line(12, 11, 12, [25, 0, 0, 0], 2), // A group of its own, and yet a child.
            line(20, 1, 20, [7, 0, 0, 0], 4),
            line(30, 1, 30, [999, 0, 0, 0], 99),
            line(40, 41, 40, [1, 0, 0, 0], 1), // A ring.
            line(41, 40, 41, [1, 0, 0, 0], 1),
        ]);
        let sums = sum(&[10, 20, 50], &stats, UNITS);
        assert_eq!(sums.len(), 2);
        assert_eq!(sums[&10], Used { cpu: Duration::from_secs(2), memory: 13 * 4096 });
        assert_eq!(sums[&20], Used { cpu: Duration::from_millis(70), memory: 4 * 4096 });
    }

    #[test]
    fn a_line_cut_short_is_none() {
        assert_eq!(parse("12 (x) S 1"), None);
    }

    /// Goal: the numbers are the kernel's own. Method: this process, which has run and holds memory.
    #[test]
    fn this_process_is_measured() {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("readable");
        let group = parse(&stat).expect("a line").group;
        let used = survey(&[group]);
        assert!(used[&group].memory > 100_000, "{used:?}");
    }
}
