//! Workloads' ports: which numbers this activator listens on, for whom, and what it tells who asks.
//!
//! The ledger says it ([`common::ports`]), the machine there what to bind and unbind; this carries it out. A workload
//! and its numbers come from two watches. A number is bound as soon as the ledger has it, so that nobody waits for it
//! later, but while its workload, or that port of it, is not known here it is proven to nobody, and who comes all the same
//! is refused.
//!
//! A connection means the object, by its uid, that its number stood for when it came. One of the same name that comes
//! later is another one, maybe of another Service.
//!
//! It means that port of the object, also after the Service has given the port another name or number. The number's line
//! and what the object says of its ports follow such an edit one after the other; in between they are matched as whoever
//! gives numbers does: by name, else by where the port leads, else by number ([`WorkloadPort::among`]).
//!
//! A Service that is served no more still leads here for a moment. Its port goes on leading where it led at the pods.
//!
//! While its Service is given back the object is served as ever, and once clients are led past this activator connections
//! to its ports end ([`PortListeners::leave`]): who kept one beyond that would be refused.

use super::Registry;
use super::speaker::Speaker;
use super::spoken::PortHttp;
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
use common::ports::answer;
use common::ports::ledger::{Block, Entry, Ledger};
use common::ports::listeners::{Action, Listeners};
use common_runtime::clock::Clock;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What a number stands for. Its connections carry it.
pub(crate) struct WorkloadPort {
    /// Whose it is.
    entry: Arc<Entry>,
    /// The same as its line is now: it calls the port by its present name and number.
    line: ArcSwap<Entry>,
    number: u16,
    /// Its number at the pods, as it was last known; 0: it has not been.
    at_pods: AtomicU16,
    /// HTTP that its pods speak, as far as it was learned.
    pub(super) learned: PortHttp,
    /// Side that speaks first on the port.
    pub(crate) speaker: Speaker,
}

/// Sockets, and what is told of them.
pub(crate) struct WorkloadPorts {
    sockets: PortListeners,
    instance: String,
    pod: String,
    /// The answer to who asks for all numbers, and of when it is.
    all: Mutex<(Version, Bytes)>,
}

/// Of the sockets, and of what is known.
type Version = Option<(u64, u64)>;

/// What only the writer looks at.
pub(super) struct Numbers {
    ledger: BTreeMap<u16, Arc<Entry>>,
    listeners: Listeners<Arc<Entry>>,
    changed: bool,
    clock: Clock,
}

impl Default for Numbers {
    fn default() -> Self {
        let (ledger, listeners) = (BTreeMap::new(), Listeners::default());
        Self { ledger, listeners, changed: false, clock: Clock::system() }
    }
}

impl WorkloadPort {
    fn new(entry: Arc<Entry>, number: u16) -> Self {
        let (line, at_pods) = (ArcSwap::new(entry.clone()), AtomicU16::new(0));
        Self { line, entry, number, at_pods, learned: PortHttp::default(), speaker: Speaker::default() }
    }

    /// Finds it among its workload's ports, and notes where it leads; none: it is none of them, or not any more.
    pub(crate) fn among<'a>(&self, ports: &'a [Port]) -> Option<&'a Port> {
        let line = self.line.load();
        let PortId { name, port: number } = &line.port;
        let find = |is_it: &dyn Fn(&Port) -> bool| ports.iter().find(|port| is_it(port));
        let found = find(&|port| port.id == line.port)
            .or_else(|| find(&|port| port.id.name == *name))
            .or_else(|| find(&|port| port.pod_port.is_some() && port.pod_port == self.led_to()))
            .or_else(|| find(&|port| port.id.port == *number));
        if let Some(leads_to) = found.and_then(|found| found.pod_port) {
            self.leads_to(leads_to);
        }
        found
    }

    /// Returns whether it is known where it leads, as far as its workload says of its ports at all.
    fn is_described(&self, ports: &[Port]) -> bool {
        ports.is_empty() || self.among(ports).is_some() || self.led_to().is_some()
    }

    /// Its number at the pods, as it was last known.
    fn led_to(&self) -> Option<u16> {
        Some(self.at_pods.load(Ordering::Relaxed)).filter(|known| *known != 0)
    }

    fn leads_to(&self, number: u16) {
        // Written seldom: all cores read it.
        if self.led_to() != Some(number) {
            self.at_pods.store(number, Ordering::Relaxed);
        }
    }

    /// The number that it is bound by.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Whose it is.
    pub(crate) fn workload(&self) -> &RevisionKey {
        &self.entry.key
    }

    /// Whether it is one of this workload's.
    fn is_of(&self, spec: &Spec) -> bool {
        spec.uid == self.entry.uid
    }
}

impl Revision {
    /// Where what came to `port` goes at a pod that takes requests at `destination`; none: the pod has no such port, or
    /// the revision not any more. What came to a shared port goes to the destination itself, as does everything where a
    /// queue-proxy takes it.
    pub(crate) fn address_of(&self, destination: &Destination, port: Option<&WorkloadPort>) -> Option<SocketAddr> {
        let address = destination.address();
        let live = self.live();
        let Some(port) = port.filter(|_| live.contract == Contract::Plain) else { return Some(address) };
        let of_pod = self.pod_ports();
        let of_pod = of_pod.as_ref().and_then(|pods| pods.get(&address.ip()));
        let said = port.among(&live.ports);
        let named = |name: &str| of_pod.and_then(|ports| ports.get(name).copied());
        let by_name = named(&port.line.load().port.name).or_else(|| named(&said?.id.name));
        // While it is renamed its line, its workload and the pods' slices say so one after the other. Where a pod has one
        // port, that is where it takes requests. Of one that its workload has no more nobody else knows.
        let mut all = of_pod.into_iter().flat_map(|ports| ports.values().copied()).chain([address.port()]);
        let known = || port.led_to().filter(|known| said.is_none() || all.any(|of_pod| of_pod == *known));
        match by_name.or_else(|| said?.pod_port).or_else(known) {
            Some(number) => {
                port.leads_to(number);
                Some(SocketAddr::new(address.ip(), number))
            }
            // The first one is where it takes requests.
            None if said.is_some() && said == live.ports.first() => {
                port.leads_to(address.port());
                Some(address)
            }
            None => live.ports.is_empty().then_some(address),
        }
    }
}

impl WorkloadPorts {
    /// None is bound yet.
    pub(crate) fn new(sockets: PortListeners, pod: String) -> Self {
        let instance = format!("{:016x}", rand::random::<u64>());
        Self { sockets, instance, pod, all: Mutex::default() }
    }

    /// The workloads with these uids are given back: the clients of their ports come anew.
    pub(super) fn leave(&self, uids: &HashSet<Arc<str>>) {
        let uid = |port: &PortIdentity| Some(port.downcast_ref::<WorkloadPort>()?.entry.uid.clone());
        self.sockets.leave(|port| uid(port).is_some_and(|uid| uids.contains(&uid)));
    }
}

impl Numbers {
    /// The ledger's numbers of one block are these.
    pub(super) fn set(&mut self, block: Block, entries: Ledger) {
        // What is as it was is shared with the listeners, and with what their connections carry.
        let mut former: BTreeMap<u16, Arc<Entry>> =
            self.ledger.extract_if(.., |number, _| Block::of(*number) == block).collect();
        self.ledger.extend(entries.into_iter().map(|(number, entry)| {
            let same = former.remove(&number).filter(|former| **former == entry);
            (number, same.unwrap_or_else(|| Arc::new(entry)))
        }));
        self.changed = true;
    }

    /// When time alone changes something.
    pub(super) fn due(&self) -> Option<Instant> {
        self.listeners.wake().map(|wake| Instant::now() + wake.saturating_since(self.clock.now()))
    }

    /// Binds and unbinds.
    pub(super) fn follow(&mut self, ports: &WorkloadPorts) {
        self.clock.resync();
        let now = self.clock.now();
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
    /// The revision that a workload's port leads to, for a request.
    pub(crate) fn by_port(&self, port: &WorkloadPort) -> Option<Arc<Revision>> {
        self.port_workload(port)?.at_work(&self.parts, |spec| port.is_of(spec))
    }

    /// The revision that a workload's port leads to, if it has a pod that can be sent to.
    pub(crate) fn awake(&self, port: &WorkloadPort) -> Option<Arc<Revision>> {
        self.spec_of(port)?;
        self.port_workload(port)?.revision().filter(|revision| !revision.is_cold())
    }

    /// What a workload's port leads to.
    pub(crate) fn spec_of(&self, port: &WorkloadPort) -> Option<Arc<Spec>> {
        self.port_workload(port)?.spec().filter(|spec| port.is_of(spec))
    }

    fn port_workload(&self, port: &WorkloadPort) -> Option<Arc<Workload>> {
        self.get(&port.entry.key)
    }

    /// The proof that a workload's port is served here: what stands in the answer's header; nothing if it is not served,
    /// or not any more.
    pub(crate) fn proof(&self, port: &WorkloadPort) -> Option<String> {
        let ports = self.parts.ports.as_ref()?;
        let state = self.state.lock();
        let entry = state.numbers.listeners.entry(port.number).filter(|entry| entry.uid == port.entry.uid)?;
        let (instance, uid) = (ports.instance.clone(), entry.uid.to_string());
        let is_held = entry.state == common::ports::State::Held;
        self.spec_of(port)?;
        Some(answer::Listening { instance, uid, is_held }.to_string())
    }

    /// The answer to who asks which numbers are bound, as JSON; none where workloads have no ports. It is made on a thread
    /// of its own: of tens of thousands that takes a tenth of a second, for which no client's connection is to wait.
    pub(crate) fn bound_ports(self: &Arc<Self>, question: Question) -> JoinHandle<Option<Bytes>> {
        let registry = self.clone();
        self.parts.runtime.spawn_blocking(move || registry.bound(&question))
    }

    fn bound(&self, question: &Question) -> Option<Bytes> {
        let ports = self.parts.ports.as_ref()?;
        let rows = |entries: Vec<(u16, Arc<Entry>)>| {
            entries.into_iter().map(|(number, entry)| self.row(ports, number, &entry)).collect()
        };
        let listed = |number: u16, entry: &Arc<Entry>| (number, entry.clone());
        match question {
            Question::Numbers(numbers) => {
                let state = self.state.lock();
                let listeners = &state.numbers.listeners;
                let found = numbers.iter().filter_map(|number| Some(listed(*number, listeners.entry(*number)?)));
                let found = found.collect();
                drop(state);
                Some(ports.answer(rows(found)))
            }
            Question::All => {
                // One copy for all who ask, however slowly they read.
                let mut all = ports.all.lock();
                let (version, found) = {
                    let state = self.state.lock();
                    let version = Some((ports.sockets.version(), state.version));
                    if all.0 == version {
                        return Some(all.1.clone());
                    }
                    let entries = state.numbers.listeners.entries();
                    (version, entries.map(|(number, entry)| listed(number, entry)).collect())
                };
                *all = (version, ports.answer(rows(found)));
                Some(all.1.clone())
            }
        }
    }

    fn row(&self, ports: &WorkloadPorts, number: u16, entry: &Entry) -> BoundPort {
        let spec = self.get(&entry.key).and_then(|workload| workload.spec()).filter(|spec| spec.uid == entry.uid);
        let told = |port: &PortIdentity, error: Option<&io::Error>| {
            // Since it was looked up it may have become another's.
            let port = port.downcast_ref::<WorkloadPort>().filter(|port| port.entry.uid == entry.uid)?;
            Some(match (error, &spec) {
                (Some(error), _) => (error.kind() == io::ErrorKind::AddrInUse, Some(error.to_string())),
                (None, None) => (false, Some("its workload is not known here".to_owned())),
                (None, Some(spec)) if !port.is_described(&spec.ports) => {
                    (false, Some("this port of its workload is not known here".to_owned()))
                }
                (None, Some(_)) => (false, None),
            })
        };
        let being_closed = || (false, Some("it is being closed".to_owned()));
        let (in_use, error) = ports.sockets.one(number, told).flatten().unwrap_or_else(being_closed);
        let closing = entry.state != common::ports::State::Held;
        BoundPort { number, uid: entry.uid.to_string(), closing, in_use, error }
    }
}

impl WorkloadPorts {
    fn answer(&self, ports: Vec<BoundPort>) -> Bytes {
        let answer = BoundPorts { instance: self.instance.clone(), pod: self.pod.clone(), ports };
        serde_json::to_vec(&answer).unwrap_or_default().into() // Texts and numbers always serialise.
    }
}
