//! What has changed since somebody last asked, as numbers: a table of fingerprints with the turn at which each changed.
//!
//! Whoever follows (a browser's stream, another replica) remembers the turn of the last answer and gets what is younger.
//! A turn of another life of the table gets everything.
//!
//! What is gone is not told of here: every replica knows all objects.

use common::RevisionKey;
use std::collections::HashMap;

/// How far somebody has followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The life of the table.
    pub(super) life: u64,
    /// The turn.
    pub(super) turn: u64,
}

impl Position {
    /// As [`Position::text`] has written it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (life, turn) = text.split_once('.')?;
        Some(Self { life: u64::from_str_radix(life, 16).ok()?, turn: turn.parse().ok()? })
    }

    /// In few characters.
    pub(super) fn text(self) -> String {
        format!("{:x}.{}", self.life, self.turn)
    }
}

/// What is younger than a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Younger {
    /// Where whoever asked is now.
    pub(super) position: Position,
    /// Keys of what is new or other.
    pub(super) changed: Vec<RevisionKey>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    /// Of what can be seen at a glance.
    glance: u64,
    /// Until when it is looked at closely nevertheless.
    close_until: u32,
    /// Of all that is shown.
    shown: u64,
    turn: u64,
}

/// The table. See the [module](self).
#[derive(Debug)]
pub(super) struct Changes {
    rows: HashMap<RevisionKey, Row>,
    position: Position,
}

impl Changes {
    /// Nothing is known, in this life.
    pub(super) fn new(life: u64) -> Self {
        Self { rows: HashMap::new(), position: Position { life, turn: 0 } }
    }

    /// A new look at everything begins.
    pub(super) fn begin(&mut self) {
        self.position.turn += 1;
    }

    /// Whether one has to be looked at closely at `now` (Unix seconds), whose `glance` is this. What is on its way, as
    /// everything is for a while after its glance has changed, always has. One that is new and `rests` has not: it is told
    /// of as new whatever is shown of it.
    pub(super) fn needs_look(
        &mut self,
        key: &RevisionKey,
        (glance, rests): (u64, bool),
        settles_in: u32,
        now: u32,
    ) -> bool {
        match self.rows.get_mut(key) {
            None if rests => {
                self.looked(key, glance, 0, now);
                false
            }
            None => true,
            Some(row) => {
                if row.glance != glance {
                    (row.glance, row.close_until) = (glance, now.saturating_add(settles_in));
                }
                now < row.close_until
            }
        }
    }

    /// One was looked at: what is shown of it has this fingerprint.
    pub(super) fn looked(&mut self, key: &RevisionKey, glance: u64, shown: u64, settles_at: u32) {
        let turn = self.position.turn;
        match self.rows.get_mut(key) {
            Some(row) if row.shown == shown => {}
            Some(row) => (row.shown, row.turn) = (shown, turn),
            None => _ = self.rows.insert(key.clone(), Row { glance, close_until: settles_at, shown, turn }),
        }
    }

    /// The look has ended: whatever is not `kept` is not ours any more.
    pub(super) fn end(&mut self, kept: impl Fn(&RevisionKey) -> bool) {
        self.rows.retain(|key, _| kept(key));
    }

    /// What is younger than `after`; none: everything.
    pub(super) fn since(&self, after: Option<Position>) -> Younger {
        let after = after.filter(|after| after.life == self.position.life).map(|after| after.turn);
        let younger = self.rows.iter().filter(|(_, row)| after.is_none_or(|after| row.turn > after));
        Younger { position: self.position, changed: younger.map(|(key, _)| key.clone()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> RevisionKey {
        RevisionKey::new("ns", name)
    }

    fn look(changes: &mut Changes, rows: &[(&str, u64)]) {
        changes.begin();
        for (name, shown) in rows {
            changes.looked(&key(name), 0, *shown, 0);
        }
        let kept: Vec<_> = rows.iter().map(|(name, _)| key(name)).collect();
        changes.end(|key| kept.contains(key));
    }

    /// Goal: who follows hears of each change once; a position of another life gets everything.
    #[test]
    fn who_follows_hears_of_each_change_once() {
        let told = |changes: &Changes, after: Option<Position>| {
            let mut names: Vec<_> = changes.since(after).changed.iter().map(|key| key.name().to_owned()).collect();
            names.sort();
            names.join(" ")
        };
        let mut changes = Changes::new(7);
        look(&mut changes, &[("a", 1), ("b", 1), ("c", 1)]);
        let first = changes.since(None).position;
        assert_eq!((told(&changes, None), told(&changes, Some(first))), ("a b c".into(), String::new()));
        look(&mut changes, &[("a", 1), ("b", 2)]);
        assert_eq!(told(&changes, Some(first)), "b");
        let second = changes.since(None).position;
        assert_eq!(told(&changes, Some(second)), "");
        look(&mut changes, &[("a", 1), ("b", 2), ("c", 1)]);
        assert_eq!(
            (told(&changes, Some(second)), told(&changes, Some(first))),
            ("c".into(), "b c".into()),
            "c is back"
        );
        assert_eq!(told(&changes, Some(Position { life: 8, ..second })), "a b c");
        assert_eq!(Position::parse(&second.text()), Some(second));
        for wrong in ["", "7", "x.1", "7.", "7.-1"] {
            assert_eq!(Position::parse(wrong), None, "{wrong}");
        }
    }

    /// Goal: what rests is looked at when its glance changes, and for a while after.
    #[test]
    fn what_rests_is_not_looked_at() {
        let (mut changes, a) = (Changes::new(1), key("a"));
        assert!(changes.needs_look(&a, (1, false), 15, 100), "it is new");
        changes.looked(&a, 1, 9, 115);
        for (glance, now, expected) in
            [(1, 114, true), (1, 115, false), (2, 200, true), (2, 214, true), (2, 215, false)]
        {
            assert_eq!(changes.needs_look(&a, (glance, true), 15, now), expected, "at {now}");
        }
        let b = key("b");
        assert!(!changes.needs_look(&b, (1, true), 15, 100), "it is new, and rests");
        assert!(changes.since(None).changed.contains(&b) && changes.needs_look(&b, (2, false), 15, 101));
    }
}
