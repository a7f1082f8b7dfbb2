//! One limit for a pod, however many activators send to it: whose its slots are, and how they are lent.
//!
//! # The rule
//!
//! Each pod has one *grantor* among the ready activators ([`rendezvous`]). It alone hands out the pod's slots: to its own
//! requests, and as loans to its siblings'. A request takes the own slot that has been idle longest. If there is none it
//! asks the sibling that advertises most idle ones, and all of them if none does; a slot goes to whoever has waited
//! longest, own or not. The borrower proxies the request itself, straight to the pod, and returns the slot when the
//! request ends, however it ends.
//!
//! [`Pool`] is one activator's part in that for one revision, [`Peers`] what it knows of its siblings' being alive, and
//! [`Message`] what they say, each pair on a *session*: a stream on which nothing is lost or overtaken until it ends, and
//! from which nothing is delivered afterwards.
//!
//! # Who grants
//!
//! Lists of ready activators reach each at another time, so two may both think that they are the grantor. Who grants is
//! therefore *held*: an activator begins to grant a pod's slots once it is known that nobody else does, and which slots
//! are in use.
//!
//! 1. Who has been the grantor by its own list for [`DEAD_AFTER`], and has a session with all siblings that it knows but
//!    the dead, *gathers*: it claims the pod of each of them. Until then whoever holds the pod keeps it.
//! 2. A sibling that is asked stops granting there, confirms what it uses itself, and takes loans there from the claimant
//!    alone from then on.
//! 3. The claimant begins when all have confirmed. If one of them held the pod until it confirmed, or has died meanwhile,
//!    all others are asked again: they may have borrowed from it in between.
//! 4. Of two that gather, the one with the lower score confirms to the other; the higher one answers once it has begun.
//! 5. Who holds a pod keeps it until it is claimed, also when its list says that it is somebody else's. Who lost one that
//!    its own list says is its own claims it again after [`RETRY_AFTER`], so lists that differ for long cost a move each
//!    second and nothing else.
//!
//! At any instant at most one grants. Say A and B did: each has a confirmation of the other, given after its own claim. But
//! who confirms neither grants nor has a claim any more, so A claimed after it confirmed to B, which was after B's claim;
//! and B after it confirmed to A, which was after A's claim. Both cannot be.
//!
//! What a holder counts is never less than what runs. A sibling's uses are what it says itself, on the session on which
//! its loans come and its ends go. When the last has confirmed, nobody else has lent since, and from then on loans are
//! taken from the holder alone, which has counted them before. The end of a use is told to everybody who may count it.
//!
//! # New pods
//!
//! A pod is *new* if it was first listed while the list of activators had not changed for [`DEAD_AFTER`], by an activator
//! that has known the pods for as long as an address takes to be free again. All lists name the same grantor there, and
//! nobody can have granted before. So it is claimed at once, and of those alone that there is a session with: neither does
//! a wake wait, nor does a dead node keep others' pods from being used.
//!
//! # Who does not answer
//!
//! A sibling without a session is waited for until it is *dead*: it has left the list, and for [`DEAD_AFTER`] since then
//! nothing was heard of it. One that is merely silent keeps what it uses and what it grants. A pair that cannot reach each
//! other goes on, each with its own pods.
//!
//! One that has left the list and still lives makes its death true: as soon as the grantor that its list names has not
//! acknowledged it for [`STOP_AFTER`], it grants nothing there, borrows nothing, and cuts the requests that it runs there.
//! These two things must come together, leaving and losing touch; neither alone cuts anything. [`Peers`] says why the
//! first instant comes before the second whatever the delays.
//!
//! # The contract
//!
//! Lists of two activators that have no session with each other are less than half of `DEAD_AFTER - STOP_AFTER` apart; of
//! two that have, they may be as different as they like. Who reaches neither the API server nor its siblings has to take
//! itself for one that has left. A session on which nothing was heard for [`DEAD_AFTER`] is closed. An address that leaves
//! the list of pods and comes back within five seconds is the same pod, or another one where nothing runs.
//!
//! A process that stands still until it has left the list, and goes on before it has heard of that, is outside of all this: it
//! may use what it held.
//!
//! # Pools that begin later
//!
//! An activator has a pool of a revision from the first request or the first pod on. What it was asked before is lost,
//! and whoever asked does not know. But who lends has claimed the pod of the borrower before, so a claim is the sign to ask
//! again: what was asked of the claimant until then is taken back, and asked with new numbers.
//!
//! # Loans that are declined
//!
//! Each activator proves a pod for itself, so one may be lent a slot of a pod that it cannot use yet. It declines, and is lent
//! nothing there until the grantor has claimed the pod of it again: milliseconds later at first, twice as long after each
//! further loan that it declines, up to [`RETRY_AFTER`].
//!
//! # Slots come back
//!
//! What is lost with a session is found by the claim that begins the next one: the answer replaces what was known of that
//! sibling. What a dead sibling used is free once the one that frees it has been the grantor for [`DEAD_AFTER`].
//!
//! # Not here
//!
//! I/O, sessions and their authentication, how many may wait ([`crate::breaker`]), and who takes part at all: without a
//! hard limit, with one activator, or beside one of Knative's, nothing of this runs.

mod event;
pub mod message;
mod peers;
mod pod;
mod pool;
mod rendezvous;
pub mod session;
pub mod standing;

use std::fmt;
use std::sync::Arc;

pub use self::event::{Input, Output, Request};
pub use self::message::Message;
pub use self::peers::{BEAT, Beat, DEAD_AFTER, Peers, STOP_AFTER};
pub use self::pod::PodState;
pub use self::pool::{ADVERTISE_EVERY, ASKS_MAX, Pool, RETRY_AFTER};
pub use self::rendezvous::grantor;

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

#[cfg(all(test, not(loom)))]
mod tests;
