//! Traffic, the begin and end of the planned faults, and the effects of current faults, which may overlap, on
//! connections.

use crate::events::{Event, ProcessId};
use crate::model::{Id, Object};
use crate::plan::Fault;
use crate::simulation::Simulation;
use rand::RngExt;
use std::time::Duration;

impl Simulation {
    /// Generates a revision's traffic for some seconds: none, moderate, a burst, or a few long requests.
    pub(crate) fn traffic(&mut self, revision: usize) {
        let (requests, lasts, stretch) = match self.rng.random_range(0..6) {
            0 | 1 => (0, 0..=0, 5_000..=60_000),
            2 => (self.rng.random_range(3..=20), 100..=3_000, 5_000..=30_000),
            3 => (self.rng.random_range(5..=20), 500..=2_000, 1_000..=2_000),
            _ => (self.rng.random_range(1..=4), 10_000..=70_000, 5_000..=30_000),
        };
        let stretch: u64 = self.rng.random_range(stretch);
        for _ in 0..requests {
            let at = Duration::from_millis(self.rng.random_range(0..=stretch));
            let lasts = Duration::from_millis(self.rng.random_range(lasts.clone()));
            self.time.after(at, Event::Arrive { revision, lasts });
        }
        self.time.after(Duration::from_millis(stretch), Event::Traffic(revision));
    }

    /// Schedules the write of another writer that wants other replicas.
    pub(crate) fn schedule_rival(&mut self, revision: usize) {
        if self.links.rival(revision).is_some_and(|wanted| self.store.target(revision) != Some(wanted)) {
            let delay = Duration::from_millis(self.rng.random_range(10..800));
            self.time.after(delay, Event::RivalWrite(revision));
        }
    }

    pub(crate) fn rival_write(&mut self, revision: usize) {
        let Some(wanted) = self.links.rival(revision).filter(|wanted| self.store.target(revision) != Some(*wanted))
        else {
            return;
        };
        self.summary.rival_writes += 1;
        self.time.trace(|| format!("another writer scales revision {revision} to {wanted}"));
        self.put(Id::Target(revision), Object::Target(wanted));
    }

    pub(crate) fn begin(&mut self, index: usize) {
        let planned = self.plan.faults[index];
        self.time.trace(|| format!("FAULT {:?} for {:?}", planned.fault, planned.lasts));
        if let Fault::CutMetrics(autoscaler) = planned.fault
            && !self.links.is_active(Fault::CutMetrics(autoscaler))
        {
            self.metrics_cut_at[autoscaler] = Some(self.time.now);
        }
        self.links.begin(planned.fault);
        match planned.fault {
            Fault::PauseAutoscaler(index) => self.autoscalers[index].process.paused = true,
            Fault::PauseActivator(index) => self.activators[index].process.paused = true,
            Fault::LeaveAutoscaler(index) => {
                if self.autoscalers[index].process.runs() {
                    self.release_leases(index);
                }
                self.autoscalers[index].process.die();
            }
            Fault::CrashAutoscaler(index) => self.autoscalers[index].process.die(),
            Fault::Rival(revision, _) => self.schedule_rival(revision),
            Fault::CrashActivator(index) => {
                let activator = &mut self.activators[index];
                activator.process.die();
                activator.requests.clear();
                self.ready_since[index] = None;
                self.publish_activators();
            }
            _ => {}
        }
        self.time.after(planned.lasts, Event::EndFault(index));
    }

    pub(crate) fn end(&mut self, index: usize) {
        let fault = self.plan.faults[index].fault;
        self.time.trace(|| format!("fault {fault:?} ends"));
        self.links.end(fault);
        match fault {
            Fault::PauseAutoscaler(index) => self.resume(ProcessId::Autoscaler(index)),
            Fault::PauseActivator(index) => self.resume(ProcessId::Activator(index)),
            Fault::CrashAutoscaler(index) | Fault::LeaveAutoscaler(index) if self.autoscalers[index].process.down => {
                self.start_autoscaler(index);
            }
            Fault::CrashActivator(index) if self.activators[index].process.down => {
                self.activators[index].process.down = false;
                self.start_activator(index);
                let life = self.activators[index].process.life;
                self.time.after(Duration::from_secs(1), Event::ActivatorReady(index, life));
            }
            Fault::CutApi(index) | Fault::LoseAnswers(index) => self.relist(ProcessId::Autoscaler(index)),
            Fault::StopApi => {
                (0..self.autoscalers.len()).for_each(|index| self.relist(ProcessId::Autoscaler(index)));
                (0..self.activators.len()).for_each(|index| self.relist(ProcessId::Activator(index)));
            }
            _ => {}
        }
    }

    /// Resumes a paused process, and delivers the events that waited for it, in order.
    pub(crate) fn resume(&mut self, id: ProcessId) {
        let now = self.time.now;
        let process = self.process(id);
        process.paused = false;
        process.resumed_at = now;
        for event in std::mem::take(&mut process.backlog) {
            self.schedule(id, Duration::ZERO, event);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Links {
    active: Vec<Fault>,
}

impl Links {
    pub(crate) fn begin(&mut self, fault: Fault) {
        self.active.push(fault);
    }

    pub(crate) fn end(&mut self, fault: Fault) {
        if let Some(at) = self.active.iter().position(|active| *active == fault) {
            self.active.swap_remove(at);
        }
    }

    pub(crate) fn is_active(&self, fault: Fault) -> bool {
        self.active.contains(&fault)
    }

    /// Returns true if an autoscaler's requests do not reach the API server.
    pub(crate) fn api_request_lost(&self, autoscaler: usize) -> bool {
        self.is_active(Fault::StopApi) || self.is_active(Fault::CutApi(autoscaler))
    }

    /// Returns true if an autoscaler receives no responses and no changes.
    pub(crate) fn api_answer_lost(&self, autoscaler: usize) -> bool {
        self.api_request_lost(autoscaler) || self.is_active(Fault::LoseAnswers(autoscaler))
    }

    pub(crate) fn api_is_healthy(&self, autoscaler: usize) -> bool {
        !self.api_answer_lost(autoscaler) && !self.writes_slow()
    }

    /// Returns true if writes of objects take long.
    pub(crate) fn writes_slow(&self) -> bool {
        self.is_active(Fault::SlowApi) || self.is_active(Fault::SlowWrites)
    }

    pub(crate) fn stats_are_healthy(&self, activator: usize) -> bool {
        !self.is_active(Fault::CutStats(activator)) && !self.is_active(Fault::SpoilStats(activator))
    }

    pub(crate) fn peers_cut(&self, a: usize, b: usize) -> bool {
        a != b && (self.is_active(Fault::CutPeers(a, b)) || self.is_active(Fault::CutPeers(b, a)))
    }

    /// Returns the number of replicas that another writer wants for a revision.
    pub(crate) fn rival(&self, revision: usize) -> Option<i32> {
        self.active.iter().find_map(|fault| match fault {
            Fault::Rival(other, replicas) if *other == revision => Some(*replicas),
            _ => None,
        })
    }

    /// Returns the delay of entries in seconds.
    pub(crate) fn entries_lag(&self) -> Option<u64> {
        self.active.iter().filter_map(|fault| if let Fault::SlowEntries(lag) = fault { Some(*lag) } else { None }).max()
    }
}
