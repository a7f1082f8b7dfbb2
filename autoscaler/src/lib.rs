//! The autoscaler. It receives stats, reads metrics for workloads that request them, decides a scale for each
//! revision, patches replicas and switches the traffic path. [`release`] restores workloads that a former autoscaler
//! still holds. HorizontalPodAutoscalers have their own crate, `hpa`.
//!
//! ```text
//! stats ─▶ ingest ─▶ collect ─▶ scale (decides) ─▶ reconcile ─▶ replicas, path, status
//!                      ▲ pods     ▲ engine (metrics)   ▲ differences between installs: knative, standalone
//! ```
//!
//! # From a workload to its scale
//!
//! 1. The process chooses its [`install_kind`] when it reads its settings. `run/mod.rs` starts the parts, and the front
//!    end builds the reconcilers (`knative/mod.rs`, `standalone/mod.rs`).
//! 2. A watch reports a PodAutoscaler (`knative/store.rs`) or a ZeroScaler (`standalone/cluster.rs`) to the front end.
//!    The front end records the scale target in the index of `cluster/mod.rs`, which adds the key to the work queue. A
//!    new decision about a workload also adds its key: [`ingest`], [`collect`], [`scale`] (the rules are in
//!    `autoscaler-core`).
//! 3. A worker passes the key to `engine/mod.rs`, which runs every reconcile pass and knows no API object. It asks the
//!    front end for everything it needs of one (`engine/front_end.rs`).
//! 4. `knative/revisions.rs` or `standalone/admission/mod.rs` reads object, target, path and configuration. It returns
//!    a `Workload` (all inputs of the decision, as values) or a refusal.
//! 5. In standalone, a new object first gets a finalizer (`standalone/finalizer.rs`), so that its target can be
//!    restored.
//! 6. `engine/scaling.rs` reads the decider, blends in metrics, and applies bounds and scale to zero.
//!    `engine/scaler.rs` patches the replicas before anything else is written.
//! 7. The front end sets up measurement and routing. `knative/children.rs` writes a ServerlessService and a Metric,
//!    which `knative/metric.rs` turns into measurements. `standalone/traffic/paths.rs` records the path.
//! 8. The front end receives the outcome and writes its status last: `knative/statuses.rs`, `standalone/scalers`.
//! 9. In standalone, `standalone/traffic` creates the Services and EndpointSlices for the path. Beside Knative, its
//!    own controller does this.
//! 10. When the object is deleted, `standalone/release/mod.rs` restores replicas and Service.

pub mod api_rate;
#[cfg(test)]
#[path = "tests/api_server.rs"]
mod api_server;
#[cfg(test)]
#[path = "tests/certificate.rs"]
mod certificate;
mod cluster;
pub mod collect;
pub mod dashboard;
mod engine;
pub mod explain;
pub mod ingest;
pub mod install;
pub mod install_kind;
pub mod knative;
mod metric_engine;
pub mod options;
pub mod pods;
mod profile;
pub mod reconcile;
pub mod release;
pub mod run;
pub mod scale;
mod standalone;
pub mod stateful_set;

pub use install_kind::InstallKind;
pub use options::{Options, StatTokens};
pub use run::run;
pub use scale::{OnScale, ScaleEvent};
pub use standalone::Hpa;
