//! Controller of Deployments: one ReplicaSet per template, all scaled to zero except the newest.
//!
//! The set of the newest template is found by comparing templates, or created as `NAME-HASH`. Then the strategy moves
//! the replicas: `RollingUpdate` within bounds ([`super::rolling`]), `Recreate` after every old pod has ended. Old sets
//! beyond `revisionHistoryLimit` are deleted once the roll is complete. A paused Deployment is scaled but not rolled.
//!
//! The status has counts summed over the ReplicaSets, and three conditions:
//!
//! - `Available`: at least `replicas - maxUnavailable` pods are available.
//! - `Progressing`: the roll progresses or is complete. Progress is a new set, or a change of counts in the right
//!   direction.
//! - `ReplicaFailure`: copied from the newest set while the API server rejects its pods.
//!
//! The transition time of a condition changes only with its status; its update time also changes with progress of the
//! roll.
//!
//! # Limits
//!
//! There are no Events, no `minReadySeconds` and `progressDeadlineSeconds`, no adoption of orphans by labels, and no
//! rollbacks by annotation (removed from Kubernetes long ago; `kubectl rollout undo` patches the template).

use super::index::{Index, Write, controlled_by, is_finished, owned_by};
use super::rolling::{Set, bounds_of, is_recreate, new_replicas, old_replicas};
use super::write::Request;
use common_controller::{ObjectKey, key_of};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec, ReplicaSetStatus,
};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotation on Deployments and ReplicaSets with the revision of the template.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotations of a Deployment that are not copied to its ReplicaSets.
const NOT_COPIED: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", REVISION];

/// Plans the writes for the Deployment `key` at `now`.
pub(crate) fn plan(index: &Index, key: &ObjectKey, now: Timestamp) -> Vec<Write> {
    let Some(deployment) = index.deployments.get(key) else { return Vec::new() };
    let Some(spec) = deployment.spec.as_ref() else { return Vec::new() };
    let mut writes = Vec::new();
    let mut sets: Vec<_> = controlled_by(&index.replica_sets, deployment.as_ref()).cloned().collect();
    sets.sort_by_key(|set| (set.metadata.creation_timestamp.as_ref().map(|t| t.0), set.name_any()));
    let newest = sets.iter().position(|set| has_template(set, &spec.template)).map(|at| sets.remove(at));
    let mut rollout =
        Rollout { index, deployment, spec, newest: newest.as_ref(), old: &sets, created: false, collided: false };
    if deployment.metadata.deletion_timestamp.is_none() {
        writes.extend(rollout.advance());
    }
    let status = status(&rollout, now);
    writes.extend(
        Request::update_status(deployment.as_ref(), deployment.status.as_ref(), &status).map(Write::Deployment),
    );
    writes
}

/// A Deployment with its ReplicaSets.
pub(super) struct Rollout<'a> {
    index: &'a Index,
    pub(super) deployment: &'a Arc<Deployment>,
    pub(super) spec: &'a DeploymentSpec,
    /// Set of the current template, if there is one.
    pub(super) newest: Option<&'a Arc<ReplicaSet>>,
    /// Old sets, oldest first.
    pub(super) old: &'a [Arc<ReplicaSet>],
    /// True if the set of the current template is being created.
    pub(super) created: bool,
    /// True if the name of that set is taken.
    pub(super) collided: bool,
}

impl Rollout<'_> {
    /// Plans the next step.
    fn advance(&mut self) -> Vec<Write> {
        if self.spec.paused == Some(true) {
            return self.scale_active();
        }
        if is_recreate(self.spec) {
            let emptied: Vec<_> = self.old.iter().filter_map(|set| self.scale(set, 0)).collect();
            let has_pods =
                |set: &Arc<ReplicaSet>| controlled_by(&self.index.pods, set.as_ref()).any(|pod| !is_finished(pod));
            if !emptied.is_empty() || self.old.iter().any(has_pods) {
                return emptied;
            }
        }
        let Some(newest) = self.newest else { return self.create() };
        // A set that is in use again (a rollback) becomes the latest revision.
        let revision = revision_of(newest).max(self.next_revision());
        let mut writes: Vec<_> = self.annotate_revision(revision).into_iter().collect();
        let grown = self.new_replicas(replicas_of(newest));
        if let Some(write) = self.update_newest(newest, grown, revision) {
            writes.push(write);
            if grown != replicas_of(newest) {
                return writes;
            }
        }
        let old: Vec<Set> = self.old.iter().map(as_set).collect();
        let shrunk = old_replicas(self.desired(), bounds_of(self.spec), as_set(newest), &old);
        let shrinking = self.old.iter().zip(&shrunk).filter_map(|(set, replicas)| self.scale(set, *replicas));
        writes.extend(shrinking);
        writes.extend(self.delete_expired(newest));
        writes
    }

    fn desired(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Returns the desired replicas of the new set, which has `current` replicas now.
    fn new_replicas(&self, current: i32) -> i32 {
        if is_recreate(self.spec) {
            return self.desired();
        }
        // Count pods that an old set still has to delete, or there would be too many for a moment. (Upstream counts the
        // desired replicas of each set.)
        let pods = |set: &Arc<ReplicaSet>| replicas_of(set).max(set.status.as_ref().map_or(0, |s| s.replicas));
        let old = self.old.iter().map(pods).fold(0, i32::saturating_add);
        new_replicas(self.desired(), bounds_of(self.spec), current, old.saturating_add(current))
    }

    /// Scales the only active set of a paused Deployment, or else the newest set, to the desired replicas.
    fn scale_active(&self) -> Vec<Write> {
        let mut active = self.old.iter().chain(self.newest).filter(|set| replicas_of(set) > 0);
        match (active.next(), active.next()) {
            (Some(only), None) => self.scale(only, self.desired()).into_iter().collect(),
            (None, _) => self.newest.and_then(|set| self.scale(set, self.desired())).into_iter().collect(),
            _ => Vec::new(), // Paused during a roll: no change.
        }
    }

    fn create(&mut self) -> Vec<Write> {
        let collisions = self.deployment.status.as_ref().and_then(|s| s.collision_count).unwrap_or(0);
        let hash = template_hash(&self.spec.template, collisions);
        let name = format!("{}-{hash}", self.deployment.name_any());
        let namespace = self.deployment.namespace().unwrap_or_default();
        if self.index.replica_sets.get(&ObjectKey::new(namespace, name.clone())).is_some() {
            self.collided = true; // Another template or owner has the name. The next pass uses another hash.
            return Vec::new();
        }
        self.created = true;
        let mut template = self.spec.template.clone();
        let meta = template.metadata.get_or_insert_default();
        meta.labels.get_or_insert_default().insert(POD_TEMPLATE_HASH.into(), hash.clone());
        let labels = meta.labels.clone();
        let mut selector = self.spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(POD_TEMPLATE_HASH.into(), hash);
        let revision = self.next_revision();
        let mut annotations = self.annotations();
        annotations.insert(REVISION.into(), revision.to_string());
        let set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: self.deployment.namespace(),
                labels,
                annotations: Some(annotations),
                owner_references: Some(vec![owned_by(self.deployment.as_ref())]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(self.new_replicas(0)),
                selector,
                template: Some(template),
                ..ReplicaSetSpec::default()
            }),
            status: None,
        };
        let mut writes = vec![Write::ReplicaSet(Request::Create(Box::new(set)))];
        writes.extend(self.annotate_revision(revision));
        writes
    }

    /// Returns the annotations of the Deployment that its sets get.
    fn annotations(&self) -> BTreeMap<String, String> {
        let own = self.deployment.annotations().iter().filter(|(name, _)| !NOT_COPIED.contains(&name.as_str()));
        own.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn next_revision(&self) -> i64 {
        self.old.iter().map(revision_of).max().unwrap_or(0) + 1
    }

    /// Returns the write that sets the Deployment's revision annotation, if it differs. The patch uses the status
    /// subresource, which accepts annotations too: in a normal patch they would change the Deployment's generation.
    fn annotate_revision(&self, revision: i64) -> Option<Write> {
        let revision = revision.to_string();
        let is_new = self.deployment.annotations().get(REVISION) != Some(&revision);
        let patch = json!({"metadata": {"annotations": {REVISION: revision}}});
        is_new.then(|| Write::Deployment(Request::Patch { key: key_of(&**self.deployment), status: true, patch }))
    }

    /// Returns the write that updates annotations and replicas of the newest set, if they differ.
    fn update_newest(&self, newest: &Arc<ReplicaSet>, replicas: i32, revision: i64) -> Option<Write> {
        let mut changed = ReplicaSet::clone(newest);
        changed.annotations_mut().extend(self.annotations());
        changed.annotations_mut().insert(REVISION.into(), revision.to_string());
        if let Some(spec) = &mut changed.spec {
            spec.replicas = Some(replicas);
        }
        Request::update(newest.as_ref(), &changed).map(Write::ReplicaSet)
    }

    /// Returns the write that scales `set` to `replicas`, if they differ.
    fn scale(&self, set: &Arc<ReplicaSet>, replicas: i32) -> Option<Write> {
        let patch = json!({"spec": {"replicas": replicas}});
        let request = Request::Patch { key: key_of(&**set), status: false, patch };
        (replicas_of(set) != replicas).then_some(Write::ReplicaSet(request))
    }

    /// Returns the deletions of old sets beyond the history limit, once the roll is complete.
    fn delete_expired(&self, newest: &Arc<ReplicaSet>) -> Vec<Write> {
        let limit = usize::try_from(self.spec.revision_history_limit.unwrap_or(10)).unwrap_or(usize::MAX);
        let complete = as_set(newest).available >= self.desired() && self.old.iter().all(|set| replicas_of(set) == 0);
        let surplus = if complete { self.old.len().saturating_sub(limit) } else { 0 };
        let mut oldest: Vec<_> = self.old.iter().collect();
        oldest.sort_by_key(|set| revision_of(set));
        oldest.truncate(surplus);
        oldest.retain(|set| {
            set.status.as_ref().is_none_or(|s| s.replicas == 0) && set.metadata.deletion_timestamp.is_none()
        });
        oldest.into_iter().map(|set| Write::ReplicaSet(Request::delete(set.as_ref()))).collect()
    }
}

/// Reports whether `set` has this template, ignoring its own hash label.
fn has_template(set: &ReplicaSet, template: &PodTemplateSpec) -> bool {
    let without_hash = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        if let Some(labels) = template.metadata.as_mut().and_then(|m| m.labels.as_mut()) {
            labels.remove(POD_TEMPLATE_HASH);
        }
        template
    };
    let own = set.spec.as_ref().and_then(|s| s.template.as_ref());
    own.is_some_and(|own| without_hash(own) == without_hash(template))
}

fn revision_of(set: &Arc<ReplicaSet>) -> i64 {
    set.annotations().get(REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
}

fn as_set(set: &Arc<ReplicaSet>) -> Set {
    let available = set.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0);
    Set { replicas: replicas_of(set), available }
}

#[cfg(test)]
mod tests;

/// Label on a Deployment's ReplicaSets and pods.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Letters except vowels, and digits that do not look like vowels.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns a short name of a pod template: FNV-1a over its JSON, with fields in a fixed order, and the number of
/// collisions. As in Kubernetes, its letters form no words. The values differ from those of Kubernetes, which is harmless:
/// an existing ReplicaSet is recognized by its template, not by its hash.
fn template_hash(template: &PodTemplateSpec, collisions: i32) -> String {
    let json = serde_json::to_string(template).unwrap_or_default();
    let bytes = json.bytes().chain(collisions.to_be_bytes().into_iter().filter(|_| collisions > 0));
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

fn replicas_of(set: &Arc<ReplicaSet>) -> i32 {
    set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

fn status(rollout: &Rollout<'_>, now: Timestamp) -> DeploymentStatus {
    let Rollout { deployment, spec, newest, .. } = *rollout;
    let old = deployment.status.clone().unwrap_or_default();
    let desired = spec.replicas.unwrap_or(1);
    let sets = || newest.into_iter().chain(rollout.old);
    let sum = |count: fn(&ReplicaSetStatus) -> i32| -> i32 {
        sets().filter_map(|set| set.status.as_ref()).map(count).fold(0, i32::saturating_add)
    };
    let specified = sets().map(replicas_of).fold(0, i32::saturating_add);
    let available = sum(|s| s.available_replicas.unwrap_or(0));
    let updated = newest.and_then(|set| set.status.as_ref()).map_or(0, |s| s.replicas);
    let mut conditions = Conditions { held: old.conditions.clone().unwrap_or_default(), now };

    let is_all_needed = desired == 0 || is_recreate(spec);
    let unavailable_max = if is_all_needed { 0 } else { bounds_of(spec).unavailable };
    if available >= desired - unavailable_max {
        conditions.set("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
    } else {
        let message = "Deployment does not have minimum availability.";
        conditions.set("Available", "False", "MinimumReplicasUnavailable", message);
    }

    let name = newest.map_or_else(|| deployment.name_any(), |set| set.name_any());
    let subject = if newest.is_some() { "ReplicaSet" } else { "Deployment" };
    let (replicas, ready) = (sum(|s| s.replicas), sum(|s| s.ready_replicas.unwrap_or(0)));
    let is_complete = newest.is_some() && [updated, replicas, available] == [desired; 3];
    let has_progressed = updated > old.updated_replicas.unwrap_or(0)
        || replicas - updated < old.replicas.unwrap_or(0) - old.updated_replicas.unwrap_or(0)
        || ready > old.ready_replicas.unwrap_or(0)
        || available > old.available_replicas.unwrap_or(0);
    if spec.paused == Some(true) {
        conditions.set("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused");
    } else if is_complete {
        let message = format!("{subject} \"{name}\" has successfully progressed.");
        conditions.set("Progressing", "True", "NewReplicaSetAvailable", &message);
    } else if rollout.created {
        conditions.progressed("NewReplicaSetCreated", "Created a new ReplicaSet");
    } else if has_progressed || conditions.get("Progressing").is_none() {
        conditions.progressed("ReplicaSetUpdated", &format!("{subject} \"{name}\" is progressing."));
    }

    let failure = newest
        .and_then(|set| set.status.as_ref()?.conditions.as_ref())
        .and_then(|all| all.iter().find(|c| c.type_ == "ReplicaFailure" && c.status == "True"));
    match failure {
        Some(failure) => {
            let reason = failure.reason.as_deref().unwrap_or("FailedCreate");
            conditions.set("ReplicaFailure", "True", reason, failure.message.as_deref().unwrap_or_default());
        }
        None => conditions.held.retain(|c| c.type_ != "ReplicaFailure"),
    }
    let nonzero = |n: i32| (n != 0).then_some(n);
    DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: nonzero(replicas),
        updated_replicas: nonzero(updated),
        ready_replicas: nonzero(ready),
        available_replicas: nonzero(available),
        unavailable_replicas: nonzero((specified - available).max(0)),
        collision_count: nonzero(old.collision_count.unwrap_or(0) + i32::from(rollout.collided)),
        terminating_replicas: Some(sum(|s| s.terminating_replicas.unwrap_or(0))),
        conditions: Some(conditions.held),
    }
}

/// Conditions under construction.
struct Conditions {
    held: Vec<DeploymentCondition>,
    now: Timestamp,
}

impl Conditions {
    fn get(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.held.iter().find(|c| c.type_ == type_)
    }

    /// Sets a condition. Nothing changes if status and reason are the same.
    fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) -> &mut DeploymentCondition {
        let now = Some(Time(self.now));
        let index = self.held.iter().position(|c| c.type_ == type_).unwrap_or_else(|| {
            self.held.push(DeploymentCondition { type_: type_.into(), ..DeploymentCondition::default() });
            self.held.len() - 1
        });
        let held = &mut self.held[index];
        if held.status != status {
            held.last_transition_time.clone_from(&now);
        }
        if held.status != status || held.reason.as_deref() != Some(reason) {
            held.status = status.into();
            (held.reason, held.message) = (Some(reason.into()), Some(message.into()));
            held.last_update_time = now;
        }
        held
    }

    /// Records progress of the roll.
    fn progressed(&mut self, reason: &str, message: &str) {
        let now = Time(self.now);
        self.set("Progressing", "True", reason, message).last_update_time = Some(now);
    }
}
