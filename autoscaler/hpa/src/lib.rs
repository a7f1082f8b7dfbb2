//! HorizontalPodAutoscalers: the I/O around [`hpa_core`], which holds the rules.
//!
//! ```text
//! object ─▶ evaluate ─▶ outcome ─▶ status, events, metrics, explanation
//!             │ sources: scale subresource, pods, metrics APIs
//!             └ rules of hpa_core, one Memory for each object
//! ```
//!
//! | Who evaluates | Module | Where |
//! |---|---|---|
//! | we do, in place of Kubernetes' controller | [`native`] | `autoscaler-hpa --hpa=native`, the embedded cluster |
//! | Kubernetes does; we make objects for PodAutoscalers of class HPA | [`delegate`] | `autoscaler-hpa`, beside Knative |
//! | `autoscaler` does, without an object, by the same [`sources`] and rules | its `engine` | standalone |
//!
//! # Rights
//!
//! What each needs of an API server; `deploy/kubernetes/native` has it as roles for native, where a test holds them to
//! what is asked for. Both: `configmaps` list, watch and `leases` get, list, watch, create, update in the system
//! namespace; `events` create.
//!
//! | Mode | Group: resources | Verbs |
//! |---|---|---|
//! | native | `autoscaling`: horizontalpodautoscalers | list, watch |
//! | | `autoscaling`: horizontalpodautoscalers/status | update |
//! | | any: `*/scale` | get, update |
//! | | core: pods | list, watch |
//! | | `metrics.k8s.io`: pods | list |
//! | | `custom.metrics.k8s.io`, `external.metrics.k8s.io`: all | get, list |
//! | delegate | `autoscaling.internal.knative.dev`: podautoscalers | get, list, watch |
//! | | podautoscalers/status | get, update |
//! | | `autoscaling`: horizontalpodautoscalers | get, list, watch, create, update |
//! | | `networking.internal.knative.dev`: serverlessservices | get, list, watch, create, update |
//! | | podautoscalers/finalizers | update, where owner references are enforced |
//!
//! Discovery, which finds the resource of a kind, is open to whoever is authenticated. These are within what
//! Kubernetes' own controller and Knative's have.
//!
//! # Where we differ from upstream
//!
//! The header of each part says so: [`native`], [`delegate`], [`sources`], [`run`]. All of it concerns failures and
//! bookkeeping; what is decided, written and said is upstream's.

pub mod delegate;
pub mod evaluate;
pub mod explain;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod native;
pub mod object;
pub mod options;
pub mod pods;
pub mod run;
pub mod sources;
