//! Decides which activator addresses the slices of a workload contain, and with which number.
//!
//! # The rule, for one port and each address
//!
//! | activator | at the port's number | result |
//! |---|---|---|
//! | is not in its Service, or terminates and no longer serves | | not listed |
//! | ready | proven | listed |
//! | | is in the slices now, ready, without evidence against it | stays |
//! | | else is in the slices with a former number that is still open | stays there until the new one is proven |
//! | | else | not listed; it is probed |
//! | terminates and serves | is in the slices now | stays, not ready, unless a ready one is listed |
//! | not ready, and not terminating | is in the slices now, ready | stays if no other activator is available |
//!
//! Proxies send clients to terminating endpoints only if none is ready. So terminating activators are removed at once
//! beside ready ones. The end of an activator is then one change of a workload's slices, not two. It is also one change
//! if another activator that responds soon takes its place ([`may_wait_for_successor`]).
//!
//! An address that is not ready in the slices belonged to a terminating activator. If a ready activator has it now,
//! that is another one, which must be proven.
//!
//! # If no activator is ready
//!
//! An activator that got no processor time for a few seconds, or is restarted by its kubelet, is briefly not ready. Its
//! clients are better off in its listen queue than rejected. Slices that are left unchanged are correct again as soon
//! as it is back. This saves a minute of writes before and after, for the ten thousand workloads of a single activator.
//! So the slices keep naming it as long as neither another activator nor a pod can take the traffic
//! ([`Endpoints::with_unready`]). It is added to no slice, and a number that slices name is not released
//! ([`super::plan()`]).
//!
//! # Evidence against an address
//!
//! A refused connection, or a response for another workload or of another process. A missing response is no evidence,
//! since the prober itself may be disconnected.
//!
//! # Several ports
//!
//! A slice has one list of ports for all of its addresses. So addresses whose ports map to the same numbers share a
//! slice: [`group`]. There is at least one slice per address family, and usually only that.

use super::{Proofs, Verdict};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// Activator as listed in the slices of its Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activator {
    /// One of its addresses.
    pub address: IpAddr,
    /// State of the activator.
    pub serving: Serving,
}

/// State of an activator with regard to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// The activator takes requests.
    Ready,
    /// The activator terminates and still takes requests.
    Terminating,
    /// The activator takes no requests and does not terminate: it starts or is stalled.
    Unready,
    /// The activator no longer takes requests.
    Stopped,
}

impl Serving {
    /// Returns true if the activator takes requests.
    pub fn takes_requests(self) -> bool {
        matches!(self, Self::Ready | Self::Terminating)
    }
}

/// Address in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Address of the activator.
    pub address: IpAddr,
    /// Number on which it listens for the port.
    pub number: u16,
    /// Condition of the endpoint. An endpoint that is not ready serves and terminates.
    pub ready: bool,
}

/// Port of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// Uid of the workload.
    pub uid: &'a str,
    /// Number of the port, if the ledger contains one.
    pub number: Option<u16>,
    /// Former numbers that are still open.
    pub former: &'a [u16],
    /// Current endpoints in its slices, read together with their version.
    pub listed: &'a [Listed],
}

/// Endpoints of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Endpoints that the slices should contain, in order of the addresses.
    pub listed: Vec<Listed>,
    /// Current endpoints of activators that are not ready, if `listed` has none of their address family.
    pub unready: Vec<Listed>,
    /// Addresses and numbers to probe.
    pub to_probe: Vec<(IpAddr, u16)>,
}

impl Endpoints {
    /// Returns the endpoints that the slices should contain if no pod can take the traffic either.
    pub fn with_unready(mut self) -> Vec<Listed> {
        self.listed.append(&mut self.unready);
        self.listed.sort_unstable();
        self.listed
    }
}

/// Applies the table of the [module](self).
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
                endpoints.to_probe.push((address, number));
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
            Serving::Stopped => {}
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

/// Returns true if a change of slices from `before` to `after` has priority: until then, clients are routed to an
/// activator that is leaving, or to none. Each address family counts separately, since a client uses one. `serves`
/// returns true if clients of an endpoint reach a ready activator ([`reached`]). An endpoint that serves and is
/// replaced by another one misleads no client meanwhile.
pub fn is_urgent(before: &[Listed], after: &[Listed], serves: impl Fn(&Listed) -> bool) -> bool {
    let has_ready = |listed: &[Listed], is_v6: bool| listed.iter().any(|at| at.ready && at.address.is_ipv6() == is_v6);
    let moves = |address: IpAddr| after.iter().any(|at| at.address == address);
    let may_wait = |at: &Listed| after.contains(at) || (at.ready && serves(at) && !moves(at.address));
    let loses_last = |is_v6: bool| has_ready(before, is_v6) && !has_ready(after, is_v6);
    let is_first = |at: &Listed| !before.contains(at) && !has_ready(before, at.address.is_ipv6());
    !before.iter().any(|at| at.ready)
        || before.iter().any(|at| !may_wait(at))
        || loses_last(false)
        || loses_last(true)
        || after.iter().any(is_first)
}

/// Returns the state of the activator that clients of the endpoint reach, or `None` if it is gone or there is evidence
/// that it does not listen there for the workload.
pub fn reached(at: &Listed, uid: &str, activators: &[Activator], proofs: &Proofs, now: Instant) -> Option<Serving> {
    let there = activators.iter().find(|one| one.address == at.address)?;
    (proofs.verdict(at.address, at.number, uid, now) != Verdict::Denied).then_some(there.serving)
}

/// Returns true if a change may wait briefly for the response of a probed activator, so that removal and replacement
/// are one write. The condition: an activator is removed, and clients of all current endpoints get responses meanwhile.
pub fn may_wait_for_successor(before: &[Listed], after: &[Listed], answers: impl Fn(&Listed) -> bool) -> bool {
    let ready = || before.iter().filter(|at| at.ready);
    let is_removed = |at: &Listed| !after.iter().any(|one| one.ready && one.address == at.address);
    ready().any(is_removed) && ready().all(answers)
}

/// Numbers by port name.
pub type PortNumbers = BTreeMap<String, u16>;

/// EndpointSlice, or several if it has too many addresses for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Ports of the Service, with their numbers.
    pub ports: PortNumbers,
    /// Addresses of one family in order, with their readiness.
    pub addresses: Vec<(IpAddr, bool)>,
}

/// Combines the endpoints of all ports: by address family, then by the numbers of an address's ports.
pub fn group<'a>(ports: impl IntoIterator<Item = (&'a str, &'a [Listed])>) -> Vec<Slice> {
    let mut addresses: BTreeMap<IpAddr, (PortNumbers, bool)> = BTreeMap::new();
    for (name, listed) in ports {
        for Listed { address, number, ready } in listed {
            let (numbers, is_ready) = addresses.entry(*address).or_default();
            numbers.insert(name.to_owned(), *number);
            *is_ready = *ready;
        }
    }
    let mut slices: BTreeMap<(bool, PortNumbers), Vec<(IpAddr, bool)>> = BTreeMap::new();
    for (address, (numbers, ready)) in addresses {
        slices.entry((address.is_ipv6(), numbers)).or_default().push((address, ready));
    }
    slices.into_iter().map(|((_, ports), addresses)| Slice { ports, addresses }).collect()
}
