//! Decides whether activators enforce one limit together, divide the pods, or one activator has all pods.
//!
//! # The rule
//!
//! | mode | condition | pods with a hard limit |
//! |---|---|---|
//! | [`Undecided`] | the process has just started | no requests are sent to them yet |
//! | [`Alone`] | no other activator was listed or connected for [`ALONE_AFTER`], or it is the [only one] | its own |
//! | [`Divided`] | a listed activator is foreign, or not connected while none shares yet | Knative's assignment |
//! | [`Shared`] | all listed activators are connected to all in their lists, or one already shares | [`Holding`] |
//!
//! In the last case each workload has one holder at a time. Sharing continues while siblings join, leave and fall
//! silent, since [`Holding`] handles that. It ends if a listed activator turns out to be *foreign*, if a listed sibling
//! reports a foreign one, or if no other activator is left.
//!
//! # Foreign activators
//!
//! A listed activator is foreign if it responds but does not speak this protocol: an activator of Knative, or an older
//! one of Zeroscale. It is also foreign if there has been no session with it for [`DECIDED_AFTER`] since it was listed,
//! because it may send by Knative's assignment. A sibling that had a session stays a sibling while it is silent.
//!
//! # The only activator
//!
//! A process that has just started holds requests until it is decided. If the list shows all activators that run,
//! including unready and terminating ones, and names only this activator, then no former activator is left, and this
//! one is alone at once. (A list may lag by as much time as a process needs to start and become ready.)
//!
//! # All or none
//!
//! No activator shares before all are complete, and then all begin within the delay of one message. So none waits for a
//! confirmation from an activator that still divides. An activator that finds a foreign one reports it to its siblings
//! at once.
//!
//! [`Undecided`]: SharingMode::Undecided
//! [`Alone`]: SharingMode::Alone
//! [`Divided`]: SharingMode::Divided
//! [`Shared`]: SharingMode::Shared
//! [`Holding`]: super::Holding
//! [only one]: #the-only-activator

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Peer;

/// Time in which no other activator was listed. By then an activator that has left knows this one and has opened a
/// session.
pub const ALONE_AFTER: Duration = Duration::from_secs(1);
/// Maximum time that an activator stays undecided after its start.
pub const DECIDED_AFTER: Duration = Duration::from_secs(3);

/// Way in which an activator and its siblings use pods with a hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharingMode {
    /// Not known yet.
    Undecided,
    /// There is only this activator.
    Alone,
    /// Each activator sends to its part of the pods.
    Divided,
    /// Each workload has one holder at a time, or as many as it needs.
    Shared,
}

impl SharingMode {
    /// Reports whether limits are shared. While it is undecided, no request gets a permit.
    pub fn shares_limits(self) -> bool {
        matches!(self, Self::Undecided | Self::Shared)
    }
}

/// State that an activator reports to its siblings.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SharingReport {
    /// True if its list contains a foreign activator.
    #[prost(bool, tag = "1")]
    pub foreign: bool,
    /// True if it is in touch with all activators in its list.
    #[prost(bool, tag = "2")]
    pub complete: bool,
    /// True if it shares.
    #[prost(bool, tag = "3")]
    pub shares: bool,
}

/// Knowledge about a sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// The sibling has not responded yet.
    Unknown,
    /// The sibling responds, but does not speak this protocol.
    Foreign,
    /// There is a session, on which it last reported this.
    Session(SharingReport),
}

/// Knowledge about all siblings.
#[derive(Clone, Debug, Default)]
pub struct Siblings {
    /// Ready activators in the list, including this one.
    pub listed: BTreeSet<Peer>,
    /// All activators in the list, ready or not.
    pub known: BTreeSet<Peer>,
    /// True if `known` includes all terminating activators.
    pub includes_terminating: bool,
    /// Contact with each sibling. A sibling without an entry is [`Contact::Unknown`].
    pub contacts: BTreeMap<Peer, Contact>,
}

/// State machine that decides the mode.
#[derive(Clone, Debug)]
pub struct SharingDecider {
    me: Peer,
    mode: SharingMode,
    began: Instant,
    /// Time since which this activator is known, no other is ready, and none has opened a session.
    only_since: Option<Instant>,
    /// Time since which other activators are listed.
    others_since: Option<Instant>,
    /// Other listed activators, and the time since which there has been no session with each. `None` if there was one.
    no_session_since: BTreeMap<Peer, Option<Instant>>,
}

impl Siblings {
    fn others<'a>(&'a self, me: &'a Peer) -> impl Iterator<Item = (&'a Peer, Contact)> {
        let contact = |peer| (peer, self.contacts.get(peer).copied().unwrap_or(Contact::Unknown));
        self.listed.iter().filter(move |peer| *peer != me).map(contact)
    }

    fn knows_only(&self, me: &Peer) -> bool {
        self.known.len() == 1 && self.known.contains(me)
    }

    fn reports(&self) -> impl Iterator<Item = SharingReport> {
        self.contacts.values().filter_map(|contact| match contact {
            Contact::Session(report) => Some(*report),
            Contact::Unknown | Contact::Foreign => None,
        })
    }
}

impl SharingDecider {
    /// Creates the state of a process that started at `now` with a known list of activators.
    pub fn new(me: Peer, now: Instant) -> Self {
        Self {
            me,
            mode: SharingMode::Undecided,
            began: now,
            only_since: None,
            others_since: None,
            no_session_since: BTreeMap::new(),
        }
    }

    /// Returns the report for the siblings.
    pub fn report(&self, siblings: &Siblings, now: Instant) -> SharingReport {
        SharingReport {
            foreign: self.foreign(siblings, now).next().is_some(),
            complete: siblings.others(&self.me).all(|(_, contact)| matches!(contact, Contact::Session(_))),
            shares: self.mode == SharingMode::Shared,
        }
    }

    /// Returns the listed activators that count as foreign.
    pub fn foreign<'a>(&'a self, siblings: &'a Siblings, now: Instant) -> impl Iterator<Item = &'a Peer> {
        let is_overdue = move |peer: &Peer| {
            let since = self.no_session_since.get(peer).copied().flatten();
            since.is_some_and(|since| now.saturating_duration_since(since) >= DECIDED_AFTER)
        };
        let is_foreign = move |peer: &Peer, contact| contact == Contact::Foreign || is_overdue(peer);
        siblings.others(&self.me).filter(move |(peer, contact)| is_foreign(peer, *contact)).map(|(peer, _)| peer)
    }

    /// Decides the mode again. While sharing, `held_alone` must return true once no workload needs another activator.
    pub fn decide(&mut self, siblings: &Siblings, held_alone: impl FnOnce() -> bool, now: Instant) -> SharingMode {
        self.record_sessions(siblings, now);
        let others = || siblings.others(&self.me).map(|(_, contact)| contact);
        let only = others().next().is_none() && siblings.reports().next().is_none();
        let is_known = siblings.knows_only(&self.me) || siblings.listed.contains(&self.me);
        self.only_since = (only && is_known).then(|| self.only_since.unwrap_or(now));
        self.others_since = others().next().map(|_| self.others_since.unwrap_or(now));
        let reports_foreign = |contact| matches!(contact, Contact::Session(SharingReport { foreign: true, .. }));
        let foreign = others().any(reports_foreign) || self.foreign(siblings, now).next().is_some();
        let all_complete = || {
            let complete = |contact| matches!(contact, Contact::Session(SharingReport { complete: true, .. }));
            others().next().is_some() && others().all(complete)
        };
        let only_one = only && siblings.includes_terminating && siblings.knows_only(&self.me);
        let only_for = |long| self.only_since.is_some_and(|since| now.saturating_duration_since(since) >= long);
        let long = |since: Instant| now.saturating_duration_since(since) >= ALONE_AFTER;
        let is_late = now.saturating_duration_since(self.began) >= DECIDED_AFTER;
        self.mode = match self.mode {
            _ if foreign => SharingMode::Divided,
            SharingMode::Shared if only_for(ALONE_AFTER) && held_alone() => SharingMode::Alone,
            SharingMode::Shared => SharingMode::Shared,
            _ if all_complete() || siblings.reports().any(|report| report.shares) => SharingMode::Shared,
            SharingMode::Alone if !self.others_since.is_some_and(long) => SharingMode::Alone,
            SharingMode::Undecided if only_one => SharingMode::Alone,
            _ if only_for(ALONE_AFTER) => SharingMode::Alone,
            SharingMode::Undecided if !is_late => SharingMode::Undecided,
            _ => SharingMode::Divided,
        };
        self.mode
    }

    /// Records which listed activators had a session since they were listed.
    fn record_sessions(&mut self, siblings: &Siblings, now: Instant) {
        let former = std::mem::take(&mut self.no_session_since);
        let since = |(peer, contact): (&Peer, Contact)| {
            let has_session = matches!(contact, Contact::Session(_));
            let since = former.get(peer).copied().unwrap_or(Some(now)).filter(|_| !has_session);
            (*peer, since)
        };
        self.no_session_since = siblings.others(&self.me).map(since).collect();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::origin;

    const COMPLETE: Contact = Contact::Session(SharingReport { foreign: false, complete: true, shares: false });
    const PARTIAL: Contact = Contact::Session(SharingReport { foreign: false, complete: false, shares: false });
    const SHARES: Contact = Contact::Session(SharingReport { foreign: false, complete: false, shares: true });
    const REPORTS_FOREIGN: Contact = Contact::Session(SharingReport { foreign: true, complete: false, shares: false });

    fn peer(name: &str) -> Peer {
        Peer::from([10, 1, 0, name.as_bytes()[0]])
    }

    fn siblings(listed: &[&str], contacts: &[(&str, Contact)]) -> Siblings {
        let listed: BTreeSet<Peer> = listed.iter().map(|name| peer(name)).collect();
        Siblings {
            known: listed.clone(),
            listed,
            includes_terminating: false,
            contacts: contacts.iter().map(|(name, contact)| (peer(name), *contact)).collect(),
        }
    }

    struct Case {
        decider: SharingDecider,
        start: Instant,
    }

    impl Case {
        fn new() -> Self {
            let start = origin();
            Self { decider: SharingDecider::new(peer("a"), start), start }
        }

        fn decide(&mut self, ms: u64, listed: &[&str], contacts: &[(&str, Contact)]) -> SharingMode {
            let now = self.start + Duration::from_millis(ms);
            self.decider.decide(&siblings(listed, contacts), || true, now)
        }

        fn report(&self, ms: u64, listed: &[&str], contacts: &[(&str, Contact)]) -> SharingReport {
            self.decider.report(&siblings(listed, contacts), self.start + Duration::from_millis(ms))
        }
    }

    /// Goal: if the list shows all activators that run, the only one that it names is alone at once, ready or not, but
    /// not while a former one terminates.
    #[test]
    fn the_only_activator_is_alone_at_once() {
        let mut case = Case::new();
        let listed = |ready: &[&str], known: &[&str]| {
            let known = known.iter().map(|name| peer(name)).collect();
            Siblings { known, includes_terminating: true, ..siblings(ready, &[]) }
        };
        let mut decide = |siblings: &Siblings| case.decider.decide(siblings, || true, case.start);
        assert_eq!(decide(&listed(&[], &[])), SharingMode::Undecided, "it is in no list yet");
        assert_eq!(decide(&listed(&[], &["b"])), SharingMode::Undecided);
        assert_eq!(decide(&listed(&["a"], &["a", "b"])), SharingMode::Undecided);
        assert_eq!(decide(&listed(&[], &["a"])), SharingMode::Alone);
        let mut unready = Case::new();
        let known = Siblings { includes_terminating: false, ..listed(&[], &["a"]) };
        let mut decide = |ms| unready.decider.decide(&known, || true, unready.start + Duration::from_millis(ms));
        for (ms, expected) in [(0, SharingMode::Undecided), (999, SharingMode::Undecided), (1000, SharingMode::Alone)] {
            assert_eq!(decide(ms), expected, "{ms} ms");
        }
    }

    /// Goal: an activator without a session within the bound counts as foreign, whatever it is. An activator that had a
    /// session does not, however long it is silent.
    #[test]
    fn an_activator_without_a_session_becomes_foreign() {
        let mut case = Case::new();
        let listed = ["a", "b", "c"];
        assert_eq!(case.decide(0, &["a", "b"], &[("b", COMPLETE)]), SharingMode::Shared);
        assert_eq!(case.decide(10, &listed, &[("b", COMPLETE)]), SharingMode::Shared);
        assert_eq!(case.decide(3009, &listed, &[("b", COMPLETE)]), SharingMode::Shared);
        assert!(!case.report(3009, &listed, &[("b", COMPLETE)]).foreign);
        assert_eq!(case.decide(3010, &listed, &[("b", COMPLETE)]), SharingMode::Divided);
        assert!(case.report(3010, &listed, &[("b", COMPLETE)]).foreign);
        assert_eq!(case.decide(3020, &listed, &[("b", COMPLETE), ("c", COMPLETE)]), SharingMode::Shared);
        assert_eq!(case.decide(9000, &listed, &[]), SharingMode::Shared);
    }

    /// Goal: a start is decided as early as possible, and never late.
    #[test]
    fn the_mode_is_decided_soon_after_a_start() {
        let mut alone = Case::new();
        assert_eq!(alone.decide(0, &[], &[]), SharingMode::Undecided);
        assert_eq!(alone.decide(500, &["a"], &[]), SharingMode::Undecided);
        assert_eq!(alone.decide(1499, &["a"], &[]), SharingMode::Undecided);
        assert_eq!(alone.decide(1500, &["a"], &[]), SharingMode::Alone);
        let mut unlisted = Case::new();
        assert_eq!(unlisted.decide(2999, &[], &[]), SharingMode::Undecided);
        assert_eq!(unlisted.decide(3000, &[], &[]), SharingMode::Divided, "another activator may be terminating");
        let mut second = Case::new();
        assert_eq!(second.decide(0, &["b"], &[("b", Contact::Unknown)]), SharingMode::Undecided);
        assert_eq!(second.decide(1, &["b"], &[("b", PARTIAL)]), SharingMode::Undecided);
        assert_eq!(second.decide(2, &["b"], &[("b", COMPLETE)]), SharingMode::Shared);
        let mut silent = Case::new();
        assert_eq!(silent.decide(2999, &["a", "b"], &[]), SharingMode::Undecided);
        assert_eq!(silent.decide(3000, &["a", "b"], &[]), SharingMode::Divided);
    }

    /// Goal: no activator shares before all are complete. One that already shares makes the others share.
    #[test]
    fn no_activator_shares_before_all_are_complete() {
        let mut case = Case::new();
        let listed = ["a", "b", "c"];
        assert_eq!(case.decide(3000, &listed, &[("b", COMPLETE)]), SharingMode::Divided);
        assert_eq!(case.decide(3001, &listed, &[("b", COMPLETE), ("c", PARTIAL)]), SharingMode::Divided);
        assert_eq!(case.decide(3002, &listed, &[("b", COMPLETE), ("c", COMPLETE)]), SharingMode::Shared);
        let mut case = Case::new();
        assert_eq!(case.decide(10, &listed, &[("b", SHARES)]), SharingMode::Shared);
        assert_eq!(case.decide(11, &listed, &[]), SharingMode::Shared, "a lost session does not end sharing");
    }

    /// Goal: an activator of Knative in the list ends sharing, even if only a sibling reports it. When it is gone, all
    /// share again.
    #[test]
    fn beside_a_foreign_activator_pods_are_divided() {
        let mut case = Case::new();
        assert_eq!(case.decide(0, &["a", "b"], &[("b", Contact::Foreign)]), SharingMode::Divided);
        assert!(case.report(0, &["a", "b"], &[("b", Contact::Foreign)]).foreign);
        assert_eq!(case.decide(10, &["a", "c"], &[("b", Contact::Foreign), ("c", COMPLETE)]), SharingMode::Shared);
        assert_eq!(case.decide(20, &["a", "c"], &[("c", REPORTS_FOREIGN)]), SharingMode::Divided);
        let own = case.report(20, &["a", "c"], &[("c", REPORTS_FOREIGN)]);
        assert_eq!(own, SharingReport { foreign: false, complete: true, shares: false }, "it has not found one itself");
        assert_eq!(case.decide(30, &["a", "c"], &[("c", COMPLETE)]), SharingMode::Shared);
    }

    /// Goal: the last activator ends sharing a second later, unless its workloads need another one. A report of a
    /// sharing sibling starts it again.
    #[test]
    fn the_last_activator_has_all_pods() {
        let mut case = Case::new();
        assert_eq!(case.decide(0, &["a", "b"], &[("b", COMPLETE)]), SharingMode::Shared);
        assert_eq!(case.decide(10, &["a"], &[]), SharingMode::Shared);
        let now = case.start + Duration::from_millis(2000);
        assert_eq!(case.decider.decide(&siblings(&["a"], &[]), || false, now), SharingMode::Shared);
        assert_eq!(case.decide(2001, &["a"], &[]), SharingMode::Alone);
        assert_eq!(case.decide(2002, &["a", "b"], &[]), SharingMode::Alone, "it has not responded yet");
        assert_eq!(case.decide(3002, &["a", "b"], &[]), SharingMode::Divided, "it may have begun to send");
        assert_eq!(case.decide(3003, &["a"], &[]), SharingMode::Divided);
        assert_eq!(case.decide(4003, &["a"], &[]), SharingMode::Alone);
        assert_eq!(case.decide(4004, &["a"], &[("b", COMPLETE)]), SharingMode::Alone);
        assert_eq!(case.decide(4005, &["a"], &[("b", SHARES)]), SharingMode::Shared);
    }
}
