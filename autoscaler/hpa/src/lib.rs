//! HorizontalPodAutoscalers: I/O around the rules in [`hpa_core`].
//!
//! ```text
//! object ─▶ evaluate ─▶ outcome ─▶ status, events, metrics, explanation
//!             │ sources: scale subresource, pods, metrics APIs
//!             └ rules of hpa_core, one Memory for each object
//! ```
//!
//! | Evaluator | Module | Deployment |
//! |---|---|---|
//! | this process, instead of Kubernetes' controller | [`native`] | `autoscaler-hpa --hpa=native`, the embedded cluster |
//! | Kubernetes; this process creates objects for PodAutoscalers of class HPA | [`delegate`] | `autoscaler-hpa`, beside Knative |
//! | `autoscaler`, without an object, by the same [`sources`] and rules | its `engine` | standalone |
//!
//! # Permissions
//!
//! Permissions that each mode needs of an API server. `deploy/kubernetes/native` has them as roles for native, and a
//! test compares them with the requests. Both modes: `configmaps` list, watch and `leases` get, list, watch, create,
//! update in the system namespace; `events` create.
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
//! Discovery, which finds the resource of a kind, is open to every authenticated client. Kubernetes' own controller and
//! Knative's have all of these permissions.
//!
//! # Differences from upstream
//!
//! The header of each part lists them: [`native`], [`delegate`], [`sources`], [`run`]. All of them concern failures and
//! bookkeeping; decisions, writes and texts are upstream's.

pub mod delegate;
pub mod explain;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod native;
pub mod options;
pub mod pods;
pub mod run;
pub mod sources;
