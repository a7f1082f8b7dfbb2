//! Garbage collection: dependents, contents of namespaces, objects of deleted definitions, and old Events.
//!
//! Each pass examines all objects of one version, and takes the next step of each deletion. The store requests a pass
//! after every change that may need one, so a pass that changes something leads to another. A failed pass is repeated.
//! The collector runs in the server's process and writes through the same checks as clients.
//!
//! An object is deleted if none of its owners exists; otherwise missing owners are removed from it. With
//! `foregroundDeletion`, an owner waits for blocking dependents. With `orphan`, it releases them. An Event is deleted
//! [`EVENT_LIFE`] after it last happened, as in Kubernetes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common_runtime::failure_log::FailureLog;
use jiff::{SignedDuration, Timestamp};
use kube::api::PropagationPolicy;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, timeout};

use super::core::Api;
use super::crd;
use super::delete::{FOREGROUND, ORPHAN};
use super::fields::{self, items, text};
use super::meta::metadata;
use super::query::{DeleteOptions, WriteOptions};
use super::resource::{Resource, Target};
use super::status::Result;
use super::store::{NAMESPACES, Object, StoreKey};
use super::write::Part;

/// Duration of the pause after a pass, as a multiple of the pass. It limits the collector to a tenth of a core.
const PAUSE: u32 = 9;
/// Maximum of that pause, and the pause after a failed pass. On a busy machine a pass mostly waits for the processor,
/// and deletions must not wait for long.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Lifetime of an Event, as in Kubernetes. No client deletes Events, so a cluster would accumulate them.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Interval of the search for old Events.
const EVENT_PERIOD: Duration = Duration::from_secs(60);
const EVENTS: &str = "/events";

/// Runs the collector until the server shuts down.
pub(crate) async fn run(api: Arc<Api>) {
    let mut failures = FailureLog::for_operation("the garbage collection");
    let mut expiries = tokio::time::interval(EVENT_PERIOD);
    expiries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = api.shutdown.cancelled() => return,
            () = api.store.collection_requested() => {}
            _ = expiries.tick() => {}
        }
        let begun = Instant::now();
        let pause = match api.collect_garbage(Timestamp::now()).await {
            Ok(()) => {
                failures.recovered();
                (begun.elapsed() * PAUSE).min(PAUSE_MAX)
            }
            Err(error) => {
                failures.failed(&error.body["message"]);
                api.store.request_collection();
                PAUSE_MAX
            }
        };
        if timeout(pause, api.shutdown.cancelled()).await.is_ok() {
            return;
        }
    }
}

/// An object with its table and key.
type Entry = (StoreKey, Arc<Object>);

/// All objects at one version, and the references between them.
struct Graph<'a> {
    objects: &'a [Entry],
    by_uid: HashMap<&'a str, &'a Object>,
    /// Dependents by the uid of their owner.
    dependents: HashMap<&'a str, Vec<&'a Entry>>,
}

impl<'a> Graph<'a> {
    fn new(objects: &'a [Entry]) -> Self {
        let by_uid = objects.iter().map(|(_, object)| (object.text("/metadata/uid"), &**object)).collect();
        let mut dependents: HashMap<_, Vec<_>> = HashMap::new();
        for entry in objects {
            for owner in entry.1.owners() {
                dependents.entry(text(owner, "/uid")).or_default().push(entry);
            }
        }
        Self { objects, by_uid, dependents }
    }

    fn dependents_of(&self, uid: &str) -> &[&'a Entry] {
        self.dependents.get(uid).map(Vec::as_slice).unwrap_or_default()
    }

    /// Reports whether an owner exists and waits for its dependents.
    fn waits(&self, uid: &str) -> bool {
        self.by_uid.get(uid).is_some_and(|owner| owner.is_terminating() && has_finalizer(owner, FOREGROUND))
    }

    /// Reports whether an owner exists and keeps its dependents.
    fn holds(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid) && !self.waits(uid)
    }
}

impl Api {
    /// Runs one pass. Returns the first error, after all objects.
    async fn collect_garbage(&self, now: Timestamp) -> Result<()> {
        let objects = self.store.snapshot();
        let graph = Graph::new(&objects);
        let mut outcome = Ok(());
        for entry in &objects {
            let ((table, _), object) = entry;
            let is_old =
                || &**table == EVENTS && last_of(object).is_some_and(|last| now.duration_since(last) > EVENT_LIFE);
            if !object.is_terminating() && object.owners().is_empty() && !is_old() {
                continue;
            }
            outcome = outcome.and(self.with_target(entry, |target, object| match object.is_terminating() {
                true => self.continue_deletion(&graph, target, object),
                false if object.owners().is_empty() => self.collect(target, object, None),
                false => self.examine_owners(&graph, target, object),
            }));
            tokio::task::yield_now().await;
        }
        outcome
    }

    /// Calls `act` with an object, unless its resource is gone.
    fn with_target(
        &self,
        ((table, _), object): &Entry,
        act: impl FnOnce(Target<'_>, &Object) -> Result<()>,
    ) -> Result<()> {
        let resource: Option<Arc<Resource>> = self.registry.load().by_table(table);
        resource.map_or(Ok(()), |resource| act(Target::new(&resource, object), object))
    }

    fn continue_deletion(&self, graph: &Graph<'_>, target: Target<'_>, object: &Object) -> Result<()> {
        let uid = object.text("/metadata/uid");
        match &*target.resource.table {
            NAMESPACES => {
                let prefix = format!("{}/", target.name);
                match self.delete_all(graph, |(_, key)| key.starts_with(&prefix))? {
                    true => Ok(()),
                    false => self.edit(target, |namespace| namespace["spec"]["finalizers"] = Value::Array(Vec::new())),
                }
            }
            crd::TABLE => {
                let contents = crd::table_of(&object.value);
                match self.delete_all(graph, |(table, _)| **table == *contents)? {
                    true => Ok(()),
                    false => self.remove_finalizer(target, crd::FINALIZER),
                }
            }
            _ if has_finalizer(object, ORPHAN) => {
                for dependent in graph.dependents_of(uid) {
                    self.with_target(dependent, |target, _| self.remove_owners(target, |owner| owner == uid))?;
                }
                self.remove_finalizer(target, ORPHAN)
            }
            _ if has_finalizer(object, FOREGROUND) => {
                let blocks = |owner: &Value| text(owner, "/uid") == uid && owner["blockOwnerDeletion"] == true;
                let is_blocked = graph.dependents_of(uid).iter().any(|(_, object)| object.owners().iter().any(blocks));
                if is_blocked { Ok(()) } else { self.remove_finalizer(target, FOREGROUND) }
            }
            _ => Ok(()),
        }
    }

    /// Examines an object with owners: deletes it, or removes its missing owners.
    fn examine_owners(&self, graph: &Graph<'_>, target: Target<'_>, object: &Object) -> Result<()> {
        let owners: Vec<&str> = object.owners().iter().map(|owner| text(owner, "/uid")).collect();
        match owners.iter().filter(|uid| graph.holds(uid)).count() {
            // If an owner waits in the foreground, this object must also wait for its own dependents.
            0 => {
                let awaited = owners.iter().any(|uid| graph.waits(uid))
                    && !graph.dependents_of(object.text("/metadata/uid")).is_empty();
                let propagation = if awaited { PropagationPolicy::Foreground } else { PropagationPolicy::Background };
                self.collect(target, object, Some(propagation))
            }
            held if held == owners.len() => Ok(()),
            _ => self.remove_owners(target, |uid| !graph.holds(uid)),
        }
    }

    /// Deletes the objects whose keys `is_content` accepts. Returns true if there are any.
    fn delete_all(&self, graph: &Graph<'_>, is_content: impl Fn(&StoreKey) -> bool) -> Result<bool> {
        let contents: Vec<_> = graph.objects.iter().filter(|(key, _)| is_content(key)).collect();
        for entry in contents.iter().filter(|(_, object)| !object.is_terminating()) {
            self.with_target(entry, |target, object| self.collect(target, object, None))?;
        }
        Ok(!contents.is_empty())
    }

    /// Deletes the object only if it still has the same uid.
    fn collect(&self, target: Target<'_>, object: &Object, propagation: Option<PropagationPolicy>) -> Result<()> {
        let uid = Some(object.text("/metadata/uid").to_string());
        match self.delete(target, &DeleteOptions { uid, propagation, ..DeleteOptions::default() }) {
            Err(error) if !matches!(error.code, 404 | 409) => Err(error),
            _ => Ok(()),
        }
    }

    fn remove_owners(&self, target: Target<'_>, is_removed: impl Fn(&str) -> bool) -> Result<()> {
        self.retain(target, "ownerReferences", |owner| !is_removed(text(owner, "/uid")))
    }

    fn remove_finalizer(&self, target: Target<'_>, finalizer: &str) -> Result<()> {
        self.retain(target, "finalizers", |held| held != finalizer)
    }

    /// Removes the items of a list in the metadata that `is_retained` does not accept.
    fn retain(&self, target: Target<'_>, list: &str, is_retained: impl Fn(&Value) -> bool) -> Result<()> {
        self.edit(target, |value| fields::list(metadata(value), list).retain(&is_retained))
    }

    fn edit(&self, target: Target<'_>, change: impl Fn(&mut Value)) -> Result<()> {
        let done = self.modify(target, Part::Internal, &WriteOptions::default(), |value| {
            change(value);
            Ok(())
        });
        match done {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns the last time at which an Event happened. Its writer and its group determine which of its times are set.
fn last_of(event: &Object) -> Option<Timestamp> {
    let times = ["/lastTimestamp", "/series/lastObservedTime", "/eventTime", "/metadata/creationTimestamp"];
    times.iter().filter_map(|pointer| event.text(pointer).parse().ok()).max()
}

fn has_finalizer(object: &Object, name: &str) -> bool {
    items(&object.value, "/metadata/finalizers").iter().any(|finalizer| finalizer == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: an Event is deleted an hour after it last happened and not before, whichever of its times is set.
    #[tokio::test]
    async fn an_event_is_deleted_an_hour_after_it_last_happened() {
        let api = Api::for_tests();
        let resource = api.registry.load().by_table(EVENTS).expect("Events");
        let made = Timestamp::now();
        let later = (made + SignedDuration::from_mins(30)).to_string();
        let rows = [
            ("made", json!({})),
            ("counted", json!({"lastTimestamp": later})),
            ("new", json!({"eventTime": later})),
            ("series", json!({"series": {"count": 2, "lastObservedTime": later}})),
        ];
        for (name, mut event) in rows {
            event["metadata"] = json!({"name": name, "namespace": "default"});
            event["involvedObject"] = json!({"namespace": "default"});
            api.create(&resource, "default", event, &WriteOptions::default()).expect("created");
        }
        let left = async |minutes| {
            api.collect_garbage(made + SignedDuration::from_mins(minutes)).await.expect("no failure");
            let (events, _) = api.store.list(EVENTS, "");
            events.iter().map(|event| event.text("/metadata/name").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(left(59).await, ["counted", "made", "new", "series"]);
        assert_eq!(left(62).await, ["counted", "new", "series"]);
        assert_eq!(left(89).await, ["counted", "new", "series"]);
        assert_eq!(left(92).await, [""; 0]);
    }
}
