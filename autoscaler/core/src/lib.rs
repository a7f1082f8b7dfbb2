//! Rules of the autoscaler without I/O: windows, decider, bounds, scale to zero and path mode.
//!
//! Everything here takes time and randomness as arguments and returns values that a shell acts on.
//!
//! # From stats to replicas
//!
//! ```text
//! stat ─▶ metrics (two windows) ─▶ decider ─▶ scale_status ─▶ bounds ─▶ scale_to_zero ─▶ replicas patch
//!  └─▶ ScaleStatus::wakes ─▶ poke ┐                           ├─▶ active (condition)
//!     multiscaler::Wheel ─▶ tick ─┤ every 2 s                 ├─▶ path_mode (Proxy or Serve)
//!                                 ▼                           └─▶ num_activators
//!                              decider
//! ```
//!
//! There is one [`decider::Decider`] and one [`metrics::Metrics`] per revision, and one [`multiscaler::Wheel`] per
//! process. [`history::History`] records the reasons for each revision's scale. [`engine`] combines the decider with
//! the rules of the HorizontalPodAutoscaler ([`hpa_core`]). [`scale_conflict`] decides how soon to rewrite a scale that
//! another writer reverts. [`forwarding`] routes stats that reached an instance other than the owner of their revision.
//! [`ports`] allocates port numbers on the activators to workloads, [`schedules`] computes minimum and maximum scale
//! from the clock, and [`manual_requests`] carries out manual requests of an operator.
//!
//! # Not here
//!
//! The owner of a revision (`common::ownership`), the meaning of annotations (`common::annotations`), and all I/O.

pub mod active;
pub mod bounds;
pub mod cause;
pub mod decider;
pub mod engine;
pub mod forwarding;
pub mod history;
pub mod manual_requests;
pub mod max_window;
pub mod metrics;
pub mod multiscaler;
pub mod num_activators;
pub mod path_mode;
pub mod pod_counts;
pub mod ports;
pub mod sample;
pub mod scale_conflict;
pub mod scale_status;
pub mod scale_to_zero;
pub mod schedules;
pub mod window;
