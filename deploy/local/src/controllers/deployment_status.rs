//! Status of a Deployment: counts summed over its ReplicaSets, and three conditions.
//!
//! - `Available`: at least `replicas - maxUnavailable` pods are available.
//! - `Progressing`: the roll progresses or is complete. It is False with `ProgressDeadlineExceeded` after
//!   `progressDeadlineSeconds` without progress. A new set is progress, and so is a change of counts in the right
//!   direction.
//! - `ReplicaFailure`: copied from the newest set while the API server rejects its pods.
//!
//! The transition time of a condition changes only with its status; its update time also changes with progress of the
//! roll.

use super::deployment::Rollout;
use super::rolling::{bounds_of, is_recreate};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// Returns the desired replicas of a set.
pub(crate) fn replicas_of(set: &Arc<ReplicaSet>) -> i32 {
    set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

/// Returns the status at `now`, and the delay until a deadline must be checked.
pub(super) fn status(rollout: &Rollout<'_>, now: Timestamp) -> (DeploymentStatus, Option<Duration>) {
    let Rollout { deployment, spec, newest, .. } = *rollout;
    let was = deployment.status.clone().unwrap_or_default();
    let desired = spec.replicas.unwrap_or(1);
    let sets = || newest.into_iter().chain(rollout.old);
    let sum = |count: fn(&ReplicaSetStatus) -> i32| -> i32 {
        sets().filter_map(|set| set.status.as_ref()).map(count).fold(0, i32::saturating_add)
    };
    let some = |n: i32| (n != 0).then_some(n);
    let specified = sets().map(replicas_of).fold(0, i32::saturating_add);
    let available = sum(|s| s.available_replicas.unwrap_or(0));
    let updated = newest.and_then(|set| set.status.as_ref()).map_or(0, |s| s.replicas);
    let collisions = was.collision_count.unwrap_or(0) + i32::from(rollout.collided);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(|s| s.replicas)),
        updated_replicas: some(updated),
        ready_replicas: some(sum(|s| s.ready_replicas.unwrap_or(0))),
        available_replicas: some(available),
        unavailable_replicas: some((specified - available).max(0)),
        terminating_replicas: Some(sum(|s| s.terminating_replicas.unwrap_or(0))),
        collision_count: some(collisions),
        conditions: None,
    };
    let mut conditions = Conditions { held: was.conditions.clone().unwrap_or_default(), now };

    let is_all_needed = desired == 0 || is_recreate(spec);
    let unavailable_max = if is_all_needed { 0 } else { bounds_of(spec).unavailable };
    if available >= desired - unavailable_max {
        conditions.set("Available", true, "MinimumReplicasAvailable", "Deployment has minimum availability.");
    } else {
        let message = "Deployment does not have minimum availability.";
        conditions.set("Available", false, "MinimumReplicasUnavailable", message);
    }

    let name = newest.map_or_else(|| deployment.name_any(), |set| set.name_any());
    let subject = if newest.is_some() { "ReplicaSet" } else { "Deployment" };
    let replicas = status.replicas.unwrap_or(0);
    let complete = newest.is_some() && updated == desired && replicas == desired && available == desired;
    let old_before = was.replicas.unwrap_or(0) - was.updated_replicas.unwrap_or(0);
    let moved = updated > was.updated_replicas.unwrap_or(0)
        || replicas - updated < old_before
        || status.ready_replicas > was.ready_replicas
        || available > was.available_replicas.unwrap_or(0);
    let again = if spec.paused == Some(true) {
        conditions.put("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused");
        None
    } else if rollout.created {
        conditions.set("Progressing", true, "NewReplicaSetCreated", "Created a new ReplicaSet");
        conditions.touch("Progressing");
        None
    } else if complete {
        let message = format!("{subject} \"{name}\" has successfully progressed.");
        conditions.set("Progressing", true, "NewReplicaSetAvailable", &message);
        None
    } else if moved || conditions.get("Progressing").is_none() {
        conditions.set("Progressing", true, "ReplicaSetUpdated", &format!("{subject} \"{name}\" is progressing."));
        conditions.touch("Progressing");
        deadline_left(&conditions, spec, now)
    } else {
        let left = deadline_left(&conditions, spec, now);
        if left.is_none() && conditions.get("Progressing").is_some_and(may_time_out) {
            let message = format!("{subject} \"{name}\" has timed out progressing.");
            conditions.set("Progressing", false, "ProgressDeadlineExceeded", &message);
        }
        left
    };

    let failure = newest
        .and_then(|set| set.status.as_ref()?.conditions.as_ref())
        .and_then(|all| all.iter().find(|c| c.type_ == "ReplicaFailure" && c.status == "True"));
    match failure {
        Some(failure) => conditions.set(
            "ReplicaFailure",
            true,
            failure.reason.as_deref().unwrap_or("FailedCreate"),
            failure.message.as_deref().unwrap_or_default(),
        ),
        None => conditions.held.retain(|c| c.type_ != "ReplicaFailure"),
    }
    status.conditions = Some(conditions.held);
    (status, again)
}

/// Reports whether the roll may still exceed its deadline: it is neither complete nor timed out.
fn may_time_out(progressing: &DeploymentCondition) -> bool {
    !matches!(progressing.reason.as_deref(), Some("NewReplicaSetAvailable" | "ProgressDeadlineExceeded"))
}

/// Returns the time until the roll exceeds its deadline. `None` if it cannot exceed it or already has.
fn deadline_left(conditions: &Conditions, spec: &DeploymentSpec, now: Timestamp) -> Option<Duration> {
    let progressing = conditions.get("Progressing").filter(|c| may_time_out(c))?;
    let deadline = i64::from(spec.progress_deadline_seconds.unwrap_or(600));
    if deadline >= i64::from(i32::MAX) {
        return Some(Duration::from_secs(u64::from(u32::MAX))); // Kubernetes' value for "never".
    }
    let since = progressing.last_update_time.as_ref().map_or(now, |t| t.0);
    let end = since.checked_add(jiff::SignedDuration::from_secs(deadline)).ok()?;
    Duration::try_from(end.duration_since(now)).ok().filter(|left| !left.is_zero())
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
    fn set(&mut self, type_: &str, status: bool, reason: &str, message: &str) {
        self.put(type_, if status { "True" } else { "False" }, reason, message);
    }

    fn put(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let now = Some(Time(self.now));
        let new = DeploymentCondition {
            type_: type_.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_update_time: now.clone(),
            last_transition_time: now,
        };
        match self.held.iter_mut().find(|c| c.type_ == type_) {
            Some(held) if held.status == status && held.reason.as_deref() == Some(reason) => {}
            Some(held) => {
                let since = held.last_transition_time.take().filter(|_| held.status == status);
                *held = DeploymentCondition { last_transition_time: since.or(new.last_transition_time.clone()), ..new };
            }
            None => self.held.push(new),
        }
    }

    /// Records progress of the roll.
    fn touch(&mut self, type_: &str) {
        let now = self.now;
        if let Some(condition) = self.held.iter_mut().find(|c| c.type_ == type_) {
            condition.last_update_time = Some(Time(now));
        }
    }
}
