//! Changes since a client's last request: a table of fingerprints, with the turn at which each changed.
//!
//! A client (the page, or another replica) sends the position of its last response and gets all later changes. A
//! position from another instance of the table gets everything.

use common::RevisionKey;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::str::FromStr;

/// Time in seconds for which a row is checked closely after its quick hash has changed: longer than a status waits to
/// be written, and than the usual window.
pub(super) const SETTLES_IN: u32 = 90;
/// Maximum number of remembered deletions. A client that is further behind gets everything.
const GONE_MAX: usize = 4096;

/// Position of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    life: u64,
    turn: u64,
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (life, turn) = text.split_once('.').ok_or(())?;
        Ok(Self { life: u64::from_str_radix(life, 16).map_err(drop)?, turn: turn.parse().map_err(drop)? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.life, self.turn)
    }
}

/// Changes after a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Younger {
    /// Position for the next request.
    pub(super) position: Position,
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
    glance: u64,
    /// End of the time in which it is checked closely, Unix seconds.
    close_until: u32,
    /// Hash of the displayed content.
    shown: u64,
    turn: u64,
}

/// Table of changes.
#[derive(Debug)]
pub(super) struct Table {
    position: Position,
    rows: HashMap<RevisionKey, Row>,
    /// All objects as of the last pass.
    objects: HashSet<RevisionKey>,
    /// Deleted objects and the turns of their deletion, without those of the first `forgotten` turns.
    gone: VecDeque<(u64, RevisionKey)>,
    forgotten: u64,
}

impl Table {
    /// Creates an empty table for this instance.
    pub(super) fn new(life: u64) -> Self {
        let (rows, objects, gone) = (HashMap::new(), HashSet::new(), VecDeque::new());
        Self { position: Position { life, turn: 0 }, rows, objects, gone, forgotten: 0 }
    }

    /// Begins a pass over these objects; this process shows the rows of those that are `own`.
    pub(super) fn begin(&mut self, objects: HashSet<RevisionKey>, own: impl Fn(&RevisionKey) -> bool) {
        self.position.turn += 1;
        let turn = self.position.turn;
        self.gone.extend(self.objects.difference(&objects).map(|key| (turn, key.clone())));
        while self.gone.len() > GONE_MAX {
            self.forgotten = self.gone.pop_front().map_or(self.forgotten, |(turn, _)| turn);
        }
        self.rows.retain(|key, _| objects.contains(key) && own(key));
        self.objects = objects;
    }

    /// Returns whether a row must be checked closely: it is new, or its quick hash has changed within [`SETTLES_IN`].
    /// A new row that `rests` need not be, because it is reported as new in any case.
    pub(super) fn needs_look(&mut self, key: &RevisionKey, (glance, rests): (u64, bool), now: u32) -> bool {
        match self.rows.get_mut(key) {
            None => {
                let close_until = if rests { now } else { now.saturating_add(SETTLES_IN) };
                let row = Row { glance, close_until, shown: 0, turn: self.position.turn };
                self.rows.insert(key.clone(), row);
                !rests
            }
            Some(row) => {
                if row.glance != glance {
                    (row.glance, row.close_until) = (glance, now.saturating_add(SETTLES_IN));
                }
                now < row.close_until
            }
        }
    }

    /// Records the fingerprint of a row's displayed content.
    pub(super) fn looked(&mut self, key: &RevisionKey, shown: u64) {
        if let Some(row) = self.rows.get_mut(key).filter(|row| row.shown != shown) {
            (row.shown, row.turn) = (shown, self.position.turn);
        }
    }

    /// Returns the changes after `after`; none: everything.
    pub(super) fn since(&self, after: Option<Position>) -> Younger {
        let known = after.filter(|after| after.life == self.position.life && after.turn >= self.forgotten);
        let is_younger = |turn: u64| known.is_none_or(|known| turn > known.turn);
        let changed = self.rows.iter().filter(|(_, row)| is_younger(row.turn)).map(|(key, _)| key.clone()).collect();
        let gone =
            self.gone.iter().filter(|(turn, key)| known.is_some() && is_younger(*turn) && !self.objects.contains(key));
        let gone = gone.map(|(_, key)| key.clone()).collect();
        Younger { position: self.position, is_full: known.is_none(), changed, gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> RevisionKey {
        RevisionKey::new("ns", name)
    }

    fn look(table: &mut Table, rows: &[(&str, u64)]) {
        table.begin(rows.iter().map(|(name, _)| key(name)).collect(), |_| true);
        for (name, shown) in rows {
            table.needs_look(&key(name), (0, false), 0);
            table.looked(&key(name), *shown);
        }
    }

    fn names(keys: &[RevisionKey]) -> String {
        let mut names: Vec<_> = keys.iter().map(RevisionKey::name).collect();
        names.sort_unstable();
        names.join(" ")
    }

    /// Goal: a client gets each change and each deletion once; a position of another instance gets everything.
    #[test]
    fn a_client_hears_of_each_change_once() {
        let told = |table: &Table, after: Option<Position>| {
            let Younger { is_full, changed, gone, .. } = table.since(after);
            (is_full, names(&changed), names(&gone))
        };
        let said = |is_full, changed: &str, gone: &str| (is_full, changed.to_owned(), gone.to_owned());
        let mut table = Table::new(7);
        look(&mut table, &[("a", 1), ("b", 1), ("c", 1)]);
        let first = table.since(None).position;
        assert_eq!(told(&table, None), said(true, "a b c", ""));
        assert_eq!(told(&table, Some(first)), said(false, "", ""));
        look(&mut table, &[("a", 1), ("b", 2)]);
        let second = table.since(None).position;
        assert_eq!(
            (told(&table, Some(first)), told(&table, Some(second))),
            (said(false, "b", "c"), said(false, "", ""))
        );
        look(&mut table, &[("a", 1), ("b", 2), ("c", 1)]);
        assert_eq!(
            (told(&table, Some(first)), told(&table, Some(second))),
            (said(false, "b c", ""), said(false, "c", ""))
        );
        assert_eq!(told(&table, Some(Position { life: 8, ..second })), said(true, "a b c", ""));
        let many: Vec<_> = (0..GONE_MAX).map(|n| format!("n{n}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), 1)).collect();
        look(&mut table, &many);
        let third = table.since(None).position;
        look(&mut table, &[("a", 1)]);
        assert!(table.since(Some(second)).is_full && !table.since(Some(third)).is_full, "too many were deleted");
        assert_eq!(second.to_string().parse(), Ok(second));
        for wrong in ["", "7", "x.1", "7.", "7.-1"] {
            assert_eq!(wrong.parse::<Position>(), Err(()), "{wrong}");
        }
    }

    /// Goal: a resting row is checked when its quick hash changes, and for a while after.
    #[test]
    fn a_row_that_rests_is_not_looked_at() {
        let (mut table, a, b) = (Table::new(1), key("a"), key("b"));
        for (glance, now, expected) in
            [(1, 100, true), (1, 189, true), (1, 190, false), (2, 200, true), (2, 289, true), (2, 290, false)]
        {
            assert_eq!(table.needs_look(&a, (glance, glance == 2), now), expected, "at {now}");
        }
        assert!(!table.needs_look(&b, (1, true), 100), "it is new, and rests");
        assert!(table.since(None).changed.contains(&b) && table.needs_look(&b, (2, false), 101));
    }
}
