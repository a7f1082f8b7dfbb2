//! Decides which ports an activator listens on: every number that is open in the ledger, for the workload in its line.
//!
//! [`Listeners::follow`] compares the bound numbers with the ledger and returns the sockets to bind and to unbind. It
//! handles no sockets: the caller retries a number that cannot be bound.
//!
//! A Service port that gets another name or number keeps its allocated number: its line is rewritten in place. The
//! socket stays open and now stands for the renamed port ([`Action::Rename`]).
//!
//! # Never from one workload to another
//!
//! A released number is unbound [`OPEN_FOR`] after its release, and allocated to another workload only later. So a
//! number never changes owners while it is bound. If the ledger says otherwise, an old ledger was restored, and slices
//! may lead here for either workload. The number is then unbound, and bound for its new workload only after [`SETTLE`],
//! when slices no longer lead to it. Meanwhile clients are refused rather than sent to the wrong workload.
//!
//! # A missing line
//!
//! Lines are replaced and never removed. If a line disappears (a map was deleted by hand), the workload's owner writes
//! it again as soon as it notices. Until then the number stays bound, for at most [`SETTLE`].

use super::ledger::{Entry, NumberState, OPEN_FOR};
use crate::time::Timestamp;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which slices and their readers no longer lead to an activator that closed a number against the ledger's
/// rules.
pub const SETTLE: Duration = Duration::from_secs(60);

/// Numbers that an activator has bound, and numbers that it must not bind yet. `E` is the ledger's type of entries.
#[derive(Clone, Debug)]
pub struct Listeners<E = Entry> {
    bound: BTreeMap<u16, E>,
    barred: BTreeMap<u16, Timestamp>,
    /// Bound numbers without a line in the ledger, and the time since when.
    vanished: BTreeMap<u16, Timestamp>,
    wake: Option<Timestamp>,
}

/// Operation on a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Listen on this number.
    Bind(u16),
    /// Stop accepting connections on this number; existing connections continue.
    Unbind(u16),
    /// The Service port behind this bound number has another name or number.
    Rename(u16),
}

impl<E> Default for Listeners<E> {
    fn default() -> Self {
        Self { bound: BTreeMap::new(), barred: BTreeMap::new(), vanished: BTreeMap::new(), wake: None }
    }
}

impl<E: Borrow<Entry> + Clone> Listeners<E> {
    /// Returns the changes, first the numbers to unbind. With an unchanged ledger, only the passing of time brings
    /// further changes ([`Self::wake`]).
    pub fn follow(&mut self, ledger: &BTreeMap<u16, E>, now: Timestamp) -> Vec<Action> {
        let (mut unbound, mut renamed, mut actions) = (Vec::new(), Vec::new(), Vec::new());
        self.barred.retain(|_, until| now < *until);
        for (number, bound) in &mut self.bound {
            let (line, uid) = (ledger.get(number), (*bound).borrow().uid.clone());
            match line.map(|line| (line, line.borrow())) {
                Some((line, entry)) if entry.uid == uid && entry.state.is_open(now) => {
                    if entry.port != (*bound).borrow().port {
                        renamed.push(Action::Rename(*number));
                    }
                    bound.clone_from(line);
                    self.vanished.remove(number);
                }
                Some((_, entry)) if entry.uid == uid => unbound.push(*number),
                Some(_) => {
                    self.barred.insert(*number, now + SETTLE);
                    unbound.push(*number);
                }
                None if now < *self.vanished.entry(*number).or_insert(now) + SETTLE => {}
                None => unbound.push(*number),
            }
        }
        for number in unbound {
            self.bound.remove(&number);
            self.vanished.remove(&number);
            actions.push(Action::Unbind(number));
        }
        actions.extend(renamed);
        for (number, entry) in ledger.iter().filter(|(_, entry)| (*entry).borrow().state.is_open(now)) {
            if !self.bound.contains_key(number) && !self.barred.contains_key(number) {
                self.bound.insert(*number, entry.clone());
                actions.push(Action::Bind(*number));
            }
        }
        let vanished = self.vanished.values().map(|since| *since + SETTLE);
        let closing = self.bound.values().filter_map(|entry| match entry.borrow().state {
            NumberState::Released(at) => Some(at + OPEN_FOR),
            NumberState::Held | NumberState::Closed(_) => None,
        });
        self.wake = self.barred.values().copied().chain(vanished).chain(closing).min();
        actions
    }

    /// Returns the owner of a bound number, or `None` if the number is not bound.
    pub fn entry(&self, number: u16) -> Option<&E> {
        self.bound.get(&number)
    }

    /// Returns all bound numbers and their owners.
    pub fn entries(&self) -> impl Iterator<Item = (u16, &E)> {
        self.bound.iter().map(|(number, entry)| (*number, entry))
    }

    /// Returns the next time at which `Self::follow` must be called again even if the ledger is unchanged.
    pub fn wake(&self) -> Option<Timestamp> {
        self.wake
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Ledger, NumberState, PortId};
    use super::*;
    use crate::RevisionKey;

    const NOW: Timestamp = Timestamp::from_secs(1_795_000_000);
    const HELD: NumberState = NumberState::Held;
    const RELEASED: NumberState = NumberState::Released(NOW);
    const CLOSED: NumberState = NumberState::Closed(NOW);

    fn ledger(lines: &[(u16, &str, NumberState)]) -> Ledger {
        let port = PortId { name: "http".to_owned(), port: 80 };
        let entry = |uid: &str, state| {
            let (key, uid) = (RevisionKey::new("default", uid), uid.into());
            Entry { state, key, uid, port: port.clone() }
        };
        lines.iter().map(|(number, uid, state)| (*number, entry(uid, *state))).collect()
    }

    /// Goal: a number is bound while it is held and for a while after its release, also by an activator that starts
    /// meanwhile.
    #[test]
    fn a_number_is_bound_while_it_is_open_in_the_ledger() {
        let mut listeners = Listeners::default();
        let later = NOW + OPEN_FOR;
        type Row<'a> = (Timestamp, &'a [(u16, &'a str, NumberState)], &'a [Action]);
        let rows: [Row<'_>; 5] = [
            (NOW, &[(1, "a", HELD), (2, "b", HELD)], &[Action::Bind(1), Action::Bind(2)]),
            (NOW, &[(1, "a", RELEASED), (2, "b", HELD), (3, "c", RELEASED)], &[Action::Bind(3)]),
            (later - Duration::from_nanos(1), &[(1, "a", RELEASED), (2, "b", HELD), (3, "c", HELD)], &[]),
            (later, &[(1, "a", RELEASED), (2, "b", HELD), (3, "c", HELD)], &[Action::Unbind(1)]),
            (later, &[(1, "d", HELD), (2, "b", HELD), (3, "c", HELD)], &[Action::Bind(1)]),
        ];
        for (now, lines, expected) in rows {
            assert_eq!(listeners.follow(&ledger(lines), now), expected, "{lines:?}");
            let is_closing = listeners.entries().any(|(_, entry)| entry.state == RELEASED);
            assert_eq!(listeners.wake(), is_closing.then_some(later), "{lines:?}");
        }
        assert_eq!(listeners.entry(1).map(|entry| (&*entry.uid, entry.state)), Some(("d", HELD)));
        assert_eq!(listeners.follow(&ledger(&[(4, "e", RELEASED)]), later), [], "its time after the release is over");
    }

    /// Goal: a number that was taken away is unbound at once and not bound again.
    #[test]
    fn a_closed_number_is_not_bound() {
        let mut listeners = Listeners::default();
        let held = ledger(&[(1, "a", HELD)]);
        listeners.follow(&held, NOW);
        let closed = ledger(&[(1, "a", CLOSED), (2, "b", CLOSED)]);
        assert_eq!(listeners.follow(&closed, NOW), [Action::Unbind(1)]);
        assert_eq!((listeners.follow(&closed, NOW), listeners.wake()), (vec![], None));
        assert_eq!(listeners.follow(&held, NOW), [Action::Bind(1)], "the workload is no longer guarded");
    }

    /// Goal: a new name or number of a port is reported once; other changes of a line are not.
    #[test]
    fn a_renamed_port_keeps_its_bound_number() {
        let (now, mut listeners) = (NOW, Listeners::default());
        let line = |state, name: &str, port| {
            let mut ledger = ledger(&[(1, "a", state), (2, "b", HELD)]);
            ledger.get_mut(&1).expect("a line").port = PortId { name: name.to_owned(), port };
            ledger
        };
        let rows: [(Ledger, &[Action]); 7] = [
            (line(HELD, "http", 80), &[Action::Bind(1), Action::Bind(2)]),
            (line(HELD, "http", 81), &[Action::Rename(1)]),
            (line(HELD, "http", 81), &[]),
            (line(HELD, "web", 81), &[Action::Rename(1)]),
            (line(RELEASED, "web", 81), &[]),
            (Ledger::new(), &[]),
            (line(HELD, "http", 80), &[Action::Rename(1)]),
        ];
        for (n, (ledger, expected)) in rows.into_iter().enumerate() {
            assert_eq!(listeners.follow(&ledger, now), expected, "row {n}");
        }
        assert_eq!(listeners.entry(1).map(|entry| entry.port.port), Some(80));
    }

    /// Goal: a ledger restored from a backup does not transfer a number to another workload at once.
    #[test]
    fn a_number_with_a_new_owner_is_unbound_first() {
        let (now, mut listeners) = (NOW, Listeners::default());
        listeners.follow(&ledger(&[(1, "a", HELD)]), now);
        let other = ledger(&[(1, "b", HELD)]);
        assert_eq!(listeners.follow(&other, now), [Action::Unbind(1)]);
        assert_eq!(listeners.wake(), Some(now + SETTLE));
        assert_eq!(listeners.follow(&other, now + SETTLE - Duration::from_nanos(1)), []);
        assert_eq!(listeners.follow(&other, now + SETTLE), [Action::Bind(1)]);
        assert_eq!(listeners.wake(), None);
    }

    /// Goal: a map deleted by hand closes no port before its lines could be written again.
    #[test]
    fn a_number_without_a_line_stays_bound_for_a_while() {
        let (now, mut listeners) = (NOW, Listeners::default());
        let held = ledger(&[(1, "a", HELD)]);
        listeners.follow(&held, now);
        assert_eq!(listeners.follow(&Ledger::new(), now), []);
        let later = now + Duration::from_secs(59);
        assert_eq!(listeners.follow(&held, later), []);
        assert_eq!(listeners.follow(&Ledger::new(), later), []);
        assert_eq!(listeners.follow(&Ledger::new(), later + Duration::from_secs(59)), [], "the wait starts again");
        assert_eq!(listeners.follow(&Ledger::new(), later + SETTLE), [Action::Unbind(1)]);
    }
}
