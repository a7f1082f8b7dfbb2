//! One pod as one activator sees it: who grants there, and what is in use.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::event::Request;
use super::{Peer, Peers};

/// One pod's state, for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    /// This activator grants its slots.
    pub held: bool,
    /// It is about to, and waits for confirmations.
    pub gathering: bool,
    /// Slots in use, as far as this activator knows: all of them where it grants, else its own.
    pub in_use: u32,
    /// Of these, lent to siblings.
    pub lent: u32,
}

/// Whether this activator grants the pod's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Somebody else does, or nobody.
    Bystander,
    /// It will, once all have confirmed.
    Gathering,
    /// It does.
    Holder,
}

#[derive(Debug)]
pub(super) struct Pod {
    /// None: it is listed.
    pub(super) unlisted_since: Option<Instant>,
    /// May be sent to, in this activator's own eyes.
    pub(super) usable: bool,
    /// Nobody can have granted there before.
    pub(super) new: bool,
    pub(super) role: Role,
    /// Whom this activator has confirmed to last: loans are taken from it alone.
    pub(super) pledged_to: Option<Peer>,
    /// Who has confirmations of the present session, and may count what is used here.
    pub(super) told: BTreeSet<Peer>,
    /// Own uses, by number.
    pub(super) own: BTreeMap<u64, Request>,
    /// Siblings' uses, those included that a lost message may have told of. Of a bystander: nothing.
    pub(super) loans: BTreeMap<Peer, BTreeSet<u64>>,
    /// Claims that wait for their answer.
    pub(super) claims: BTreeMap<Peer, u64>,
    /// Who has confirmed to this activator, in the present session.
    pub(super) confirmed: BTreeSet<Peer>,
    /// Who was believed dead when all others were asked last.
    pub(super) excused: BTreeSet<Peer>,
    /// Claims that are answered once it has begun.
    pub(super) deferred: BTreeMap<Peer, u64>,
    /// Who has declined a loan since the last one that it took, how long it is left alone for that, and until when.
    pub(super) pauses: BTreeMap<Peer, (Duration, Instant)>,
    /// Not to be claimed before.
    pub(super) retry_at: Instant,
    /// Since when the list names the one that it names as the grantor.
    pub(super) grantor_since: Instant,
    /// For each idle slot since when, longest first. As long as there are idle slots.
    idle: VecDeque<Instant>,
    /// What the index of idle slots has of it: how many, and since when the longest idle one.
    pub(super) counted: u32,
    pub(super) counted_since: Option<Instant>,
}

impl Pod {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            unlisted_since: Some(now),
            usable: false,
            new: false,
            role: Role::Bystander,
            pledged_to: None,
            told: BTreeSet::new(),
            own: BTreeMap::new(),
            loans: BTreeMap::new(),
            claims: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            excused: BTreeSet::new(),
            deferred: BTreeMap::new(),
            pauses: BTreeMap::new(),
            retry_at: now,
            grantor_since: now,
            idle: VecDeque::new(),
            counted: 0,
            counted_since: None,
        }
    }

    /// Whether the list has named the same grantor for so long that whoever has left, and lost touch with that one, has
    /// stopped here. (It watches the one that its list names, and must have had the time to see which it is.)
    pub(super) fn is_watched(&self, peers: &Peers, now: Instant) -> bool {
        now.saturating_duration_since(self.grantor_since) >= peers.dead_after()
    }

    pub(super) fn is_listed(&self) -> bool {
        self.unlisted_since.is_none()
    }

    pub(super) fn is_unlisted_for(&self, long: Duration, now: Instant) -> bool {
        self.unlisted_since.is_some_and(|since| now.saturating_duration_since(since) >= long)
    }

    pub(super) fn is_held(&self) -> bool {
        self.role == Role::Holder
    }

    pub(super) fn is_gathering(&self) -> bool {
        self.role == Role::Gathering
    }

    pub(super) fn lent(&self) -> usize {
        self.loans.values().map(BTreeSet::len).sum()
    }

    pub(super) fn in_use(&self) -> usize {
        self.own.len() + self.lent()
    }

    /// Whether slots may be handed out, if there are idle ones.
    pub(super) fn grants(&self) -> bool {
        self.is_held() && self.is_listed() && self.usable
    }

    /// Slots that may be handed out.
    pub(super) fn free(&self, limit: u32) -> usize {
        if self.grants() { (limit as usize).saturating_sub(self.in_use()) } else { 0 }
    }

    /// Since when the longest idle slot is idle.
    pub(super) fn idle_since(&mut self, limit: u32, now: Instant) -> Option<Instant> {
        self.idle.resize(self.free(limit), now);
        self.idle.front().copied()
    }

    /// The longest idle slot is about to be used.
    pub(super) fn take_idle(&mut self) {
        self.idle.pop_front();
    }

    /// A sibling's use has ended.
    pub(super) fn end_loan(&mut self, user: &Peer, number: u64) {
        if let Some(numbers) = self.loans.get_mut(user) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.loans.remove(user);
            }
        }
    }

    /// What a sibling uses, as it says itself.
    pub(super) fn set_loans(&mut self, user: &Peer, numbers: impl IntoIterator<Item = u64>) {
        let numbers: BTreeSet<u64> = numbers.into_iter().collect();
        if numbers.is_empty() {
            self.loans.remove(user);
        } else {
            self.loans.insert(user.clone(), numbers);
        }
    }

    /// Former answers, and those on their way, count for nothing.
    pub(super) fn ask_again(&mut self) {
        self.confirmed.clear();
        self.claims.clear();
    }

    /// Grants no longer, and does not gather. Own uses go on.
    pub(super) fn stand_by(&mut self) {
        self.role = Role::Bystander;
        self.loans.clear();
        self.pauses.clear();
        self.ask_again();
        self.idle.clear();
    }
}
