//! The autoscaler: receives stats, decides for each revision, patches replicas, switches the path.

pub mod announce;
pub mod api_rate;
mod beside_knative;
pub mod clock;
pub mod collect;
mod engine;
pub mod explain;
pub mod hpa;
pub mod import;
pub mod ingest;
pub mod leadership;
pub mod options;
pub mod pods;
pub mod reconcile;
pub mod run;
pub mod scale;
pub mod stateful_set;

pub use options::{Hpa, Options, ScaleEvent, StatTokens};
pub use run::run;
