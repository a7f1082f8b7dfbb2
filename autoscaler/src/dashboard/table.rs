//! Changes since a client's last request: a hash of every row of this process, with the time at which it changed.
//!
//! A client sends the position of its last response, the time of a pass over all rows, and gets all later changes. A
//! position before the first pass, or older than [`REMEMBERED_MS`], gets everything.

use common::RevisionKey;
use std::collections::{HashMap, HashSet, VecDeque};

/// Time in milliseconds for which deletions are remembered. A client that is further behind gets everything.
const REMEMBERED_MS: i64 = 60_000;
/// Minimum time in milliseconds between two passes over all rows, for all clients together.
const PASS_EVERY_MS: i64 = 400;

/// Changes after a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changes {
    /// Set if everything is included, because the client's position is unknown.
    pub(super) is_full: bool,
    /// New or changed rows.
    pub(super) changed: Vec<RevisionKey>,
    /// Deleted objects.
    pub(super) gone: Vec<RevisionKey>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// Quick hash of the row's inputs.
    inputs: u64,
    /// Hash of the displayed content.
    shown: u64,
    /// Time of the last change, Unix milliseconds.
    changed: i64,
}

/// Table of changes. Times are Unix milliseconds.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Time of the first pass.
    began: Option<i64>,
    /// Time of the last pass.
    position: i64,
    rows: HashMap<RevisionKey, Row>,
    /// All objects as of the last pass.
    objects: HashSet<RevisionKey>,
    /// Times of deletions.
    gone: VecDeque<(i64, RevisionKey)>,
}

impl Table {
    /// Returns whether the last pass is so recent that another one is not needed.
    pub(super) fn is_fresh(&self, now: i64) -> bool {
        self.began.is_some() && (0..PASS_EVERY_MS).contains(&(now - self.position))
    }

    /// Begins a pass over these objects; this process shows the rows of those that are `own`.
    pub(super) fn begin(&mut self, objects: HashSet<RevisionKey>, own: impl Fn(&RevisionKey) -> bool, now: i64) {
        self.began.get_or_insert(now);
        self.position = now;
        self.gone.extend(self.objects.difference(&objects).map(|key| (now, key.clone())));
        self.gone.retain(|(at, _)| now - at <= REMEMBERED_MS);
        self.rows.retain(|key, _| objects.contains(key) && own(key));
        self.objects = objects;
    }

    /// Returns whether a row must be summarized: its inputs have changed, or it does not rest. A new row that rests
    /// need not be, because it is reported as new in any case.
    pub(super) fn needs_summary(&mut self, key: &RevisionKey, inputs: u64, rests: bool) -> bool {
        match self.rows.get_mut(key) {
            None => {
                self.rows.insert(key.clone(), Row { inputs, shown: 0, changed: self.position });
                !rests
            }
            Some(row) => std::mem::replace(&mut row.inputs, inputs) != inputs || !rests,
        }
    }

    /// Records the hash of a row's displayed content.
    pub(super) fn summarized(&mut self, key: &RevisionKey, shown: u64) {
        if let Some(row) = self.rows.get_mut(key).filter(|row| row.shown != shown) {
            (row.shown, row.changed) = (shown, self.position);
        }
    }

    /// Returns the position of the last pass.
    pub(super) fn position(&self) -> i64 {
        self.position
    }

    /// Returns the changes after a position; none: everything.
    pub(super) fn since(&self, after: Option<i64>) -> Changes {
        let oldest = self.began.map_or(i64::MAX, |began| began.max(self.position - REMEMBERED_MS));
        // A position of another replica may be a little ahead of the last pass here.
        let known = after.filter(|after| (oldest..=self.position + PASS_EVERY_MS).contains(after));
        let is_later = |at: i64| known.is_none_or(|known| at > known);
        let changed = self.rows.iter().filter(|(_, row)| is_later(row.changed)).map(|(key, _)| key.clone()).collect();
        let gone = self.gone.iter().filter(|(at, key)| known.is_some() && is_later(*at) && !self.objects.contains(key));
        let gone = gone.map(|(_, key)| key.clone()).collect();
        Changes { is_full: known.is_none(), changed, gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> RevisionKey {
        RevisionKey::new("ns", name)
    }

    fn pass(table: &mut Table, now: i64, rows: &[(&str, u64)]) {
        table.begin(rows.iter().map(|(name, _)| key(name)).collect(), |_| true, now);
        for (name, shown) in rows {
            table.needs_summary(&key(name), 0, false);
            table.summarized(&key(name), *shown);
        }
    }

    fn names(keys: &[RevisionKey]) -> String {
        let mut names: Vec<_> = keys.iter().map(RevisionKey::name).collect();
        names.sort_unstable();
        names.join(" ")
    }

    /// Goal: a client gets each change and each deletion once; an unknown position gets everything.
    #[test]
    fn a_client_gets_each_change_once() {
        let found = |table: &Table, after: Option<i64>| {
            let Changes { is_full, changed, gone } = table.since(after);
            (is_full, names(&changed), names(&gone))
        };
        let expected = |is_full, changed: &str, gone: &str| (is_full, changed.to_owned(), gone.to_owned());
        let mut table = Table::default();
        assert!(table.since(Some(0)).is_full && !table.is_fresh(0));
        pass(&mut table, 1000, &[("a", 1), ("b", 1), ("c", 1)]);
        assert!(table.is_fresh(1399) && !table.is_fresh(1400) && !table.is_fresh(999), "also if the clock is set");
        assert_eq!(found(&table, None), expected(true, "a b c", ""));
        assert_eq!(found(&table, Some(1000)), expected(false, "", ""));
        pass(&mut table, 2000, &[("a", 1), ("b", 2)]);
        assert_eq!(
            (found(&table, Some(1000)), found(&table, Some(2000))),
            (expected(false, "b", "c"), expected(false, "", ""))
        );
        pass(&mut table, 3000, &[("a", 1), ("b", 2), ("c", 1)]);
        assert_eq!(
            (found(&table, Some(1000)), found(&table, Some(2000))),
            (expected(false, "b c", ""), expected(false, "c", ""))
        );
        assert_eq!(found(&table, Some(3400)), expected(false, "", ""), "of another replica");
        for unknown in [999, 3401] {
            assert_eq!(found(&table, Some(unknown)), expected(true, "a b c", ""), "{unknown}");
        }
        pass(&mut table, 4000, &[("a", 1)]);
        pass(&mut table, 3000 + REMEMBERED_MS, &[("a", 1)]);
        assert_eq!(found(&table, Some(3000)), expected(false, "", "b c"));
        assert!(table.since(Some(2999)).is_full, "its deletions are forgotten");
    }

    /// Goal: a resting row is summarized only when its inputs change.
    #[test]
    fn a_row_that_rests_is_not_summarized() {
        let (mut table, a, b) = (Table::default(), key("a"), key("b"));
        for (inputs, rests, expected) in
            [(1, false, true), (1, false, true), (2, true, true), (2, true, false), (3, true, true)]
        {
            assert_eq!(table.needs_summary(&a, inputs, rests), expected, "{inputs} {rests}");
        }
        assert!(!table.needs_summary(&b, 1, true), "it is new, and rests");
        assert!(table.since(None).changed.contains(&b) && table.needs_summary(&b, 2, false));
    }
}
