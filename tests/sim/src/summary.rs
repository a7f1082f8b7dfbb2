//! Rules that a run may disable, and the summary of a run.

use clap::ValueEnum;
use std::collections::BTreeMap;

/// Rule that is disabled to show that its invariant depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Without {
    /// A process acts as long as it knows of no other holder, without checking the lease.
    Lease,
    /// A lease is handed over despite pending writes, and writes have no deadline.
    Guard,
    /// The last pod is removed without a probe of the path.
    Proof,
    /// An evaluation trusts missing reports, whichever activators have reported.
    Attestation,
    /// A failing metric counts as one that asks for no pods.
    Doubt,
    /// Replicas that another writer changes are always rewritten at once.
    Contest,
}

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that were served completely.
    pub served: u64,
    /// Requests that reached no endpoint. Only a dead activator can cause that.
    pub unreachable: u64,
    /// Evaluations at once because a stat showed traffic at zero.
    pub pokes: u64,
    /// Writes of replicas.
    pub patches: u64,
    /// Writes that failed because of a newer version.
    pub conflicts: u64,
    /// Hand-overs of leases that waited for a pending write.
    pub hand_over_waits: u64,
    /// Stats that a former owner forwarded to its successor.
    pub second_hops: u64,
    /// Stats that were dropped because they had not reached an owner after two hops.
    pub misrouted: u64,
    /// Number of times that writes had to wait for tokens.
    pub writes_waited: u64,
    /// Writes that became urgent because a decision waited for their end.
    pub promoted: u64,
    /// Failed measurements.
    pub failed_measurements: u64,
    /// Changes of replicas by another writer.
    pub rival_writes: u64,
    /// Times that a rewrite of contested replicas had to wait.
    pub contested: u64,
    /// Number of reconciliations by reason.
    pub reasons: BTreeMap<String, u64>,
}
