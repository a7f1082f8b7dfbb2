//! The HorizontalPodAutoscaler controller of Kubernetes 1.36, as rules: the same decisions, conditions and events.
//!
//! ```text
//! spec ─▶ defaults ─▶ validate                          (what a user wrote)
//! request ─▶ measure ─▶ combine                         (what the metrics ask for)
//!            ├ usage, groups, calculator                  values of pods
//!            └ totals                                     values for all
//! behavior, with memory ─▶ decision                     (what stabilization and limits make of it)
//! reconcile                                             (the pass that does all of this, step by step)
//! ```
//!
//! [`reconcile::start`] is the way in. The shell keeps one [`memory::Memory`] for each autoscaler and one
//! [`selectors::Selectors`] for all, and answers the steps of a pass.
//!
//! Amounts are in thousandths of their unit in 64 bits, as the controller computes; [`quantity`] reads and writes them.
//! Where upstream turns a floating-point number into an integer that cannot hold it, what comes out depends on the
//! processor; here it is the nearest integer.
//!
//! # Not here
//!
//! All I/O: watching, the queue and its period, the scale subresource, the metrics APIs, status writes. The conversion
//! to and from `autoscaling/v1`. The API server's side of updates (what a stored object may keep that a new one may
//! not).

pub mod behavior;
pub mod calculator;
pub mod combine;
pub mod condition;
pub mod decision;
pub mod defaults;
pub mod error;
pub mod groups;
pub mod measure;
pub mod memory;
pub mod options;
pub mod pod;
pub mod quantity;
pub mod reconcile;
pub mod request;
pub mod selectors;
pub mod spec;
pub mod status;
pub mod tolerance;
pub mod totals;
pub mod usage;
pub mod validate;

#[cfg(test)]
mod tests;
