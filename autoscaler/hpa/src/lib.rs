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
//! # Superseded
//!
//! What older descriptions say of the I/O, and what holds; the rules' rows are in [`hpa_core`].
//!
//! | Once | Now | Test |
//! |---|---|---|
//! | metrics from Heapster; custom ones through an annotation | three metrics APIs | `each_metric_is_asked_at_its_path` |
//! | the scale of extensions/v1beta1, its selector a map | autoscaling/v1, a text; maps are still read | `an_old_servers_selector_is_a_map_of_labels` |
//! | the target found by its kind and version | by group and kind, through discovery | `a_scale_is_found_through_discovery_and_written_as_it_was_read` |
//! | passes within the watch's handlers, every 30 s | a queue, every 15 s | `passes_keep_their_period` |
//! | deletions ignored | what is kept of an object goes with it | `a_busy_object_is_scaled_and_says_so` |
//! | one attempt to write the scale | the scale is read anew after a conflict | `a_conflict_is_met_with_a_fresh_read` |
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
