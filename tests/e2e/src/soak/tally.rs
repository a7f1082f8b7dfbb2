//! What became of the clients of each kind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Different failures that are told of one kind.
const FAILURES_TOLD: usize = 12;

/// Exchanges of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    /// Whole ones.
    pub(super) ok: u64,
    /// Others.
    pub(super) failed: u64,
    /// How often in which way.
    pub(super) ways: BTreeMap<String, u64>,
    /// Those of the failed ones whose pod did not end meanwhile, in which way.
    pub(super) unexplained: BTreeMap<String, u64>,
}

/// Counts by kind.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, Count>>);

impl Tally {
    /// Takes note of one exchange.
    pub(super) fn add<T>(&self, kind: &'static str, result: anyhow::Result<T>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(kind).or_default();
        let Err(error) = result else {
            count.ok += 1;
            return;
        };
        count.failed += 1;
        count_way(&mut count.ways, &error);
    }

    /// Takes note that no pod's end explains a failure, which is added besides.
    pub(super) fn unexplained(&self, kind: &'static str, error: &anyhow::Error) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count_way(&mut counts.entry(kind).or_default().unexplained, error);
    }

    /// The counts so far.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn count_way(ways: &mut BTreeMap<String, u64>, error: &anyhow::Error) {
    let way = format!("{error:#}");
    if ways.len() < FAILURES_TOLD || ways.contains_key(&way) {
        *ways.entry(way).or_default() += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (kind, count) in self.counts() {
            write!(f, "{between}{kind} {}", count.ok)?;
            if count.failed > 0 {
                write!(f, " (and {} broken)", count.failed)?;
            }
            between = ", ";
        }
        Ok(())
    }
}
