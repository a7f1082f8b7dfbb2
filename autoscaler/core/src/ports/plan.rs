//! Which lines of the ledger are to change, for all workloads of one owner at once.
//!
//! # Which number a port has
//!
//! Of the lines that name the workload's uid, those with the port's name are the port's, else the one that its slices
//! lead to, else those with its number: a port that is renamed, or renumbered, or both, keeps what it has. Of those that
//! are held and within the range, it has the one that its slices or its status show, else the lowest. Every other line of
//! it is closed.
//!
//! Without one, it is given what its slices lead to or its status shows, if that is free: so lines that were lost are
//! written again, and what was restored has its former numbers. Else it is the next free number of the range from
//! [`View::start`], going round.
//!
//! # No namespace takes all
//!
//! Once no more than one in [`KEPT`] is free, a namespace is given a further number only while it has fewer, in whatever
//! state, than are free: whatever one asks for, and however often it renames and renumbers, the first ports of others get
//! theirs. What a port had before is given back in any case.
//!
//! # Odd cases
//!
//! - A number outside the range (it was edited), or in use by another process on an activator: another is given first, and
//!   the old one closed after it; slices move from one to the other. If the range is exhausted, the old one stays.
//! - In use again and again: after [`TRIES_MAX`] the number stays, with its condition. (Something answers on every
//!   number, a sidecar for example.)
//! - Two lines held for one port, by two owners that did not know of each other: one is closed.
//! - A line whose object is not known: closed, once [`ORPHANED_AFTER`] has passed. One whose object has another uid now
//!   is the same case.

use super::retire::{Retiring, Step};
use super::{ORPHANED_AFTER, TRIES_MAX};
use common::RevisionKey;
use common::config::PortRange;
use common::ports::ledger::{Block, Entry, Ledger, PortId, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The last one in so many numbers of the range is kept for namespaces that have few.
const KEPT: usize = 10;

/// A port that is to have a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The Service's port.
    pub port: PortId,
    /// The number that its slices lead to.
    pub listed: Option<u16>,
    /// The number that its status shows.
    pub shown: Option<u16>,
}

/// A ZeroScaler that exists, also one that is being deleted: it has its numbers until it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name.
    pub key: RevisionKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// Its ports.
    pub ports: Vec<Wanted>,
}

/// What an owner sees.
pub struct View<'a> {
    /// Numbers that may be given.
    pub range: PortRange,
    /// Where the search for a free one begins.
    pub start: u16,
    /// All maps.
    pub ledger: &'a Ledger,
    /// Numbers whose lines cannot be read. Nobody is given them.
    pub unreadable: &'a BTreeSet<u16>,
    /// Numbers that any slice has. Nobody else is given them, should their lines have been lost.
    pub listed: &'a BTreeSet<u16>,
    /// Numbers that another process has on some activator.
    pub in_use: &'a BTreeSet<u16>,
    /// This owner's workloads, all of them.
    pub workloads: &'a [&'a Workload],
    /// Whether a line is this owner's to change: by the key of its workload.
    pub is_mine: &'a dyn Fn(&RevisionKey) -> bool,
}

/// One line to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number.
    pub number: u16,
    /// What it is to say; none: it goes.
    pub entry: Option<Entry>,
}

/// What a port has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its number, once the ledger shows it. What is only on its way there is nobody's yet.
    pub number: Option<u16>,
    /// Numbers that it had and that are still open: slices may lead there until the new one is proven.
    pub former: Vec<u16>,
    /// Why it has none, or not a good one.
    pub problem: Option<Problem>,
}

/// A condition of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no free number.
    Exhausted {
        /// The range.
        range: PortRange,
    },
    /// What is free is kept for namespaces that have fewer.
    Kept {
        /// The range.
        range: PortRange,
        /// How many its namespace has, those on their way back among them.
        has: usize,
    },
    /// Something else listens there on some activator.
    InUse {
        /// The number.
        number: u16,
        /// How many others have been tried.
        tried: usize,
    },
    /// Its status showed another one's number.
    NotOurs {
        /// The number.
        number: u16,
        /// Whose it is.
        owner: RevisionKey,
    },
    /// It had several.
    Duplicate {
        /// What it keeps.
        kept: u16,
        /// What is closed.
        closed: Vec<u16>,
    },
}

/// What is to be written, and what each port has meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By map; each map is written at once, under the version that was read.
    pub changes: BTreeMap<Block, Vec<Change>>,
    /// For each workload, its ports in their order.
    pub ports: BTreeMap<RevisionKey, Vec<Outcome>>,
    /// Numbers to look for in a list of slices, of which [`Retiring::looked_up`] is to hear.
    pub look_up: BTreeSet<u16>,
    /// When to plan again though nothing has changed.
    pub again: Option<Instant>,
}

/// Plans for all workloads of one owner. `retiring` remembers how far numbers are on their way back.
pub fn plan(view: &View<'_>, retiring: &mut Retiring, now: Instant) -> Plan {
    let mut lines: BTreeMap<&str, Vec<(u16, &Entry)>> = BTreeMap::new();
    for (number, entry) in view.ledger {
        lines.entry(&entry.uid).or_default().push((*number, entry));
    }
    let mut planner = Planner {
        view,
        given: BTreeSet::new(),
        at: view.start,
        is_exhausted: false,
        share: Share::of(view),
        plan: Plan::default(),
    };
    let mut kept = BTreeSet::new();
    for workload in view.workloads {
        let mut lines = lines.get(&*workload.uid).cloned().unwrap_or_default();
        let outcomes = workload.ports.iter().map(|wanted| {
            let mine = of_port(&mut lines, workload, wanted);
            planner.port(workload, wanted, &mine, &mut kept)
        });
        let outcomes = outcomes.collect();
        planner.plan.ports.insert(workload.key.clone(), outcomes);
    }
    let live: BTreeSet<&str> = view.workloads.iter().map(|workload| &*workload.uid).collect();
    for (number, entry) in
        view.ledger.iter().filter(|(number, entry)| (view.is_mine)(&entry.key) && !kept.contains(*number))
    {
        let is_orphan = !live.contains(&*entry.uid);
        let patience = if is_orphan { ORPHANED_AFTER } else { Duration::ZERO };
        match retiring.step(*number, entry, patience, now) {
            Step::Wait(at) => planner.plan.again = [planner.plan.again, at].into_iter().flatten().min(),
            Step::LookUp => _ = planner.plan.look_up.insert(*number),
            Step::To(state) => {
                let entry = state.map(|state| Entry { state, ..entry.clone() });
                planner.change(Change { number: *number, entry });
            }
        }
    }
    retiring.retain(|number, uid| {
        let is_mine = |entry: &Entry| *entry.uid == *uid && (view.is_mine)(&entry.key);
        view.ledger.get(&number).is_some_and(is_mine) && !kept.contains(&number)
    });
    planner.plan
}

/// Takes a port's lines out of its workload's: those of its name; of those whose name no port has, the one that its slices
/// lead to, and those of its number that no port's slices lead to.
fn of_port<'a>(lines: &mut Vec<(u16, &'a Entry)>, workload: &Workload, wanted: &Wanted) -> Vec<(u16, &'a Entry)> {
    let all = &workload.ports;
    let is_its = |number: u16, entry: &Entry| match () {
        () if all.iter().any(|other| other.port.name == entry.port.name) => entry.port.name == wanted.port.name,
        () if all.iter().any(|other| other.listed == Some(number)) => wanted.listed == Some(number),
        () => entry.port.port == wanted.port.port,
    };
    let (mine, rest) = lines.drain(..).partition(|(number, entry)| is_its(*number, entry));
    *lines = rest;
    mine
}

struct Planner<'a, 'v> {
    view: &'a View<'v>,
    /// Numbers that this plan gives.
    given: BTreeSet<u16>,
    at: u16,
    /// A search went all the way round for nothing: so would each after it, and there may be thousands.
    is_exhausted: bool,
    share: Share<'a>,
    plan: Plan,
}

/// How many numbers there are for whom.
struct Share<'a> {
    /// Lines of each namespace, and what this plan gives.
    has: BTreeMap<&'a str, usize>,
    /// Numbers of the range without a line, and not given by this plan.
    free: usize,
    /// Of that, so many are kept.
    kept: usize,
}

impl<'a> Share<'a> {
    fn of(view: &View<'a>) -> Self {
        let mut has = BTreeMap::new();
        for entry in view.ledger.values() {
            *has.entry(entry.key.namespace()).or_default() += 1;
        }
        let size = usize::from(view.range.last.saturating_sub(view.range.first)) + 1;
        let lines = view.ledger.keys().filter(|number| view.range.contains(**number)).count();
        Self { has, free: size.saturating_sub(lines), kept: size / KEPT }
    }

    fn has(&self, namespace: &str) -> usize {
        self.has.get(namespace).copied().unwrap_or(0)
    }

    /// Whether a namespace may be given a further one, if there is one.
    fn allows(&self, namespace: &str) -> bool {
        self.free == 0 || self.free > self.kept || self.has(namespace) < self.free
    }

    fn give(&mut self, namespace: &'a str) {
        *self.has.entry(namespace).or_default() += 1;
        self.free = self.free.saturating_sub(1);
    }
}

impl<'a> Planner<'a, '_> {
    fn port(
        &mut self,
        workload: &'a Workload,
        wanted: &Wanted,
        lines: &[(u16, &Entry)],
        kept: &mut BTreeSet<u16>,
    ) -> Outcome {
        let held: Vec<u16> = lines.iter().filter(|(_, entry)| entry.state == State::Held).map(|(n, _)| *n).collect();
        let retired = lines.len() - held.len();
        let good = |number: &u16| self.view.range.contains(*number) && !self.view.in_use.contains(number);
        let choose = |numbers: &[u16]| {
            let known = [wanted.listed, wanted.shown].into_iter().flatten().find(|number| numbers.contains(number));
            known.or(numbers.first().copied())
        };
        let best = choose(&held.iter().copied().filter(good).collect::<Vec<_>>());
        let fallback = choose(&held);
        let mut problem = self.misled(workload, wanted);
        let mut number = best.or(fallback);
        if let Some(number) = number {
            kept.insert(number);
        }
        if let Some(best) = best {
            let closed: Vec<u16> = held.iter().copied().filter(|other| *other != best).collect();
            if !closed.is_empty() && closed.iter().any(good) {
                problem = Some(Problem::Duplicate { kept: best, closed });
            }
            self.rename(lines, best, &wanted.port);
        } else {
            let in_use = fallback.filter(|number| self.view.in_use.contains(number));
            let may_try = in_use.is_none() || retired < TRIES_MAX;
            let namespace = workload.key.namespace();
            let next = if may_try { self.free(namespace, wanted) } else { None };
            match (next, in_use, fallback) {
                (Some(next), ..) => {
                    let (key, uid, port) = (workload.key.clone(), workload.uid.clone(), wanted.port.clone());
                    let entry = Entry { state: State::Held, key, uid, port };
                    self.change(Change { number: next, entry: Some(entry) });
                }
                (None, Some(number), _) => problem = Some(Problem::InUse { number, tried: retired }),
                (None, None, _) if !self.is_exhausted => {
                    problem = Some(Problem::Kept { range: self.view.range, has: self.share.has(namespace) });
                }
                (None, None, _) => problem = Some(Problem::Exhausted { range: self.view.range }),
            }
            // What is about to be replaced is closed once its successor is held.
            number = fallback;
        }
        let open = lines.iter().filter(|(other, entry)| Some(*other) != number && entry.state.is_open());
        Outcome { number, former: open.map(|(other, _)| *other).collect(), problem }
    }

    /// A status that shows what is another one's.
    fn misled(&self, workload: &Workload, wanted: &Wanted) -> Option<Problem> {
        let number = wanted.shown?;
        let entry = self.view.ledger.get(&number).filter(|entry| entry.uid != workload.uid)?;
        Some(Problem::NotOurs { number, owner: entry.key.clone() })
    }

    /// The line of a number that stays says what its port is called now.
    fn rename(&mut self, lines: &[(u16, &Entry)], number: u16, port: &PortId) {
        let stale = lines.iter().find(|(other, entry)| *other == number && entry.port != *port);
        if let Some((_, entry)) = stale {
            let entry = Entry { port: port.clone(), ..(*entry).clone() };
            self.change(Change { number, entry: Some(entry) });
        }
    }

    /// A number that nobody has: the one that the port had, else the next one.
    fn free(&mut self, namespace: &'a str, wanted: &Wanted) -> Option<u16> {
        let View { range, ledger, unreadable, listed, in_use, .. } = *self.view;
        let given = &self.given;
        let is_free = |number: &u16| {
            !(ledger.contains_key(number) || unreadable.contains(number) || in_use.contains(number))
                && range.contains(*number)
                && !given.contains(number)
        };
        let is_nobodys = |number: &u16| is_free(number) && !listed.contains(number);
        let first = if range.contains(self.at) { self.at } else { range.first };
        let mut round = (first..=range.last).chain(range.first..first);
        let former = wanted.listed.filter(is_free).or(wanted.shown.filter(is_nobodys));
        if former.is_none() && !self.is_exhausted && !self.share.allows(namespace) {
            return None;
        }
        let next = former.or_else(|| if self.is_exhausted { None } else { round.find(is_nobodys) });
        let Some(next) = next else {
            self.is_exhausted = true;
            return None;
        };
        self.share.give(namespace);
        if former.is_none() {
            self.at = next.checked_add(1).unwrap_or(range.first);
        }
        self.given.insert(next);
        Some(next)
    }

    fn change(&mut self, change: Change) {
        self.plan.changes.entry(Block::of(change.number)).or_default().push(change);
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { range } => {
                write!(f, "no port number is free in {range}, the range of config-ports: make it larger")
            }
            Self::Kept { range, has } => write!(
                f,
                "the namespace has {has} port numbers, and what is free in {range}, the range of config-ports, is kept for \
                 namespaces with fewer: make it larger"
            ),
            Self::InUse { number, tried: 0 } => write!(
                f,
                "something else listens on port {number} of an activator, and no other number is free: make the range \
                 of config-ports larger, or move it to where nothing listens"
            ),
            Self::InUse { number, tried } => write!(
                f,
                "something else listens on port {number} of an activator, and on {tried} others that were tried: \
                 move the range of config-ports to where nothing listens"
            ),
            Self::NotOurs { number, owner } => {
                write!(f, "the status showed port {number}, which is {owner}'s: it is not used")
            }
            Self::Duplicate { kept, closed } => {
                write!(f, "it had several port numbers: {kept} stays, {closed:?} are closed")
            }
        }
    }
}
