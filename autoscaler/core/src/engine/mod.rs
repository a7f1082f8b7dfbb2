//! Scales by metrics in addition to requests: a HorizontalPodAutoscaler without an object.
//!
//! ```text
//! ZeroScaler ─▶ plan (what to measure, how often, how to behave)
//!                  │
//! metrics APIs ─▶ hpa::combine ─▶ measured ─┐
//! stats ─▶ decider ─▶ load ─────────────────┴─▶ blend ─▶ desired ─▶ bounds ─▶ scale_to_zero
//! ```
//!
//! [`plan`] validates the `metrics` and `behavior` of a ZeroScaler. [`blend`] combines all results into one desired
//! scale. The conversion of a metric into replicas and the limits of a behavior are the unchanged rules of
//! [`hpa_core`].
//!
//! # Not here
//!
//! Querying the metrics APIs and its interval, and writing replicas. One check of the Kubernetes controller is omitted
//! on purpose: whether two autoscalers select the same pods. Here each autoscaler has its own target.

pub mod blend;
pub mod plan;

pub use blend::{Blend, BlendedScale, Measured};
pub use plan::Plan;
