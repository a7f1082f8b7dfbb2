//! A simulator: the real rules of both planes under a virtual clock, in a cluster that goes wrong as a seed says.
//!
//! ```text
//! seed ─▶ plan (size, revisions, faults) ─▶ simulation (one queue of events) ─▶ invariants, at every event
//!                                            ├─ activators: accounting, throttler
//!                                            ├─ autoscalers: election, wheel, windows, decider, scale to zero, path
//!                                            └─ API server, pods, entries, links: made up
//! ```
//!
//! A run is a function of its seed. [`run`] answers with what happened, or with the rule that was broken and when;
//! `cargo run -p sim -- --seed N` prints the trace of one run.
//!
//! # What must hold
//!
//! 1. At most one writer for a revision: no write is carried out by the API server while another process holds its
//!    lease, however slow the API server is, and whether the lease has run out, was handed over or was given up.
//! 2. The last pod leaves only after the activator is in the path: no entry leads to nothing but pods that are gone.
//! 3. Missing data is never zero load: nobody who may write wants less while a ready activator with traffic could not
//!    be heard, and no revision is put to sleep while it has had requests without a gap for a stable window.
//! 4. Desired stays within bounds, and one decision within the scale-up rate.
//! 5. Every poke leads to a patch, and every held request to a pod, within 20 s in which nothing is wrong, also where
//!    writes wait for tokens; or to a stated reason, that somebody else keeps changing the replicas.
//! 6. Doubt takes nothing away: while a metric fails no decision is for fewer pods, and none for zero.
//! 7. A scale that somebody keeps undoing is asked for again after pauses that double; every second while there is no pod.
//!
//! [`Without`] leaves one rule out; each then breaks its invariant.
//!
//! Port numbers have a simulation of their own, [`ports`], and so has which activator holds a workload, [`holders`].
//! What a hundred thousand workloads cost between processes is counted by [`many`].
//!
//! # The shell, by its contract
//!
//! What the autoscaler's shell adds to the rules is written down again here: queues of stats, attestation within 3 s,
//! order of a pass's writes and their classes, looks at metrics while there are replicas, back-off, the prober's round
//! and how long its result holds. A change of these must be made in both places.
//!
//! # Not here
//!
//! - Writes that take longer to *reach* the API server than the margin of 2 s, and processes that stop between the look
//!   at the lease and the write: the margin is the contract. (An API server that takes its time over a write that has
//!   reached it is here: it gives the write up when its time is over.)
//! - An autoscaler alone cut off from the API server for longer than a lease: it forwards stats to former owners, yet
//!   vouches to the new one (a fault that is known; with cuts of 60 s it breaks rule 3 at once).
//! - Entries that learn of one change further apart than a leaving pod lingers: a probe proves one entry.
//! - Entries that learn of pods only after a metric has taken them away again.
//! - Requests that reach pods without a reporter past all activators, which happens while no activator is ready: nobody
//!   can know of them.
//! - Pods that die by themselves, Services of others, edited parameters, how a metric turns into replicas, clocks of
//!   different speed or time.

mod activator;
mod autoscaler;
mod cluster;
mod events;
mod faults;
pub mod holders;
mod invariants;
mod lease;
mod links;
pub mod many;
mod metrics;
mod model;
mod pass;
mod plan;
pub mod ports;
mod probe;
mod process;
mod reconcile;
mod simulation;
mod stats;
mod summary;
mod write_queue;
mod writers;

pub use summary::{Summary, Without};

use std::fmt;
use std::time::Duration;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Chooses the same run again.
    pub seed: u64,
    /// Virtual time since the beginning.
    pub at: Duration,
    /// The invariant, then what broke it.
    pub what: String,
    /// What chooses the simulation on the command line.
    pub options: &'static str,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, what, options } = self;
        let at = at.as_secs_f64();
        write!(f, "seed {seed} at {at:.3} s: {what}\n  replay: cargo run -p sim -- --seed {seed}{options}")
    }
}

impl std::error::Error for Broken {}

/// Runs one seed. `verbose`: writes a trace to standard output.
///
/// # Errors
/// The first rule that was broken.
pub fn run(seed: u64, without: Option<Without>, verbose: bool) -> Result<Summary, Broken> {
    let mut simulation = simulation::Simulation::new(seed, without, verbose);
    simulation.run();
    match simulation.broken {
        Some((at, what)) => Err(Broken { seed, at, what, options: "" }),
        None => Ok(simulation.summary),
    }
}
