//! Pods asked for by metrics, beside the pods asked for by requests: a HorizontalPodAutoscaler without an object.
//!
//! ```text
//! ZeroScaler ─▶ plan (what to measure, how often, how to behave)
//!                  │
//! metrics APIs ─▶ hpa::combine ─▶ measured ─┐
//! stats ─▶ decider ─▶ load ─────────────────┴─▶ blend ─▶ desired ─▶ bounds ─▶ scale_to_zero
//! ```
//!
//! [`plan`] checks what a ZeroScaler says of `metrics` and `behavior`; [`blend`] makes one wish of all answers. How a metric turns into replicas, and what a behavior allows, are [`hpa_core`]'s rules, unchanged.
//!
//! # Not here
//!
//! Asking the metrics APIs, the pace of it, and writing replicas. One thing that the controller in Kubernetes looks at
//! is left out on purpose: whether two autoscalers select the same pods. Here each has a target of its own.

pub mod blend;
pub mod plan;

pub use blend::{Answer, Blend, Measured};
pub use plan::Plan;
