//! The autoscaler's rules, without I/O: windows, decider, bounds, scale to zero, path mode.
//!
//! Everything here takes time and chance as arguments and answers with a value that a shell carries out.
//!
//! # How a decision comes about
//!
//! ```text
//! stat ─▶ metrics (two windows) ─▶ decider ─▶ scale_status ─▶ bounds ─▶ scale_to_zero ─▶ replicas patch
//!  └─▶ ScaleStatus::wakes ─▶ multiscaler::Wheel (poke)         ├─▶ active (condition)
//!                               │ tick every 2 s               ├─▶ path_mode (Proxy or Serve)
//!                               ▼                              └─▶ num_activators
//!                            decider
//! ```
//!
//! One [`decider::Decider`] and one [`metrics::Metrics`] per revision, one [`multiscaler::Wheel`] per process.
//! [`history::History`] keeps why each revision has the scale it has. [`engine`] lets the HorizontalPodAutoscaler's
//! rules ([`hpa_core`]) ask for pods beside the decider. [`scale_conflict`] says how soon a scale that somebody undoes is
//! written again, [`forwarding`] where a stat goes that reached another instance than its revision's owner. [`ports`]
//! gives workloads their port numbers on the activators, [`schedules`] a least and a most scale by the clock, and
//! [`orders`] is what an operator asks for by hand.
//!
//! # Not here
//!
//! Who owns a revision (`common::ownership`), what an annotation means (`common::annotations`), and all I/O.

pub mod active;
pub mod bounds;
pub mod cause;
pub mod decider;
pub mod engine;
pub mod forwarding;
pub mod history;
pub mod max_window;
pub mod metrics;
pub mod multiscaler;
pub mod num_activators;
pub mod orders;
pub mod path_mode;
pub mod pod_counts;
pub mod ports;
pub mod sample;
pub mod scale_conflict;
pub mod scale_status;
pub mod scale_to_zero;
pub mod schedules;
pub mod window;
