//! Counts results of each kind of client.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Maximum number of different failures that are reported for one kind.
const FAILURES_MAX: usize = 12;

/// Exchanges of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    /// Complete exchanges.
    pub(super) ok: u64,
    /// Failed exchanges.
    pub(super) failed: u64,
    /// Number of failures by error.
    pub(super) errors: BTreeMap<String, u64>,
    /// Number of failures by error whose pod did not end meanwhile.
    pub(super) unexplained: BTreeMap<String, u64>,
}

/// Counts by kind.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, Count>>);

impl Tally {
    /// Records one exchange.
    pub(super) fn add<T>(&self, kind: &'static str, result: anyhow::Result<T>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(kind).or_default();
        let Err(error) = result else {
            count.ok += 1;
            return;
        };
        count.failed += 1;
        count_error(&mut count.errors, &error);
    }

    /// Records a failure that no pod's end explains. The caller also passes it to `Tally::add`.
    pub(super) fn unexplained(&self, kind: &'static str, error: &anyhow::Error) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count_error(&mut counts.entry(kind).or_default().unexplained, error);
    }

    /// Returns the counts so far.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn count_error(errors: &mut BTreeMap<String, u64>, error: &anyhow::Error) {
    let text = format!("{error:#}");
    if errors.len() < FAILURES_MAX || errors.contains_key(&text) {
        *errors.entry(text).or_default() += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (kind, count) in self.counts() {
            write!(f, "{separator}{kind} {}", count.ok)?;
            if count.failed > 0 {
                write!(f, " (and {} broken)", count.failed)?;
            }
            separator = ", ";
        }
        Ok(())
    }
}
