//! Resource usage of a process, read from `/proc`, and its permitted growth between two times at rest, when nothing
//! runs, nothing is held, and every workload is at zero:
//!
//! | resource | at the end at most |
//! |---|---|
//! | resident memory | a tenth and 2 MiB more than early on |
//! | descriptors, and sockets among them | 8 more: streams of watches, a scrape |
//! | threads | 2 more: those for blocking calls come and go |

use anyhow::Context;
use std::fmt;

/// Resource usage of a process at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, in KiB.
    pub resident_kib: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Number of descriptors that are sockets: connections and listeners.
    pub sockets: u64,
    /// Threads.
    pub threads: u64,
}

impl Usage {
    /// Reads the usage of the process `id`.
    pub fn of_process(id: u32) -> anyhow::Result<Self> {
        let (resident_kib, threads) = (status_number(id, "VmRSS:")?, status_number(id, "Threads:")?);
        let mut usage = Self { resident_kib, threads, ..Self::default() };
        for descriptor in std::fs::read_dir(format!("/proc/{id}/fd"))? {
            usage.descriptors += 1;
            // A descriptor that was closed meanwhile cannot be read.
            let target = std::fs::read_link(descriptor?.path());
            usage.sockets += u64::from(target.is_ok_and(|to| to.to_string_lossy().starts_with("socket:")));
        }
        Ok(usage)
    }

    /// Returns the minimum of each value of two measurements.
    pub fn least(self, other: Self) -> Self {
        Self {
            resident_kib: self.resident_kib.min(other.resident_kib),
            descriptors: self.descriptors.min(other.descriptors),
            sockets: self.sockets.min(other.sockets),
            threads: self.threads.min(other.threads),
        }
    }

    /// Returns the resources that have grown more than permitted since `early`.
    pub fn grown_since(self, early: Self) -> Vec<String> {
        let rows = [
            ("KiB", early.resident_kib, self.resident_kib, early.resident_kib / 10 + 2 * 1024),
            ("descriptors", early.descriptors, self.descriptors, 8),
            ("sockets", early.sockets, self.sockets, 8),
            ("threads", early.threads, self.threads, 2),
        ];
        let grown = rows.into_iter().filter(|(_, early, end, more)| *end > early + more);
        grown.map(|(unit, early, end, more)| format!("{early} {unit} became {end}, {more} more at most")).collect()
    }
}

/// Returns a number in `/proc/ID/status`. Amounts of memory are in KiB.
pub fn status_number(id: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).with_context(|| format!("process {id}"))?;
    let rest = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let number = rest.split_whitespace().next().unwrap_or_default();
    number.parse().with_context(|| format!("{name} {rest}"))
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident_kib, descriptors, sockets, threads } = self;
        write!(f, "{resident_kib:>7} KiB {descriptors:>4} descriptors {sockets:>4} sockets {threads:>2} threads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_growth_beyond_the_limits_is_reported() {
        let early = Usage { resident_kib: 20_000, descriptors: 40, sockets: 30, threads: 5 };
        let most = Usage { resident_kib: 24_048, descriptors: 48, sockets: 38, threads: 7 };
        assert_eq!(early.grown_since(early), Vec::<String>::new());
        assert_eq!(most.grown_since(early), Vec::<String>::new());
        assert_eq!(Usage { resident_kib: 24_049, ..most }.grown_since(early).len(), 1);
        let all = Usage { resident_kib: 24_049, descriptors: 49, sockets: 39, threads: 8 };
        assert_eq!(all.grown_since(early).len(), 4);
    }
}
