//! Counts writes by urgency and outcome.

use crate::error::{WriteError, code};
use common::write_rate::WriteClass;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write succeeded.
    Ok,
    /// Another writer was first.
    Conflict,
    /// The API server rejected the write for another reason.
    Refused,
    /// The API server failed or could not be reached.
    Failed,
    /// No response came in time.
    Unanswered,
    /// Nothing was sent.
    NotSent,
}

const CLASSES: [(WriteClass, &str); 3] =
    [(WriteClass::Wake, "wake"), (WriteClass::Scale, "scale"), (WriteClass::Object, "object")];

const OUTCOMES: [(WriteOutcome, &str); 6] = [
    (WriteOutcome::Ok, "ok"),
    (WriteOutcome::Conflict, "conflict"),
    (WriteOutcome::Refused, "refused"),
    (WriteOutcome::Failed, "failed"),
    (WriteOutcome::Unanswered, "unanswered"),
    (WriteOutcome::NotSent, "not-sent"),
];

/// Counter of writes. Events of a [`crate::Recorder`] are not counted. Events that a ZeroScaler's status waits for
/// count as objects.
#[derive(Debug, Default)]
pub struct WriteTally {
    counts: [[AtomicU64; OUTCOMES.len()]; CLASSES.len()],
}

impl WriteTally {
    /// Counts a finished write of this class.
    pub fn ended<T>(&self, class: WriteClass, how: &Result<T, WriteError>) {
        let outcome = WriteOutcome::of(how);
        let at = CLASSES.iter().position(|(known, _)| *known == class);
        let outcome = OUTCOMES.iter().position(|(known, _)| *known == outcome);
        if let (Some(at), Some(outcome)) = (at, outcome) {
            self.counts[at][outcome].fetch_add(1, Relaxed);
        }
    }

    /// Returns the number of writes for each pair of class and outcome, which are given by their names.
    pub fn counts(&self) -> Vec<([&'static str; 2], u64)> {
        let rows = CLASSES.iter().zip(&self.counts);
        rows.flat_map(|((_, class), row)| {
            let outcomes = OUTCOMES.iter().zip(row);
            outcomes.map(|((_, outcome), count)| ([*class, *outcome], count.load(Relaxed)))
        })
        .collect()
    }
}

impl WriteOutcome {
    fn of<T>(how: &Result<T, WriteError>) -> Self {
        match how {
            Ok(_) => Self::Ok,
            Err(WriteError::Api { source, .. }) => match code(source) {
                Some(409) => Self::Conflict,
                Some(400..=499) => Self::Refused,
                _ => Self::Failed,
            },
            Err(WriteError::NoAnswer { .. }) => Self::Unanswered,
            Err(WriteError::Outdated { .. } | WriteError::LeaseEnds | WriteError::NotOwned { .. }) => Self::NotSent,
        }
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
    fn each_end_of_a_write_has_its_count() {
        let tally = WriteTally::default();
        let ends = [Ok(()), Ok(()), api(409), api(403), api(422), api(503), Err(WriteError::LeaseEnds)];
        ends.iter().for_each(|end| tally.ended(WriteClass::Wake, end));
        tally.ended(WriteClass::Event, &Ok(())); // This class is not counted.
        let counts: Vec<_> = tally.counts().into_iter().filter(|(_, count)| *count > 0).collect();
        let wake = |outcome, count| (["wake", outcome], count);
        assert_eq!(
            counts,
            [wake("ok", 2), wake("conflict", 1), wake("refused", 2), wake("failed", 1), wake("not-sent", 1)]
        );
        assert_eq!(tally.counts().len(), 18);
    }
}
