//! Deletion: at once, after a grace period, or when the last finalizer is removed.
//!
//! Only pods have a grace period: a pod on a node stays, with a deletionTimestamp, until its node deletes it again with
//! grace period 0. Propagation is a finalizer (`orphan`, `foregroundDeletion`) that the collector handles.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};

use super::core::Api;
use super::crd;
use super::fields::{self, number, text};
use super::meta::{self, metadata};
use super::query::DeleteOptions;
use super::query::Selector;
use super::resource::{Resource, Target};
use super::status::Result;
use super::store::{NAMESPACES, Object, PODS};
use super::write::is_finished;

/// Finalizer of an owner whose dependents are orphaned.
pub(crate) const ORPHAN: &str = "orphan";
/// Finalizer of an owner that waits for its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Maximum grace period in seconds: a hundred years, since a timestamp cannot hold every number of seconds.
const GRACE_MAX: i64 = 100 * 365 * 24 * 3600;

#[derive(Debug)]
pub(crate) struct Deleted {
    /// Current or last state of the object.
    pub(crate) object: Arc<Object>,
    pub(crate) gone: bool,
}

impl Api {
    /// Deletes an object, or starts its deletion.
    pub(crate) fn delete(&self, target: Target<'_>, options: &DeleteOptions) -> Result<Deleted> {
        let resource = target.resource;
        let key = target.key();
        loop {
            let current = self.store.get(&resource.table, &key).ok_or_else(|| target.not_found())?;
            if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != current.text("/metadata/uid")) {
                return Err(target.conflict(&format!(
                    "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                    current.text("/metadata/uid")
                )));
            }
            if let Some(version) = options.version.as_deref().filter(|v| v.parse() != Ok(current.version)) {
                return Err(target.conflict(&format!(
                    "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
                    current.version
                )));
            }
            let value = mark(resource, &current.value, options);
            let gone = is_finished(resource, &value);
            if value == current.value && !gone {
                return Ok(Deleted { object: current, gone });
            }
            if options.dry_run {
                return Ok(Deleted { object: Object::new(value, current.version), gone });
            }
            // Watchers of pods see the mark and then the deletion, as from a node. Other objects are deleted directly.
            let marked = if !gone || &*resource.table == PODS {
                let Ok(marked) = self.commit(target, Some(current.version), Some(value)) else { continue };
                marked
            } else {
                current
            };
            if !gone || self.commit(target, Some(marked.version), None).is_ok() {
                return Ok(Deleted { object: marked, gone });
            }
        }
    }

    /// Deletes the selected objects and returns them.
    pub(crate) fn delete_collection(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        selector: &Selector,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Object>>> {
        let (objects, _) = self.store.list(&resource.table, &resource.prefix(namespace));
        let mut deleted = Vec::new();
        for object in objects.into_iter().filter(|object| selector.matches(&object.value)) {
            match self.delete(Target::new(resource, &object), options) {
                Ok(done) => deleted.push(done.object),
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }
}

/// Returns the object with the fields that a deletion sets.
fn mark(resource: &Resource, old: &Value, options: &DeleteOptions) -> Value {
    let mut value = old.clone();
    propagate(&mut value, options.propagation.as_ref());
    let is_pod = &*resource.table == PODS;
    let grace = if is_pod { grace(old, options.grace) } else { 0 };
    let previous = number(old, "/metadata/deletionGracePeriodSeconds");
    let due = text(old, "/metadata/deletionTimestamp").parse::<Timestamp>().ok();
    // The grace period of a pod can be shortened.
    if due.is_some() && (!is_pod || previous.is_some_and(|previous| grace >= previous)) {
        return value;
    }
    let begun = due.map_or_else(Timestamp::now, |due| due - SignedDuration::from_secs(previous.unwrap_or(0)));
    let fields = metadata(&mut value);
    fields.insert("deletionTimestamp".into(), meta::time(begun + SignedDuration::from_secs(grace)).into());
    fields.insert("deletionGracePeriodSeconds".into(), grace.into());
    if let Some(generation) = number(old, "/metadata/generation").filter(|_| due.is_none()) {
        fields.insert("generation".into(), (generation + 1).into());
    }
    match &*resource.table {
        NAMESPACES => {
            fields.remove("deletionGracePeriodSeconds");
            value["status"] = json!({"phase": "Terminating"});
        }
        crd::TABLE => crd::terminating(&mut value),
        _ => {}
    }
    value
}

/// Returns the grace period of a pod in seconds. It is 0 if no node runs the pod or the pod has ended.
fn grace(pod: &Value, requested: Option<i64>) -> i64 {
    let own = number(pod, "/spec/terminationGracePeriodSeconds").unwrap_or(30);
    let idle = text(pod, "/spec/nodeName").is_empty() || matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    match requested.unwrap_or(own) {
        _ if idle => 0,
        grace if grace < 0 => 1,
        grace => grace.min(GRACE_MAX),
    }
}

fn propagate(value: &mut Value, policy: Option<&PropagationPolicy>) {
    let Some(policy) = policy else { return };
    let fields = metadata(value);
    let finalizers = fields::list(fields, "finalizers");
    finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    match policy {
        PropagationPolicy::Background => {}
        PropagationPolicy::Foreground => finalizers.push(FOREGROUND.into()),
        PropagationPolicy::Orphan => finalizers.push(ORPHAN.into()),
    }
    meta::tidy(fields);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::builtin;

    /// Goal: a grace period beyond all timestamps becomes the maximum. It can be shortened later.
    #[test]
    fn a_grace_period_beyond_all_timestamps_is_limited() {
        let pods = builtin::registry().get("", "v1", "pods").expect("pods");
        let options = |grace| DeleteOptions { grace, ..DeleteOptions::default() };
        let seconds_left = |pod: &Value| {
            let end: Timestamp = text(pod, "/metadata/deletionTimestamp").parse().expect("a time");
            end.duration_since(Timestamp::now()).as_secs()
        };
        for (own, requested) in [(i64::MAX, None), (30, Some(i64::MAX)), (i64::MIN, Some(GRACE_MAX))] {
            let spec = json!({"nodeName": "n", "terminationGracePeriodSeconds": own});
            let pod = json!({"metadata": {"name": "p"}, "spec": spec});
            let terminating = mark(&pods, &pod, &options(requested));
            assert_eq!(number(&terminating, "/metadata/deletionGracePeriodSeconds"), Some(GRACE_MAX));
            assert!((GRACE_MAX - 60..=GRACE_MAX).contains(&seconds_left(&terminating)));
            let shortened = mark(&pods, &terminating, &options(Some(5)));
            assert_eq!(number(&shortened, "/metadata/deletionGracePeriodSeconds"), Some(5));
            assert!((-60..=5).contains(&seconds_left(&shortened)));
        }
    }
}
