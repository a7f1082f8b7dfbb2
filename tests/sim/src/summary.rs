//! Rules to disable in a run, and the summary of a run.

use std::collections::BTreeMap;

/// Rule that is disabled to show that its invariant depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// A process acts as long as it knows of no other holder, without checking the lease.
    Lease,
    /// A lease is handed over despite pending writes, and writes have no deadline.
    Guard,
    /// The last pod is removed without a probe of the path.
    Proof,
    /// An evaluation trusts missing reports, whichever activators have reported.
    Attestation,
    /// A failing metric counts as a metric that requires nothing.
    Doubt,
    /// Replicas changed by another writer are rewritten at once, however often.
    Contest,
}

impl Without {
    /// All rules with their names on the command line.
    pub const ALL: [(&str, Self); 6] = [
        ("lease", Self::Lease),
        ("guard", Self::Guard),
        ("proof", Self::Proof),
        ("attestation", Self::Attestation),
        ("doubt", Self::Doubt),
        ("contest", Self::Contest),
    ];
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
    /// Requests that reached no endpoint; only a dead activator can cause that.
    pub unreachable: u64,
    /// Stats that made an evaluation due at once.
    pub pokes: u64,
    /// Writes of replicas.
    pub patches: u64,
    /// Writes that failed because of a newer version.
    pub conflicts: u64,
    /// Writes that a process did not begin because its lease might have ended first.
    pub lease_ends: u64,
    /// Hand-overs of leases that waited for a pending write.
    pub waits: u64,
    /// Stats that were forwarded to a former owner, and by it to its successor.
    pub sent_on: u64,
    /// Stats that were dropped because two hops did not bring them to an owner.
    pub misrouted: u64,
    /// Times that a write had to wait for a token.
    pub writes_waited: u64,
    /// Writes that moved up because a decision waited for them.
    pub moved_up: u64,
    /// Writes of revisions outside the model.
    pub foreign_writes: u64,
    /// Measurements of metrics.
    pub looks: u64,
    /// Failed measurements.
    pub failed_looks: u64,
    /// Changes of replicas by another writer.
    pub undone: u64,
    /// Times that no activator was ready and the endpoints did not return to pods that were about to be removed.
    pub not_led_back: u64,
    /// Times that a contested scale was not rewritten yet.
    pub contested: u64,
    /// Number of reconciliations by reason.
    pub reasons: BTreeMap<String, u64>,
}
