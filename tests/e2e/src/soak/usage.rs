//! Resource usage of a process, read from `/proc`.

use anyhow::Context;
use std::fmt;
use std::path::Path;

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
        let process = Path::new("/proc").join(id.to_string());
        let status = std::fs::read_to_string(process.join("status")).with_context(|| format!("process {id}"))?;
        let mut usage = Self { resident_kib: field(&status, "VmRSS:")?, ..Self::default() };
        usage.threads = field(&status, "Threads:")?;
        for descriptor in std::fs::read_dir(process.join("fd"))? {
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
}

fn field(status: &str, name: &str) -> anyhow::Result<u64> {
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
