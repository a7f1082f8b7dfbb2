//! Faults around the activator: pods that vanish or are far away, and clients that flood.
//!
//! | run | question |
//! |---|---|
//! | [`pod_failure`] | one of three pods fails under load: which requests fail, and how long do the others take? |
//! | [`far`] | a pod is 200 ms away: does it wake, and how soon? |
//! | [`flood`] | clients or pods make the activator hold as much as they can: does its memory stay within its limit? |
//!
//! [`front`] is an activator alone, for `tests/suites`.
//!
//! `cargo run --release -p faults -- pod-failure` (or `far`, `flood`) prints figures. `tests/` contains short runs, and
//! asserts what must hold on any machine.

pub mod far;
pub mod flood;
pub mod front;
pub mod pod;
pub mod pod_failure;
pub mod rig;
pub mod wire;
