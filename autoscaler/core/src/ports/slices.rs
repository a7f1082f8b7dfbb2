//! Which activators' addresses stand in a workload's slices, and under which number.
//!
//! # The rule, for one port and each address
//!
//! | the activator | at the port's number | then |
//! |---|---|---|
//! | is not in its Service, or has ended serving on its way out | | no |
//! | is ready | proven | yes |
//! | | is in the slices now, ready, and nothing speaks against it | stays |
//! | | else is in the slices under a former number that is still open | stays there, until the new one is proven |
//! | | else | no; it is asked |
//! | is on its way out and serves | is in the slices now | stays, not ready, unless a ready one is there |
//! | is not ready, and not on its way out | is in the slices now, ready | stays where nobody else is to be had |
//!
//! Proxies lead clients to those that are on their way out only where nobody is ready. So beside ready ones they are taken
//! out at once, and the end of an activator is one change of a workload's slices, not two; nor is it two if another one
//! takes its place, and answers soon ([`may_wait_for_successor`]).
//!
//! An address that is not ready in the slices is one that was on its way out. If there is a ready activator now, it is
//! another, and has to be proven.
//!
//! # When no activator is ready
//!
//! One that had no processor for a few seconds, or is started again by its kubelet, is not ready for a moment. Its clients
//! are better off in its listen queue than turned away, and slices that nobody writes are right as soon as it is back:
//! of a single activator's ten thousand workloads, without a minute of writes before it and another one behind. So the
//! slices go on naming it, as long as neither another activator nor a pod can have the traffic ([`Endpoints::with_unready`]).
//! It is added to none, and a number that slices name is not released ([`super::plan()`]).
//!
//! # What speaks against it
//!
//! A refused connection, or an answer for another workload or of something else. That nothing was heard does not: who
//! asks may be the one that is cut off.
//!
//! # Several ports
//!
//! A slice has one list of ports for all of its addresses, so addresses whose ports lead to the same numbers share one:
//! [`group`]. There is one such for each address family, and most of the time just that.

use super::{Proofs, Verdict};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// An activator, as its Service's slices have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activator {
    /// One of its addresses.
    pub address: IpAddr,
    /// Whether it takes requests.
    pub serving: Serving,
}

/// Whether an activator takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// It does.
    Ready,
    /// It is on its way out, and still does.
    Terminating,
    /// It does not, and is not on its way out: it starts, or stands still.
    Unready,
    /// It does not any more.
    No,
}

impl Serving {
    /// Whether it takes requests.
    pub fn is_on(self) -> bool {
        matches!(self, Self::Ready | Self::Terminating)
    }
}

/// An address in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The activator's.
    pub address: IpAddr,
    /// Where it listens for the port.
    pub number: u16,
    /// The endpoint's condition; one that is not ready serves, and terminates.
    pub ready: bool,
}

/// One port of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// The workload.
    pub uid: &'a str,
    /// Its number, if the ledger shows one.
    pub number: Option<u16>,
    /// Numbers that it had and that are open.
    pub former: &'a [u16],
    /// Where its slices lead now, as they were read together with their version.
    pub listed: &'a [Listed],
}

/// What follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// What the slices are to have, in order of the addresses.
    pub listed: Vec<Listed>,
    /// What they have of activators that are not ready, of an address family of which `listed` has none.
    pub unready: Vec<Listed>,
    /// Whom to ask, and on which number.
    pub ask: Vec<(IpAddr, u16)>,
}

impl Endpoints {
    /// What the slices are to have where no pod can have the traffic either.
    pub fn with_unready(mut self) -> Vec<Listed> {
        self.listed.append(&mut self.unready);
        self.listed.sort_unstable();
        self.listed
    }
}

/// Applies the table above.
pub fn endpoints(port: &Port<'_>, activators: &[Activator], proofs: &Proofs, now: Instant) -> Endpoints {
    let mut endpoints = Endpoints::default();
    for Activator { address, serving } in activators.iter().copied() {
        let verdict = |number: u16| proofs.verdict(address, number, port.uid, now);
        let is_ready = serving == Serving::Ready;
        let is_listed = |number: u16| {
            port.listed.iter().any(|at| (at.address, at.number) == (address, number) && (at.ready || !is_ready))
        };
        let stays = |number: &u16| is_listed(*number) && verdict(*number) != Verdict::Denied;
        let numbers = || port.number.into_iter().chain(port.former.iter().copied());
        let proven = port.number.filter(|number| is_ready && verdict(*number) == Verdict::Proven);
        if let Some(number) = port.number.filter(|number| is_ready && verdict(*number) != Verdict::Proven) {
            let is_known = stays(&number) && verdict(number) == Verdict::Listens;
            if !is_known {
                endpoints.ask.push((address, number));
            }
        }
        match serving {
            Serving::Ready | Serving::Terminating => {
                let number = proven.or_else(|| numbers().find(stays));
                endpoints.listed.extend(number.map(|number| Listed { address, number, ready: is_ready }));
            }
            Serving::Unready => {
                let stays = numbers().filter(stays).map(|number| Listed { address, number, ready: true });
                endpoints.unready.extend(stays.filter(|at| port.listed.contains(at)).take(1));
            }
            Serving::No => {}
        }
    }
    if !endpoints.listed.is_empty() {
        endpoints.unready.clear();
    }
    if endpoints.listed.iter().any(|listed| listed.ready) {
        endpoints.listed.retain(|listed| listed.ready);
    }
    endpoints.listed.sort_unstable();
    endpoints
}

/// How soon a change is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// When there is time: there is one more activator beside several.
    Low,
    /// Without a wait: there is a second activator. If the only one died, clients would be refused.
    Soon,
    /// Before that: clients are led to somebody who goes, or to nobody.
    High,
}

/// How soon slices that lead to `before` are to lead to `after`. Each address family is looked at by itself: a client has
/// one. `serves`: whether an activator still serves there ([`serves`]). One that does, and that another one replaces, misleads
/// nobody meanwhile.
pub fn urgency(before: &[Listed], after: &[Listed], serves: impl Fn(&Listed) -> bool) -> Urgency {
    let ready = |is_v6: bool| before.iter().filter(move |at| at.ready && at.address.is_ipv6() == is_v6).count();
    let comes = |at: &&Listed| !before.contains(at);
    let moves = |address: IpAddr| after.iter().any(|at| at.address == address);
    let may_wait = |at: &Listed| after.contains(at) || (at.ready && serves(at) && !moves(at.address));
    let is_left = |is_v6: bool| ready(is_v6) == 0 || after.iter().any(|at| at.ready && at.address.is_ipv6() == is_v6);
    if ready(false) + ready(true) == 0 || !before.iter().all(may_wait) || !(is_left(false) && is_left(true)) {
        return Urgency::High;
    }
    let beside = after.iter().filter(comes).map(|at| ready(at.address.is_ipv6())).min();
    match beside {
        Some(0) => Urgency::High,
        Some(1) => Urgency::Soon,
        Some(_) | None => Urgency::Low,
    }
}

/// Whether clients who are led there meet the workload: its activator is ready, and nothing speaks against it.
pub fn serves(at: &Listed, uid: &str, activators: &[Activator], proofs: &Proofs, now: Instant) -> bool {
    is_met(at, uid, activators, proofs, now, |serving| serving == Serving::Ready)
}

/// Whether clients who are led there are answered: the same, or its activator is on its way out and serves.
pub fn answers(at: &Listed, uid: &str, activators: &[Activator], proofs: &Proofs, now: Instant) -> bool {
    is_met(at, uid, activators, proofs, now, Serving::is_on)
}

fn is_met(
    at: &Listed,
    uid: &str,
    activators: &[Activator],
    proofs: &Proofs,
    now: Instant,
    counts: impl Fn(Serving) -> bool,
) -> bool {
    let is_there = |one: &Activator| one.address == at.address && counts(one.serving);
    activators.iter().any(is_there) && proofs.verdict(at.address, at.number, uid, now) != Verdict::Denied
}

/// Whether a change from `before` to `after` may wait a moment for the answer of somebody who is asked, so that who goes and
/// who takes the place are one write: an activator goes, and clients who are led to it or to another one are answered
/// meanwhile.
pub fn may_wait_for_successor(before: &[Listed], after: &[Listed], answers: impl Fn(&Listed) -> bool) -> bool {
    let led = || before.iter().filter(|at| at.ready);
    let goes = |at: &Listed| !after.iter().any(|one| one.ready && one.address == at.address);
    led().any(goes) && led().all(answers)
}

/// Numbers by the names of ports.
pub type Leads = BTreeMap<String, u16>;

/// One EndpointSlice, or as many as its addresses need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The Service's ports, and where they lead.
    pub ports: Leads,
    /// Addresses of one family, in order, and whether they are ready.
    pub addresses: Vec<(IpAddr, bool)>,
}

/// Puts the endpoints of all ports together: by family, then by where an address's ports lead.
pub fn group<'a>(ports: impl IntoIterator<Item = (&'a str, &'a [Listed])>) -> Vec<Slice> {
    let mut addresses: BTreeMap<IpAddr, (Leads, bool)> = BTreeMap::new();
    for (name, listed) in ports {
        for Listed { address, number, ready } in listed {
            let (numbers, is_ready) = addresses.entry(*address).or_default();
            numbers.insert(name.to_owned(), *number);
            *is_ready = *ready;
        }
    }
    let mut slices: BTreeMap<(bool, Leads), Vec<(IpAddr, bool)>> = BTreeMap::new();
    for (address, (numbers, ready)) in addresses {
        slices.entry((address.is_ipv6(), numbers)).or_default().push((address, ready));
    }
    slices.into_iter().map(|((_, ports), addresses)| Slice { ports, addresses }).collect()
}
