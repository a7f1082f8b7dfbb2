//! A port number of its own for each port of each workload, on every activator.
//!
//! ```text
//! births, edits ─▶ plan ─▶ lines of the ledger (compare and set) ─▶ activators listen
//!                   ▲                                                    │ probe on the number
//!                   └──── Retiring ◀── answers ── Proofs ◀───────────────┘
//!                                                    └─▶ endpoints ─▶ EndpointSlices ─▶ clients
//! ```
//!
//! # What must hold
//!
//! Nobody who connects to an address and number out of a slice meets another workload, or a closed port: through crashes,
//! two autoscalers that both believe to be the owner, views that lag, old statuses put back.
//!
//! # The four rules
//!
//! 1. **One line for each number** ([`common::ports::ledger`]). A number is a key of one ConfigMap, replaced only under
//!    the resource version that was read. Who loses reads and plans again. Leases decide who tries, so that two seldom
//!    do; nothing rests on them.
//! 2. **Activators follow the ledger alone** ([`common::ports::listeners`]): a number is open, for the workload of its
//!    line, while that line is held or closing. A status moves nothing.
//! 3. **An address is added to a slice only on a proof** ([`slices`]): the activator has answered on that very number
//!    within [`PROOF_HOLDS`] that it listens there for this workload, and that the line is held. An address that a slice
//!    has stays as long as nothing speaks against it. Slices too are replaced only under the version that was read.
//! 4. **A number is taken back slowly** ([`retire`]), and each step waits for what the one before has set going:
//!    - *held → closing* as soon as nobody wants it. Activators go on listening, and answer that it is closing.
//!    - *closing → closed* when, [`SETTLE`] after every activator that exists has said so and no slice is seen with the
//!      number, a list read from the API server has none either, and [`FOLLOWED_IN`] has passed since. Activators stop
//!      listening.
//!    - *closed → no line* when, asked [`SETTLE`] later, every activator is ready and does not listen there. Only now
//!      somebody else may have it.
//!
//! # Why they suffice
//!
//! *Two workloads never share a number.* By 1 it has one line, which names one. By 4 that line goes only after no slice
//! has the number and no activator listens there. None of them comes back to it: an activator's view never goes back, and
//! one that starts lists the ledger as it is. Should somebody put an old ledger back, activators close a number before it
//! changes hands.
//!
//! *No slice leads to a closed port.* An address gets there only by 3, so some activator saw the line held at most
//! [`PROOF_HOLDS`] before the write began, and a write ends within ten seconds or not at all. From the moment when every
//! activator has said that the line is closing, no proof is made; after [`SETTLE`], which is longer than both together,
//! no write that rests on one is under way. What the list shows then is final: from then on slices only lose the number,
//! and where none has it, whoever follows slices has followed [`FOLLOWED_IN`] later. A list just before the end would not
//! do: another process may have taken the number out of a slice a moment ago, of which nobody else has heard yet. (An
//! activator that dies stays in slices until its Service says so, as a pod of any Service does.)
//!
//! # Who of them
//!
//! Every activator listens on every number; a workload's slices name so many of them as its load needs ([`carriers`]).
//!
//! # In nobody's way
//!
//! A wake needs no number: the workload has it from its birth to its end. Births are planned all together, and written
//! one block of five hundred at a time. Replicas begin at different numbers, so that they seldom want the same block.
//! What cannot have a number ([`Problem`]) keeps nobody else from one.
//!
//! # Not here
//!
//! Sockets, objects and names of slices: those are the shell's.

pub mod carriers;
pub mod plan;
pub mod proofs;
pub mod retire;
pub mod slices;

#[cfg(test)]
mod carriers_tests;
#[cfg(test)]
mod tests;

pub use plan::{Change, Outcome, Plan, Problem, View, Wanted, Workload, plan};
pub use proofs::{Answer, Proofs, Verdict};
pub use retire::Retiring;
pub use slices::{Activator, Listed, Serving, endpoints};

pub use common::ports::listeners::SETTLE;
use std::time::Duration;

/// How long an activator's answer lets its address be added to a slice.
pub const PROOF_HOLDS: Duration = Duration::from_secs(30);
/// Who follows slices (nodes, proxies, autoscalers) has seen what is written within so long.
pub const FOLLOWED_IN: Duration = Duration::from_secs(30);
/// How long an activator is taken for the process that has answered last.
pub const IDENTIFIED_FOR: Duration = Duration::from_secs(10);
/// A number on which something else has answered for so long is in use by another process.
pub const FOREIGN_HOLDS: Duration = Duration::from_secs(10);
/// A line whose workload has not been seen for so long is nobody's: views lag.
pub const ORPHANED_AFTER: Duration = Duration::from_secs(10);
/// So many numbers of one port may be on their way back before another is tried in place of one that is in use.
pub const TRIES_MAX: usize = 3;
