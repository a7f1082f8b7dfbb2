//! Divides one bounded resource among workloads, and within a workload among the addresses of its clients.
//!
//! # The rule
//!
//! While there is room, every request for a part is granted. If there is none, the largest holder gives way. It is
//! found in three steps: the workload that holds most, then the address of that workload that holds most, then the
//! holder at that address that has been idle for longest. If none is idle, the newest holder gives way. The newcomer
//! counts toward its workload and its address, and as busy. So it is refused only if it would be the next to give way
//! itself, and never in favor of a smaller holder. If all clients come from one address, as behind an ingress,
//! workloads still have their shares.
//!
//! Before a busy holder gives way or a newcomer is refused, holders of any workload that have been idle for [`STALE`]
//! seconds or more give way. They lose nothing.
//!
//! Somewhat more room is made than was requested, as long as only idle holders give way for it. So a burst of newcomers
//! searches the holders only once in a while.
//!
//! # Holders that give way
//!
//! The caller notifies them, and they take a moment to release their part. Meanwhile their part no longer counts toward
//! the shares, but still counts toward the total of the process. While these parts exceed `leeway`, newcomers get only
//! the room that is left.
//!
//! # Edge cases
//!
//! - A holder that has just arrived and is idle may not have had time to send its request. Among the newest few
//!   holders, idle ones give way after busy ones.
//! - A holder of nothing is never asked to give way, since that would free nothing.
//! - Idleness changes often. It is read when room is needed, and not reported to the ledger ([`Holder`]).

use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// Divisor of two bounds: `1 / 64` of the limit is freed at once if idle holders have it, and the newest `1 / 64` of
/// the holders count as new.
const BATCH_DIVISOR: u64 = 64;

/// Seconds of idleness after which a holder gives way if any other holder needs room.
pub const STALE: u32 = 30;

/// Capacity for holders that is kept when the last holder has left.
const SPARE_CAPACITY: usize = 64;

/// Holder of a part of the resource.
pub trait Holder {
    /// Returns the second since which the holder has been idle, or `None` if it is busy.
    fn idle_since(&self) -> Option<u32>;
}

/// Workload and client address that a part counts toward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HolderGroup {
    /// Number of the workload; zero while the workload of the holder is not known yet.
    pub workload: u64,
    /// Address of the client.
    pub address: IpAddr,
}

/// Refusal of a newcomer: no other holder may be asked to give way for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all of {limit} is held, and no other workload or client holds more than the {own} of this one")]
pub struct Full {
    /// Amount that all holders together may have.
    pub limit: u64,
    /// Amount that the newcomer's workload holds.
    pub own: u64,
    /// True if holders that were asked to give way still hold more than the leeway. The newcomer's share is not used up
    /// then.
    pub is_beyond: bool,
}

/// Amounts of one resource by holder.
#[derive(Debug)]
pub struct Ledger<H: ?Sized> {
    limit: u64,
    leeway: u64,
    /// Amount of the holders that stay.
    used: u64,
    /// Amount of the holders that were asked to give way.
    leaving: u64,
    workloads: HashMap<u64, Workload>,
    entries: Slab<Entry<H>>,
    next: u64,
    /// Second of the last search for stale entries, and the entries that it found, by order of arrival and key. The
    /// entry that has been idle for longest is last.
    stale: (Option<u32>, Vec<(u64, usize)>),
}

#[derive(Debug)]
struct Entry<H: ?Sized> {
    group: HolderGroup,
    amount: u64,
    order: u64,
    leaving: bool,
    holder: Arc<H>,
}

#[derive(Debug, Default)]
struct Workload {
    sum: u64,
    addresses: HashMap<IpAddr, Part>,
}

#[derive(Debug, Default)]
struct Part {
    sum: u64,
    /// Second in which the last search found no idle holder except new ones.
    busy_in: Option<u32>,
    /// Entries by order of arrival.
    members: BTreeMap<u64, usize>,
}

impl<H: Holder + ?Sized> Ledger<H> {
    /// Creates a ledger for `limit`. Holders that were asked to give way may have up to `leeway` beyond the limit until
    /// they leave.
    pub fn new(limit: u64, leeway: u64) -> Self {
        let (workloads, entries) = (HashMap::new(), Slab::new());
        Self { limit, leeway, used: 0, leaving: 0, workloads, entries, next: 0, stale: (None, Vec::new()) }
    }

    /// Returns the amount that all holders together may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Sets the limit and the leeway. If holders have more than a new limit, the next newcomer makes some of them give
    /// way.
    pub fn set_limit(&mut self, limit: u64, leeway: u64) {
        (self.limit, self.leeway) = (limit, leeway);
    }

    /// Returns the amount of all holders, including those that were asked to give way.
    pub fn held(&self) -> u64 {
        self.used + self.leaving
    }

    /// Returns true if holders that were asked to give way have more than half of the leeway or of the limit. Then there
    /// is no time for a graceful close.
    pub fn is_pressed(&self) -> bool {
        self.leaving > self.leeway.min(self.limit) / 2
    }

    /// Returns the number of holders.
    pub fn holders(&self) -> usize {
        self.entries.len()
    }

    /// Returns the amount that a workload holds.
    pub fn of_workload(&self, workload: u64) -> u64 {
        self.workloads.get(&workload).map_or(0, |workload| workload.sum)
    }

    /// Iterates over all holders.
    pub fn each(&self) -> impl Iterator<Item = &Arc<H>> {
        self.entries.iter().map(|(_, entry)| &entry.holder)
    }

    /// Gives `amount` to a newcomer. Returns its key, or [`Full`] if the newcomer itself would have to give way. Also
    /// returns the holders that the caller must ask to give way. With `idle_only`, only idle holders give way.
    pub fn take(
        &mut self,
        group: HolderGroup,
        amount: u64,
        holder: Arc<H>,
        now: u32,
        idle_only: bool,
    ) -> (Result<usize, Full>, Vec<Arc<H>>) {
        let key = self.enter(group, holder);
        let (grown, others) = self.grow(key, amount, now, idle_only);
        if grown.is_err() {
            self.leave(key);
        }
        (grown.map(|()| key), others)
    }

    /// Adds a holder of nothing and returns its key.
    pub fn enter(&mut self, group: HolderGroup, holder: Arc<H>) -> usize {
        let order = self.next;
        self.next += 1;
        let key = self.entries.insert(Entry { group, amount: 0, order, leaving: false, holder });
        self.part(group).members.insert(order, key);
        key
    }

    /// Gives `more` to a holder, by the rule of [`Ledger::take`].
    pub fn grow(&mut self, key: usize, more: u64, now: u32, idle_only: bool) -> (Result<(), Full>, Vec<Arc<H>>) {
        let Some(&Entry { group, amount, leaving, .. }) = self.entries.get(key) else { return (Ok(()), Vec::new()) };
        let is_beyond = self.leaving > self.leeway && self.held().saturating_add(more) > self.limit;
        let full = Full { limit: self.limit, own: self.of_workload(group.workload), is_beyond };
        if leaving || is_beyond || amount.saturating_add(more) > self.limit {
            return (Err(full), Vec::new());
        }
        self.add(key, more);
        if self.used <= self.limit {
            return (Ok(()), Vec::new());
        }
        let others = self.make_room(Some(key), now, idle_only);
        if self.used <= self.limit {
            return (Ok(()), others);
        }
        self.shrink(key, more);
        (Err(full), others)
    }

    /// Gives `more` to a holder, even beyond the limit.
    pub fn put(&mut self, key: usize, more: u64) {
        match self.entries.get_mut(key) {
            Some(entry) if entry.leaving => {
                entry.amount += more;
                self.leaving += more;
            }
            Some(_) => self.add(key, more),
            None => {}
        }
    }

    /// Takes `less` back from a holder.
    pub fn shrink(&mut self, key: usize, less: u64) {
        let Some(&Entry { group, amount, leaving, .. }) = self.entries.get(key) else { return };
        let less = less.min(amount);
        self.entries[key].amount -= less;
        if leaving {
            self.leaving -= less;
            return;
        }
        self.used -= less;
        let workload = self.workloads.entry(group.workload).or_default();
        workload.sum -= less;
        workload.addresses.entry(group.address).or_default().sum -= less;
    }

    /// Moves a holder to another workload.
    pub fn regroup(&mut self, key: usize, workload: u64) {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.group.workload != workload) else { return };
        if entry.leaving {
            return;
        }
        self.remove_from_part(key);
        let entry = &mut self.entries[key];
        entry.group.workload = workload;
        let (group, order, amount) = (entry.group, entry.order, std::mem::take(&mut entry.amount));
        self.part(group).members.insert(order, key);
        self.add(key, amount);
    }

    /// Moves each holder to the workload that `workload` returns for it. Zero leaves the holder where it is.
    pub fn regroup_all(&mut self, workload: impl Fn(&H) -> u64) {
        let known =
            |(key, entry): (usize, &Entry<H>)| Some((key, workload(&entry.holder))).filter(|(_, known)| *known != 0);
        let all: Vec<_> = self.entries.iter().filter_map(known).collect();
        all.into_iter().for_each(|(key, workload)| self.regroup(key, workload));
    }

    /// Removes a holder and releases its whole amount.
    pub fn leave(&mut self, key: usize) {
        let Some(&Entry { amount, leaving, .. }) = self.entries.get(key) else { return };
        if leaving {
            self.leaving -= amount;
        } else {
            self.remove_from_part(key);
        }
        self.entries.remove(key);
        if self.entries.is_empty() && self.entries.capacity() > SPARE_CAPACITY {
            self.entries.shrink_to_fit();
            self.workloads.shrink_to_fit();
        }
    }

    /// Makes room for `free`, and for some more if only idle holders give way for it. Returns the holders that give
    /// way.
    pub fn give_way(&mut self, free: u64, now: u32) -> Vec<Arc<H>> {
        let limit = self.limit;
        self.limit = limit.saturating_sub(free);
        let others = if self.used > self.limit { self.make_room(None, now, false) } else { Vec::new() };
        self.limit = limit;
        others
    }

    fn part(&mut self, group: HolderGroup) -> &mut Part {
        self.workloads.entry(group.workload).or_default().addresses.entry(group.address).or_default()
    }

    fn add(&mut self, key: usize, more: u64) {
        let entry = &mut self.entries[key];
        entry.amount += more;
        self.used += more;
        let workload = self.workloads.entry(entry.group.workload).or_default();
        workload.sum += more;
        workload.addresses.entry(entry.group.address).or_default().sum += more;
    }

    fn remove_from_part(&mut self, key: usize) {
        let Entry { group, amount, order, .. } = self.entries[key];
        self.used -= amount;
        let Some(workload) = self.workloads.get_mut(&group.workload) else { return };
        workload.sum -= amount;
        if let Some(part) = workload.addresses.get_mut(&group.address) {
            part.sum -= amount;
            part.members.remove(&order);
            if part.members.is_empty() {
                workload.addresses.remove(&group.address);
            }
        }
        if workload.addresses.is_empty() {
            self.workloads.remove(&group.workload);
        }
    }

    /// Returns the workload that holds most. Of equal ones, returns the newcomer's.
    fn largest(&self, newcomer: Option<HolderGroup>) -> Option<u64> {
        let is_its = |number: &u64| newcomer.is_some_and(|group| group.workload == *number);
        let largest = self.workloads.iter().max_by_key(|(number, workload)| (workload.sum, is_its(number)));
        largest.filter(|(_, workload)| workload.sum > 0).map(|(number, _)| *number)
    }

    /// Makes holders give way until no more than the limit is held, and some more while they are idle. Stops if the
    /// newcomer would be the next to give way.
    fn make_room(&mut self, newcomer: Option<usize>, now: u32, idle_only: bool) -> Vec<Arc<H>> {
        let group = newcomer.map(|key| self.entries[key].group);
        let goal = self.limit - self.limit / BATCH_DIVISOR;
        let (mut displaced, mut candidates) = (Vec::new(), HashMap::<u64, Candidates>::new());
        while self.used > goal {
            let Some(largest) = self.largest(group) else { break };
            let known = candidates.get_mut(&largest);
            let next = match known.and_then(|known| known.next(&self.workloads[&largest])) {
                Some(next) => next,
                None => {
                    let mut fresh = self.candidates(largest, newcomer, now);
                    let Some(next) = fresh.next(&self.workloads[&largest]) else { break };
                    candidates.insert(largest, fresh);
                    next
                }
            };
            let mut key = next.key;
            if self.entries[key].leaving {
                continue;
            }
            if next.order.0 != IDLE {
                if self.used <= self.limit {
                    break;
                }
                if let Some(longest) = self.next_stale(newcomer, now) {
                    candidates.entry(largest).and_modify(|known| known.list.push(next));
                    key = longest;
                } else if idle_only || Some(key) == newcomer {
                    break;
                }
            }
            self.remove_from_part(key);
            let entry = &mut self.entries[key];
            entry.leaving = true;
            self.leaving += entry.amount;
            displaced.push(entry.holder.clone());
        }
        displaced
    }

    /// Returns the holder that has been idle for longest, and for at least [`STALE`] seconds. Searches the holders at
    /// most once per second.
    fn next_stale(&mut self, newcomer: Option<usize>, now: u32) -> Option<usize> {
        let stale_since = |entry: &Entry<H>| {
            let frees = entry.amount > 0 && !entry.leaving;
            entry.holder.idle_since().filter(|since| frees && since + STALE <= now)
        };
        if self.stale.0 != Some(now) {
            let since = |(key, entry): (usize, &Entry<H>)| Some((stale_since(entry)?, entry.order, key));
            let mut stale: Vec<_> = self.entries.iter().filter_map(since).collect();
            stale.sort_unstable_by_key(|one| Reverse(*one));
            self.stale = (Some(now), stale.into_iter().map(|(_, order, key)| (order, key)).collect());
        }
        let entries = &self.entries;
        let is_stale = |(order, key): (u64, usize)| {
            // Another holder may have got this key since the search.
            let entry = entries.get(key).filter(|entry| entry.order == order && Some(key) != newcomer);
            entry.and_then(stale_since).map(|_| key)
        };
        std::iter::from_fn(|| self.stale.1.pop()).find_map(is_stale)
    }

    /// Returns the holders at the largest addresses of a workload, in the order in which they give way. For an address
    /// that was found busy in this second, only its first holder is returned.
    fn candidates(&mut self, workload: u64, newcomer: Option<usize>, now: u32) -> Candidates {
        let new_from = self.next.saturating_sub(self.entries.len() as u64 / BATCH_DIVISOR);
        let (entries, mut list) = (&self.entries, Vec::<Candidate>::new());
        let addresses = &mut self.workloads.entry(workload).or_default().addresses;
        let most = addresses.values().map(|part| part.sum).max().unwrap_or(0);
        let floor = addresses.values().map(|part| part.sum).filter(|sum| *sum < most).max().unwrap_or(0);
        for (&address, part) in addresses.iter_mut().filter(|(_, part)| part.sum == most) {
            let frees = |(_, key): &(&u64, &usize)| entries[**key].amount > 0 || newcomer == Some(**key);
            let candidate = |(&order, &key): (&u64, &usize)| {
                let idle = entries[key].holder.idle_since().filter(|_| newcomer != Some(key));
                let order = match idle {
                    Some(since) if order < new_from => (IDLE, since.into(), order),
                    Some(_) => (NEW, order, 0),
                    None if newcomer == Some(key) => (BUSY, 0, 0),
                    None => (BUSY, u64::MAX - order, 0),
                };
                Candidate { order, key, address }
            };
            if part.busy_in == Some(now) {
                let own = newcomer.map(|key| (entries[key].order, key));
                let own = own.filter(|(order, _)| part.members.contains_key(order));
                let own = own.map(|(order, key)| candidate((&order, &key)));
                let mut youngest = part.members.iter().rev().filter(frees).map(candidate);
                if let Some(first) = own.or_else(|| youngest.find(|candidate| candidate.order.0 == BUSY)) {
                    list.push(first);
                    continue;
                }
            }
            let others = list.len();
            list.extend(part.members.iter().filter(frees).map(candidate));
            if list[others..].iter().all(|candidate| candidate.order.0 != IDLE) {
                part.busy_in = Some(now);
            }
        }
        list.sort_unstable_by_key(|candidate| Reverse(candidate.order));
        Candidates { floor, list }
    }
}

/// Classes of holders, in the order in which they give way.
const IDLE: u8 = 0;
const BUSY: u8 = 1;
const NEW: u8 = 2;

/// Holder that may give way. A smaller `order` gives way first: the class, then the position within it.
struct Candidate {
    order: (u8, u64, u64),
    key: usize,
    address: IpAddr,
}

/// Holders that give way next, in reverse order.
struct Candidates {
    /// Amount of the next smaller address.
    floor: u64,
    list: Vec<Candidate>,
}

impl Candidates {
    /// Returns the next holder whose address still is among the largest.
    fn next(&mut self, workload: &Workload) -> Option<Candidate> {
        let sum = |candidate: &Candidate| workload.addresses.get(&candidate.address).map_or(0, |part| part.sum);
        while let Some(candidate) = self.list.pop() {
            if sum(&candidate) >= self.floor.max(1) {
                return Some(candidate);
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
