//! The autoscaler: receives stats, looks at metrics where it is asked to, decides for each revision, patches replicas,
//! switches the path. [`release`] frees what a former autoscaler holds. HorizontalPodAutoscalers have a crate of their
//! own, `hpa`.
//!
//! ```text
//! stats ─▶ ingest ─▶ collect ─▶ scale (decides) ─▶ reconcile ─▶ replicas, path, status
//!                      ▲ pods     ▲ engine (metrics)   ▲ what differs between installs: knative, standalone
//! ```
//!
//! # The way of a workload
//!
//! 1. A process has chosen its [`front_end`] as it read its settings; `run/mod.rs` starts the parts, and the front end
//!    puts the reconcilers together (`knative/mod.rs`, `standalone/mod.rs`).
//! 2. A watch tells the front end of a PodAutoscaler (`knative/store.rs`) or a ZeroScaler (`standalone/cluster.rs`). It tells
//!    the index in `cluster/mod.rs` what that scales, and the key goes into the work queue. So does the key of a workload
//!    that was decided on anew: [`ingest`], [`collect`], [`scale`] (the rules are in `autoscaler-core`).
//! 3. A worker hands the key to `engine/mod.rs`, which runs every pass and knows no object of the API. Whatever it
//!    needs of one it asks of the front end (`engine/front_end.rs`).
//! 4. `knative/revisions.rs` or `standalone/admission.rs` reads object, target, path and configuration, and answers with a
//!    `Workload`, all that the decision depends on as values; or with a refusal.
//! 5. What is new to standalone gets a finalizer first (`standalone/finalizer.rs`), so that it can be given back.
//! 6. `engine/scaling.rs` asks the decider, lets metrics speak, applies bounds and the way to zero; `engine/scaler.rs` patches
//!    the replicas, before anything else is written.
//! 7. The front end has it measured, and its traffic follow the path: `knative/children.rs` writes a Metric, which
//!    `knative/metric.rs` turns into measurements, and a ServerlessService; `standalone/paths.rs` notes the path.
//! 8. The front end takes in the outcome, and writes its status last: `knative/statuses.rs`, `standalone/scalers`.
//! 9. In standalone `standalone/serverless` makes the Services and EndpointSlices that the path asks for; Knative's own
//!    controller does beside Knative.
//! 10. At the end `standalone/retire.rs` gives replicas and Service back.

pub mod api_rate;
#[cfg(test)]
#[path = "tests/certificate.rs"]
mod certificate;
mod cluster;
pub mod collect;
pub mod dashboard;
mod decisions;
mod engine;
pub mod explain;
pub mod front_end;
pub mod ingest;
pub mod install;
pub mod knative;
mod metric_engine;
pub mod options;
pub mod pods;
pub mod reconcile;
pub mod release;
pub mod run;
pub mod scale;
mod standalone;
pub mod stateful_set;

pub use front_end::FrontEnd;
pub use options::{Options, StatTokens};
pub use run::run;
pub use scale::{OnScale, ScaleEvent};
pub use standalone::Hpa;
