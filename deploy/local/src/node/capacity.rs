//! Number of pods that this machine can run.
//!
//! A kubelet runs 110 pods by default. A machine with little memory or few process ids runs fewer; limits of the
//! control group apply too. Further pods stay Pending (see [`super::pods`]).

use procfs::{Current, Meminfo};
use std::path::Path;

/// Maximum number of pods of a node, as a kubelet's default.
const PODS_MAX: u64 = 110;
/// Assumed memory of a pod in bytes: a small program with its stack and buffers.
const MEMORY_OF_POD: u64 = 16 << 20;
/// Assumed number of threads of a pod.
const TASKS_OF_POD: u64 = 16;

/// Returns the number of pods that this machine can run now; at least one.
pub(super) fn pods_max() -> usize {
    let memory = Meminfo::current().ok().map(|info| info.mem_available.unwrap_or(info.mem_free));
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max", "/proc/sys/kernel/pid_max"].map(limit);
    bound(&[memory, limits[0]], &[limits[1], limits[2]])
}

/// Reads a limit of the kernel. Returns `None` if the file does not exist or sets no limit.
fn limit(path: impl AsRef<Path>) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Computes the number of pods from bytes of memory and numbers of threads. Unknown values set no limit.
fn bound(memory: &[Option<u64>], tasks: &[Option<u64>]) -> usize {
    let by_memory = memory.iter().flatten().map(|bytes| bytes / MEMORY_OF_POD);
    let by_tasks = tasks.iter().flatten().map(|tasks| tasks / TASKS_OF_POD);
    let least = by_memory.chain(by_tasks).fold(PODS_MAX, u64::min).max(1);
    usize::try_from(least).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::bound;

    #[test]
    fn the_scarcest_resource_bounds_the_number_of_pods() {
        let gibibyte = Some(1 << 30);
        for (memory, tasks, pods) in [
            ([None, None], [None, None], 110),
            ([Some(64 << 30), None], [Some(32768), Some(4194304)], 110),
            ([Some(64 << 30), gibibyte], [None, Some(4194304)], 64),
            ([gibibyte, None], [Some(512), None], 32),
            ([Some(0), None], [None, None], 1),
        ] {
            assert_eq!(bound(&memory, &tasks), pods, "{memory:?} {tasks:?}");
        }
    }
}
