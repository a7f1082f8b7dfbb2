//! HorizontalPodAutoscalers: the I/O around [`autoscaler_core::hpa`].
//!
//! ```text
//! object ─▶ evaluate ─▶ outcome ─▶ status, events, metrics
//!             │ sources: scale subresource, pods, metrics APIs
//!             └ rules of autoscaler_core::hpa, one Memory for each object
//! ```

pub mod evaluate;
#[cfg(test)]
pub(crate) mod fixture;
pub mod object;
pub mod pods;
pub mod sources;
