//! Enforces one limit for a workload's pods across all activators: one activator holds the workload.
//!
//! # The rule
//!
//! While one activator can carry a workload with a hard limit, it alone sends to the workload's pods. Its breaker is
//! the limit, and its queue is the only queue. The other activators relay the requests of their clients to it
//! ([`Route`]). The holder follows from the list of ready activators ([`shards::holders`]). A workload that needs more
//! than one holder is divided by the addresses of its pods into [`Shards`], and each holder has some of them.
//!
//! [`Holding`] is the state of one activator for one workload, [`Peers`] its knowledge about which siblings are alive,
//! and [`Message`] the messages between them. Each pair of activators talks on a *session*: a stream on which nothing
//! is lost or reordered until it ends, and from which nothing is delivered afterwards.
//!
//! # Becoming the holder
//!
//! The lists of ready activators and of pods reach each activator at a different time, so two activators may each
//! consider itself the holder. An activator therefore begins to hold shards only once it knows that no other activator
//! holds them, and which requests still run there.
//!
//! 1. An activator claims shards if the list has named it for [`DEAD_AFTER`] and it has a session with all siblings
//!    that it knows, except dead ones. It sends the claim to each sibling. Until then the current holder keeps the
//!    shards.
//! 2. A sibling that receives a claim stops sending to the pods of these shards, and only then confirms. The
//!    confirmation contains the requests that it still runs there, and later messages report when that number falls.
//! 3. The claimant begins when all siblings have confirmed. Requests that siblings still run take slots of its pods
//!    until they have ended.
//! 4. Of two activators that claim, the one with the lower score confirms to the other. The one with the higher score
//!    confirms once it has begun.
//! 5. A holder keeps its shards until they are claimed, even if its list assigns them to another activator. An
//!    activator that lost shards which its own list assigns to it claims them again after [`RETRY_AFTER`]. So lists
//!    that differ for long cost one move per second and nothing else.
//!
//! At any instant at most one activator holds a shard. Suppose that A and B both do. Each has a confirmation of the
//! other, given after its own claim. But an activator that confirms neither holds the shard nor has a claim on it any
//! more. So A claimed after it confirmed to B, which was after B's claim; and B claimed after it confirmed to A, which
//! was after A's claim. This is a contradiction.
//!
//! A holder never counts fewer requests than run. A sibling that has confirmed gives no slot there before it has
//! claimed the shards itself, so its reported number can only fall.
//!
//! # Scale from zero
//!
//! No activator holds a workload that had no pods for some seconds, and all activators know that. If the list has named
//! the same holders for [`DEAD_AFTER`] when pods appear, the listed holder needs confirmations only from siblings with
//! a session. A scale from zero therefore does not wait, and a dead node that is not the holder does not delay it. If
//! the dead node is the listed holder, no other activator begins while it is listed. Requests wait where they arrived
//! until it has left the list.
//!
//! # Siblings that do not answer
//!
//! A sibling without a session delays the claim until it is *dead*: it has left the list, and no sign of life was
//! received from it for [`DEAD_AFTER`] since then. A sibling that is only silent keeps its requests and its shards: its
//! requests continue, and requests of other activators wait.
//!
//! An activator that has left the list and still lives stops itself. As soon as the holder that its list names has not
//! acknowledged it for [`STOP_AFTER`], it gives up the shards of that holder and cuts its requests there. This takes
//! both conditions, leaving the list and losing touch; neither alone cuts anything. [`Peers`] explains why an activator
//! stops before another takes over, whatever the delays.
//!
//! # Assumptions
//!
//! - The lists of two activators without a session are less than half of `DEAD_AFTER - STOP_AFTER` apart in time. With
//!   a session, they may differ arbitrarily.
//! - An activator that reaches neither the API server nor its siblings must treat itself as removed from the list.
//! - A session on which nothing was received for [`DEAD_AFTER`] is closed.
//!
//! One case is not covered: a process that is suspended until it has left the list, and resumes before it has learned
//! that. It may use what it held.
//!
//! # Not here
//!
//! I/O, sessions and their authentication, relaying, and the number of requests that may wait ([`crate::breaker`]).
//! Nothing of this runs without a hard limit, with only one activator, or beside an activator of Knative.

mod holding;
pub mod message;
mod peers;
pub mod session;
pub mod shards;
pub mod sharing_mode;

use std::net::IpAddr;

pub use self::holding::{Holding, Input, Output, Pods, RETRY_AFTER, Route};
pub use self::message::{Message, Running};
pub use self::peers::{BEAT, Beat, DEAD_AFTER, Peers, STOP_AFTER, TICK};
pub use self::shards::Shards;

/// Activator, identified by its address.
pub type Peer = IpAddr;
