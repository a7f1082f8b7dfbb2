//! Allocates a port number on every activator to each port of each workload.
//!
//! ```text
//! new or edited ─▶ plan ─▶ lines of the ledger (compare and set) ─▶ activators listen
//!                                                                        │ probe on the number
//!                            responses ── Proofs ◀───────────────────────┘
//!                                           └─▶ endpoints ─▶ EndpointSlices ─▶ clients
//! ```
//!
//! # Guarantee
//!
//! A client that connects to an address and number from a slice reaches neither another workload nor a closed port.
//! This holds through crashes, two autoscalers that each consider themselves the owner, stale views, and restored old
//! statuses.
//!
//! # The four rules
//!
//! 1. **One line per number** ([`common::ports::ledger`]). A number is a key of one ConfigMap, and is replaced only
//!    under the resource version that was read. The loser of a race reads and plans again. Leases decide which
//!    autoscaler tries, so races are rare; correctness does not depend on leases.
//! 2. **Activators follow only the ledger** ([`common::ports::listeners`]). A number is open for the workload of its
//!    line while that line is held, and for [`OPEN_FOR`] after its release. A status has no effect.
//! 3. **An address is added to a slice only with a proof** ([`slices`]). The activator has responded on that very
//!    number within [`PROOF_HOLDS`] that it listens there for this workload and that the line is held. An address in a
//!    slice stays unless there is evidence against it. Slices too are replaced only under the version that was read.
//! 4. **A number has a cooldown before another workload gets it** ([`plan()`]). Its line is released when no workload
//!    wants it and no slice names it. Another workload gets it only if the range has no unused number left, and
//!    [`COOLDOWN`] after the last slice that named it. The number that was released first comes first. If a slice names
//!    a released number, the cooldown starts again. Since tenants can write slices, only slices that belong to a
//!    workload count ([`claims`]).
//!
//! # Why the rules suffice
//!
//! *Two workloads never share a number.* By rule 1 a number has one line, which names one workload. By rule 4 the line
//! changes its workload [`COOLDOWN`] after the release, and by rule 2 activators have closed the number three minutes
//! before. An activator or a reader of slices would have to lag by minutes to see both workloads. Watches end and
//! restart within five minutes, and clocks may differ by two.
//!
//! *No slice points to a closed port.* An address is added only by rule 3, so an activator saw the line held at most
//! [`PROOF_HOLDS`] before the write began, and a write ends within ten seconds or fails. Slices written before the
//! release was observed are thus observed within a minute, and the number stays open for [`OPEN_FOR`]. (An activator
//! that dies stays in slices until its Service reports that, like a pod of any Service.)
//!
//! # Guarded numbers
//!
//! A separate range of numbers is for workloads whose pods are selected by NetworkPolicies ([`Access`]). Such a
//! workload has no other number: lines of other numbers are closed at once, and activators stop listening there.
//!
//! # Selection of activators
//!
//! Every activator listens on every number. The slices of a workload name as many activators as its load needs
//! ([`carriers`]).
//!
//! # Independence
//!
//! A scale from zero needs no number: the workload has one from its creation to its end. All new workloads are planned
//! together, and written in blocks of five hundred. Replicas start at different numbers, so that they rarely want the
//! same block. A workload that cannot get a number ([`Problem`]) keeps no other from one.
//!
//! # Not here
//!
//! Sockets, objects and names of slices: those belong to the shell.

pub mod carriers;
pub mod claims;
pub mod plan;
pub mod proofs;
pub mod slices;

#[cfg(test)]
mod carriers_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use plan::{Access, Change, Plan, PortOutcome, Problem, View, Wanted, Workload, plan};
pub use proofs::{NumberResponse, Proofs, Verdict};
pub use slices::{Activator, Listed, Serving, endpoints};

pub use common::ports::ledger::OPEN_FOR;
use std::time::Duration;

/// Time for which an activator's response permits adding its address to a slice.
pub const PROOF_HOLDS: Duration = Duration::from_secs(30);
/// Time from the last slice that named a released number until another workload may get it.
pub const COOLDOWN: Duration = Duration::from_secs(600);
/// Interval at which a released number that slices name is released again.
pub const NOTED_EVERY: Duration = Duration::from_secs(60);
/// Time for which an activator counts as the process that responded last.
pub const IDENTIFIED_FOR: Duration = Duration::from_secs(10);
/// Time of foreign responses after which a number counts as used by another process.
pub const FOREIGN_HOLDS: Duration = Duration::from_secs(10);
/// Number of a port's former numbers in cooldown from which a number in use is no longer replaced.
pub const TRIES_MAX: usize = 3;
