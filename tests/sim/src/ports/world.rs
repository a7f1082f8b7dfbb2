//! Simulated cluster: one clock, one queue of events, one random generator, and the API server's objects.

use super::model::{Event, Id, Object, Objects, ToOwner, ToProxy, address, apply};
use super::owner::Owner;
use super::proxy::Proxy;
use super::{END, Summary, Without};
use crate::timeline::Timeline;
use autoscaler_core::ports::Change;
use common::ports::ledger::Block;
use common::time::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Maximum number of workloads at a time.
pub(super) const WORKLOADS: usize = 6;
/// Number of buckets.
pub(super) const BUCKETS: usize = 2;
/// Maximum time in seconds until a node receives new slices.
const NODES_LAG: u64 = 20;
/// Maximum time in milliseconds until a slow write is carried out.
const WRITE_SLOW: u64 = 9_000;

pub(super) struct World {
    pub(super) time: Timeline<Event>,
    pub(super) rng: StdRng,
    pub(super) without: Option<Without>,
    version: u64,
    pub(super) objects: Objects,
    pub(super) owners: Vec<Owner>,
    pub(super) proxies: Vec<Proxy>,
    /// Copies of slices on each node.
    pub(super) nodes: Vec<BTreeMap<usize, (u64, Object)>>,
    /// True while writes are slow.
    pub(super) slow: bool,
    /// True while some responses are lost.
    pub(super) lossy: bool,
    /// Former statuses that may be restored.
    pub(super) backups: VecDeque<(usize, BTreeMap<String, u16>)>,
    /// Number of workloads created so far.
    pub(super) created: u64,
    pub(super) summary: Summary,
}

impl World {
    pub(super) fn new(seed: u64, without: Option<Without>, verbose: bool) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let (owners, proxies) = (rng.random_range(1..=3), rng.random_range(1..=3));
        let mut world = Self {
            time: Timeline::new(verbose),
            rng,
            without,
            version: 0,
            objects: Objects::new(),
            owners: Vec::new(),
            proxies: std::iter::repeat_with(Proxy::default).take(proxies).collect(),
            nodes: vec![BTreeMap::new(); 2],
            slow: false,
            lossy: false,
            backups: VecDeque::new(),
            created: 0,
            summary: Summary::default(),
        };
        world.edit_range();
        world.put(Id::Activators, Object::Activators(Vec::new()));
        (0..owners).for_each(|index| world.start_owner(index));
        (0..proxies).for_each(|index| world.start_proxy(index));
        world.plan_faults();
        world.time.after(Duration::ZERO, Event::Balance);
        world.time.after(Duration::from_secs(1), Event::Connect);
        world
    }

    pub(super) fn run(&mut self) {
        while let Some(event) = self.time.next(END) {
            self.summary.events += 1;
            self.handle(event);
        }
        if self.time.violation.is_none() {
            self.judge_end();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ToOwner(index, life, event) => {
                let owner = &mut self.owners[index];
                match event {
                    _ if owner.life != life || owner.down => {}
                    event if owner.paused => owner.backlog.push(event),
                    event => self.owner_event(index, event),
                }
            }
            Event::ToProxy(index, life, event) => {
                let proxy = &mut self.proxies[index];
                match event {
                    _ if proxy.life != life || proxy.down => {}
                    event if proxy.paused => proxy.backlog.push(event),
                    event => self.proxy_event(index, event),
                }
                self.judge_numbers();
            }
            Event::Write { by, life, id, base, object, lines } => self.written((by, life), id, base, object, &lines),
            Event::ProbeArrives { by, life, address: to, number, sent } => {
                if let Some(response) = self.probed(to, number).filter(|_| !self.owners[by].cut) {
                    let delay = Duration::from_millis(self.rng.random_range(1..400));
                    let event = ToOwner::Probed { address: address(to), number, response, sent };
                    self.time.after(delay, Event::ToOwner(by, life, event));
                }
            }
            Event::NodeLearns { node, workload, version, object } => {
                let known = self.nodes[node].get(&workload).map_or(0, |(version, _)| *version);
                if version > known {
                    self.nodes[node].insert(workload, (version, object));
                }
            }
            Event::Connect => {
                self.connect();
                let pause = Duration::from_millis(self.rng.random_range(10..1000));
                self.time.after(pause, Event::Connect);
            }
            Event::UpdateService => self.publish(),
            Event::Balance => self.balance(),
            Event::BeginFault(fault) => self.begin(fault),
            Event::EndFault(fault) => self.end(fault),
        }
    }

    fn written(&mut self, (by, life): (usize, u32), id: Id, base: u64, object: Object, lines: &[Change]) {
        let current = self.objects.get(&id).map_or(0, |(version, _)| *version);
        let is_forced = self.without == Some(Without::Arbiter) && matches!(id, Id::Block(_));
        if base != current && !is_forced {
            self.summary.conflicts += 1;
            return self.answer(by, life, ToOwner::WriteFailed(id));
        }
        let object = match (self.objects.get(&id), object) {
            (Some((_, Object::Block(now))), Object::Block(_)) if is_forced => {
                let mut now = now.clone();
                lines.iter().for_each(|line| apply(&mut now, line));
                Object::Block(now)
            }
            (_, object) => object,
        };
        for Change { number, entry } in lines {
            let before = self.line(*number).map(|before| before.uid.clone());
            self.summary.allocated += u64::from(before.as_ref() != Some(&entry.uid));
            self.summary.reused += u64::from(before.is_some_and(|before| before != entry.uid));
        }
        let version = self.put(id, object.clone());
        if let (Id::Slices(workload), Object::Slices(slices)) = (id, &object)
            && self.scaler(workload).is_none_or(|scaler| scaler.uid != slices.uid)
        {
            self.collect_soon(workload, slices.uid.clone());
        }
        if let (Id::Workload(workload), Object::Gone) = (id, &object)
            && let Some((_, Object::Slices(slices))) = self.objects.get(&Id::Slices(workload))
        {
            self.collect_soon(workload, slices.uid.clone());
        }
        self.answer(by, life, ToOwner::Written { id, version, object });
    }

    /// Returns the line of the ledger for a number.
    pub(super) fn line(&self, number: u16) -> Option<&common::ports::Entry> {
        let (_, Object::Block(ledger)) = self.objects.get(&Id::Block(Block::containing(number)))? else { return None };
        ledger.get(&number)
    }

    fn answer(&mut self, by: usize, life: u32, event: ToOwner) {
        if !(self.lossy && self.rng.random_bool(0.3)) {
            let delay = Duration::from_millis(self.rng.random_range(1..40));
            self.time.after(delay, Event::ToOwner(by, life, event));
        }
    }

    /// Stores an object and notifies all processes.
    pub(super) fn put(&mut self, id: Id, object: Object) -> u64 {
        self.version += 1;
        let version = self.version;
        self.time.trace(|| format!("{id:?} = {object:?}"));
        self.objects.insert(id, (version, object.clone()));
        (0..self.owners.len()).for_each(|index| self.notify_owner(index, id));
        (0..self.proxies.len()).for_each(|index| self.notify_proxy(index, id));
        if let Id::Slices(workload) = id {
            for node in 0..self.nodes.len() {
                let lag = Duration::from_millis(self.rng.random_range(10..NODES_LAG * 1000));
                self.time.after(lag, Event::NodeLearns { node, workload, version, object: object.clone() });
            }
        }
        self.judge_numbers();
        version
    }

    fn notify_owner(&mut self, index: usize, id: Id) {
        let owner = &self.owners[index];
        let blind = if matches!(id, Id::Slices(_)) { owner.blind_until } else { Duration::ZERO };
        let (life, stalled) = (owner.life, owner.stalled_until.max(blind).saturating_sub(self.time.now));
        let delay = Duration::from_millis(self.rng.random_range(1..100)) + stalled;
        self.time.after(delay, Event::ToOwner(index, life, ToOwner::Notify(id)));
    }

    fn notify_proxy(&mut self, index: usize, id: Id) {
        let proxy = &self.proxies[index];
        let (life, stalled) = (proxy.life, proxy.stalled_until.saturating_sub(self.time.now));
        let delay = Duration::from_millis(self.rng.random_range(1..100)) + stalled;
        self.time.after(delay, Event::ToProxy(index, life, ToProxy::Notify(id)));
    }

    /// Returns the delay from sending a write to its processing.
    pub(super) fn write_delay(&mut self) -> Duration {
        let most = if self.slow { WRITE_SLOW } else { 40 };
        Duration::from_millis(self.rng.random_range(1..=most))
    }

    /// Returns the time by a clock that is ahead by this many seconds.
    pub(super) fn wall_clock(&self, ahead: u64) -> Timestamp {
        Timestamp::from_secs(1_795_000_000) + self.time.now + Duration::from_secs(ahead)
    }

    pub(super) fn instant(&self, at: Duration) -> Instant {
        self.time.epoch + at
    }
}
