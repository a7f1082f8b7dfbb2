//! The HorizontalPodAutoscaler controller of Kubernetes 1.36, as rules: the same decisions, conditions and events.
//!
//! ```text
//! spec ─▶ defaults ─▶ validate                          (what a user wrote)
//! request ─▶ measure ─▶ combine                         (what the metrics ask for)
//!            ├ usage, groups, calculator                  values of pods
//!            └ totals                                     values for all
//! behavior or legacy, with memory ─▶ decision           (what stabilization and limits make of it)
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
//! # Superseded
//!
//! What older descriptions of this controller say, and what holds. Each row has a test.
//!
//! | Once | Now |
//! |---|---|
//! | forbidden windows: no growth within 3 min and no shrinking within 5 min of `lastScaleTime` | none; `lastScaleTime` only informs. Recommendations are stabilized instead |
//! | condition CanAccessScale (FailedGet, FailedUpdate) | AbleToScale False (FailedGetScale, FailedUpdateScale) |
//! | condition InBackoff (BackoffUpscale, BackoffDownscale, BackoffBoth) | AbleToScale True (ReadyForNewScale, ScaleUpStabilized, ScaleDownStabilized) |
//! | condition CanComputeReplicas | ScalingActive, with the same reasons and ScalingDisabled |
//! | condition DesiredOutsideRange | ScalingLimited, also for ScaleUpLimit and ScaleDownLimit |
//! | events DefaultPolicy, DesiredReplicasComputed, FailedConvertHPA | gone; defaults are the API server's |
//! | the current replicas are those of the scale's status | those of its spec |
//! | none becomes one: "Current number of replicas must be greater than 0" | 0 stays 0: scaling is disabled |
//! | desired 0 becomes 1 | `minReplicas` decides |
//! | growth goes to twice the replicas at most, or 4 | so it does without a `behavior`; with one its policies decide |
//! | one failing metric stops everything | the others may scale up |
//! | within tolerance: distance from 1 at most the tolerance, so 1.1 with 0.1 scaled | an interval with both ends, so it holds |
//! | missing pods use all of their request | or the target, if that is more |
//! | a recalculation for missing pods might grow what should shrink | it holds |
//! | too large results overflowed | they are the largest integer |
//! | a conflict failed the pass | five attempts |
//! | averages of memory were written in thousandths | in bytes, with binary suffixes |
//! | only ordinary containers request | sidecars too, and pods as a whole |
//! | with the gate HPAScaleToZero, 0 was like any other number | only what this controller put to 0, it wakes |
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
pub mod legacy;
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
mod scenario;
#[cfg(test)]
mod superseded;
