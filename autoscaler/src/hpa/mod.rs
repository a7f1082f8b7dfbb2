//! HorizontalPodAutoscalers: the I/O around [`autoscaler_core::hpa`].
//!
//! ```text
//! object ─▶ evaluate ─▶ outcome ─▶ status, events, metrics
//!             │ sources: scale subresource, pods, metrics APIs
//!             └ rules of autoscaler_core::hpa, one Memory for each object
//! ```

pub mod delegate;
pub mod evaluate;
pub mod explain;
#[cfg(test)]
pub(crate) mod fixture;
pub mod native;
pub mod object;
pub mod options;
pub mod pods;
pub mod sources;
