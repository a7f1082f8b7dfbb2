//! One limit for a workload's pods, however many activators there are: one of them holds the workload.
//!
//! # The rule
//!
//! While one activator can carry a workload with a hard limit, it alone sends to its pods. Its breaker is the limit, and
//! its queue the only one. The others relay their clients' requests to it ([`Route`]). Who it is follows from the list of
//! ready activators ([`lots::holders`]); a workload that needs more than one is divided by its pods' addresses into
//! [`Lots`], so many for each holder.
//!
//! [`Holding`] is one activator's part in that for one workload, [`Peers`] what it knows of its siblings' being alive, and
//! [`Message`] what they say, each pair on a *session*: a stream on which nothing is lost or overtaken until it ends, and
//! from which nothing is delivered afterwards.
//!
//! # Who holds
//!
//! Lists of ready activators, and of pods, reach each at another time, so two may both think that they are the one. An
//! activator therefore begins to hold lots once it is known that nobody else does, and what still runs there.
//!
//! 1. Whom the list has named for [`DEAD_AFTER`], and who has a session with all siblings that it knows but the dead,
//!    *gathers*: it claims the lots of each of them. Until then whoever holds them keeps them.
//! 2. A sibling that is asked sends nothing to these pods any more, and only then confirms, with what it still runs there.
//!    It tells the claimant as that becomes less.
//! 3. The claimant begins when all have confirmed. What others still run takes slots of its pods until it has ended.
//! 4. Of two that gather, the one with the lower score confirms to the other; the higher one answers once it has begun.
//! 5. Who holds lots keeps them until they are claimed, also when its list says that they are somebody else's. Who lost
//!    some that its own list says are its own claims them again after [`RETRY_AFTER`], so lists that differ for long
//!    cost a move each second and nothing else.
//!
//! At any instant at most one holds a lot. Say A and B did: each has a confirmation of the other, given after its own claim.
//! But who confirms neither holds nor has a claim any more, so A claimed after it confirmed to B, which was after B's claim;
//! and B after it confirmed to A, which was after A's claim. Both cannot be.
//!
//! What a holder counts is never less than what runs. A sibling that has confirmed gives nobody a slot there before it
//! has claimed the lots itself, so what it said can only become less.
//!
//! # A wake
//!
//! A workload that had no pods for some seconds is held by nobody, and everybody knows. Whom the list names then, if it has
//! not changed for [`DEAD_AFTER`], begins with the confirmations of those alone that there is a session with: a wake does
//! not wait, and a dead node that is not the holder does not stand in its way. Where it is the one that the list names,
//! nobody else begins while it is listed; requests wait where they came, until it has left the list.
//!
//! # Who does not answer
//!
//! A sibling without a session is waited for until it is *dead*: it has left the list, and for [`DEAD_AFTER`] since then
//! nothing was heard of it. One that is merely silent keeps what it runs and what it holds: its requests go on, and those
//! of others wait.
//!
//! One that has left the list and still lives makes its death true: as soon as the holder that its list names has not
//! acknowledged it for [`STOP_AFTER`], it holds nothing there and cuts the requests that it runs there. These two things must
//! come together, leaving and losing touch; neither alone cuts anything. [`Peers`] says why the first instant comes before
//! the second whatever the delays.
//!
//! # The contract
//!
//! Lists of two activators that have no session with each other are less than half of `DEAD_AFTER - STOP_AFTER` apart; of
//! two that have, they may be as different as they like. Who reaches neither the API server nor its siblings has to take
//! itself for one that has left. A session on which nothing was heard for [`DEAD_AFTER`] is closed.
//!
//! A process that stands still until it has left the list, and goes on before it has heard of that, is outside of all this: it
//! may use what it held.
//!
//! # Not here
//!
//! I/O, sessions and their authentication, relaying, how many may wait ([`crate::breaker`]), and who takes part at all:
//! without a hard limit, with one activator, or beside one of Knative's, nothing of this runs.

mod holding;
pub mod lots;
pub mod message;
mod peers;
pub mod session;
pub mod standing;

use std::fmt;
use std::sync::Arc;

pub use self::holding::{Holding, Input, Output, Pods, RETRY_AFTER, Route};
pub use self::lots::Lots;
pub use self::message::{Message, Running};
pub use self::peers::{BEAT, Beat, DEAD_AFTER, Peers, STOP_AFTER, TICK};

/// An activator, by its address as text. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(Arc<str>);

impl Peer {
    /// Its address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Peer {
    fn from(address: &str) -> Self {
        Self(address.into())
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
