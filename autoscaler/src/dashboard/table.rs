//! Changes since a client's last request: a hash of every row, with the time at which it changed.
//!
//! A client sends the position of its last response, the time of a pass over all rows, and gets all later changes. A
//! position before the first pass, or older than [`REMEMBERED_MS`], gets everything.

use common::RevisionKey;
use std::collections::HashMap;

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
    pub(super) gone: Vec<RevisionKey>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// Hash of the content; none: the object is deleted.
    hash: Option<u64>,
    /// Time of the last change, Unix milliseconds.
    changed: i64,
}

/// Table of changes. Times are Unix milliseconds.
#[derive(Debug, Default)]
pub(super) struct Table {
    began: Option<i64>,
    /// Time of the last pass.
    pub(super) position: i64,
    rows: HashMap<RevisionKey, Row>,
}

impl Table {
    /// Returns whether the last pass is so recent that another one is not needed.
    pub(super) fn is_fresh(&self, now: i64) -> bool {
        self.began.is_some() && (0..PASS_EVERY_MS).contains(&(now - self.position))
    }

    /// Makes a pass over all objects, each with the hash of its row.
    pub(super) fn pass(&mut self, objects: impl Iterator<Item = (RevisionKey, u64)>, now: i64) {
        self.began.get_or_insert(now);
        self.position = now;
        let mut former = std::mem::take(&mut self.rows);
        for (key, hash) in objects {
            let same = former.remove(&key).filter(|row| row.hash == Some(hash));
            self.rows.insert(key, same.unwrap_or(Row { hash: Some(hash), changed: now }));
        }
        for (key, row) in former {
            let changed = if row.hash.is_some() { now } else { row.changed };
            if now - changed <= REMEMBERED_MS {
                self.rows.insert(key, Row { hash: None, changed });
            }
        }
    }

    /// Returns the changes after a position; none: everything.
    pub(super) fn since(&self, after: Option<i64>) -> Changes {
        let oldest = self.began.map_or(i64::MAX, |began| began.max(self.position - REMEMBERED_MS));
        // A position of another replica may be a little ahead of the last pass here.
        let known = after.filter(|after| (oldest..=self.position + PASS_EVERY_MS).contains(after));
        let mut changes = Changes { is_full: known.is_none(), changed: Vec::new(), gone: Vec::new() };
        for (key, row) in self.rows.iter().filter(|(_, row)| known.is_none_or(|known| row.changed > known)) {
            match row.hash {
                Some(_) => changes.changed.push(key.clone()),
                None if changes.is_full => {}
                None => changes.gone.push(key.clone()),
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> RevisionKey {
        RevisionKey::new("ns", name)
    }

    fn pass(table: &mut Table, now: i64, rows: &[(&str, u64)]) {
        table.pass(rows.iter().map(|(name, hash)| (key(name), *hash)), now);
    }

    fn names(keys: &[RevisionKey]) -> String {
        let mut names: Vec<_> = keys.iter().map(RevisionKey::name).collect();
        names.sort_unstable();
        names.join(" ")
    }

    /// Goal: a client gets each change and each deletion once; an unknown position gets everything.
    #[test]
    fn a_client_gets_each_change_once() {
        let check = |table: &Table, after: Option<i64>, is_full, changed: &str, gone: &str| {
            let found = table.since(after);
            let found = (found.is_full, names(&found.changed), names(&found.gone));
            assert_eq!(found, (is_full, changed.to_owned(), gone.to_owned()), "after {after:?}");
        };
        let mut table = Table::default();
        assert!(table.since(Some(0)).is_full && !table.is_fresh(0));
        pass(&mut table, 1000, &[("a", 1), ("b", 1), ("c", 1)]);
        assert!(table.is_fresh(1399) && !table.is_fresh(1400) && !table.is_fresh(999), "also if the clock is set");
        check(&table, None, true, "a b c", "");
        check(&table, Some(1000), false, "", "");
        pass(&mut table, 2000, &[("a", 1), ("b", 2)]);
        check(&table, Some(1000), false, "b", "c");
        check(&table, Some(2000), false, "", "");
        pass(&mut table, 3000, &[("a", 1), ("b", 2), ("c", 1)]);
        check(&table, Some(1000), false, "b c", "");
        check(&table, Some(2000), false, "c", "");
        check(&table, Some(3400), false, "", ""); // A position of another replica.
        for unknown in [999, 3401] {
            check(&table, Some(unknown), true, "a b c", "");
        }
        pass(&mut table, 4000, &[("a", 1)]);
        pass(&mut table, 3000 + REMEMBERED_MS, &[("a", 1)]);
        check(&table, Some(3000), false, "", "b c");
        assert!(table.since(Some(2999)).is_full, "deletions before this position are forgotten");
    }
}
