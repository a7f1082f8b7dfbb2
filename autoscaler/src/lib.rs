//! The autoscaler: receives stats, looks at metrics where it is asked to, decides for each revision, patches replicas,
//! switches the path. [`import`] translates manifests of others.
//!
//! ```text
//! stats ─▶ ingest ─▶ collect ─▶ scale (decides) ─▶ reconcile ─▶ replicas, path, status
//!                      ▲ pods     ▲ engine (metrics)   ▲ what differs between installs: knative, standalone
//! ```

pub mod api_rate;
#[cfg(test)]
mod certificate;
pub mod collect;
mod decisions;
mod engine;
pub mod explain;
pub mod front_end;
pub mod import;
pub mod ingest;
pub mod knative;
pub mod options;
pub mod pods;
pub mod reconcile;
pub mod run;
pub mod scale;
mod standalone;
pub mod stateful_set;

pub use front_end::FrontEnd;
pub use options::{Options, StatTokens};
pub use run::run;
pub use scale::{OnScale, ScaleEvent};
pub use standalone::Hpa;
