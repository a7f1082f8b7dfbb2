//! Activator as a listener on port numbers: the real [`Listeners`] over its copy of the ledger, and modeled sockets.

use super::faults::Fault;
use super::model::{Event, Id, Object, Objects, ToProxy, key, ledger_of};
use super::owner::activator;
use super::world::World;
use super::{CLOCKS_DIFFER, Without};
use autoscaler_core::ports::{Activator, NumberResponse, Serving};
use common::ports::Listening;
use common::ports::ledger::{Entry, Ledger, NumberState, OPEN_FOR, PortId};
use common::ports::listeners::{Action, Listeners};
use rand::RngExt;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Proxy {
    pub(super) life: u32,
    /// True if the process does not run.
    pub(super) down: bool,
    /// True if the pod does not exist.
    pub(super) gone: bool,
    pub(super) paused: bool,
    pub(super) terminating: bool,
    pub(super) ready: bool,
    pub(super) backlog: Vec<ToProxy>,
    pub(super) stalled_until: Duration,
    /// Seconds by which the clock is ahead.
    clock_ahead: u64,
    view: Objects,
    is_listed: bool,
    is_bound: bool,
    pub(super) listeners: Listeners,
    /// Bound numbers.
    pub(super) sockets: BTreeSet<u16>,
    /// Numbers that this process has bound at some time.
    pub(super) ever_bound: BTreeSet<u16>,
    /// Numbers to bind as soon as they are free.
    failed: BTreeSet<u16>,
    /// Numbers that another process of the pod uses.
    pub(super) foreign: BTreeSet<u16>,
}

impl Proxy {
    /// Returns the entry of a number if the activator listens on it.
    pub(super) fn served_entry(&self, number: u16) -> Option<&Entry> {
        self.listeners.entry(number).filter(|_| !self.down && self.sockets.contains(&number))
    }

    /// Returns true if another process uses, or recently used, a number that this process has never bound.
    pub(super) fn could_not_bind(&self, number: u16) -> bool {
        !self.ever_bound.contains(&number) && (self.foreign.contains(&number) || self.failed.contains(&number))
    }

    pub(super) fn die(&mut self) {
        let (life, foreign) = (self.life + 1, std::mem::take(&mut self.foreign));
        *self = Self { life, foreign, down: true, ..Self::default() };
    }
}

impl World {
    pub(super) fn start_proxy(&mut self, index: usize) {
        self.proxies[index].die();
        let clock_ahead = self.rng.random_range(0..=CLOCKS_DIFFER);
        let proxy = &mut self.proxies[index];
        (proxy.down, proxy.gone, proxy.clock_ahead) = (false, false, clock_ahead);
        let life = proxy.life;
        let delay = Duration::from_millis(self.rng.random_range(50..3000));
        self.time.after(delay, Event::ToProxy(index, life, ToProxy::Listed));
        self.publish_soon();
    }

    pub(super) fn proxy_event(&mut self, index: usize, event: ToProxy) {
        let life = self.proxies[index].life;
        match event {
            ToProxy::Listed => {
                let proxy = &mut self.proxies[index];
                proxy.view.clone_from(&self.objects);
                proxy.is_listed = true;
                let delay = Duration::from_millis(self.rng.random_range(10..2000));
                self.time.after(delay, Event::ToProxy(index, life, ToProxy::Bind));
            }
            ToProxy::Notify(id) => {
                let stored = self.objects.get(&id).cloned();
                let proxy = &mut self.proxies[index];
                let known = proxy.view.get(&id).map_or(0, |(version, _)| *version);
                if let Some(stored) = stored.filter(|(version, _)| proxy.is_listed && *version > known) {
                    proxy.view.insert(id, stored);
                    self.listen(index);
                }
            }
            ToProxy::Bind => {
                self.proxies[index].is_bound = true;
                self.listen(index);
                let delay = Duration::from_millis(self.rng.random_range(100..2000));
                self.time.after(delay, Event::ToProxy(index, life, ToProxy::Ready));
                self.time.after(delay, Event::ToProxy(index, life, ToProxy::Retry));
            }
            ToProxy::Retry => {
                for number in std::mem::take(&mut self.proxies[index].failed) {
                    self.bind(index, number);
                }
                self.listen(index);
                self.time.after(Duration::from_secs(1), Event::ToProxy(index, life, ToProxy::Retry));
            }
            ToProxy::Ready => {
                self.proxies[index].ready = true;
                self.publish_soon();
            }
            ToProxy::Exit => {
                self.proxies[index].die();
                self.proxies[index].gone = true;
                self.publish_soon();
                let delay = Duration::from_millis(self.rng.random_range(500..30_000));
                self.time.after(delay, Event::EndFault(Fault::RollProxy(index)));
            }
        }
    }

    fn listen(&mut self, index: usize) {
        let now = self.wall_clock(self.proxies[index].clock_ahead);
        let proxy = &mut self.proxies[index];
        if !proxy.is_bound {
            return;
        }
        let ledger = match self.without {
            Some(Without::Ledger) => ledger_from_statuses(&proxy.view),
            Some(Without::Open) => {
                let closed = |entry: Entry| match entry.state {
                    NumberState::Held | NumberState::Closed(_) => entry,
                    NumberState::Released(at) => Entry { state: NumberState::Released(at - OPEN_FOR), ..entry },
                };
                ledger_of(&proxy.view).into_iter().map(|(number, entry)| (number, closed(entry))).collect()
            }
            _ => ledger_of(&proxy.view),
        };
        for action in proxy.listeners.follow(&ledger, now) {
            match action {
                Action::Bind(number) => self.bind(index, number),
                Action::Unbind(number) => {
                    let proxy = &mut self.proxies[index];
                    proxy.sockets.remove(&number);
                    proxy.failed.remove(&number);
                    self.time.trace(|| format!("activator {index} closes {number}"));
                }
                Action::Rename(_) => {} // The listeners already have the new name.
            }
        }
    }

    fn bind(&mut self, index: usize, number: u16) {
        let proxy = &mut self.proxies[index];
        if proxy.foreign.contains(&number) {
            proxy.failed.insert(number);
        } else {
            proxy.sockets.insert(number);
            proxy.ever_bound.insert(number);
        }
        let entry = self.proxies[index].served_entry(number);
        self.time.trace(|| format!("activator {index} listens on {number}: {entry:?}"));
    }

    /// Returns the result of a probe, or `None` if there is no response.
    pub(super) fn probed(&self, index: usize, number: u16) -> Option<NumberResponse> {
        let proxy = self.proxies.get(index).filter(|proxy| !proxy.gone)?;
        Some(match proxy.served_entry(number) {
            _ if proxy.foreign.contains(&number) => NumberResponse::Foreign,
            Some(_) if proxy.paused => return None,
            Some(entry) => {
                let (instance, uid) = (format!("{index}-{}", proxy.life), entry.uid.to_string());
                NumberResponse::Ours(Listening { instance, uid, is_held: entry.state == NumberState::Held })
            }
            None => NumberResponse::Refused,
        })
    }

    pub(super) fn publish_soon(&mut self) {
        let delay = Duration::from_millis(self.rng.random_range(100..3000));
        self.time.after(delay, Event::UpdateService);
    }

    /// Updates the activators' Service.
    pub(super) fn publish(&mut self) {
        let listed = |(index, proxy): (usize, &Proxy)| {
            let serving = match proxy {
                Proxy { terminating: true, down: false, ready: true, .. } => Serving::Terminating,
                Proxy { terminating: true, .. } => Serving::Stopped,
                Proxy { down: true, .. } | Proxy { ready: false, .. } => Serving::Unready,
                _ => Serving::Ready,
            };
            (!proxy.gone).then(|| activator(index, serving))
        };
        let now: Vec<Activator> = self.proxies.iter().enumerate().filter_map(listed).collect();
        if self.objects.get(&Id::Activators).is_none_or(|(_, object)| *object != Object::Activators(now.clone())) {
            self.put(Id::Activators, Object::Activators(now));
        }
    }
}

/// Returns a ledger derived from statuses, for activators that trust them.
fn ledger_from_statuses(view: &Objects) -> Ledger {
    let mut ledger = Ledger::new();
    for (id, (_, object)) in view {
        let (Id::Workload(workload), Object::Workload(scaler)) = (id, object) else { continue };
        for (name, number) in &scaler.status {
            let port = PortId { name: name.clone(), port: 80 };
            let entry = Entry { state: NumberState::Held, key: key(*workload), uid: scaler.uid.clone(), port };
            ledger.entry(*number).or_insert(entry);
        }
    }
    ledger
}
