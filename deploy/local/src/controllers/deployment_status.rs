//! Status of a Deployment: counts summed over its ReplicaSets, and three conditions.
//!
//! - `Available`: at least `replicas - maxUnavailable` pods are available.
//! - `Progressing`: the roll progresses or is complete. It is False with `ProgressDeadlineExceeded` after
//!   `progressDeadlineSeconds` without progress. Progress is a new set, or a change of counts in the right direction.
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
    let mut again_after = None;
    if spec.paused == Some(true) {
        conditions.set("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused");
    } else if is_complete {
        let message = format!("{subject} \"{name}\" has successfully progressed.");
        conditions.set("Progressing", "True", "NewReplicaSetAvailable", &message);
    } else {
        if rollout.created {
            conditions.progressed("NewReplicaSetCreated", "Created a new ReplicaSet");
        } else if has_progressed || conditions.get("Progressing").is_none() {
            conditions.progressed("ReplicaSetUpdated", &format!("{subject} \"{name}\" is progressing."));
        }
        again_after = deadline_left(&conditions, spec, now);
        if again_after.is_none() && conditions.get("Progressing").is_some_and(may_time_out) {
            let message = format!("{subject} \"{name}\" has timed out progressing.");
            conditions.set("Progressing", "False", "ProgressDeadlineExceeded", &message);
        }
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
    let status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: nonzero(replicas),
        updated_replicas: nonzero(updated),
        ready_replicas: nonzero(ready),
        available_replicas: nonzero(available),
        unavailable_replicas: nonzero((specified - available).max(0)),
        terminating_replicas: Some(sum(|s| s.terminating_replicas.unwrap_or(0))),
        collision_count: nonzero(old.collision_count.unwrap_or(0) + i32::from(rollout.collided)),
        conditions: Some(conditions.held),
    };
    (status, again_after)
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
