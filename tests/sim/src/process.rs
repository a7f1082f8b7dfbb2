//! State of a process: whether it runs, is paused or has died, and the events that wait for it.

use crate::events::Local;
use std::time::Duration;

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
