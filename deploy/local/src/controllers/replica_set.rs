//! Controller of ReplicaSets: keeps the desired number of pods of one template.
//!
//! Missing pods are created, at most [`BURST_MAX`] in one pass. Surplus pods are deleted, the least useful ones first
//! ([`deletion_order`]). Ended and terminating pods do not count. The status has the number of pods and of ready pods,
//! which count as available at once.
//!
//! # Limits
//!
//! There is no adoption and release of pods by labels, no spreading of deletions over nodes (upstream prefers nodes
//! with many pods of the same owner), and there are no Events. Creations have no slow start: all missing pods are
//! created at once. A rejection sets `ReplicaFailure` in the status and is retried with growing delays.

use super::index::{Index, Write, controlled_by, is_finished, owned_by, true_condition};
use super::write::Request;
use common_controller::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use std::cmp::Reverse;
use std::sync::Arc;

/// Maximum number of pods created or deleted in one pass; the next pass follows at once. A set also has at most this
/// number of pods that wait for a node: more would take memory and run no sooner.
const BURST_MAX: usize = 500;

/// Plans the writes for the ReplicaSet `key` at `now`.
pub(crate) fn plan(index: &Index, key: &ObjectKey, now: Timestamp) -> Vec<Write> {
    let Some(set) = index.replica_sets.get(key) else { return Vec::new() };
    let Some(spec) = set.spec.as_ref() else { return Vec::new() };
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
    let failure = index.create_failures.get(key).map(String::as_str);
    let status = status(set, &active, ending.len(), failure, now);
    writes.extend(Request::update_status(set.as_ref(), set.status.as_ref(), &status).map(Write::ReplicaSet));
    writes
}

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

/// Returns the sort key of a pod. Pods with a low key are deleted first: no node, then not started, not ready, ready
/// for a short time, young. Names break ties, so that equal inputs give equal plans.
fn deletion_order(pod: &Pod) -> impl Ord + use<> {
    let assigned = is_assigned(pod);
    let runs = pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    let ready_since = true_condition(pod, "Ready").map(|c| c.last_transition_time.as_ref().map(|t| t.0));
    let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
    (assigned, runs, ready_since.is_some(), Reverse(ready_since.flatten()), Reverse(created), pod.name_any())
}

fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    ending: usize,
    failure: Option<&str>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let ready = active.iter().filter(|pod| true_condition(pod, "Ready").is_some()).count();
    let ready = (ready > 0).then_some(count(ready));
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
        ready_replicas: ready,
        available_replicas: ready,
        terminating_replicas: Some(count(ending)),
        observed_generation: set.metadata.generation,
        conditions: condition.map(|condition| vec![condition]),
        ..ReplicaSetStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::fixture::{self, on_node, pod, ready, running};

    #[test]
    fn missing_pods_are_created_and_counted_only_once() {
        let (mut index, key) = fixture::replica_set(3);
        let plan = plan(&index, &key, fixture::now());
        let created: Vec<_> = plan
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
        assert!(!again.iter().any(|w| matches!(w, Write::Pod(_))), "{again:?}");
    }

    /// Goal: scaling down deletes the least useful pods. Method: one pod of each rank, deleted one by one.
    #[test]
    fn the_least_useful_pods_are_deleted_first() {
        let (mut index, key) = fixture::replica_set(5);
        let pods = [
            ready(on_node(pod("old-ready")), 0),
            ready(on_node(pod("young-ready")), 60),
            running(on_node(pod("not-ready"))),
            on_node(pod("pending")),
            pod("unassigned"),
        ];
        for pod in pods {
            index.pods.apply_response(fixture::owned(pod, &index, &key));
        }
        let order = ["unassigned", "pending", "not-ready", "young-ready", "old-ready"];
        for surplus in 1..=order.len() {
            fixture::scale(&mut index, &key, i32::try_from(order.len() - surplus).unwrap_or(0));
            let plan = plan(&index, &key, fixture::now());
            let mut deleted: Vec<_> = plan
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
        assert_eq!(plan.iter().filter(|w| matches!(w, Write::Pod(Request::Create(_)))).count(), 2);
    }
}
