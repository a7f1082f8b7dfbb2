//! What happens on one client's connection, as those see it who serve it or have to choose among all.

use super::drain::Phase;
use super::output::{HasOutput, Output};
use crate::client::peer::OwnPort;
use activator_core::hold::HeldBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// One connection. Over HTTP/1 all of it happens in one task, one after the other.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// How often something was read.
    reads: AtomicU32,
    /// Heads that are complete and in order.
    heads: AtomicU64,
    /// It is HTTP no longer.
    tunnel: AtomicBool,
    /// Nothing but the end of the connection tells the client where its last answer ends.
    closes_answer: AtomicBool,
    /// Exchanges that have begun and not ended.
    running: AtomicU32,
    /// The most of them at once.
    most: AtomicU32,
    /// The second of the server's clock in which the last of them ended, or it was accepted.
    idle_since: AtomicU32,
    /// What this connection alone is told.
    told: AtomicU8,
    /// The workload's port that it came to.
    port: Option<Arc<OwnPort>>,
    output: Output,
}

impl Progress {
    /// Accepted in this second.
    pub(super) fn new(second: u32) -> Self {
        Self { idle_since: AtomicU32::new(second), ..Self::default() }
    }

    /// It came to this port of a workload.
    pub(super) fn on(self, port: Option<Arc<OwnPort>>) -> Self {
        Self { port, ..self }
    }

    /// Whether it did, to any.
    pub(super) fn is_on_own_port(&self) -> bool {
        self.port.is_some()
    }

    /// Whether clients of that port are to come anew.
    pub(super) fn is_left(&self) -> bool {
        self.port.as_ref().is_some_and(|port| port.is_left())
    }

    /// What it has to write shares this budget.
    pub(super) fn writing_within(self, budget: Option<Arc<HeldBytes>>) -> Self {
        Self { output: Output::new(budget), ..self }
    }

    /// Something was read.
    pub(super) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something was read.
    pub(super) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    /// So many heads were seen, complete and in order.
    pub(super) fn set_heads(&self, heads: u64) {
        self.heads.store(heads, Ordering::Relaxed);
    }

    /// Heads that were seen, complete and in order.
    pub(super) fn heads(&self) -> u64 {
        self.heads.load(Ordering::Relaxed)
    }

    /// From now on nobody looks at what is read.
    pub(super) fn becomes_tunnel(&self) {
        self.tunnel.store(true, Ordering::Relaxed);
    }

    /// Whether it is HTTP no longer.
    pub(super) fn is_tunnel(&self) -> bool {
        self.tunnel.load(Ordering::Relaxed)
    }

    /// An answer has begun that ends where the connection does.
    pub(super) fn will_close_answer(&self) {
        self.closes_answer.store(true, Ordering::Relaxed);
    }

    /// Whether one has. It is the last of its connection.
    pub(super) fn closes_answer(&self) -> bool {
        self.closes_answer.load(Ordering::Relaxed)
    }

    /// An exchange begins.
    pub(super) fn begins(&self) {
        let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
        if running > self.most.load(Ordering::Relaxed) {
            self.most.store(running, Ordering::Relaxed);
        }
    }

    /// One has ended, in this second.
    pub(super) fn ended(&self, second: u32) {
        self.idle_since.store(second, Ordering::Relaxed);
        self.running.fetch_sub(1, Ordering::Release);
    }

    /// Since which second no exchange has run, if none does.
    pub(super) fn idle_since(&self) -> Option<u32> {
        (self.running.load(Ordering::Acquire) == 0).then(|| self.idle_since.load(Ordering::Relaxed))
    }

    /// The most exchanges that have run at once.
    pub(super) fn most_at_once(&self) -> u32 {
        self.most.load(Ordering::Relaxed)
    }

    /// Whether it has had a request.
    pub(super) fn was_used(&self) -> bool {
        self.most_at_once() > 0
    }

    /// What it is told.
    pub(super) fn told(&self) -> Phase {
        Phase::from_order(self.told.load(Ordering::Acquire))
    }

    /// Tells it. Whoever serves it has to be woken.
    pub(super) fn tell(&self, phase: Phase) {
        self.told.fetch_max(phase as u8, Ordering::AcqRel);
    }
}

impl HasOutput for Progress {
    fn output(&self) -> &Output {
        &self.output
    }
}
