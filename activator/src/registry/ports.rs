//! Ports of workloads: the numbers that this activator listens on, and the responses about them.
//!
//! The ledger assigns the numbers ([`common::ports`]), and its state machine decides what to bind and unbind; this
//! module executes that. A workload and its numbers come from two watches. A number is bound as soon as it is in the
//! ledger, so that nothing waits for it later. While its workload, or that port of the workload, is unknown here,
//! probes for the number fail and clients are refused.
//!
//! A connection belongs to the object, by uid, that had the number when the connection came. A later object of the same
//! name is another one, possibly with another Service.
//!
//! A connection also keeps its port if the Service gives the port another name or number. The number's ledger line and
//! the object's ports follow such an edit one after the other. In between they are matched as in the allocation of
//! numbers: by name, else by target port, else by number ([`WorkloadPort::among`]).
//!
//! If a Service is no longer served, connections to it still arrive here for a moment. Its port keeps its last target
//! at the pods.
//!
//! While a Service returns to direct routing, the object is served as before. Once the Service bypasses this activator,
//! connections to its ports are ended ([`PortListeners::make_clients_reconnect`]), because they would be refused later.

use super::Registry;
use super::learned_http::LearnedHttp;
use super::speaker::Speaker;
use super::workload::Workload;
use crate::discovery::{Port, Spec};
use crate::registry::revision::Revision;
use activator_core::Destination;
use activator_core::contract::Contract;
use activator_net::{PortIdentity, PortListeners};
use arc_swap::ArcSwap;
use bytes::Bytes;
use common::RevisionKey;
use common::bound_ports::{BoundPort, BoundPorts, Question};
use common::ports::PortId;
use common::ports::ledger::{Block, Entry, Ledger};
use common::ports::listeners::{Action, Listeners};
use common_runtime::clock::Clock;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Identity of a bound number. Its connections carry it.
pub(crate) struct WorkloadPort {
    /// Owner of the number at the time of the bind.
    entry: Arc<Entry>,
    /// Current ledger line, with the port's present name and number.
    line: ArcSwap<Entry>,
    number: u16,
    /// Last known target port at the pods; 0 if unknown.
    target: AtomicU16,
    /// HTTP version that was learned from its pods.
    pub(super) learned: LearnedHttp,
    pub(crate) speaker: Speaker,
}

/// Sockets, and the data for responses about them.
pub(crate) struct WorkloadPorts {
    sockets: PortListeners,
    instance: String,
    pod: String,
    clock: Clock,
}

/// Ledger of port numbers, and the numbers that are bound.
#[derive(Default)]
pub(super) struct PortBindings {
    ledger: BTreeMap<u16, Arc<Entry>>,
    listeners: Listeners<Arc<Entry>>,
    changed: bool,
}

impl WorkloadPort {
    fn new(entry: Arc<Entry>, number: u16) -> Self {
        let (line, target) = (ArcSwap::new(entry.clone()), AtomicU16::new(0));
        Self { line, entry, number, target, learned: LearnedHttp::default(), speaker: Speaker::default() }
    }

    /// Returns this port among its workload's `ports`, and notes its target port. Returns `None` if the workload does
    /// not or no longer have it.
    pub(crate) fn among<'a>(&self, ports: &'a [Port]) -> Option<&'a Port> {
        let line = self.line.load();
        let PortId { name, port: number } = &line.port;
        let find = |is_it: &dyn Fn(&Port) -> bool| ports.iter().find(|port| is_it(port));
        let found = find(&|port| port.id == line.port)
            .or_else(|| find(&|port| port.id.name == *name))
            .or_else(|| find(&|port| port.pod_port.is_some() && port.pod_port == self.last_target()))
            .or_else(|| find(&|port| port.id.port == *number));
        if let Some(target) = found.and_then(|found| found.pod_port) {
            self.set_target(target);
        }
        found
    }

    /// Reports whether its target is known, or the workload describes no ports at all.
    fn is_described(&self, ports: &[Port]) -> bool {
        ports.is_empty() || self.among(ports).is_some() || self.last_target().is_some()
    }

    fn last_target(&self) -> Option<u16> {
        Some(self.target.load(Ordering::Relaxed)).filter(|known| *known != 0)
    }

    fn set_target(&self, number: u16) {
        // Written only on a change, because all cores read it.
        if self.last_target() != Some(number) {
            self.target.store(number, Ordering::Relaxed);
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn workload(&self) -> &RevisionKey {
        &self.entry.key
    }

    fn belongs_to(&self, spec: &Spec) -> bool {
        spec.uid == self.entry.uid
    }
}

impl Revision {
    /// Returns the address for a request to `port` at a pod with this `destination`; `None` if the pod has no such
    /// port, or the revision no longer has it. Requests on a shared port go to the destination itself, and so do all
    /// requests to a queue-proxy.
    pub(crate) fn address_of(&self, destination: &Destination, port: Option<&WorkloadPort>) -> Option<SocketAddr> {
        let address = destination.address();
        let live = self.live();
        let Some(port) = port.filter(|_| live.spec.contract == Contract::Plain) else { return Some(address) };
        let of_pod = self.pod_ports.load_full();
        let of_pod = of_pod.as_ref().and_then(|pods| pods.get(&address.ip()));
        let declared = port.among(&live.spec.ports);
        let named = |name: &str| of_pod.and_then(|ports| ports.get(name).copied());
        let by_name = named(&port.line.load().port.name).or_else(|| named(&declared?.id.name));
        // During a rename the ledger line, the workload and the pods' slices change one after the other. A pod with a
        // single port takes requests there. For a port that the workload no longer has, the last target is the only
        // source.
        let mut all = of_pod.into_iter().flat_map(|ports| ports.values().copied()).chain([address.port()]);
        let known = || port.last_target().filter(|known| declared.is_none() || all.any(|of_pod| of_pod == *known));
        match by_name.or_else(|| declared?.pod_port).or_else(known) {
            Some(number) => {
                port.set_target(number);
                Some(SocketAddr::new(address.ip(), number))
            }
            // The first port is the one at which the pod takes requests.
            None if declared.is_some() && declared == live.spec.ports.first() => {
                port.set_target(address.port());
                Some(address)
            }
            None => live.spec.ports.is_empty().then_some(address),
        }
    }
}

impl WorkloadPorts {
    pub(crate) fn new(sockets: PortListeners, pod: String) -> Self {
        let instance = format!("{:016x}", rand::random::<u64>());
        Self { sockets, instance, pod, clock: Clock::system() }
    }

    /// Ends the connections to ports of workloads with these uids, so that their clients reconnect.
    pub(super) fn end_connections(&self, uids: &HashSet<Arc<str>>) {
        let uid = |port: &PortIdentity| Some(port.downcast_ref::<WorkloadPort>()?.entry.uid.clone());
        self.sockets.make_clients_reconnect(|port| uid(port).is_some_and(|uid| uids.contains(&uid)));
    }
}

impl PortBindings {
    pub(super) fn set(&mut self, block: Block, entries: Ledger) {
        // Unchanged entries stay shared with the listeners and their connections.
        let mut former: BTreeMap<u16, Arc<Entry>> =
            self.ledger.extract_if(.., |number, _| Block::containing(*number) == block).collect();
        self.ledger.extend(entries.into_iter().map(|(number, entry)| {
            let same = former.remove(&number).filter(|former| **former == entry);
            (number, same.unwrap_or_else(|| Arc::new(entry)))
        }));
        self.changed = true;
    }

    /// Returns the next time at which something changes without an event.
    pub(super) fn due(&self, ports: &WorkloadPorts) -> Option<Instant> {
        self.listeners.wake().map(|wake| Instant::now() + wake.saturating_since(ports.clock.now()))
    }

    pub(super) fn follow(&mut self, ports: &WorkloadPorts) {
        ports.clock.resync();
        let now = ports.clock.now();
        if !std::mem::take(&mut self.changed) && self.listeners.wake().is_none_or(|wake| now < wake) {
            return;
        }
        for action in self.listeners.follow(&self.ledger, now) {
            match action {
                Action::Bind(number) => {
                    if let Some(entry) = self.listeners.entry(number) {
                        ports.sockets.bind(number, Arc::new(WorkloadPort::new(entry.clone(), number)));
                    }
                }
                Action::Rename(number) => {
                    let Some(entry) = self.listeners.entry(number) else { continue };
                    ports.sockets.one(number, |port, _| {
                        port.downcast_ref::<WorkloadPort>().into_iter().for_each(|port| port.line.store(entry.clone()));
                    });
                }
                Action::Unbind(number) => ports.sockets.unbind(number),
            }
        }
    }
}

impl Registry {
    /// Returns the revision behind a workload's port for a request, and creates it if necessary.
    pub(crate) fn by_port(&self, port: &WorkloadPort) -> Option<Arc<Revision>> {
        self.port_workload(port)?.active_revision(&self.parts, |spec| port.belongs_to(spec))
    }

    /// Returns the revision behind a workload's port, if it has a ready pod.
    pub(crate) fn awake(&self, port: &WorkloadPort) -> Option<Arc<Revision>> {
        self.spec_of(port)?;
        self.port_workload(port)?.revision().filter(|revision| !revision.is_cold())
    }

    pub(crate) fn spec_of(&self, port: &WorkloadPort) -> Option<Arc<Spec>> {
        self.port_workload(port)?.spec().filter(|spec| port.belongs_to(spec))
    }

    fn port_workload(&self, port: &WorkloadPort) -> Option<Arc<Workload>> {
        self.get(&port.entry.key)
    }

    pub(crate) fn serves(&self, port: &WorkloadPort) -> bool {
        let state = self.state.lock();
        let entry = state.bindings.listeners.entry(port.number);
        entry.is_some_and(|entry| entry.uid == port.entry.uid) && self.spec_of(port).is_some()
    }

    /// Returns the bound numbers as JSON; `None` if workloads have no ports. Runs on a blocking thread: with tens of
    /// thousands of numbers it takes a tenth of a second, for which no client's connection must wait.
    pub(crate) fn bound_ports(self: &Arc<Self>, question: Question) -> JoinHandle<Option<Bytes>> {
        let registry = self.clone();
        self.parts.runtime.spawn_blocking(move || registry.bound(&question))
    }

    fn bound(&self, question: &Question) -> Option<Bytes> {
        let ports = self.parts.ports.as_ref()?;
        let entries: Vec<(u16, Arc<Entry>)> = {
            let listeners = &self.state.lock().bindings.listeners;
            match question {
                Question::Numbers(numbers) => {
                    numbers.iter().filter_map(|number| Some((*number, listeners.entry(*number)?.clone()))).collect()
                }
                Question::All => listeners.entries().map(|(number, entry)| (number, entry.clone())).collect(),
            }
        };
        let rows = entries.iter().map(|(number, entry)| self.row(ports, *number, entry)).collect();
        let answer = BoundPorts { instance: ports.instance.clone(), pod: ports.pod.clone(), ports: rows };
        Some(serde_json::to_vec(&answer).unwrap_or_default().into()) // Strings and numbers always serialize.
    }

    fn row(&self, ports: &WorkloadPorts, number: u16, entry: &Entry) -> BoundPort {
        let spec = self.get(&entry.key).and_then(|workload| workload.spec()).filter(|spec| spec.uid == entry.uid);
        let status = |port: &PortIdentity, error: Option<&io::Error>| {
            // The number's owner may have changed since the lookup of the entry.
            let port = port.downcast_ref::<WorkloadPort>().filter(|port| port.entry.uid == entry.uid)?;
            Some(match (error, &spec) {
                (Some(error), _) => (error.kind() == io::ErrorKind::AddrInUse, Some(error.to_string())),
                (None, None) => (false, Some("the workload of the port is not known to this activator".to_owned())),
                (None, Some(spec)) if !port.is_described(&spec.ports) => {
                    (false, Some("the port of the workload is not known to this activator".to_owned()))
                }
                (None, Some(_)) => (false, None),
            })
        };
        let being_closed = || (false, Some("the port is being closed".to_owned()));
        let (in_use, error) = ports.sockets.one(number, status).flatten().unwrap_or_else(being_closed);
        let closing = entry.state != common::ports::NumberState::Held;
        BoundPort { number, uid: entry.uid.to_string(), closing, in_use, error }
    }
}
