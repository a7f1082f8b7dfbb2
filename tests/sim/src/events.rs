//! Events of the cluster ([`Event`]) and of one process ([`Local`]), and the state of a process: whether it runs, is
//! paused or has died, and the events that wait for it.

use crate::lease::LeaseAnswer;
use crate::model::{Endpoint, Id};
use crate::reconcile::{Controller, Step, WriteAnswer};
use crate::writers::WriteTiming;
use autoscaler_core::forwarding::Forwarded;
use common::election::Op;
use common::stat::WireStatMessage;
use std::time::Duration;

/// Event of the cluster. `life` and the number beside a process tell which of its lives the event belongs to.
#[derive(Debug)]
pub(crate) enum Event {
    To(ProcessId, u32, Local),
    WriteLease { by: usize, life: u32, lease: usize, op: Op, sent: Duration },
    Write { by: usize, life: u32, timing: WriteTiming, controller: Controller, revision: usize, step: Step },
    ReconcileDeployment(usize),
    PodReady(usize),
    PodGone(usize),
    EntryLearns { entry: usize, revision: usize, version: u64, endpoints: Vec<Endpoint> },
    ActivatorReady(usize, u32),
    Traffic(usize),
    Arrive { revision: usize, lasts: Duration },
    FinishDirect(u64),
    BeginFault(usize),
    EndFault(usize),
    RivalWrite(usize),
    CheckWaits,
}

/// Event for one process.
#[derive(Debug)]
pub(crate) enum Local {
    Notify(Id),
    // Autoscalers:
    WheelDue,
    Elect,
    LeaseAnswer { lease: usize, sent: Duration, answer: LeaseAnswer },
    Pass(Controller, usize),
    Timer(Controller, usize),
    WriteAnswer { controller: Controller, revision: usize, answer: WriteAnswer },
    TokensReady,
    ForeignWrites,
    Measure { revision: usize, series: u32 },
    WriteEnded(usize),
    IdleTimeout { bucket: usize, wait: u32 },
    Probe(usize),
    Frame(Frame),
    Scrape,
    // Activators:
    Report,
    Request { id: u64, revision: usize, lasts: Duration },
    Finish(u64),
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) messages: Vec<WireStatMessage>,
    /// Path by which another autoscaler has forwarded the frame, if any.
    pub(crate) forwarded: Option<Forwarded<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessId {
    Autoscaler(usize),
    Activator(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Number of the current life, from start to end. Events for an earlier life are lost.
    pub(crate) life: u32,
    pub(crate) down: bool,
    pub(crate) paused: bool,
    /// Time of the last resume after a pause.
    pub(crate) resumed_at: Duration,
    /// Events that arrived during a pause, in order.
    pub(crate) backlog: Vec<Local>,
}

impl Process {
    pub(crate) fn runs(&self) -> bool {
        !self.down && !self.paused
    }

    pub(crate) fn die(&mut self) {
        self.life += 1;
        self.down = true;
        self.paused = false;
        self.backlog.clear();
    }
}
