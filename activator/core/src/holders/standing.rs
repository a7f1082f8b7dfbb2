//! Whether activators keep one limit together, divide pods, or one has them all.
//!
//! # The rule
//!
//! | standing | when | pods with a hard limit |
//! |---|---|---|
//! | [`Undecided`](Standing::Undecided) | the process has just begun | nobody is sent to them yet |
//! | [`Alone`](Standing::Alone) | the list has named nobody else for [`ALONE_AFTER`], and nobody else has called; or it is the [only one](#the-only-one) | all are its own |
//! | [`Divided`](Standing::Divided) | somebody in the list is not ours, or not in touch while nobody shares yet | Knative's assignment |
//! | [`Shared`](Standing::Shared) | all in the list are ours and in touch, and all of them say that of theirs; or somebody shares already | one holder for each workload ([`Holding`](super::Holding)) |
//!
//! Who shares goes on while siblings come, go and fall silent: [`Holding`](super::Holding) knows how to live with that. It ends when one in the
//! list turns out to be *foreign*, or when a listed sibling says that it has met one; and when nobody else is left.
//!
//! # Foreign
//!
//! A listed activator is foreign if it answers and does not speak this protocol (Knative's, or one of ours from before it),
//! or if there has been no session with it for [`DECIDED_AFTER`] since it was listed: whoever it is, it may send by
//! Knative's assignment. One that there was a session with stays ours while it is silent.
//!
//! # The only one
//!
//! A process that has just begun holds requests until it is decided. Where the list shows all that run, those that are not
//! ready and those that are on their way out among them, one that names this activator and nobody else says that no former
//! one is left: then it is alone at once. (A list may be late by so much as a process needs to start and to be ready.)
//!
//! # All or none
//!
//! Nobody begins before all are complete, and then all do within a message's way: so nobody waits for a confirmation from
//! one who still divides. One who has met a foreign one tells the others at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Peer;

/// Nobody else was listed for so long: whoever has left before has heard of this one by then, and has called.
pub const ALONE_AFTER: Duration = Duration::from_secs(1);
/// Longest indecision after a start.
pub const DECIDED_AFTER: Duration = Duration::from_secs(3);

/// How an activator and its siblings use pods with a hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not known yet.
    Undecided,
    /// There is one activator.
    Alone,
    /// Each sends to its part of the pods.
    Divided,
    /// Each workload has one holder at a time, or as many as it needs.
    Shared,
}

/// What one activator tells another of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Says {
    /// It has met a foreign one in its list.
    pub foreign: bool,
    /// It is in touch with all in its list.
    pub complete: bool,
    /// It shares.
    pub shares: bool,
}

/// What is known of a sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It has not answered yet.
    Unknown,
    /// It answers, and is not ours.
    Foreign,
    /// There is a session, on which it has said this.
    Session(Says),
}

/// All that is known of siblings.
#[derive(Clone, Debug, Default)]
pub struct Siblings {
    /// The ready activators as they are listed, this one included.
    pub listed: BTreeSet<Peer>,
    /// All that are listed, ready or not.
    pub known: BTreeSet<Peer>,
    /// Whether these include all that are on their way out.
    pub shows_leaving: bool,
    /// What is known of each; those without an entry are unknown.
    pub contacts: BTreeMap<Peer, Contact>,
}

/// The machine that decides.
#[derive(Clone, Debug)]
pub struct Council {
    me: Peer,
    standing: Standing,
    began: Instant,
    /// Since when this one is known and nobody else is ready, or has called.
    only_since: Option<Instant>,
    /// Since when others are listed.
    others_since: Option<Instant>,
    /// Others that are listed, and since when there has been no session with them; none: there was one.
    unmet_since: BTreeMap<Peer, Option<Instant>>,
}

impl Siblings {
    fn others<'a>(&'a self, me: &'a Peer) -> impl Iterator<Item = (&'a Peer, Contact)> {
        let contact = |peer| (peer, self.contacts.get(peer).copied().unwrap_or(Contact::Unknown));
        self.listed.iter().filter(move |peer| *peer != me).map(contact)
    }

    fn knows_nobody_but(&self, me: &Peer) -> bool {
        self.known.len() == 1 && self.known.contains(me)
    }

    fn said(&self) -> impl Iterator<Item = Says> {
        self.contacts.values().filter_map(|contact| match contact {
            Contact::Session(says) => Some(*says),
            Contact::Unknown | Contact::Foreign => None,
        })
    }
}

impl Council {
    /// One that has begun at `now`, when the list of activators was known.
    pub fn new(me: Peer, now: Instant) -> Self {
        Self {
            me,
            standing: Standing::Undecided,
            began: now,
            only_since: None,
            others_since: None,
            unmet_since: BTreeMap::new(),
        }
    }

    /// What to tell the siblings.
    pub fn says(&self, siblings: &Siblings, now: Instant) -> Says {
        Says {
            foreign: self.foreign(siblings, now).next().is_some(),
            complete: siblings.others(&self.me).all(|(_, contact)| matches!(contact, Contact::Session(_))),
            shares: self.standing == Standing::Shared,
        }
    }

    /// Those in the list that are taken for foreign.
    pub fn foreign<'a>(&'a self, siblings: &'a Siblings, now: Instant) -> impl Iterator<Item = &'a Peer> {
        let unmet = move |peer: &Peer| {
            let since = self.unmet_since.get(peer).copied().flatten();
            since.is_some_and(|since| now.saturating_duration_since(since) >= DECIDED_AFTER)
        };
        let is_foreign = move |peer: &Peer, contact| contact == Contact::Foreign || unmet(peer);
        siblings.others(&self.me).filter(move |(peer, contact)| is_foreign(peer, *contact)).map(|(peer, _)| peer)
    }

    /// Judges anew. `held_alone`: of one that shares, whether no workload needs anybody else any more.
    pub fn judge(&mut self, siblings: &Siblings, held_alone: impl FnOnce() -> bool, now: Instant) -> Standing {
        self.meet(siblings, now);
        let others = || siblings.others(&self.me).map(|(_, contact)| contact);
        let only = others().next().is_none() && siblings.said().next().is_none();
        let is_known = siblings.knows_nobody_but(&self.me) || siblings.listed.contains(&self.me);
        self.only_since = (only && is_known).then(|| self.only_since.unwrap_or(now));
        self.others_since = others().next().map(|_| self.others_since.unwrap_or(now));
        let met_one = |contact| matches!(contact, Contact::Session(Says { foreign: true, .. }));
        let foreign = others().any(met_one) || self.foreign(siblings, now).next().is_some();
        let all_complete = || {
            let complete = |contact| matches!(contact, Contact::Session(Says { complete: true, .. }));
            others().next().is_some() && others().all(complete)
        };
        let only_one = only && siblings.shows_leaving && siblings.knows_nobody_but(&self.me);
        let only_for = |long| self.only_since.is_some_and(|since| now.saturating_duration_since(since) >= long);
        let long = |since: Instant| now.saturating_duration_since(since) >= ALONE_AFTER;
        let is_late = now.saturating_duration_since(self.began) >= DECIDED_AFTER;
        self.standing = match self.standing {
            _ if foreign => Standing::Divided,
            Standing::Shared if only_for(ALONE_AFTER) && held_alone() => Standing::Alone,
            Standing::Shared => Standing::Shared,
            _ if all_complete() || siblings.said().any(|says| says.shares) => Standing::Shared,
            Standing::Alone if !self.others_since.is_some_and(long) => Standing::Alone,
            Standing::Undecided if only_one => Standing::Alone,
            _ if only_for(ALONE_AFTER) => Standing::Alone,
            Standing::Undecided if !is_late => Standing::Undecided,
            _ => Standing::Divided,
        };
        self.standing
    }

    /// Notes who was met since it was listed.
    fn meet(&mut self, siblings: &Siblings, now: Instant) {
        let former = std::mem::take(&mut self.unmet_since);
        let since = |(peer, contact): (&Peer, Contact)| {
            let met = matches!(contact, Contact::Session(_));
            let since = former.get(peer).copied().unwrap_or(Some(now)).filter(|_| !met);
            (peer.clone(), since)
        };
        self.unmet_since = siblings.others(&self.me).map(since).collect();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
    fn origin() -> Instant {
        Instant::now()
    }

    const COMPLETE: Contact = Contact::Session(Says { foreign: false, complete: true, shares: false });
    const PARTIAL: Contact = Contact::Session(Says { foreign: false, complete: false, shares: false });
    const SHARES: Contact = Contact::Session(Says { foreign: false, complete: false, shares: true });
    const MET_ONE: Contact = Contact::Session(Says { foreign: true, complete: false, shares: false });

    fn siblings(listed: &[&str], contacts: &[(&str, Contact)]) -> Siblings {
        let listed: BTreeSet<Peer> = listed.iter().map(|name| Peer::from(*name)).collect();
        Siblings {
            known: listed.clone(),
            listed,
            shows_leaving: false,
            contacts: contacts.iter().map(|(name, contact)| (Peer::from(*name), *contact)).collect(),
        }
    }

    struct Case {
        council: Council,
        start: Instant,
    }

    impl Case {
        fn new() -> Self {
            let start = origin();
            Self { council: Council::new("a".into(), start), start }
        }

        fn judge(&mut self, ms: u64, listed: &[&str], contacts: &[(&str, Contact)]) -> Standing {
            let now = self.start + Duration::from_millis(ms);
            self.council.judge(&siblings(listed, contacts), || true, now)
        }

        fn says(&self, ms: u64, listed: &[&str], contacts: &[(&str, Contact)]) -> Says {
            self.council.says(&siblings(listed, contacts), self.start + Duration::from_millis(ms))
        }
    }

    /// Goal: where the list shows all that run, the only one that it names is alone at once, ready or not; and not while a
    /// former one is on its way out.
    #[test]
    fn the_only_one_does_not_wait() {
        let mut case = Case::new();
        let listed = |ready: &[&str], known: &[&str]| {
            let known = known.iter().map(|name| Peer::from(*name)).collect();
            Siblings { known, shows_leaving: true, ..siblings(ready, &[]) }
        };
        let mut judge = |siblings: &Siblings| case.council.judge(siblings, || true, case.start);
        assert_eq!(judge(&listed(&[], &[])), Standing::Undecided, "it stands in no list yet");
        assert_eq!(judge(&listed(&[], &["b"])), Standing::Undecided);
        assert_eq!(judge(&listed(&["a"], &["a", "b"])), Standing::Undecided);
        assert_eq!(judge(&listed(&[], &["a"])), Standing::Alone);
        let mut unready = Case::new();
        let known = Siblings { shows_leaving: false, ..listed(&[], &["a"]) };
        let mut judge = |ms| unready.council.judge(&known, || true, unready.start + Duration::from_millis(ms));
        assert_eq!([judge(0), judge(999), judge(1000)], [Standing::Undecided, Standing::Undecided, Standing::Alone]);
    }

    /// Goal: one that does not speak to us within the bound is taken for one that divides pods, whatever it is; one that has
    /// spoken to us is not, however long it is silent.
    #[test]
    fn who_was_never_met_is_foreign() {
        let mut case = Case::new();
        let listed = ["a", "b", "c"];
        assert_eq!(case.judge(0, &["a", "b"], &[("b", COMPLETE)]), Standing::Shared);
        assert_eq!(case.judge(10, &listed, &[("b", COMPLETE)]), Standing::Shared);
        assert_eq!(case.judge(3009, &listed, &[("b", COMPLETE)]), Standing::Shared);
        assert!(!case.says(3009, &listed, &[("b", COMPLETE)]).foreign);
        assert_eq!(case.judge(3010, &listed, &[("b", COMPLETE)]), Standing::Divided);
        assert!(case.says(3010, &listed, &[("b", COMPLETE)]).foreign);
        assert_eq!(case.judge(3020, &listed, &[("b", COMPLETE), ("c", COMPLETE)]), Standing::Shared);
        assert_eq!(case.judge(9000, &listed, &[]), Standing::Shared);
    }

    /// Goal: a start decides as soon as it can, and never waits for long.
    #[test]
    fn a_start_is_decided_soon() {
        let mut alone = Case::new();
        assert_eq!(alone.judge(0, &[], &[]), Standing::Undecided);
        assert_eq!(alone.judge(500, &["a"], &[]), Standing::Undecided);
        assert_eq!(alone.judge(1499, &["a"], &[]), Standing::Undecided);
        assert_eq!(alone.judge(1500, &["a"], &[]), Standing::Alone);
        let mut unlisted = Case::new();
        assert_eq!(unlisted.judge(2999, &[], &[]), Standing::Undecided);
        assert_eq!(unlisted.judge(3000, &[], &[]), Standing::Divided, "somebody may be on the way out");
        let mut second = Case::new();
        assert_eq!(second.judge(0, &["b"], &[("b", Contact::Unknown)]), Standing::Undecided);
        assert_eq!(second.judge(1, &["b"], &[("b", PARTIAL)]), Standing::Undecided);
        assert_eq!(second.judge(2, &["b"], &[("b", COMPLETE)]), Standing::Shared);
        let mut silent = Case::new();
        assert_eq!(silent.judge(2999, &["a", "b"], &[]), Standing::Undecided);
        assert_eq!(silent.judge(3000, &["a", "b"], &[]), Standing::Divided);
    }

    /// Goal: nobody begins before all are complete; one that shares already draws the others along.
    #[test]
    fn all_begin_or_none() {
        let mut case = Case::new();
        let listed = ["a", "b", "c"];
        assert_eq!(case.judge(3000, &listed, &[("b", COMPLETE)]), Standing::Divided);
        assert_eq!(case.judge(3001, &listed, &[("b", COMPLETE), ("c", PARTIAL)]), Standing::Divided);
        assert_eq!(case.judge(3002, &listed, &[("b", COMPLETE), ("c", COMPLETE)]), Standing::Shared);
        let mut case = Case::new();
        assert_eq!(case.judge(10, &listed, &[("b", SHARES)]), Standing::Shared);
        assert_eq!(case.judge(11, &listed, &[]), Standing::Shared, "silence ends nothing");
    }

    /// Goal: one of Knative's in the list ends it, also if a sibling has met it; when it is gone, all begin again.
    #[test]
    fn beside_a_foreign_one_pods_are_divided() {
        let mut case = Case::new();
        assert_eq!(case.judge(0, &["a", "b"], &[("b", Contact::Foreign)]), Standing::Divided);
        assert!(case.says(0, &["a", "b"], &[("b", Contact::Foreign)]).foreign);
        assert_eq!(case.judge(10, &["a", "c"], &[("b", Contact::Foreign), ("c", COMPLETE)]), Standing::Shared);
        assert_eq!(case.judge(20, &["a", "c"], &[("c", MET_ONE)]), Standing::Divided);
        let own = case.says(20, &["a", "c"], &[("c", MET_ONE)]);
        assert_eq!(own, Says { foreign: false, complete: true, shares: false }, "it has not met one itself");
        assert_eq!(case.judge(30, &["a", "c"], &[("c", COMPLETE)]), Standing::Shared);
    }

    /// Goal: who is left alone ends sharing a second later, unless its pools need somebody; a call begins it again.
    #[test]
    fn the_last_one_has_all_pods() {
        let mut case = Case::new();
        assert_eq!(case.judge(0, &["a", "b"], &[("b", COMPLETE)]), Standing::Shared);
        assert_eq!(case.judge(10, &["a"], &[]), Standing::Shared);
        let now = case.start + Duration::from_millis(2000);
        assert_eq!(case.council.judge(&siblings(&["a"], &[]), || false, now), Standing::Shared);
        assert_eq!(case.judge(2001, &["a"], &[]), Standing::Alone);
        assert_eq!(case.judge(2002, &["a", "b"], &[]), Standing::Alone, "it has not answered yet");
        assert_eq!(case.judge(3002, &["a", "b"], &[]), Standing::Divided, "it may have begun to send");
        assert_eq!(case.judge(3003, &["a"], &[]), Standing::Divided);
        assert_eq!(case.judge(4003, &["a"], &[]), Standing::Alone);
        assert_eq!(case.judge(4004, &["a"], &[("b", COMPLETE)]), Standing::Alone);
        assert_eq!(case.judge(4005, &["a"], &[("b", SHARES)]), Standing::Shared);
    }
}
