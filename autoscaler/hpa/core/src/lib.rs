//! Rules of the HorizontalPodAutoscaler controller of Kubernetes 1.36: the same decisions, conditions and events.
//!
//! ```text
//! spec ─▶ defaults ─▶ validate                          (input of the user)
//! request ─▶ measure ─▶ combine                         (proposals of the metrics)
//!            ├ usage, groups, calculator                  values of pods
//!            └ totals                                     one value for all pods
//! behavior, with memory ─▶ decision                     (stabilization and limits)
//! reconcile                                             (all of this, step by step)
//! ```
//!
//! [`reconcile::reconcile`] is the entry point. The shell keeps one [`memory::Memory`] for each autoscaler and one
//! [`selectors::Selectors`] for all, and gives a reconcile access to the cluster ([`reconcile::Cluster`]).
//!
//! Amounts are in thousandths of their unit in 64 bits, as the controller computes; [`quantity`] parses and formats
//! them. If a floating-point number does not fit an integer, the result upstream depends on the processor; here it is
//! the nearest integer.
//!
//! # Not here
//!
//! All I/O: watches, the queue and its period, the scale subresource, the metrics APIs, status writes. The conversion
//! to and from `autoscaling/v1`. The rules of the API server for updates, which let a stored object keep values that a
//! new object may not have.

pub mod behavior;
pub mod calculator;
pub mod combine;
pub mod decision;
pub mod defaults;
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
