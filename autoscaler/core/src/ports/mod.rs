//! A port number of its own for each port of each workload, on every activator.
//!
//! ```text
//! births, edits ─▶ plan ─▶ lines of the ledger (compare and set) ─▶ activators listen
//!                                                                        │ probe on the number
//!                              answers ── Proofs ◀───────────────────────┘
//!                                           └─▶ endpoints ─▶ EndpointSlices ─▶ clients
//! ```
//!
//! # What must hold
//!
//! A client that connects to an address and number out of a slice meets neither another workload nor a closed port:
//! through crashes, two autoscalers that both believe to be the owner, views that lag, old statuses put back.
//!
//! # The four rules
//!
//! 1. **One line for each number** ([`common::ports::ledger`]). A number is a key of one ConfigMap, replaced only under
//!    the resource version that was read. The loser of a race reads and plans again. Leases decide who tries, so that two
//!    seldom do; nothing rests on them.
//! 2. **Activators follow the ledger alone** ([`common::ports::listeners`]): a number is open, for the workload of its
//!    line, while that line is held and for [`OPEN_FOR`] after its release. A status moves nothing.
//! 3. **An address is added to a slice only on a proof** ([`slices`]): the activator has answered on that very number
//!    within [`PROOF_HOLDS`] that it listens there for this workload, and that the line is held. An address that a slice
//!    has stays as long as nothing speaks against it. Slices too are replaced only under the version that was read.
//! 4. **A number rests before another workload gets it** ([`plan()`]). Its line is released when no workload wants it and no
//!    slice names it. Another workload gets it only when the range has no unused number left, and [`RESTS_FOR`] after the
//!    last slice that named it; the number that has rested longest is first. If a slice names a released number, the time
//!    begins anew. Tenants write slices: those that are a workload's own count ([`claims`]).
//!
//! # Why they suffice
//!
//! *Two workloads never share a number.* By 1 it has one line, which names one workload. By 4 the line changes hands
//! [`RESTS_FOR`] after the release, and by 2 activators have closed the number three minutes before. An activator or a
//! reader of slices would have to lag by minutes to see both, and watches end and begin anew within five minutes. Clocks
//! may differ by two.
//!
//! *No slice leads to a closed port.* An address gets there only by 3, so an activator saw the line held at most
//! [`PROOF_HOLDS`] before the write began, and a write ends within ten seconds or not at all. Slices written before the
//! release was seen are thus seen within a minute, and the number stays open for [`OPEN_FOR`]. (An activator that dies
//! stays in slices until its Service says so, as a pod of any Service does.)
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
pub mod claims;
pub mod plan;
pub mod proofs;
pub mod slices;

#[cfg(test)]
mod carriers_tests;
#[cfg(test)]
mod tests;

pub use plan::{Change, Outcome, Plan, Problem, View, Wanted, Workload, plan};
pub use proofs::{Answer, Proofs, Verdict};
pub use slices::{Activator, Listed, Serving, endpoints};

pub use common::ports::ledger::OPEN_FOR;
use std::time::Duration;

/// How long an activator's answer lets its address be added to a slice.
pub const PROOF_HOLDS: Duration = Duration::from_secs(30);
/// Time from the last slice that named a released number to its next workload.
pub const RESTS_FOR: Duration = Duration::from_secs(600);
/// A released number that slices name is released anew once in this time.
pub const NOTED_EVERY: Duration = Duration::from_secs(60);
/// How long an activator is taken for the process that has answered last.
pub const IDENTIFIED_FOR: Duration = Duration::from_secs(10);
/// A number on which something else has answered for so long is in use by another process.
pub const FOREIGN_HOLDS: Duration = Duration::from_secs(10);
/// So many numbers of one port may rest before another is tried in place of one that is in use.
pub const TRIES_MAX: usize = 3;
