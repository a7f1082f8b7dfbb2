//! Simulator that runs the real rules of both planes under a virtual clock, in a cluster with faults chosen by a seed.
//!
//! ```text
//! seed ─▶ plan (size, revisions, faults) ─▶ simulation (one queue of events) ─▶ invariants, at every event
//!                                            ├─ activators: accounting, throttler
//!                                            ├─ autoscalers: election, wheel, windows, decider, scale to zero, path
//!                                            └─ modeled: API server, pods, entries, links
//! ```
//!
//! A run is a function of its seed. [`run`] returns a summary, or the first violated invariant and its time. `cargo run
//! -p sim -- --seed N` prints the trace of one run.
//!
//! # Invariants
//!
//! 1. At most one writer per revision: the API server carries out no write while another process holds its lease. This
//!    holds however slow the API server is, and whether the lease expired, was handed over or was released.
//! 2. The last pod is removed only after the activator is in the path: no entry routes only to pods that are gone.
//! 3. Missing data is never zero load: no process that may write lowers the scale while a ready activator with traffic
//!    cannot report. No revision is scaled to zero while it has had requests without a gap for a stable window.
//! 4. Desired stays within bounds, and one decision within the scale-up rate.
//! 5. Every poke leads to a patch, and every held request to a pod, within 20 s without faults, even if writes wait for
//!    tokens. The exception is a stated reason: another writer keeps changing the replicas.
//! 6. A failing metric never scales down: while it fails, no decision is for fewer pods.
//! 7. A scale that another writer keeps reverting is rewritten after pauses that double, or every second while there is
//!    no pod.
//!
//! [`Without`] disables one rule; each rule then violates its invariant.
//!
//! Port numbers have their own simulation, [`ports`], and so have the holders of a workload, [`holders`]. [`many`]
//! counts the communication between processes for a hundred thousand workloads.
//!
//! # Model of the shell
//!
//! The parts of the autoscaler's shell that the rules depend on are modeled again here: queues of stats, attestation
//! within 3 s, the order of a reconciliation's writes and their classes, measurements of metrics while there are
//! replicas, back-off, the prober's rounds and the validity of their results. A change of these must be made in both
//! places.
//!
//! # Not here
//!
//! - Writes that take longer to *reach* the API server than the margin of 2 s, and processes that stall between the
//!   check of the lease and the write: the margin is an assumption. (Writes that reach a slow API server are covered:
//!   it abandons the write at its deadline.)
//! - A single autoscaler that is cut off from the API server for longer than a lease: it forwards stats to former
//!   owners, but attests to the new one. This is a known fault; with cuts of 60 s it violates invariant 3 at once.
//! - Entries that learn of one change further apart than a terminating pod serves: a probe tests one entry only.
//! - Entries that learn of pods only after a metric has removed them again.
//! - Requests that go directly to pods that do not report, because no activator is ready.
//! - Pods that crash, Services of other owners, edited parameters, the conversion of metrics into replicas,
//!   and clocks of different speed or time.

mod activator;
mod autoscaler;
mod cluster;
mod events;
mod faults;
pub mod holders;
mod invariants;
mod lease;
pub mod many;
mod metrics;
mod model;
mod pass;
mod plan;
pub mod ports;
mod probe;
mod reconcile;
mod simulation;
mod stats;
mod summary;
mod timeline;
mod writers;

pub use summary::{Summary, Without};

use std::fmt;
use std::time::Duration;

/// Violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Seed that repeats the run.
    pub seed: u64,
    /// Virtual time since the start.
    pub at: Duration,
    /// Invariant, followed by the violation.
    pub what: String,
    /// Command-line options that select the simulation.
    pub options: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, what, options } = self;
        let at = at.as_secs_f64();
        write!(f, "seed {seed} at {at:.3} s: {what}\n  replay: cargo run -p sim -- --seed {seed}{options}")
    }
}

impl std::error::Error for Violation {}

/// Runs one seed. If `verbose` is true, prints a trace to standard output. Fails with the first
/// violated invariant.
pub fn run(seed: u64, without: Option<Without>, verbose: bool) -> Result<Summary, Violation> {
    let mut simulation = simulation::Simulation::new(seed, without, verbose);
    simulation.run();
    match simulation.time.violation {
        Some((at, what)) => Err(Violation { seed, at, what, options: "" }),
        None => Ok(simulation.summary),
    }
}
