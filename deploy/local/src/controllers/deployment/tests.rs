//! Deployments over their whole life, against an index that is updated like an API server.

use super::*;
use crate::controllers::fixture::{self, created, deployment, next_version, now, patched};
use crate::controllers::replica_set;
use common_controller::key_of;
use k8s_openapi::api::apps::v1::DeploymentStatus;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

fn key() -> ObjectKey {
    ObjectKey::new("ns", "a")
}

/// A cluster in an index. Planned writes are applied at once; pods become ready on request.
struct Cluster {
    index: Index,
}

impl Cluster {
    fn new(deployment: Deployment) -> Self {
        let mut index = Index::default();
        index.deployments.apply_response(deployment);
        Self { index }
    }

    /// Runs the controllers and makes pods ready until nothing changes.
    fn roll(&mut self) {
        let is_stable = (0..1_000).any(|_| !self.step() && !self.make_one_ready());
        assert!(is_stable, "the controllers never stop writing");
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Deployment)) {
        let mut changed = Deployment::clone(self.index.deployments.get(&key()).expect("the Deployment"));
        edit(&mut changed);
        changed.metadata.resource_version = Some(next_version());
        changed.metadata.generation = changed.metadata.generation.map(|g| g + 1);
        self.index.deployments.apply_response(changed);
    }

    /// Plans and writes once for every key. Returns whether anything changed.
    fn step(&mut self) -> bool {
        let mut writes = plan(&self.index, &key(), now());
        for set in self.index.replica_sets.all() {
            writes.extend(replica_set::plan(&self.index, &key_of(set.as_ref()), now()));
        }
        let (changed, index) = (!writes.is_empty(), &mut self.index);
        for write in writes {
            match write {
                Write::Deployment(Request::Patch { key, patch, .. }) => patched(&mut index.deployments, &key, &patch),
                Write::ReplicaSet(Request::Patch { key, patch, .. }) => patched(&mut index.replica_sets, &key, &patch),
                Write::ReplicaSet(Request::Create(set)) => created(&mut index.replica_sets, *set),
                Write::ReplicaSet(Request::Delete { key, uid }) => drop(index.replica_sets.apply_deletion(&key, &uid)),
                Write::Pod(Request::Create(pod)) => created(&mut index.pods, *pod),
                Write::Pod(Request::Delete { key, uid }) => drop(index.pods.apply_deletion(&key, &uid)),
                other => panic!("not expected here: {other:?}"),
            }
        }
        changed
    }

    fn settle(&mut self) {
        assert!((0..200).any(|_| !self.step()), "the controllers do not settle");
    }

    /// Makes one pod ready that is not ready. Returns false if there is none.
    fn make_one_ready(&mut self) -> bool {
        let Some(pod) = self.index.pods.all().find(|p| p.status.is_none()).cloned() else { return false };
        let mut pod = fixture::ready(Pod::clone(&pod), 0);
        pod.metadata.resource_version = Some(next_version());
        self.index.pods.apply_response(pod);
        true
    }

    fn status(&self) -> DeploymentStatus {
        self.index.deployments.get(&key()).and_then(|d| d.status.clone()).unwrap_or_default()
    }

    fn pods(&self) -> usize {
        self.index.pods.all().count()
    }

    fn ready_pods(&self) -> usize {
        self.index.pods.all().filter(|p| p.status.is_some()).count()
    }

    fn revision(&self) -> Option<&str> {
        let deployment = self.index.deployments.get(&key()).expect("the Deployment");
        deployment.annotations().get(REVISION).map(String::as_str)
    }

    /// Reports whether all pods are of the template with this label.
    fn has_only(&self, version: &str) -> bool {
        self.index.pods.all().all(|pod| pod.labels().get("version").map(String::as_str) == Some(version))
    }

    fn condition(&self, type_: &str) -> (String, String) {
        let condition = self.status().conditions.into_iter().flatten().find(|c| c.type_ == type_).expect("set");
        (condition.status, condition.reason.unwrap_or_default())
    }
}

#[test]
fn a_deployment_at_zero_has_a_set_and_no_pods_until_it_is_scaled() {
    let mut cluster = Cluster::new(deployment(0, "1"));
    cluster.settle();
    assert_eq!((cluster.index.replica_sets.all().count(), cluster.pods()), (1, 0));
    let set = cluster.index.replica_sets.all().next().expect("a set").clone();
    assert_eq!(set.annotations().get(REVISION).map(String::as_str), Some("1"));
    assert!(set.labels().contains_key(POD_TEMPLATE_HASH));
    assert_eq!(cluster.condition("Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    assert_eq!(cluster.status().observed_generation, Some(1));
    cluster.edit(|d| d.spec.as_mut().expect("a spec").replicas = Some(2));
    cluster.settle();
    let status = cluster.status();
    let counts = [status.replicas, status.unavailable_replicas, status.updated_replicas];
    assert_eq!((counts, status.observed_generation), ([Some(2); 3], Some(2)));
    cluster.roll();
    assert_eq!((cluster.status().available_replicas, cluster.status().unavailable_replicas), (Some(2), None));
    assert_eq!(cluster.condition("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    cluster.edit(|d| d.spec.as_mut().expect("a spec").replicas = Some(0));
    cluster.settle();
    assert_eq!((cluster.pods(), cluster.status().replicas), (0, None));
}

/// Goal: a new template replaces every pod, and never exceeds the surge or the unavailability. Method: one pod becomes
/// ready each time the controllers settle; the bounds are checked after every step.
#[test]
fn a_new_template_rolls_within_its_bounds() {
    let mut cluster = Cluster::new(deployment(4, "1"));
    cluster.roll();
    cluster.edit(|d| d.spec = deployment(4, "2").spec);
    loop {
        while cluster.step() {
            assert!(cluster.pods() <= 5, "at most one more than desired, not {}", cluster.pods());
            assert!(cluster.ready_pods() >= 3, "at most one less than desired, not {}", cluster.ready_pods());
        }
        if !cluster.make_one_ready() {
            break;
        }
    }
    assert!(cluster.has_only("2"));
    assert_eq!((cluster.pods(), cluster.ready_pods()), (4, 4));
    assert_eq!(cluster.revision(), Some("2"));
    // Rollback: the first set is used again and becomes the latest revision.
    cluster.edit(|d| d.spec = deployment(4, "1").spec);
    cluster.roll();
    assert_eq!(cluster.index.replica_sets.all().count(), 2);
    assert!(cluster.has_only("1"));
    assert_eq!(cluster.revision(), Some("3"));
}

#[test]
fn recreate_waits_for_the_end_of_every_old_pod() {
    let recreate = |label: &str| {
        let mut deployment = deployment(2, label);
        let spec = deployment.spec.as_mut().expect("a spec");
        spec.strategy = serde_json::from_value(json!({"type": "Recreate"})).ok();
        deployment
    };
    let mut cluster = Cluster::new(recreate("1"));
    cluster.roll();
    cluster.edit(|d| d.spec = recreate("2").spec);
    while cluster.step() {
        assert!(cluster.has_only("1") || cluster.has_only("2"), "never both templates at once");
    }
    assert_eq!(cluster.pods(), 2);
}

#[test]
fn a_taken_name_leads_to_another_hash() {
    let mut cluster = Cluster::new(deployment(1, "1"));
    let hash = template_hash(&deployment(1, "1").spec.expect("a spec").template, 0);
    let mut other = deployment(1, "1");
    other.metadata.uid = Some("other".into());
    let mut foreign = fixture::replica_set(0).0.replica_sets.all().next().expect("a set").as_ref().clone();
    foreign.metadata.name = Some(format!("a-{hash}"));
    foreign.metadata.owner_references = Some(vec![owned_by(&other)]);
    cluster.index.replica_sets.apply_response(foreign);
    cluster.settle();
    assert_eq!(cluster.status().collision_count, Some(1));
    assert_eq!(cluster.pods(), 1);
}

#[test]
fn a_paused_deployment_is_scaled_but_not_rolled() {
    let mut cluster = Cluster::new(deployment(1, "1"));
    cluster.settle();
    cluster.edit(|d| {
        d.spec = deployment(3, "2").spec;
        d.spec.as_mut().expect("a spec").paused = Some(true);
    });
    cluster.settle();
    assert_eq!(cluster.pods(), 3);
    assert!(cluster.has_only("1"));
}

#[test]
fn old_sets_beyond_the_history_limit_are_deleted() {
    let with_history = |label: &str| {
        let mut deployment = deployment(1, label);
        deployment.spec.as_mut().expect("a spec").revision_history_limit = Some(1);
        deployment
    };
    let mut cluster = Cluster::new(with_history("1"));
    cluster.roll();
    for label in ["2", "3", "4"] {
        cluster.edit(|d| d.spec = with_history(label).spec);
        cluster.roll();
    }
    assert_eq!(cluster.index.replica_sets.all().count(), 2, "the current one and one more");
}
