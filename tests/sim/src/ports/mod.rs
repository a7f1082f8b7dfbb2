//! Simulation of port numbers: the real rules of allocation, proof and listening, in a cluster with faults.
//!
//! ```text
//! seed ─▶ event queue ─▶ owners (plan, proofs, slices) ─ writes ─▶ API server ─ watches ─▶ activators (listeners)
//!                               ▲──────────── probes ──────────────────────────────────────────┘
//!                        nodes: old copies of slices ─▶ clients connect ─▶ invariants
//! ```
//!
//! # Invariants, checked at every event
//!
//! 1. One workload per number: among all lines of the ledger, all slices and all sockets of running activators, no two
//!    name different workloads for one number.
//! 2. No slice points to a closed port: if a slice, or a node's old copy of one, has the address of a ready activator,
//!    that activator listens on the number, for the slice's workload.
//! 3. In the end, without faults, every port has one number of the range, which is in its status, and its slices have
//!    this number at every activator that the workload needs. No line of a deleted workload is held.
//!
//! # Faults
//!
//! - Owners crash, are paused, receive nothing from the API server, or no slices for minutes, or reach no activator.
//!   Two owners own the same bucket for half a minute.
//! - Writes take nine seconds, responses are lost, and clocks differ by two minutes.
//! - Activators crash and return at the same address, are rolled, are paused, or receive nothing. Other processes take
//!   numbers.
//! - Objects are created, deleted normally or by force, and created again with the status of the former one. Ports are
//!   renamed, renumbered, added and removed. Statuses are edited and restored.
//! - The range is edited, and is hardly larger than needed.
//!
//! [`Without`] disables one rule; each rule then violates an invariant.
//!
//! # Model of the shell
//!
//! One reconciliation covers all of an owner's workloads, with one write at a time per object. A map of the ledger and
//! the slices of a workload are written only if they have the version that was read. The owner asks the API server
//! before it releases the number of an unknown workload. Finalizers remove the slices first. All of this is modeled
//! here; a change of it must be made in both places.
//!
//! # Not here
//!
//! Dead activators stay in slices until their Service reports it, like pods of any Service. This violates no
//! invariant. Ledgers restored from a backup (a table of [`common::ports::listeners`] describes the result). Leases:
//! the seed chooses when two owners own a bucket at a time.

mod faults;
mod judge;
mod model;
mod owner;
mod proxy;
mod world;

use crate::Violation;
use clap::ValueEnum;
use std::time::Duration;

/// Rule that is disabled to show that the invariants depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Without {
    /// Maps of the ledger are overwritten whatever their version.
    Arbiter,
    /// Activators listen on the numbers in statuses.
    Ledger,
    /// Addresses are listed without a probe.
    Proof,
    /// A released number is allocated again at once.
    Rest,
    /// A number is released while slices name it.
    Slices,
    /// Activators close a number as soon as it is released.
    Open,
}

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Workloads that were created.
    pub created: u64,
    /// Numbers that were allocated.
    pub allocated: u64,
    /// Allocated numbers that another workload had before.
    pub reused: u64,
    /// Writes that failed because of a newer version.
    pub conflicts: u64,
    /// Reconciliations by an owner while its bucket has another owner, too.
    pub disagreements: u64,
    /// Clients that reached their workload.
    pub connections: u64,
    /// Clients that reached an activator that was down, not ready, or unable to bind the number.
    pub unreachable: u64,
    /// Problems in the plans of owners, counted for each port and plan.
    pub problems: u64,
}

/// Runs one seed. If `verbose` is true, prints a trace to standard output. Fails with the first
/// violated invariant.
pub fn run(seed: u64, without: Option<Without>, verbose: bool) -> Result<Summary, Violation> {
    let mut world = world::World::new(seed, without, verbose);
    world.run();
    match world.time.violation {
        Some((at, what)) => Err(Violation { seed, at, what, options: " --simulation ports" }),
        None => Ok(world.summary),
    }
}

/// Time within which faults begin and end.
const FAULTS_END: Duration = Duration::from_secs(3000);
/// End of a run. By then the cooldown of a number released at the last fault is over.
const END: Duration = Duration::from_secs(4000);
/// Maximum difference in seconds between the clocks of two processes.
const CLOCKS_DIFFER: u64 = 120;
