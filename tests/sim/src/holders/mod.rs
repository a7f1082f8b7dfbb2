//! A third simulation: which activator holds a workload. The real rules of that, under a network that goes wrong.
//!
//! ```text
//! seed ─▶ one queue of events ─▶ activators (Holding, Peers) ◀─ sessions ─▶ activators
//!                                      │ requests                 ▲ lists of activators and pods, late
//!                                      ▼                          │
//!                                pods that count what they run ─▶ what must hold
//! ```
//!
//! # What must hold, at every event
//!
//! 1. No pod runs more requests than its limit, and no two activators hold a lot.
//! 2. In peace no request waits beside an idle slot for longer than [`IDLE_MAX`], a few times the longest way through this
//!    network.
//! 3. In the end every request has ended, every slot has come back, and everything is held by whom the list names.
//!
//! # What goes wrong
//!
//! Activators that crash and come back at the same address, with nothing known; that leave in order and go on for
//! seconds; that leave the list and come back to it; pairs that cannot reach each other, and activators that reach nobody
//! and are taken off the list meanwhile; lists that arrive seconds late; slow ways; pods that come and go, that each activator
//! proves in its own time, and that one alone believes to have failed; clients that leave.
//!
//! [`Without`] leaves one rule out; each then breaks what must hold.
//!
//! # The contract
//!
//! Lists of two activators that have no session with each other are at most [`LIST_LAG`] apart; of two that have, as far
//! as a seed says. A pod's requests of a process end with the process.
//!
//! # Not here
//!
//! Streams, their authentication, and how requests are sent: a session is two queues that lose nothing until both end, and a
//! request that waits at an activator that is killed, or that cannot reach it, is back where it came from.

mod activators;
mod faults;
mod figures;
mod judge;
mod lists;
mod network;
mod requests;
mod throttler;
mod world;

use crate::Broken;
use std::time::Duration;

pub use figures::{Arrivals, Figures, Setting, figures};

/// A rule that is left out, to see that what must hold depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// Who claims lots believes that nobody holds them and nothing runs there.
    Confirmation,
    /// Who confirms does not say what it runs.
    Uses,
    /// A sibling that has left and is silent is believed dead at once.
    Second,
    /// Who is out of touch and has left the list does not know it.
    Stop,
    /// Who runs less than it said does not say so.
    Return,
}

impl Without {
    /// All of them.
    pub const ALL: [(&str, Self); 5] = [
        ("confirmation", Self::Confirmation),
        ("uses", Self::Uses),
        ("second", Self::Second),
        ("stop", Self::Stop),
        ("return", Self::Return),
    ];
}

/// What happened in a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Requests that had a slot.
    pub served: u64,
    /// Times that a request was relayed.
    pub relayed: u64,
    /// Times that a relayed one was sent back.
    pub sent_back: u64,
    /// Requests that were cut because their activator had left and lost touch.
    pub cut: u64,
    /// Requests that ended with their activator or their client.
    pub gone: u64,
    /// Messages about who holds what.
    pub messages: u64,
    /// Times that somebody began to hold what another one had.
    pub moves: u64,
    /// Faults.
    pub faults: u64,
}

/// Runs one seed. `verbose`: writes a trace to standard output.
///
/// # Errors
/// The first rule that was broken.
pub fn run(seed: u64, without: Option<Without>, verbose: bool) -> Result<Summary, Broken> {
    let mut world = world::World::new(seed, without, verbose);
    world.run();
    match world.broken {
        Some((at, what)) => Err(Broken { seed, at, what, options: " --simulation holders" }),
        None => Ok(world.summary),
    }
}

/// Faults begin and end within this time.
const TROUBLE: Duration = Duration::from_secs(20);
/// Requests come until then.
const ARRIVALS: Duration = Duration::from_secs(26);
/// A run ends after so long: what has come in trouble is served by then.
const END: Duration = Duration::from_secs(50);
/// Lists are so late, at most, where nothing is wrong and where an activator has no session with another one.
const LIST_LAG: Duration = Duration::from_millis(200);
/// The longest way from one activator to another in peace.
const WAY_MAX: Duration = Duration::from_millis(2);
/// No request waits beside an idle slot for longer: a few ways there and back, and the pause after one in vain.
const IDLE_MAX: Duration = Duration::from_millis(25);
