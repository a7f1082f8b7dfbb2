//! Controller of ReplicaSets: keeps the desired number of pods of one template.
//!
//! Missing pods are created, at most [`BURST_MAX`] in one pass. Surplus pods are deleted, the least useful ones first
//! ([`deletion_order`]). Ended and terminating pods do not count. The status has the number of pods, of ready pods, and
//! of pods that have been ready for `minReadySeconds`.
//!
//! # Limits
//!
//! There is no adoption and release of pods by labels, no spreading of deletions over nodes (upstream prefers nodes
//! with many pods of the same owner), and there are no Events. Creations have no slow start: all missing pods are
//! created at once. A rejection sets `ReplicaFailure` in the status and is retried with growing delays.

use super::index::{Index, Plan, Write, controlled_by, is_finished, owned_by, true_condition};
use super::write::Request;
use common::labels;
use common_controller::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of pods created or deleted in one pass; the next pass follows at once. A set also has at most this
/// number of pods that wait for a node: more would take memory and run no sooner.
const BURST_MAX: usize = 500;
/// Annotation with the deletion cost; pods with a lower cost are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Plans the writes for the ReplicaSet `key` at `now`.
pub(crate) fn plan(index: &Index, key: &ObjectKey, now: Timestamp) -> Plan {
    let Some(set) = index.replica_sets.get(key) else { return Plan::default() };
    let Some(spec) = set.spec.as_ref() else { return Plan::default() };
    let mut writes = Vec::new();
    let (active, ending): (Vec<_>, Vec<_>) = controlled_by(&index.pods, set.as_ref())
        .filter(|pod| !is_finished(pod))
        .cloned()
        .partition(|pod| pod.metadata.deletion_timestamp.is_none());
    if set.metadata.deletion_timestamp.is_none() {
        let desired = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        match desired.checked_sub(active.len()) {
            Some(missing) => {
                let waiting = active.iter().filter(|pod| !is_assigned(pod)).count();
                let missing = missing.min(BURST_MAX.saturating_sub(waiting));
                let template = spec.template.clone().unwrap_or_default();
                let pod = Request::Create(Box::new(pod_of(set, template)));
                writes.extend(std::iter::repeat_n(Write::Pod(pod), missing));
            }
            None => {
                let mut surplus = active.clone();
                surplus.sort_by_cached_key(|pod| deletion_order(pod));
                surplus.truncate((active.len() - desired).min(BURST_MAX));
                writes.extend(surplus.iter().map(|pod| Write::Pod(Request::delete(pod.as_ref()))));
            }
        }
    }
    let min_ready = Duration::from_secs(u64::try_from(spec.min_ready_seconds.unwrap_or(0)).unwrap_or(0));
    let available: Vec<_> = active.iter().filter_map(|pod| available_in(pod, min_ready, now)).collect();
    let failure = index.create_failures.get(key).map(String::as_str);
    let status = status(set, &active, ending.len(), &available, failure, now);
    writes.extend(Request::update_status(set.as_ref(), set.status.as_ref(), &status).map(Write::ReplicaSet));
    let again_after = available.into_iter().filter(|left| !left.is_zero()).min();
    Plan { writes, again_after }
}

/// Builds a new pod of `set`.
fn pod_of(set: &ReplicaSet, template: PodTemplateSpec) -> Pod {
    let meta = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            namespace: set.namespace(),
            generate_name: Some(format!("{}-", set.name_any())),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owned_by(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

fn is_assigned(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|name| !name.is_empty())
}

/// Returns the sort key of a pod. Pods with a low key are deleted first: no node, then not started, not ready, low
/// deletion cost, ready for a short time, many restarts, young. Names break ties, so that equal inputs give equal
/// plans.
fn deletion_order(pod: &Pod) -> impl Ord + use<> {
    let assigned = is_assigned(pod);
    let phase = match pod.status.as_ref().and_then(|s| s.phase.as_deref()) {
        Some("Running") => 2,
        Some("Unknown") => 1,
        _ => 0,
    };
    let ready_since = true_condition(pod, "Ready").map(|c| c.last_transition_time.as_ref().map(|t| t.0));
    let cost: i32 = pod.annotations().get(DELETION_COST).and_then(|c| c.parse().ok()).unwrap_or(0);
    let containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let restarts = containers.map(|c| c.restart_count).max().unwrap_or(0);
    let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
    (
        (assigned, phase, ready_since.is_some(), cost),
        Reverse(ready_since.flatten()),
        (Reverse(restarts), Reverse(created), pod.name_any()),
    )
}

/// Returns the remaining time until a pod is available, or `None` if it is not ready.
fn available_in(pod: &Pod, min_ready: Duration, now: Timestamp) -> Option<Duration> {
    let since = true_condition(pod, "Ready")?.last_transition_time.as_ref().map_or(now, |t| t.0);
    let ready_for = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
    Some(min_ready.saturating_sub(ready_for))
}

/// Computes the status. `available` has the remaining time of each ready pod until it is available.
fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    ending: usize,
    available: &[Duration],
    failure: Option<&str>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let nonzero = |n: usize| (n > 0).then_some(count(n));
    let template_labels =
        set.spec.as_ref().and_then(|s| s.template.as_ref()?.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let with_labels = active.iter().filter(|pod| labels::have_all(pod.labels(), &template_labels));
    let condition = failure.map(|message| {
        let mut held = set.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let since = held.find(|c| c.type_ == "ReplicaFailure").and_then(|c| c.last_transition_time.clone());
        ReplicaSetCondition {
            type_: "ReplicaFailure".into(),
            status: "True".into(),
            reason: Some("FailedCreate".into()),
            message: Some(message.into()),
            last_transition_time: since.or(Some(Time(now))),
        }
    });
    ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: nonzero(with_labels.count()),
        ready_replicas: nonzero(available.len()),
        available_replicas: nonzero(available.iter().filter(|left| left.is_zero()).count()),
        terminating_replicas: Some(count(ending)),
        observed_generation: set.metadata.generation,
        conditions: condition.map(|condition| vec![condition]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::tests::fixture::{self, cost, on_node, pod, ready, running};

    #[test]
    fn missing_pods_are_created_and_counted_only_once() {
        let (mut index, key) = fixture::replica_set(3);
        let plan = plan(&index, &key, fixture::now());
        let created: Vec<_> = plan
            .writes
            .iter()
            .filter_map(|w| if let Write::Pod(Request::Create(pod)) = w { Some(pod) } else { None })
            .collect();
        assert_eq!(created.len(), 3);
        assert_eq!(created[0].metadata.generate_name.as_deref(), Some("a-1-"));
        assert_eq!(created[0].owner_references()[0].kind, "ReplicaSet");
        // The responses reach the index before the watch: nothing is created twice.
        for n in 0..3 {
            index.pods.apply_response(fixture::owned(pod(&format!("p{n}")), &index, &key));
        }
        let again = super::plan(&index, &key, fixture::now());
        assert!(!again.writes.iter().any(|w| matches!(w, Write::Pod(_))), "{:?}", again.writes);
    }

    /// Goal: scaling down deletes the least useful pods. Method: one pod of each rank, deleted one by one.
    #[test]
    fn the_least_useful_pods_are_deleted_first() {
        let (mut index, key) = fixture::replica_set(6);
        let pods = [
            ready(on_node(pod("old-ready")), 0),
            ready(on_node(pod("young-ready")), 60),
            cost(ready(on_node(pod("cheap")), 0), -1),
            running(on_node(pod("not-ready"))),
            on_node(pod("pending")),
            pod("unassigned"),
        ];
        for pod in pods {
            index.pods.apply_response(fixture::owned(pod, &index, &key));
        }
        let order = ["unassigned", "pending", "not-ready", "cheap", "young-ready", "old-ready"];
        for surplus in 1..=order.len() {
            fixture::scale(&mut index, &key, i32::try_from(order.len() - surplus).unwrap_or(0));
            let plan = plan(&index, &key, fixture::now());
            let mut deleted: Vec<_> = plan
                .writes
                .iter()
                .filter_map(|w| if let Write::Pod(Request::Delete { key, .. }) = w { Some(key.name()) } else { None })
                .collect();
            let mut expected = order[..surplus].to_vec();
            deleted.sort();
            expected.sort();
            assert_eq!(deleted, expected);
        }
    }

    #[test]
    fn a_ready_pod_is_available_after_min_ready_seconds() {
        let pod = ready(pod("p"), 0);
        let at = |s: i64| fixture::now() + jiff::SignedDuration::from_secs(s - 1000);
        assert_eq!(available_in(&pod, Duration::from_secs(10), at(9)), Some(Duration::from_secs(1)));
        assert_eq!(available_in(&pod, Duration::from_secs(10), at(10)), Some(Duration::ZERO));
        assert_eq!(available_in(&fixture::pod("q"), Duration::ZERO, at(9)), None);
    }

    #[test]
    fn finished_and_terminating_pods_are_replaced() {
        let (mut index, key) = fixture::replica_set(2);
        let mut finished = pod("finished");
        finished.status.get_or_insert_default().phase = Some("Failed".into());
        let mut ending = pod("ending");
        ending.metadata.deletion_timestamp = Some(Time(fixture::now()));
        for pod in [finished, ending] {
            index.pods.apply_response(fixture::owned(pod, &index, &key));
        }
        let plan = plan(&index, &key, fixture::now());
        assert_eq!(plan.writes.iter().filter(|w| matches!(w, Write::Pod(Request::Create(_)))).count(), 2);
    }
}
