//! The activator beside pods that vanish or are far away, and clients that give up.
//!
//! | run | what is asked |
//! |---|---|
//! | [`pod_failure`] | one of three pods fails under load: which requests fail, and how long do the others take? |
//! | [`far`] | a pod is 200 ms away: does it wake, and how soon? |
//! | [`client_timeouts`] | clients give up nine in ten requests: does anything grow? |
//! | [`flood`] | clients, or pods, have the activator keep all that they can: does its memory stay within its limit? |
//!
//! [`front`] is an activator alone, for `tests/suites`.
//!
//! `cargo run --release -p faults -- pod-failure` (or `far`, `client-timeouts`, `flood`) prints figures; `tests/` holds short
//! runs to what must be so on any machine.

pub mod client_timeouts;
pub mod far;
pub mod flood;
pub mod front;
pub mod load;
pub mod netns;
pub mod pod;
pub mod pod_failure;
pub mod rig;
pub mod stalls;
pub mod wire;
