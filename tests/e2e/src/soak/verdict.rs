//! Compares a process's usage at the end with its early usage.
//!
//! Both measurements are at rest: nothing runs, nothing is held, every workload is at zero. Permitted differences:
//!
//! | resource | at the end at most |
//! |---|---|
//! | resident memory | a tenth and 2 MiB more than early on |
//! | descriptors, and sockets among them | 8 more: streams of watches, a scrape |
//! | threads | 2 more: those for blocking calls come and go |

use super::usage::Usage;
use std::fmt;

/// Permitted growth of memory beyond a tenth, in KiB.
const MEMORY_MORE: u64 = 2 * 1024;

/// Permitted growth of descriptors.
const DESCRIPTORS_MORE: u64 = 8;

/// Permitted growth of threads.
const THREADS_MORE: u64 = 2;

/// One process at two times of rest.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// Name of the process.
    pub name: &'static str,
    /// Usage after some minutes.
    pub early: Usage,
    /// Usage at the end.
    pub end: Usage,
}

impl Verdict {
    /// Returns the resources that have grown more than permitted.
    pub fn grown(&self) -> Vec<String> {
        let Self { name, early, end } = self;
        let rows = [
            ("KiB", early.resident_kib, end.resident_kib, early.resident_kib / 10 + MEMORY_MORE),
            ("descriptors", early.descriptors, end.descriptors, DESCRIPTORS_MORE),
            ("sockets", early.sockets, end.sockets, DESCRIPTORS_MORE),
            ("threads", early.threads, end.threads, THREADS_MORE),
        ];
        let grown = rows.into_iter().filter(|(_, early, end, more)| *end > early + more);
        grown
            .map(|(unit, early, end, more)| format!("{name}: {early} {unit} became {end}, {more} more at most"))
            .collect()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10} at rest, early: {}", self.name, self.early)?;
        write!(f, "{:>10} at rest,   end: {}", self.name, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_growth_beyond_the_limits_is_reported() {
        let early = Usage { resident_kib: 20_000, descriptors: 40, sockets: 30, threads: 5 };
        let verdict = |end| Verdict { name: "a", early, end }.grown();
        let most = Usage { resident_kib: 24_048, descriptors: 48, sockets: 38, threads: 7 };
        assert_eq!(verdict(early), Vec::<String>::new());
        assert_eq!(verdict(most), Vec::<String>::new());
        assert_eq!(verdict(Usage { resident_kib: 24_049, ..most }).len(), 1);
        let all = Usage { resident_kib: 24_049, descriptors: 49, sockets: 39, threads: 8 };
        assert_eq!(verdict(all).len(), 4);
    }
}
