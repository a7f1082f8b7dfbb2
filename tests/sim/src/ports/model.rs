//! Objects of the API server, and events.

use super::faults::Fault;
use autoscaler_core::ports::{Activator, Change, Listed, NumberResponse};
use common::RevisionKey;
use common::config::PortRange;
use common::ports::ledger::{Block, Ledger, PortId};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    Block(Block),
    Workload(usize),
    Slices(usize),
    Activators,
    Range,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Object {
    Block(Ledger),
    Workload(Scaler),
    Slices(Slices),
    Activators(Vec<Activator>),
    Range(PortRange),
    /// The object was deleted or never existed.
    Gone,
}

/// ZeroScaler, with the ports of its Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scaler {
    pub(super) uid: Arc<str>,
    pub(super) ports: Vec<PortId>,
    /// Numbers by port name.
    pub(super) status: BTreeMap<String, u16>,
    /// True if the object is deleted and only its finalizer keeps it.
    pub(super) deleting: bool,
}

/// All slices of one Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slices {
    /// Uid of the owner of the slices.
    pub(super) uid: Arc<str>,
    pub(super) ports: BTreeMap<String, Vec<Listed>>,
}

pub(super) type Objects = BTreeMap<Id, (u64, Object)>;

/// Event of the cluster. `life` and the number beside a process tell which of its lives the event belongs to.
#[derive(Debug)]
pub(super) enum Event {
    ToOwner(usize, u32, ToOwner),
    ToProxy(usize, u32, ToProxy),
    // `lines` are the changed lines of the ledger. If the check of versions is disabled, they apply to the current map.
    Write { by: usize, life: u32, id: Id, base: u64, object: Object, lines: Vec<Change> },
    ProbeArrives { by: usize, life: u32, address: usize, number: u16, sent: Duration },
    NodeLearns { node: usize, workload: usize, version: u64, object: Object },
    Connect,
    UpdateService,
    Balance,
    BeginFault(Fault),
    EndFault(Fault),
}

/// Event for an owner.
#[derive(Clone, Debug)]
pub(super) enum ToOwner {
    Listed,
    Notify(Id),
    Tick,
    Pass,
    Probed { address: IpAddr, number: u16, response: NumberResponse, sent: Duration },
    Written { id: Id, version: u64, object: Object },
    WriteFailed(Id),
}

/// Event for an activator.
#[derive(Clone, Debug)]
pub(super) enum ToProxy {
    Listed,
    Notify(Id),
    Bind,
    Retry,
    Ready,
    Exit,
}

pub(super) fn address(proxy: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, proxy as u8))
}

pub(super) fn proxy_at(address: IpAddr) -> usize {
    let IpAddr::V4(address) = address else { return usize::MAX };
    usize::from(address.octets()[3])
}

pub(super) fn key(workload: usize) -> RevisionKey {
    RevisionKey::new("default", format!("{workload}"))
}

pub(super) fn workload_of(key: &RevisionKey) -> usize {
    key.name().parse().unwrap_or(usize::MAX)
}

pub(super) fn apply(ledger: &mut Ledger, change: &Change) {
    ledger.insert(change.number, change.entry.clone());
}

/// Returns the lines of all maps in a copy of the objects.
pub(super) fn ledger_of(objects: &Objects) -> Ledger {
    let maps =
        objects.values().filter_map(|(_, object)| if let Object::Block(ledger) = object { Some(ledger) } else { None });
    maps.flatten().map(|(number, entry)| (*number, entry.clone())).collect()
}
