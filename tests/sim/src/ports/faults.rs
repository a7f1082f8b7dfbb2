//! Faults of workloads, processes and connections: plan, begin and end.

use super::FAULTS_END;
use super::model::{Event, Id, Object, Scaler, ToProxy};
use super::world::{BUCKETS, WORKLOADS, World};
use common::config::PortRange;
use common::ports::ledger::PortId;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Size of the range: slightly more numbers than needed.
const NUMBERS: u16 = 12;
/// Border between two maps of the ledger.
const BORDER: u16 = 20_500;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// A workload is created unless it exists, optionally with a former status.
    Create {
        workload: usize,
        restored: bool,
    },
    /// The workload is deleted normally.
    Delete(usize),
    /// The workload's finalizer is removed, and it is gone at once.
    ForceDelete(usize),
    /// Slices of a deleted object are collected.
    Collect(usize, Arc<str>),
    /// The ports of the workload's Service change.
    EditPorts(usize),
    /// A status is edited or restored.
    EditStatus(usize),
    EditRange,
    CrashOwner(usize),
    PauseOwner(usize),
    /// The owner receives no changes.
    StallOwner(usize),
    /// The owner receives no changes of slices, for longer than a released number stays open.
    BlindOwner(usize),
    /// The owner reaches no activator.
    CutOwner(usize),
    /// Another owner gets a bucket, and the former one loses it at the end.
    HandOver {
        bucket: usize,
        to: usize,
    },
    /// The bucket has no owner for a moment.
    OrphanBucket(usize),
    SlowWrites,
    LoseAnswers,
    CrashProxy(usize),
    /// The activator shuts down gracefully and is replaced.
    RollProxy(usize),
    PauseProxy(usize),
    StallProxy(usize),
    /// Another process of the pod listens on a number, if the activator does not.
    TakeNumber(usize, u16),
}

impl World {
    pub(super) fn plan_faults(&mut self) {
        for workload in 0..WORKLOADS {
            let at = Duration::from_millis(self.rng.random_range(1000..20_000));
            self.time.after(at, Event::BeginFault(Fault::Create { workload, restored: false }));
        }
        for _ in 0..self.rng.random_range(80..240) {
            let fault = self.fault();
            let at = Duration::from_millis(self.rng.random_range(5_000..FAULTS_END.as_millis() as u64 - 905_000));
            self.time.after(at, Event::BeginFault(fault));
        }
    }

    fn fault(&mut self) -> Fault {
        let owner = self.rng.random_range(0..self.owners.len());
        let proxy = self.rng.random_range(0..self.proxies.len());
        let (workload, bucket) = (self.rng.random_range(0..WORKLOADS), self.rng.random_range(0..BUCKETS));
        match self.rng.random_range(0..31) {
            0..=3 => Fault::Create { workload, restored: self.rng.random_bool(0.5) },
            4 | 5 => Fault::Delete(workload),
            6 => Fault::ForceDelete(workload),
            7 | 8 => Fault::EditPorts(workload),
            9 | 10 => Fault::EditStatus(workload),
            11 => Fault::EditRange,
            12 => Fault::CrashOwner(owner),
            13 | 14 => Fault::PauseOwner(owner),
            15 | 16 => Fault::StallOwner(owner),
            17 => Fault::CutOwner(owner),
            18..=20 => Fault::HandOver { bucket, to: owner },
            21 => Fault::OrphanBucket(bucket),
            22 => Fault::SlowWrites,
            23 => Fault::LoseAnswers,
            24 => Fault::CrashProxy(proxy),
            25 => Fault::RollProxy(proxy),
            26 => Fault::PauseProxy(proxy),
            27 => Fault::StallProxy(proxy),
            28 | 29 => Fault::BlindOwner(owner),
            _ => Fault::TakeNumber(proxy, BORDER - NUMBERS + self.rng.random_range(0..2 * NUMBERS)),
        }
    }

    pub(super) fn begin(&mut self, fault: Fault) {
        self.time.trace(|| format!("FAULT {fault:?}"));
        let mut lasts = Duration::from_millis(self.rng.random_range(500..60_000));
        match fault {
            Fault::Create { workload, restored } => self.create_workload(workload, restored),
            Fault::Delete(workload) => {
                if let Some(scaler) = self.scaler(workload) {
                    self.put(Id::Workload(workload), Object::Workload(Scaler { deleting: true, ..scaler }));
                }
            }
            Fault::ForceDelete(workload) => {
                if let Some(scaler) = self.scaler(workload) {
                    self.put(Id::Workload(workload), Object::Gone);
                    self.collect_soon(workload, scaler.uid);
                }
            }
            Fault::Collect(workload, ref uid) => {
                let slices = self.objects.get(&Id::Slices(workload));
                if matches!(slices, Some((_, Object::Slices(slices))) if slices.uid == *uid) {
                    self.put(Id::Slices(workload), Object::Gone);
                }
            }
            Fault::EditPorts(workload) => self.edit_ports(workload),
            Fault::EditStatus(workload) => self.edit_status(workload),
            Fault::EditRange => self.edit_range(),
            Fault::CrashOwner(index) => self.owners[index].die(),
            Fault::PauseOwner(index) => self.owners[index].paused = true,
            Fault::StallOwner(index) => self.owners[index].stalled_until = self.time.now + lasts,
            Fault::BlindOwner(index) => {
                lasts = Duration::from_secs(self.rng.random_range(60..200));
                self.owners[index].blind_until = self.time.now + lasts;
            }
            Fault::CutOwner(index) => {
                lasts = Duration::from_secs(self.rng.random_range(1..900));
                self.owners[index].cut = true;
            }
            Fault::HandOver { bucket, to } => {
                lasts /= 2;
                if !self.owners[to].down {
                    self.owners[to].owns.insert(bucket);
                }
            }
            Fault::OrphanBucket(bucket) => self.owners.iter_mut().for_each(|owner| _ = owner.owns.remove(&bucket)),
            Fault::SlowWrites => self.slow = true,
            Fault::LoseAnswers => self.lossy = true,
            Fault::CrashProxy(index) => {
                lasts /= 6;
                self.proxies[index].die();
                self.publish_soon();
            }
            Fault::RollProxy(index) if !self.proxies[index].down && !self.proxies[index].terminating => {
                self.proxies[index].terminating = true;
                let life = self.proxies[index].life;
                let drain = Duration::from_millis(self.rng.random_range(20_000..40_000));
                self.time.after(drain, Event::ToProxy(index, life, ToProxy::Exit));
                self.publish_soon();
            }
            Fault::PauseProxy(index) => {
                lasts /= 3;
                self.proxies[index].paused = true;
            }
            Fault::StallProxy(index) => self.proxies[index].stalled_until = self.time.now + lasts,
            Fault::TakeNumber(index, number) if !self.proxies[index].sockets.contains(&number) => {
                self.proxies[index].foreign.insert(number);
            }
            Fault::RollProxy(_) | Fault::TakeNumber(..) => {}
        }
        self.time.after(lasts, Event::EndFault(fault));
    }

    pub(super) fn end(&mut self, fault: Fault) {
        match fault {
            Fault::CrashOwner(index) if self.owners[index].down => self.start_owner(index),
            Fault::PauseOwner(index) => {
                let owner = &mut self.owners[index];
                owner.paused = false;
                let life = owner.life;
                for event in std::mem::take(&mut owner.backlog) {
                    self.time.after(Duration::ZERO, Event::ToOwner(index, life, event));
                }
            }
            Fault::CutOwner(index) => self.owners[index].cut = false,
            Fault::HandOver { bucket, to } if self.owners[to].owns.contains(&bucket) => {
                let others = self.owners.iter_mut().enumerate().filter(|(index, _)| *index != to);
                others.for_each(|(_, owner)| _ = owner.owns.remove(&bucket));
            }
            Fault::SlowWrites => self.slow = false,
            Fault::LoseAnswers => self.lossy = false,
            Fault::CrashProxy(index) | Fault::RollProxy(index) if self.proxies[index].down => self.start_proxy(index),
            Fault::PauseProxy(index) => {
                let proxy = &mut self.proxies[index];
                proxy.paused = false;
                let life = proxy.life;
                for event in std::mem::take(&mut proxy.backlog) {
                    self.time.after(Duration::ZERO, Event::ToProxy(index, life, event));
                }
            }
            Fault::TakeNumber(index, number) => _ = self.proxies[index].foreign.remove(&number),
            _ => {}
        }
    }

    /// Assigns buckets without an owner.
    pub(super) fn balance(&mut self) {
        for bucket in 0..BUCKETS {
            let up: Vec<usize> = (0..self.owners.len()).filter(|index| !self.owners[*index].down).collect();
            if up.iter().any(|index| self.owners[*index].owns.contains(&bucket)) || up.is_empty() {
                continue;
            }
            let index = up[self.rng.random_range(0..up.len())];
            self.owners[index].owns.insert(bucket);
        }
        self.time.after(Duration::from_secs(5), Event::Balance);
    }

    pub(super) fn scaler(&self, workload: usize) -> Option<Scaler> {
        let (_, Object::Workload(scaler)) = self.objects.get(&Id::Workload(workload))? else { return None };
        Some(scaler.clone())
    }

    fn create_workload(&mut self, workload: usize, restored: bool) {
        if self.scaler(workload).is_some() {
            return;
        }
        self.created += 1;
        self.summary.created += 1;
        let mut ports = vec![PortId { name: "http".to_owned(), port: 80 }];
        if self.rng.random_bool(0.2) {
            ports.push(PortId { name: "admin".to_owned(), port: 81 });
        }
        let former = self.backups.iter().rev().find(|(other, _)| *other == workload);
        let status = former.filter(|_| restored).map(|(_, status)| status.clone()).unwrap_or_default();
        let uid = format!("{workload}-{}", self.created).into();
        self.put(Id::Workload(workload), Object::Workload(Scaler { uid, ports, status, deleting: false }));
    }

    /// Schedules the collection of slices whose owner is gone, including slices written by an owner that does not know
    /// that yet.
    pub(super) fn collect_soon(&mut self, workload: usize, uid: Arc<str>) {
        let delay = Duration::from_millis(self.rng.random_range(500..30_000));
        self.time.after(delay, Event::BeginFault(Fault::Collect(workload, uid)));
    }

    fn edit_ports(&mut self, workload: usize) {
        let Some(mut scaler) = self.scaler(workload).filter(|scaler| !scaler.deleting) else { return };
        match self.rng.random_range(0..3) {
            0 => scaler.ports[0].name = if scaler.ports[0].name == "http" { "web".into() } else { "http".into() },
            1 => scaler.ports[0].port = if scaler.ports[0].port == 80 { 8080 } else { 80 },
            _ if scaler.ports.len() > 1 => _ = scaler.ports.pop(),
            _ => scaler.ports.push(PortId { name: "admin".to_owned(), port: 81 }),
        }
        self.put(Id::Workload(workload), Object::Workload(scaler));
    }

    fn edit_status(&mut self, workload: usize) {
        let Some(scaler) = self.scaler(workload) else { return };
        self.backups.push_back((workload, scaler.status.clone()));
        let former = self.backups.iter().find(|(other, _)| *other == workload).map(|(_, status)| status.clone());
        let status = match former.filter(|_| self.rng.random_bool(0.5)) {
            Some(former) => former,
            None => {
                let others: Vec<u16> = (0..WORKLOADS)
                    .filter_map(|other| self.scaler(other))
                    .flat_map(|other| other.status.into_values().collect::<Vec<_>>())
                    .collect();
                let any = BORDER - NUMBERS + self.rng.random_range(0..2 * NUMBERS);
                let number = if others.is_empty() { any } else { others[self.rng.random_range(0..others.len())] };
                scaler.ports.iter().map(|port| (port.name.clone(), number)).collect::<BTreeMap<_, _>>()
            }
        };
        self.put(Id::Workload(workload), Object::Workload(Scaler { status, ..scaler }));
    }

    /// Moves the range across the border between two maps.
    pub(super) fn edit_range(&mut self) {
        let first = BORDER - self.rng.random_range(0..NUMBERS);
        let range = PortRange { first, last: first + NUMBERS - 1 };
        self.put(Id::Range, Object::Range(range));
    }
}
