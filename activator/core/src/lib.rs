//! The activator's rules, without I/O: breaker, throttler, load balancing, subsetting, accounting, probe schedule.
//!
//! A request's way through this crate, each step a value that gives back what it took when it is dropped:
//!
//! 1. [`accounting::RevisionStats::enter`] counts it, and says whether the autoscaler must hear of it at once.
//! 2. [`throttler::Throttler::acquire`] waits, bounded and in order of arrival, until the revision has room:
//!    [`throttler::Admitted`].
//! 3. [`throttler::Admitted::pick`] chooses a pod: [`throttler::Permit`]. If the pod turns out to be dead before
//!    anything was sent, [`throttler::Permit::give_up_pod`] leads back to step 3, or to the head of the queue.
//!
//! Where the pods come from is [`backends`]: listed addresses and probe results in, probes to send and sets of proven
//! destinations out, which [`throttler::Throttler::update`] takes. Which of several activators
//! sends to a workload's pods under a hard limit is [`holders`], by which [`throttler::Throttler::hold_lots`] goes.
//!
//! # Invariants
//!
//! - No I/O, no clock, no randomness of its own: `now`, a clock or a generator are arguments.
//! - Received = in flight + queued + refused + finished + abandoned at every instant (property test and loom model of
//!   [`breaker`]).
//! - A pod never sees more than the container concurrency from one activator, nor from several that keep one limit.
//! - Nothing spins: a request that finds no room waits, and is woken.

pub mod accounting;
pub mod backends;
pub mod breaker;
pub mod contract;
pub mod destination;
pub mod fallback;
pub mod holders;
pub mod ledger;
pub mod own_index;
mod sync;
#[cfg(all(test, not(loom)))]
mod testing;
pub mod throttler;

pub use destination::{Destination, Destinations};
pub use own_index::Activators;
