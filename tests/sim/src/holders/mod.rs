//! Simulation of the holders of a workload: the real rules under a faulty network.
//!
//! ```text
//! seed ─▶ one queue of events ─▶ activators (Holding, Peers) ◀─ sessions ─▶ activators
//!                                      │ requests                 ▲ lists of activators and pods, late
//!                                      ▼                          │
//!                                pods that count their requests ─▶ invariants
//! ```
//!
//! # Invariants, checked at every event
//!
//! 1. No pod runs more requests than its limit, and no two activators hold a shard.
//! 2. Without faults no request waits beside an idle slot for longer than [`IDLE_MAX`], a few times the longest transit
//!    time of this network.
//! 3. In the end every request has ended, every slot is free, and all shards are held by the listed holders.
//!
//! # Faults
//!
//! - Activators crash and return at the same address without state; shut down gracefully over seconds; leave the list
//!   and return to it.
//! - Pairs of activators cannot reach each other. Activators reach no other and are removed from the list meanwhile.
//! - Lists arrive seconds late. Transit times are long.
//! - Pods are added and removed; each activator proves them at its own time, or alone believes that they have failed.
//! - Clients disconnect.
//!
//! [`Without`] disables one rule; each rule then violates an invariant.
//!
//! # Assumptions
//!
//! The lists of two activators without a session are at most [`LIST_LAG`] apart; with a session, as far as the seed
//! chooses. The requests that a process runs on a pod end with the process.
//!
//! # Not here
//!
//! Streams, their authentication, and sending of requests. A session is two queues that lose nothing until both end. A
//! request that waits at an activator that is killed, or that cannot be reached, returns to the activator where it
//! arrived.

mod activators;
mod faults;
mod figures;
mod judge;
mod network;
mod requests;
mod throttler;
mod world;

use crate::Violation;
use clap::ValueEnum;
use std::time::Duration;

pub use figures::{Figures, Setting, figures};

/// Rule that is disabled to show that the invariants depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Without {
    /// A claimant assumes that no other activator holds the shards, and that no requests run there.
    Confirmation,
    /// A confirmation does not contain the running requests.
    Uses,
    /// A silent sibling that has left the list counts as dead at once.
    Second,
    /// An activator that cannot reach another one does not learn that it has left the list.
    Stop,
    /// An activator does not report that its running requests have ended.
    Return,
}

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Requests that got a slot.
    pub served: u64,
    /// Number of relays.
    pub relayed: u64,
    /// Number of relayed requests that were sent back.
    pub sent_back: u64,
    /// Requests that were cut because their activator had left the list and lost its sessions.
    pub cut: u64,
    /// Requests that ended with their activator or their client.
    pub gone: u64,
    /// Number of times that a shard moved to another activator.
    pub moves: u64,
    /// Number of faults.
    pub faults: u64,
}

/// Runs one seed. If `verbose` is true, prints a trace to standard output. Fails with the first
/// violated invariant.
pub fn run(seed: u64, without: Option<Without>, verbose: bool) -> Result<Summary, Violation> {
    let mut world = world::World::new(seed, without, verbose);
    world.run();
    match world.time.violation {
        Some((at, what)) => Err(Violation { seed, at, what, options: " --simulation holders" }),
        None => Ok(world.summary),
    }
}

/// Time within which faults begin and end.
const FAULTS_END: Duration = Duration::from_secs(20);
/// Time until which requests arrive.
const ARRIVALS: Duration = Duration::from_secs(26);
/// End of a run. By then requests that arrived during faults are served.
const END: Duration = Duration::from_secs(50);
/// Maximum delay of lists without faults, and for an activator without a session with another one.
const LIST_LAG: Duration = Duration::from_millis(200);
/// Maximum transit time between two activators without faults.
const TRANSIT_MAX: Duration = Duration::from_millis(2);
/// Maximum time for which a request waits beside an idle slot: a few round trips, and the pause after a failed attempt.
const IDLE_MAX: Duration = Duration::from_millis(25);
