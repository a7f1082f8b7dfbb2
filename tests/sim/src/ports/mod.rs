//! A second simulation: port numbers. The real rules of allocation, proof and listening, in a cluster that goes wrong.
//!
//! ```text
//! seed ─▶ one queue of events ─▶ owners (plan, proofs, slices) ─ writes ─▶ API server ─ watches ─▶ activators (listeners)
//!                                       ▲──────────── probes ──────────────────────────────────────────┘
//!                                nodes: old copies of slices ─▶ clients connect ─▶ what must hold
//! ```
//!
//! # What must hold, at every event
//!
//! 1. One workload for each number: of all lines of the ledger, all slices and all sockets of activators that run, no two
//!    name different workloads for one number.
//! 2. No slice leads to a closed port: where a slice, or a node's old copy of one, has the address of an activator that
//!    is ready, that activator listens on the number, for the slice's workload.
//! 3. In peace it comes to rest: every port has one number of the range, which its status shows and its slices lead to at
//!    every activator; and no line of a workload that is gone is held.
//!
//! # What goes wrong
//!
//! Owners that crash, stand still, hear nothing from the API server, or of slices alone for minutes, reach no activator; buckets that two of them believe
//! to own for half a minute; writes that take nine seconds, and answers that are lost; clocks that differ by two minutes.
//! Activators that crash and come back
//! at the same address, are rolled, stand still, hear nothing; other processes that take numbers. Objects that are made,
//! deleted in order and by force, made anew with the status of the one before; ports that are renamed, renumbered, added,
//! taken away; statuses that are edited and put back; edits of the range, which is hardly larger than what is asked for.
//!
//! [`Without`] leaves one rule out; each then breaks what must hold.
//!
//! # The shell, by its contract
//!
//! A pass over all of an owner's workloads, one write at a time for each object, a map of the ledger and a workload's
//! slices only under the version that was read, a question to the API server before the number of an unknown workload is
//! released, finalizers that take the slices away first: this is written down here again. A change of it must be made in
//! both places.
//!
//! # Not here
//!
//! Activators that have died stay in slices until their Service says so, as pods of any Service do, and nobody is blamed
//! for it. Ledgers that somebody puts back from a backup (a table of [`common::ports::listeners`] says what comes of it).
//! Leases: two owners at a time are believed in here whenever a seed says so.

mod faults;
mod judge;
mod model;
mod owner;
mod proxy;
mod world;

use crate::Broken;
use std::time::Duration;

/// A rule that is left out, to see that what must hold depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// Maps of the ledger are written over whatever they say by now.
    Arbiter,
    /// Activators listen on what statuses show.
    Ledger,
    /// Addresses are listed without having been asked.
    Proof,
    /// A released number goes to the next workload at once.
    Rest,
    /// A number is released while slices name it.
    Slices,
    /// Activators close a number as soon as it is released.
    Open,
}

impl Without {
    /// All of them.
    pub const ALL: [(&str, Self); 6] = [
        ("arbiter", Self::Arbiter),
        ("ledger", Self::Ledger),
        ("proof", Self::Proof),
        ("rest", Self::Rest),
        ("slices", Self::Slices),
        ("open", Self::Open),
    ];
}

/// What happened in a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Workloads that were made.
    pub births: u64,
    /// Numbers that were given.
    pub given: u64,
    /// Those of them that another workload had before.
    pub reused: u64,
    /// Writes that were refused for a newer version.
    pub conflicts: u64,
    /// Passes by an owner of a bucket that another one owns as well.
    pub disagreements: u64,
    /// Probes that were answered.
    pub probes: u64,
    /// Clients that met their workload.
    pub connections: u64,
    /// Clients that met an activator that had died or stood still.
    pub unreachable: u64,
    /// Ports that were found with several numbers, or with one that is in use, or with none; statuses that lied.
    pub problems: u64,
}

/// Runs one seed. `verbose`: writes a trace to standard output.
///
/// # Errors
/// The first rule that was broken.
pub fn run(seed: u64, without: Option<Without>, verbose: bool) -> Result<Summary, Broken> {
    let mut world = world::World::new(seed, without, verbose);
    world.run();
    match world.broken {
        Some((at, what)) => Err(Broken { seed, at, what, options: " --simulation ports" }),
        None => Ok(world.summary),
    }
}

/// Faults begin and end within this time.
const TROUBLE: Duration = Duration::from_secs(3000);
/// A run ends after so long: a number that was released at the last fault has rested.
const END: Duration = Duration::from_secs(4000);
/// The clocks of two processes differ by so many seconds at most.
const CLOCKS_DIFFER: u64 = 120;
