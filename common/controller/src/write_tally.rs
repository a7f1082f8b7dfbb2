//! Counts writes by urgency and outcome.

use crate::error::{WriteError, code};
use common::write_rate::WriteClass;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Names of the counted classes, in the order of [`WriteClass`].
const CLASSES: [&str; 3] = ["wake", "scale", "object"];

/// Outcomes: accepted, rejected for an outdated version, rejected for another reason, failed in the API server,
/// unanswered, and not sent.
const OUTCOMES: [&str; 6] = ["ok", "conflict", "refused", "failed", "unanswered", "not-sent"];

/// Counter of writes. Events of a [`crate::Recorder`] are not counted. Events that a ZeroScaler's status waits for
/// count as objects.
#[derive(Debug, Default)]
pub struct WriteTally {
    counts: [[AtomicU64; OUTCOMES.len()]; CLASSES.len()],
}

impl WriteTally {
    /// Counts a finished write of this class.
    pub fn ended<T>(&self, class: WriteClass, result: &Result<T, WriteError>) {
        let outcome = outcome(result);
        let column = OUTCOMES.iter().position(|known| *known == outcome);
        if let (Some(row), Some(column)) = (self.counts.get(class as usize), column) {
            row[column].fetch_add(1, Relaxed);
        }
    }

    /// Returns the number of writes for each pair of class and outcome, which are given by their names.
    pub fn counts(&self) -> Vec<([&'static str; 2], u64)> {
        let rows = CLASSES.iter().zip(&self.counts);
        rows.flat_map(|(class, row)| OUTCOMES.iter().zip(row).map(|(outcome, n)| ([*class, *outcome], n.load(Relaxed))))
            .collect()
    }
}

fn outcome<T>(result: &Result<T, WriteError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(WriteError::Api { source, .. }) => match code(source) {
            Some(409) => "conflict",
            Some(400..=499) => "refused",
            _ => "failed",
        },
        Err(WriteError::NoAnswer { .. }) => "unanswered",
        Err(WriteError::Outdated { .. } | WriteError::LeaseEnds | WriteError::NotOwned { .. }) => "not-sent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn api(code: u16) -> Result<(), WriteError> {
        Err(WriteError::api("patch")(kube::Error::Api(Box::new(Status { code, ..Status::default() }))))
    }

    #[test]
    fn writes_are_counted_by_outcome() {
        let tally = WriteTally::default();
        let results = [Ok(()), Ok(()), api(409), api(403), api(422), api(503), Err(WriteError::LeaseEnds)];
        results.iter().for_each(|result| tally.ended(WriteClass::Wake, result));
        tally.ended(WriteClass::Event, &Ok(())); // This class is not counted.
        let counts: Vec<_> = tally.counts().into_iter().filter(|(_, count)| *count > 0).collect();
        let expected = [("ok", 2), ("conflict", 1), ("refused", 2), ("failed", 1), ("not-sent", 1)];
        assert_eq!(counts, expected.map(|(outcome, count)| (["wake", outcome], count)));
        assert_eq!(tally.counts().len(), 18);
    }
}
