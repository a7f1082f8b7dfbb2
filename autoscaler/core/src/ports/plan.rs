//! Which lines of the ledger are to change, for all workloads of one owner at once.
//!
//! # Which number a port has
//!
//! Of the lines that name the workload's uid, those with the port's name are the port's, else the one that its slices
//! lead to, else those with its number: a port that is renamed, or renumbered, or both, keeps what it has. Of those that
//! are held and within the range, it has the one that its slices or its status show, else the lowest.
//!
//! Without one, it gets the first of these:
//!
//! 1. The number that its slices lead to or its status shows, if that is unused or was this port's: lines that were lost
//!    are written again, and a restored object has its former numbers.
//! 2. Another number that was this port's.
//! 3. The next number of the range that has no line, from [`View::start`], going round.
//! 4. Of all released numbers, the one that has rested longest, once it has rested for [`RESTS_FOR`].
//!
//! # Release
//!
//! Every other held line of this owner is released as soon as no slice names its number.
//!
//! # Quota
//!
//! A namespace gets no further number while it has nine tenths of the range, those counted that were released within
//! [`RESTS_FOR`]. A number that a port had before is given back in any case.
//!
//! # Odd cases
//!
//! - A number outside the range (it was edited), or in use by another process on an activator: another is given first, and
//!   the old one released after it; slices move from one to the other. If the range is exhausted, the old one stays.
//! - In use again and again: while [`TRIES_MAX`] former ones rest the number stays, with its condition. (Something answers
//!   on every number, a sidecar for example.)
//! - Two lines held for one port, by two owners that did not know of each other: one is released.
//! - A line whose object is not known, or has another uid, is released. The shell asks the API server first whether the
//!   object exists: views lag.

use super::{NOTED_EVERY, RESTS_FOR, TRIES_MAX};
use common::RevisionKey;
use common::config::PortRange;
use common::ports::ledger::{Block, Entry, Ledger, PortId, State};
use common::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One in so many numbers of the range is not for a namespace that has all others.
const KEPT: usize = 10;

/// Numbers of the range that one namespace may have.
pub fn quota(range: PortRange) -> usize {
    range.len() - range.len() / KEPT
}

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
    /// Where the search for an unused one begins.
    pub start: u16,
    /// All maps.
    pub ledger: &'a Ledger,
    /// Numbers whose lines cannot be read. Nobody is given them.
    pub unreadable: &'a BTreeSet<u16>,
    /// Numbers that slices name which count ([`super::claims`]). They are neither released nor given to another workload.
    pub listed: &'a BTreeSet<u16>,
    /// Numbers that another process has on some activator.
    pub in_use: &'a BTreeSet<u16>,
    /// This owner's workloads, all of them.
    pub workloads: &'a [&'a Workload],
    /// Whether a line is this owner's to change: by the key of its workload.
    pub is_mine: &'a dyn Fn(&RevisionKey) -> bool,
}

impl View<'_> {
    /// Returns whether a number of the range can be given as far as lines and activators go.
    fn is_usable(&self, number: u16) -> bool {
        self.range.contains(number) && !self.unreadable.contains(&number) && !self.in_use.contains(&number)
    }
}

/// One line to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number.
    pub number: u16,
    /// What it is to say.
    pub entry: Entry,
}

/// What a port has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its number, once the ledger shows it. What is only on its way there is nobody's yet.
    pub number: Option<u16>,
    /// Other numbers of its own that are open: slices may lead there until the new one is proven.
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
    /// Its namespace has as many as it may have.
    Quota {
        /// The range.
        range: PortRange,
        /// How many.
        quota: usize,
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
        /// What is released.
        released: Vec<u16>,
    },
}

/// What is to be written, and what each port has meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By map; each map is written at once, under the version that was read.
    pub changes: BTreeMap<Block, Vec<Change>>,
    /// For each workload, its ports in their order.
    pub ports: BTreeMap<RevisionKey, Vec<Outcome>>,
    /// Time after which to plan again though nothing has changed.
    pub again: Option<Duration>,
}

/// Plans for all workloads of one owner.
pub fn plan(view: &View<'_>, now: Timestamp) -> Plan {
    let mut lines: BTreeMap<&str, Vec<(u16, &Entry)>> = BTreeMap::new();
    for (number, entry) in view.ledger {
        lines.entry(&entry.uid).or_default().push((*number, entry));
    }
    let mut planner = Planner::new(view, now);
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
    for (number, entry) in view.ledger.iter().filter(|(_, entry)| (view.is_mine)(&entry.key)) {
        planner.release(*number, entry, kept.contains(number));
    }
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

/// Returns the end of a released number's rest; none: it is held, or has rested.
fn rest_of(entry: &Entry, now: Timestamp) -> Option<Timestamp> {
    let State::Released(at) = entry.state else { return None };
    Some(at + RESTS_FOR).filter(|until| *until > now)
}

struct Planner<'a, 'v> {
    view: &'a View<'v>,
    now: Timestamp,
    /// Numbers that this plan gives.
    given: BTreeSet<u16>,
    at: u16,
    /// A search for an unused number went all the way round for nothing: so would each after it, and there may be thousands.
    is_used_up: bool,
    /// Numbers that have rested, longest first.
    rested: VecDeque<u16>,
    /// When the next number has rested.
    rests_until: Option<Timestamp>,
    /// Numbers of each namespace that count against its quota.
    has: BTreeMap<&'a str, usize>,
    plan: Plan,
}

impl<'a, 'v> Planner<'a, 'v> {
    fn new(view: &'a View<'v>, now: Timestamp) -> Self {
        let (mut rested, mut rests_until, mut has) = (Vec::new(), None, BTreeMap::new());
        for (number, entry) in view.ledger {
            match (entry.state, rest_of(entry, now)) {
                (State::Released(at), None) => {
                    if view.is_usable(*number) && !view.listed.contains(number) {
                        rested.push((at, *number));
                    }
                    continue;
                }
                (_, Some(until)) => {
                    rests_until = Some(rests_until.map_or(until, |other: Timestamp| other.min(until)));
                }
                (State::Held, None) => {}
            }
            if view.range.contains(*number) {
                *has.entry(entry.key.namespace()).or_default() += 1;
            }
        }
        rested.sort_unstable();
        let rested = rested.into_iter().map(|(_, number)| number).collect();
        let (given, at, plan) = (BTreeSet::new(), view.start, Plan::default());
        Self { view, now, given, at, is_used_up: false, rested, rests_until, has, plan }
    }

    /// Releases a line that nobody wants any more, or releases it anew.
    fn release(&mut self, number: u16, entry: &Entry, is_kept: bool) {
        let is_listed = self.view.listed.contains(&number);
        let is_due = match entry.state {
            State::Held => !is_kept && !is_listed,
            State::Released(at) if is_listed => {
                self.look_again(at + NOTED_EVERY);
                at + NOTED_EVERY <= self.now
            }
            State::Released(_) => false,
        };
        if is_due && !self.given.contains(&number) {
            let entry = Entry { state: State::Released(self.now), ..entry.clone() };
            self.change(number, entry);
        }
    }

    fn look_again(&mut self, at: Timestamp) {
        let after = at.saturating_since(self.now).max(Duration::from_secs(1));
        self.plan.again = Some(self.plan.again.map_or(after, |other| other.min(after)));
    }

    fn port(
        &mut self,
        workload: &'a Workload,
        wanted: &Wanted,
        lines: &[(u16, &Entry)],
        kept: &mut BTreeSet<u16>,
    ) -> Outcome {
        let is_held = |(_, entry): &&(u16, &Entry)| entry.state == State::Held;
        let held: Vec<u16> = lines.iter().filter(is_held).map(|(number, _)| *number).collect();
        let released: Vec<u16> =
            lines.iter().map(|(number, _)| *number).filter(|number| !held.contains(number)).collect();
        let good = |number: &u16| self.view.range.contains(*number) && !self.view.in_use.contains(number);
        let choose = |numbers: &[u16]| {
            let known = [wanted.listed, wanted.shown].into_iter().flatten().find(|number| numbers.contains(number));
            known.or(numbers.first().copied())
        };
        let best = choose(&held.iter().copied().filter(good).collect::<Vec<_>>());
        let number = best.or_else(|| choose(&held));
        let mut problem = self.misled(workload, wanted);
        kept.extend(number);
        if let Some(best) = best {
            let others: Vec<u16> = held.iter().copied().filter(|other| *other != best).collect();
            if others.iter().any(good) {
                problem = Some(Problem::Duplicate { kept: best, released: others });
            }
            self.rename(lines, best, &wanted.port);
        } else {
            // What is about to be replaced is released once its successor is held.
            let in_use = number.filter(|number| self.view.in_use.contains(number));
            // Those that have rested may be free again, and other numbers are.
            let of_range = lines.iter().filter(|(number, _)| self.view.range.contains(*number));
            let rests: Vec<Timestamp> = of_range.filter_map(|(_, entry)| rest_of(entry, self.now)).collect();
            let tried = rests.len();
            let next = match in_use {
                Some(number) if tried >= TRIES_MAX => {
                    rests.into_iter().min().into_iter().for_each(|until| self.look_again(until));
                    Err(Problem::InUse { number, tried })
                }
                _ => self.free(workload.key.namespace(), wanted, &released),
            };
            match (next, in_use) {
                (Ok(next), _) => {
                    let (key, uid, port) = (workload.key.clone(), workload.uid.clone(), wanted.port.clone());
                    self.change(next, Entry { state: State::Held, key, uid, port });
                }
                (Err(_), Some(number)) => problem = Some(Problem::InUse { number, tried }),
                (Err(why), None) => problem = Some(why),
            }
        }
        let is_former = |(other, entry): &&(u16, &Entry)| Some(*other) != number && entry.state.is_open(self.now);
        Outcome { number, former: lines.iter().filter(is_former).map(|(other, _)| *other).collect(), problem }
    }

    /// Returns the problem of a status that shows another workload's number.
    fn misled(&self, workload: &Workload, wanted: &Wanted) -> Option<Problem> {
        let number = wanted.shown?;
        let is_anothers = |entry: &&Entry| entry.uid != workload.uid && entry.state == State::Held;
        let entry = self.view.ledger.get(&number).filter(is_anothers)?;
        Some(Problem::NotOurs { number, owner: entry.key.clone() })
    }

    /// The line of a number that stays says what its port is called now.
    fn rename(&mut self, lines: &[(u16, &Entry)], number: u16, port: &PortId) {
        let stale = lines.iter().find(|(other, entry)| *other == number && entry.port != *port);
        if let Some((_, entry)) = stale {
            self.change(number, Entry { port: port.clone(), ..(*entry).clone() });
        }
    }

    /// Returns a number for a port: one that it had, else an unused one, else the one that has rested longest.
    fn free(&mut self, namespace: &'a str, wanted: &Wanted, released: &[u16]) -> Result<u16, Problem> {
        let View { range, ledger, listed, .. } = *self.view;
        let quota = quota(range);
        let is_free = |number: &u16| self.view.is_usable(*number) && !self.given.contains(number);
        let is_former = |number: &u16| {
            let is_lost = !ledger.contains_key(number) && (wanted.listed == Some(*number) || !listed.contains(number));
            is_free(number) && (is_lost || released.contains(number))
        };
        let known = [wanted.listed, wanted.shown].into_iter().flatten().find(is_former);
        let former = known.or_else(|| released.iter().copied().find(is_free));
        let next = match former {
            Some(former) => former,
            None if quota < range.len() && self.has.get(namespace).is_some_and(|has| *has >= quota) => {
                self.rests_until.into_iter().for_each(|until| self.look_again(until));
                return Err(Problem::Quota { range, quota });
            }
            None => match self.unused().or_else(|| self.rested()) {
                Some(next) => next,
                None => {
                    self.rests_until.into_iter().for_each(|until| self.look_again(until));
                    return Err(Problem::Exhausted { range });
                }
            },
        };
        *self.has.entry(namespace).or_default() += 1;
        self.given.insert(next);
        Ok(next)
    }

    /// Returns the next number of the range that has no line.
    fn unused(&mut self) -> Option<u16> {
        let View { range, ledger, listed, .. } = *self.view;
        if self.is_used_up {
            return None;
        }
        let is_unused = |number: &u16| {
            self.view.is_usable(*number)
                && !(ledger.contains_key(number) || listed.contains(number) || self.given.contains(number))
        };
        let first = if range.contains(self.at) { self.at } else { range.first };
        let next = (first..=range.last).chain(range.first..first).find(is_unused);
        match next {
            Some(next) => self.at = next.checked_add(1).unwrap_or(range.first),
            None => self.is_used_up = true,
        }
        next
    }

    /// Returns the number that has rested longest.
    fn rested(&mut self) -> Option<u16> {
        while let Some(number) = self.rested.pop_front() {
            if !self.given.contains(&number) {
                return Some(number);
            }
        }
        None
    }

    fn change(&mut self, number: u16, entry: Entry) {
        self.plan.changes.entry(Block::of(number)).or_default().push(Change { number, entry });
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { range } => {
                write!(
                    f,
                    "no port number is free in {range}, the range of config-ports (a released one rests for ten minutes): \
                     make it larger"
                )
            }
            Self::Quota { range, quota } => write!(
                f,
                "the namespace has {quota} port numbers, the most that it may have of {range}, the range of config-ports (a \
                 released one counts for ten minutes): make it larger"
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
            Self::Duplicate { kept, released } => {
                write!(f, "it had several port numbers: {kept} stays, {released:?} are released")
            }
        }
    }
}
