//! Rules of the activator without I/O: breaker, throttler, load balancing, subsetting, accounting and probe schedule.
//!
//! A request passes through this crate in three steps. Each step yields a value that releases its resources on drop:
//!
//! 1. [`accounting::RevisionStats::enter`] counts the request and reports whether the autoscaler needs a signal at
//!    once.
//! 2. [`throttler::Throttler::acquire`] waits until the revision has capacity, in order of arrival and within a bounded
//!    queue. It yields [`throttler::Admitted`].
//! 3. [`throttler::Admitted::pick`] chooses a pod and yields a [`throttler::Permit`]. If the pod proves dead before
//!    anything was sent, [`throttler::Permit::give_up_pod`] leads back to step 3 or to the head of the queue.
//!
//! [`backends`] decides which pods are usable. It takes listed addresses and probe results, and returns probes to send
//! and sets of proven destinations for [`throttler::Throttler::update`]. [`holders`] decides which of several
//! activators sends to the pods of a workload with a hard limit; [`throttler::Throttler::hold_shards`] applies that
//! decision.
//!
//! # Invariants
//!
//! - The crate performs no I/O, reads no clock and draws no randomness: `now`, a clock or a generator are arguments.
//! - Received = in flight + queued + refused + finished + abandoned at every instant (property test and loom model of
//!   [`breaker`]).
//! - A pod never receives more than the container concurrency from one activator, nor from several activators that
//!   enforce one limit together.
//! - Nothing spins: a request that finds no capacity waits and is woken.

pub mod accounting;
pub mod backends;
pub mod breaker;
pub mod contract;
pub mod destination;
pub mod holders;
pub mod ledger;
pub mod own_index;
mod sync;
#[cfg(all(test, not(loom)))]
mod testing;
pub mod throttler;

pub use destination::{Destination, Destinations};
pub use own_index::Activators;
