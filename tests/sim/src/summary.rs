//! What a run is asked to leave out, and what it answers.

use std::collections::BTreeMap;

/// A part of the rules that is left out, to see that its invariant depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// A process acts as long as it has not heard of another holder.
    Lease,
    /// A lease is given away whatever is being written under it, and a write may take as long as it takes.
    Guard,
    /// The last pod leaves without a probe of the path.
    Proof,
    /// Silence is believed whoever has been heard.
    Attestation,
    /// A metric that fails counts as one that asks for nothing.
    Doubt,
    /// Replicas that somebody changes are put right at once, however often.
    Contest,
}

/// What happened in a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Requests that came.
    pub requests: u64,
    /// Requests that were served to their end.
    pub served: u64,
    /// Requests that found nobody, which only an activator's death explains.
    pub unreachable: u64,
    /// Stats that made an evaluation due at once.
    pub pokes: u64,
    /// Replicas written.
    pub patches: u64,
    /// Writes that were refused for a newer version.
    pub conflicts: u64,
    /// Writes that a process did not begin since its lease might have ended first.
    pub lease_ends: u64,
    /// Leases that were given away only after a write under them had ended.
    pub waits: u64,
    /// Stats that were forwarded to a former owner, and by it to its successor.
    pub sent_on: u64,
    /// Stats that were dropped since two hops did not bring them to an owner.
    pub misrouted: u64,
    /// Times that a write was left waiting for a token.
    pub writes_waited: u64,
    /// Writes that moved up since a decision waited for them.
    pub moved_up: u64,
    /// Writes of revisions that the model does not have.
    pub foreign_writes: u64,
    /// Looks at metrics.
    pub looks: u64,
    /// Those that failed.
    pub failed_looks: u64,
    /// Replicas that somebody else has changed.
    pub undone: u64,
    /// Times that no activator was ready, and the endpoints did not lead to pods that were about to go.
    pub not_led_back: u64,
    /// Times that a scale was not asked for again yet, since it is contested.
    pub contested: u64,
    /// How often each reason was stated by a pass.
    pub reasons: BTreeMap<String, u64>,
}
