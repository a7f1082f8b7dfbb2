//! What happens: to the cluster ([`Event`]), and to one process ([`Local`]).

use crate::lease::LeaseAnswer;
use crate::model::{Endpoint, Id};
use crate::process::Who;
use crate::reconcile::{Answer, Controller, Step};
use crate::writers::Passage;
use autoscaler_core::forwarding::Forwarded;
use common::election::Op;
use common::stat::WireStatMessage;
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Event {
    To(Who, u32, Local),
    WriteLease {
        by: usize,
        life: u32,
        lease: usize,
        op: Op,
        sent: Duration,
    },
    Write {
        by: usize,
        life: u32,
        passage: Passage,
        controller: Controller,
        revision: usize,
        step: Step,
    },
    /// The deployment controller looks at a target.
    Deploy(usize),
    PodReady(usize),
    PodGone(usize),
    /// An entry learns where a revision's requests go.
    Switch {
        entry: usize,
        revision: usize,
        version: u64,
        endpoints: Vec<Endpoint>,
    },
    ActivatorReady(usize, u32),
    Traffic(usize),
    /// A client's request.
    Arrive {
        revision: usize,
        lasts: Duration,
    },
    /// One that went straight to a pod ends.
    Finish(u64),
    Begin(usize),
    End(usize),
    /// Somebody else looks at a revision's replicas.
    Undo(usize),
    Look,
}

/// Something that reaches a process.
#[derive(Debug)]
pub(crate) enum Local {
    Notify(Id),
    // Autoscalers:
    Turn,
    Elect,
    LeaseAnswer {
        lease: usize,
        sent: Duration,
        answer: LeaseAnswer,
    },
    Pass(Controller, usize),
    Timer(Controller, usize),
    Answer {
        controller: Controller,
        revision: usize,
        answer: Answer,
    },
    /// Tokens have come back.
    Tokens,
    /// Other revisions have something to write.
    Flood,
    /// A look at a revision's metric; which row of looks it belongs to.
    Measure(usize, u32),
    /// Nothing will come of a write for a bucket any more.
    WriteOver(usize),
    IdleTimeout {
        bucket: usize,
        wait: u32,
    },
    Probe(usize),
    Frame(Frame),
    Scrape,
    // Activators:
    Report,
    Request {
        id: u64,
        revision: usize,
        lasts: Duration,
    },
    Finish(u64),
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) messages: Vec<WireStatMessage>,
    /// How, if another autoscaler has forwarded it.
    pub(crate) forwarded: Option<Forwarded<usize>>,
}
