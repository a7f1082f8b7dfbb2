//! Plans changes of ledger lines, for all workloads of one owner at once.
//!
//! # The number of a port
//!
//! A line with the workload's uid belongs to the first of these ports:
//!
//! 1. the port with its name;
//! 2. if no port has that name, the port whose slices point to it;
//! 3. if no port's slices do, the port with its port number.
//!
//! So a port that is renamed, renumbered, or both keeps its line. If several such lines are held within the range, the
//! port uses the number in its slices, else the one in its status, else the lowest.
//!
//! Without such a line it gets the first of these numbers:
//!
//! 1. The number in its slices or its status, if that is unused or was this port's. So lost lines are written again,
//!    and a restored object gets its former numbers.
//! 2. Another number that was this port's.
//! 3. The next number of the range without a line, from [`View::start`] on, wrapping around.
//! 4. Of all released numbers, the one that was released first, once [`COOLDOWN`] has passed.
//!
//! # Release
//!
//! Every other held line of this owner is released as soon as no slice names its number.
//!
//! # Guarded workloads
//!
//! The range of a workload follows from its [`Access`]. A guarded workload has only numbers of [`View::guarded`], and a
//! barred one has none. Their other lines are closed at once, even if slices name them; this includes guarded numbers
//! of a former range. A workload that is open again keeps its guarded number. A workload whose access this process does
//! not know yet keeps its numbers and gets no other, since a general number would be open to every client.
//!
//! # Quota
//!
//! A namespace gets no further number while it has nine tenths of the range, including numbers released within
//! [`COOLDOWN`]. The quota does not apply to a number that the port had before.
//!
//! # Edge cases
//!
//! - A number is outside the range (after an edit), or another process uses it on an activator: first another number is
//!   given, then the old one is released, and slices move from one to the other. If the range is exhausted, the old one
//!   stays.
//! - Numbers are in use repeatedly: while [`TRIES_MAX`] former ones are in cooldown, the number stays, and a condition
//!   reports it. (Some process responds on every number, for example a sidecar.)
//! - Two owners that did not know of each other have each held a line for one port: one of the lines is released.
//! - A line whose object is unknown or has another uid is released. The view may be stale, so the caller first asks the
//!   API server whether the object exists.
//! - A release time in the future comes from a clock that was ahead. The line is released again with the current time,
//!   because the number would otherwise stay reserved too long.

use super::{COOLDOWN, NOTED_EVERY, TRIES_MAX};
use common::RevisionKey;
use common::config::PortRange;
use common::ports::ledger::{Block, Entry, Ledger, NumberState, PortId};
use common::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Divisor of the reserve: one namespace may use at most nine tenths of a range.
const RESERVE_DIVISOR: usize = 10;

/// Returns the maximum number of ports of one namespace in `range`.
pub fn quota(range: PortRange) -> usize {
    range.len() - range.len() / RESERVE_DIVISOR
}

/// Port that needs a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Port of the Service.
    pub port: PortId,
    /// Number that its slices point to.
    pub in_slices: Option<u16>,
    /// Number in its status.
    pub in_status: Option<u16>,
}

/// Clients that NetworkPolicies admit to a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Every client: no policy selects the pods.
    #[default]
    Open,
    /// The peers of the policies that select the pods.
    Guarded,
    /// No client: the policies cannot be followed, for this reason.
    Barred(Arc<str>),
    /// Not known to this process yet: the workload keeps its numbers and gets no other.
    Unknown,
}

impl Access {
    /// Returns true if numbers that the workload must not have are closed at once.
    fn is_restricted(&self) -> bool {
        matches!(self, Self::Guarded | Self::Barred(_))
    }
}

/// Existing ZeroScaler. While it is being deleted, it keeps its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Name of the ZeroScaler.
    pub key: RevisionKey,
    /// Uid of the ZeroScaler.
    pub uid: Arc<str>,
    /// Ports of the ZeroScaler.
    pub ports: Vec<Wanted>,
    /// Clients that may connect.
    pub access: Access,
}

/// State that an owner observes.
pub struct View<'a> {
    /// Range of numbers that may be given.
    pub range: PortRange,
    /// Range of numbers that may be given to guarded workloads; `None` if there is none.
    pub guarded: Option<PortRange>,
    /// Number at which the search for an unused one begins.
    pub start: u16,
    /// Lines of all maps.
    pub ledger: &'a Ledger,
    /// Numbers whose lines cannot be parsed. They are never given.
    pub unreadable: &'a BTreeSet<u16>,
    /// Numbers named by slices that count ([`super::claims`]). They are neither released nor given to another workload.
    pub listed: &'a BTreeSet<u16>,
    /// Numbers that another process uses on some activator.
    pub in_use: &'a BTreeSet<u16>,
    /// All workloads of this owner.
    pub workloads: &'a [&'a Workload],
    /// Returns true if a line belongs to this owner, by the key of its workload.
    pub is_mine: &'a dyn Fn(&RevisionKey) -> bool,
}

impl View<'_> {
    /// Returns true if the number's line, if any, can be parsed, and no other process uses it.
    fn is_usable(&self, number: u16) -> bool {
        !self.unreadable.contains(&number) && !self.in_use.contains(&number)
    }

    fn is_guarded(&self, number: u16) -> bool {
        self.guarded.is_some_and(|guarded| guarded.contains(number))
    }

    /// Returns true if a workload may have a number.
    fn allows(&self, access: &Access, number: u16) -> bool {
        match access {
            Access::Open | Access::Unknown => self.range.contains(number) || self.is_guarded(number),
            Access::Guarded => self.is_guarded(number),
            Access::Barred(_) => false,
        }
    }
}

/// Change of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Number of the line.
    pub number: u16,
    /// New contents of the line.
    pub entry: Entry,
}

/// Result for a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOutcome {
    /// Number of the port, once the ledger contains it. A number that is not written yet belongs to no workload.
    pub number: Option<u16>,
    /// Other open numbers of the port. Slices may point there until the new one is proven.
    pub former: Vec<u16>,
    /// Reason why the port has no number, or not a good one.
    pub problem: Option<Problem>,
}

/// Problem of one port, reported in condition PortsAllocated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no free number in this range.
    #[error(
        "no port number is free in {0} (range or guarded of ConfigMap config-ports). Widen it, or wait ten minutes \
         until released numbers become available"
    )]
    Exhausted(PortRange),
    /// The namespace has reached its quota of this range.
    #[error(
        "the namespace has {quota} port numbers, the maximum for a namespace in {0} (range or guarded of ConfigMap \
         config-ports). Widen it, or wait: a released number counts for ten minutes",
        quota = quota(*.0)
    )]
    Quota(PortRange),
    /// Another process listens on the number on some activator.
    #[error("another process listens on port {number} of an activator, and {}", consequence(*.tried))]
    InUse {
        /// The number.
        number: u16,
        /// Number of other numbers that were tried.
        tried: usize,
    },
    /// There are no numbers for guarded workloads.
    #[error(
        "NetworkPolicies select the pods, and config-ports has no numbers for such workloads. Set guarded there to \
         numbers outside of range, such as 10000-19999"
    )]
    NoneGuarded,
    /// NetworkPolicies select the pods and cannot be followed: the reason, and what helps.
    #[error("{0}")]
    Barred(Arc<str>),
    /// The status contained a number of another workload.
    #[error("the status named port number {number}, which belongs to {owner}, so it is not used")]
    NotOurs {
        /// The number.
        number: u16,
        /// Workload that owns the number.
        owner: RevisionKey,
    },
    /// The port had several numbers.
    #[error("the port had several numbers: it keeps {number} and releases {released:?}")]
    Duplicate {
        /// Number that it keeps.
        number: u16,
        /// Numbers that are released.
        released: Vec<u16>,
    },
}

/// Returns what follows from a number in use, after this many other numbers were tried.
fn consequence(tried: usize) -> String {
    match tried {
        0 => "the port can have no other number now. Widen the range of ConfigMap config-ports, or move the range to \
              unused ports"
            .to_owned(),
        _ => format!("on {tried} other numbers that were tried. Move the range of config-ports to unused ports"),
    }
}

/// Changes to write, and the current result for each port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Changes by map. Each map is written at once, under the version that was read.
    pub changes: BTreeMap<Block, Vec<Change>>,
    /// Results for the ports of each workload, in their order.
    pub ports: BTreeMap<RevisionKey, Vec<PortOutcome>>,
    /// Time after which to plan again even without a change.
    pub again: Option<Duration>,
}

/// Plans for all workloads of one owner.
pub fn plan(view: &View<'_>, now: Timestamp) -> Plan {
    let mut lines: BTreeMap<&str, Vec<(u16, &Entry)>> = BTreeMap::new();
    for (number, entry) in view.ledger {
        lines.entry(&entry.uid).or_default().push((*number, entry));
    }
    let mut planner = Planner::new(view, now);
    let restricted = view.workloads.iter().filter(|workload| workload.access.is_restricted());
    let restricted: BTreeMap<&str, &Access> = restricted.map(|workload| (&*workload.uid, &workload.access)).collect();
    for workload in view.workloads {
        let mut lines = lines.get(&*workload.uid).cloned().unwrap_or_default();
        let outcomes = workload.ports.iter().map(|wanted| {
            let mut mine = take_lines_of_port(&mut lines, workload, wanted);
            mine.retain(|(number, _)| !workload.access.is_restricted() || view.allows(&workload.access, *number));
            planner.port(workload, wanted, &mine)
        });
        let outcomes = outcomes.collect();
        planner.plan.ports.insert(workload.key.clone(), outcomes);
    }
    for (number, entry) in view.ledger.iter().filter(|(_, entry)| (view.is_mine)(&entry.key)) {
        let is_refused = restricted.get(&*entry.uid).is_some_and(|access| !view.allows(access, *number));
        planner.release(*number, entry, is_refused);
    }
    planner.plan
}

/// Takes the lines of a port out of those of its workload. These are the lines with its name. Of lines whose name no
/// port has, they are the one that its slices point to, and those with its port number that no port's slices point to.
fn take_lines_of_port<'a>(
    lines: &mut Vec<(u16, &'a Entry)>,
    workload: &Workload,
    wanted: &Wanted,
) -> Vec<(u16, &'a Entry)> {
    let all = &workload.ports;
    let is_its = |number: u16, entry: &Entry| match () {
        () if all.iter().any(|other| other.port.name == entry.port.name) => entry.port.name == wanted.port.name,
        () if all.iter().any(|other| other.in_slices == Some(number)) => wanted.in_slices == Some(number),
        () => entry.port.port == wanted.port.port,
    };
    let (mine, rest) = lines.drain(..).partition(|(number, entry)| is_its(*number, entry));
    *lines = rest;
    mine
}

/// Returns the end of a released number's cooldown, or `None` if it is held or the cooldown is over.
fn cooldown_end(entry: &Entry, now: Timestamp) -> Option<Timestamp> {
    Some(entry.state.ended()? + COOLDOWN).filter(|until| *until > now)
}

struct Planner<'a> {
    view: &'a View<'a>,
    now: Timestamp,
    /// Numbers that ports keep.
    retained: BTreeSet<u16>,
    /// Numbers given by this plan.
    given: BTreeSet<u16>,
    general: Pool<'a>,
    guarded: Option<Pool<'a>>,
    plan: Plan,
}

/// Numbers of one range.
struct Pool<'a> {
    range: PortRange,
    /// Numbers that may be given: unused ones, then those after their cooldown, in the order of release.
    free: Box<dyn Iterator<Item = u16> + 'a>,
    next_cooldown_end: Option<Timestamp>,
    /// Numbers of each namespace that count towards its quota.
    used_by_namespace: BTreeMap<&'a str, usize>,
}

impl<'a> Planner<'a> {
    fn new(view: &'a View<'a>, now: Timestamp) -> Self {
        let general = Pool::new(view, view.range, now);
        let guarded = view.guarded.map(|range| Pool::new(view, range, now));
        Self { view, now, retained: BTreeSet::new(), given: BTreeSet::new(), general, guarded, plan: Plan::default() }
    }

    /// Releases a line that is no longer wanted, or releases it again. Closes a line whose number the workload must not
    /// have.
    fn release(&mut self, number: u16, entry: &Entry, is_refused: bool) {
        let is_listed = self.view.listed.contains(&number);
        let is_due = match entry.state.ended() {
            None => !self.retained.contains(&number) && !is_listed,
            Some(at) if at > self.now + NOTED_EVERY => true,
            Some(at) if is_listed => {
                self.plan_again_at(at + NOTED_EVERY);
                at + NOTED_EVERY <= self.now
            }
            Some(_) => false,
        };
        let is_closed = is_refused && entry.state.is_open(self.now);
        if (is_due || is_closed) && !self.given.contains(&number) {
            let stays_closed = is_refused || matches!(entry.state, NumberState::Closed(_));
            let state = if stays_closed { NumberState::Closed(self.now) } else { NumberState::Released(self.now) };
            self.change(number, Entry { state, ..entry.clone() });
        }
    }

    fn plan_again_at(&mut self, at: Timestamp) {
        let after = at.saturating_since(self.now).max(Duration::from_secs(1));
        self.plan.again = Some(self.plan.again.map_or(after, |other| other.min(after)));
    }

    /// Determines the number of a port. `lines` are those of the port, as far as the workload may have their numbers.
    fn port(&mut self, workload: &'a Workload, wanted: &Wanted, lines: &[(u16, &Entry)]) -> PortOutcome {
        let view = self.view;
        let in_use = view.in_use;
        if let Access::Barred(why) = &workload.access {
            let problem = Some(Problem::Barred(why.clone()));
            return PortOutcome { number: None, former: Vec::new(), problem };
        }
        let allows = |number: u16| view.allows(&workload.access, number);
        let good = |number: &u16| allows(*number) && !in_use.contains(number);
        let (held, ended): (Vec<_>, Vec<_>) =
            lines.iter().copied().partition(|(_, entry)| entry.state == NumberState::Held);
        let numbers = |lines: Vec<(u16, &Entry)>| lines.into_iter().map(|(number, _)| number).collect::<Vec<u16>>();
        let (held, released) = (numbers(held), numbers(ended));
        let choose = |numbers: &[u16]| {
            let mut known = [wanted.in_slices, wanted.in_status].into_iter().flatten();
            known.find(|number| numbers.contains(number)).or(numbers.first().copied())
        };
        let best = choose(&held.iter().copied().filter(good).collect::<Vec<_>>());
        let number = best.or_else(|| choose(&held));
        let mut problem = self.foreign_number_in_status(workload, wanted);
        self.retained.extend(number);
        if let Some(best) = best {
            let others: Vec<u16> = held.iter().copied().filter(|other| *other != best).collect();
            if others.iter().any(good) {
                problem = Some(Problem::Duplicate { number: best, released: others });
            }
            self.rename(lines, best, &wanted.port);
        } else if workload.access != Access::Unknown {
            // The number to replace is released once its successor is held.
            let in_use = number.filter(|number| in_use.contains(number));
            // Count only numbers in cooldown; after it, a number may be usable again.
            let of_range = lines.iter().filter(|(number, _)| allows(*number));
            let cooldowns: Vec<Timestamp> = of_range.filter_map(|(_, entry)| cooldown_end(entry, self.now)).collect();
            let tried = cooldowns.len();
            let next = match in_use {
                Some(number) if tried >= TRIES_MAX => {
                    cooldowns.into_iter().min().into_iter().for_each(|until| self.plan_again_at(until));
                    Err(Problem::InUse { number, tried })
                }
                _ => self.free(workload, wanted, &released),
            };
            match next {
                Ok(next) => {
                    let (key, uid, port) = (workload.key.clone(), workload.uid.clone(), wanted.port.clone());
                    self.change(next, Entry { state: NumberState::Held, key, uid, port });
                }
                Err(why) => problem = Some(in_use.map_or(why, |number| Problem::InUse { number, tried })),
            }
        }
        let is_former = |(other, entry): &&(u16, &Entry)| Some(*other) != number && entry.state.is_open(self.now);
        PortOutcome { number, former: lines.iter().filter(is_former).map(|(other, _)| *other).collect(), problem }
    }

    /// Returns the problem of a status that contains another workload's number.
    fn foreign_number_in_status(&self, workload: &Workload, wanted: &Wanted) -> Option<Problem> {
        let number = wanted.in_status?;
        let is_anothers = |entry: &&Entry| entry.uid != workload.uid && entry.state == NumberState::Held;
        let entry = self.view.ledger.get(&number).filter(is_anothers)?;
        Some(Problem::NotOurs { number, owner: entry.key.clone() })
    }

    /// Updates the port name and number in a line that stays.
    fn rename(&mut self, lines: &[(u16, &Entry)], number: u16, port: &PortId) {
        let stale = lines.iter().find(|(other, entry)| *other == number && entry.port != *port);
        if let Some((_, entry)) = stale {
            self.change(number, Entry { port: port.clone(), ..(*entry).clone() });
        }
    }

    /// Returns a number for a port: one that it had, otherwise an unused one, otherwise the one that was released
    /// first.
    fn free(&mut self, workload: &'a Workload, wanted: &Wanted, released: &[u16]) -> Result<u16, Problem> {
        let (view, access) = (self.view, &workload.access);
        let View { ledger, listed, .. } = *view;
        let is_free =
            |number: &u16| view.allows(access, *number) && view.is_usable(*number) && !self.given.contains(number);
        let is_former = |number: &u16| {
            let is_lost =
                !ledger.contains_key(number) && (wanted.in_slices == Some(*number) || !listed.contains(number));
            is_free(number) && (is_lost || released.contains(number))
        };
        let known = [wanted.in_slices, wanted.in_status].into_iter().flatten().find(is_former);
        let former = known.or_else(|| released.iter().copied().find(is_free));
        let pool = match access {
            Access::Open | Access::Unknown => &mut self.general,
            Access::Guarded | Access::Barred(_) => self.guarded.as_mut().ok_or(Problem::NoneGuarded)?,
        };
        let namespace = workload.key.namespace();
        let next = former.map_or_else(|| pool.take(namespace, &self.given), Ok);
        match &next {
            Ok(next) => {
                *pool.used_by_namespace.entry(namespace).or_default() += 1;
                self.given.insert(*next);
            }
            Err(_) => pool.next_cooldown_end.into_iter().for_each(|until| self.plan_again_at(until)),
        }
        next
    }

    fn change(&mut self, number: u16, entry: Entry) {
        self.plan.changes.entry(Block::containing(number)).or_default().push(Change { number, entry });
    }
}

impl<'a> Pool<'a> {
    fn new(view: &'a View<'_>, range: PortRange, now: Timestamp) -> Self {
        let (mut released, mut next_cooldown_end, mut used_by_namespace) = (Vec::new(), None, BTreeMap::new());
        for (number, entry) in view.ledger.range(range.first..=range.last) {
            let cooldown_end = cooldown_end(entry, now);
            match entry.state.ended() {
                Some(at) if cooldown_end.is_none() => released.push((at, *number)),
                _ => *used_by_namespace.entry(entry.key.namespace()).or_default() += 1,
            }
            next_cooldown_end = next_cooldown_end.into_iter().chain(cooldown_end).min();
        }
        released.sort_unstable();
        let start = if range.contains(view.start) { view.start } else { range.first };
        let unused =
            (start..=range.last).chain(range.first..start).filter(move |number| !view.ledger.contains_key(number));
        let free = unused.chain(released.into_iter().map(|(_, number)| number));
        let free = free.filter(move |number| view.is_usable(*number) && !view.listed.contains(number));
        Self { range, free: Box::new(free), next_cooldown_end, used_by_namespace }
    }

    /// Returns an unused number, otherwise the one that was released first.
    fn take(&mut self, namespace: &str, given: &BTreeSet<u16>) -> Result<u16, Problem> {
        let range = self.range;
        let quota = quota(range);
        if quota < range.len() && self.used_by_namespace.get(namespace).is_some_and(|used| *used >= quota) {
            return Err(Problem::Quota(range));
        }
        self.free.find(|number| !given.contains(number)).ok_or(Problem::Exhausted(range))
    }
}
