//! A process's life: whether it runs, stands still, or is gone, and what waits for it.

use crate::events::Local;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Autoscaler(usize),
    Activator(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Which life this is: what was meant for an earlier one is lost.
    pub(crate) life: u32,
    pub(crate) down: bool,
    pub(crate) paused: bool,
    /// When it went on after it had stood still.
    pub(crate) resumed: Duration,
    /// What reached it while it stood still, in order.
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
