//! Events of the cluster ([`Event`]) and of one process ([`Local`]).

use crate::lease::LeaseAnswer;
use crate::model::{Endpoint, Id};
use crate::process::Who;
use crate::reconcile::{Answer, Controller, Step};
use crate::writers::WriteTiming;
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
        passage: WriteTiming,
        controller: Controller,
        revision: usize,
        step: Step,
    },
    /// The deployment controller reconciles a target.
    Deploy(usize),
    PodReady(usize),
    PodGone(usize),
    /// An entry learns the destinations of a revision's requests.
    Switch {
        entry: usize,
        revision: usize,
        version: u64,
        endpoints: Vec<Endpoint>,
    },
    ActivatorReady(usize, u32),
    Traffic(usize),
    /// A client sends a request.
    Arrive {
        revision: usize,
        lasts: Duration,
    },
    /// A request that went directly to a pod ends.
    Finish(u64),
    Begin(usize),
    End(usize),
    /// Another writer checks a revision's replicas.
    Undo(usize),
    Look,
}

/// Event for one process.
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
    /// Tokens are available again.
    Tokens,
    /// Other revisions have objects to write.
    Flood,
    /// A metric of a revision is measured. Contains the number of the series of measurements.
    Measure(usize, u32),
    /// A write for a bucket has no further effect.
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
    /// Path by which another autoscaler has forwarded the frame, if any.
    pub(crate) forwarded: Option<Forwarded<usize>>,
}
