//! The autoscaler: receives stats, decides for each revision, patches replicas, switches the path.

pub mod options;
pub mod scale;

pub use options::{Options, ScaleEvent};
