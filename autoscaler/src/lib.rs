//! The autoscaler: receives stats, looks at metrics where it is asked to, decides for each revision, patches replicas,
//! switches the path. [`release`] frees what a former autoscaler holds. HorizontalPodAutoscalers have a crate of their
//! own, `hpa`.
//!
//! ```text
//! stats ─▶ ingest ─▶ collect ─▶ scale (decides) ─▶ reconcile ─▶ replicas, path, status
//!                      ▲ pods     ▲ engine (metrics)   ▲ what differs between installs: knative, standalone
//! ```
//!
//! # The way of a PodAutoscaler
//!
//! 1. A process has chosen its [`front_end`] as it read its settings; `run/mod.rs` starts the parts, and the front end
//!    puts the reconcilers together (`knative/mod.rs`, `standalone/mod.rs`).
//! 2. A watch tells `reconcile/stores` of the object, whose key goes into the work queue. So does the key of a revision
//!    that was decided on anew: [`ingest`], [`collect`], [`scale`] (the rules are in `autoscaler-core`).
//! 3. A worker hands the key to `reconcile/kpa/mod.rs`, which runs every pass and asks the front end where the two
//!    differ (`reconcile/kpa/lifecycle.rs`): is the object ours, and what is there to scale?
//! 4. `knative/lifecycle.rs` or `standalone/admission.rs` reads object, target, ServerlessService and configuration,
//!    and answers with a `Workload`, all that the decision depends on as values; or with a refusal.
//! 5. What is new to standalone gets a finalizer first (`standalone/finalizer.rs`), so that it can be given back.
//! 6. `kpa/scaling.rs` asks the decider, lets metrics speak, applies bounds and the way to zero; `kpa/scaler.rs` patches
//!    the replicas, before anything else is written.
//! 7. `kpa/children.rs` keeps the Metric, which `reconcile/metric.rs` turns into measurements, and the
//!    ServerlessService, which says where the traffic goes.
//! 8. `kpa/conditions.rs` says all that in the status, which is written last.
//! 9. In standalone `standalone/serverless` makes the Services and EndpointSlices that the ServerlessService asks for;
//!    Knative's own controller does beside Knative.
//! 10. At the end `standalone/retire.rs` gives replicas and Service back.

pub mod api_rate;
#[cfg(test)]
mod certificate;
pub mod collect;
pub mod dashboard;
mod decisions;
mod engine;
pub mod explain;
pub mod front_end;
pub mod ingest;
pub mod install;
pub mod knative;
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
