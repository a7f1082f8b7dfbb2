//! Garbage collection: dependents, contents of namespaces, objects of deleted definitions, and old Events.
//!
//! The store queues every object for the collector if a change of its owners, contents or finalizers may need work. The
//! collector only looks at the current state, so it may examine an object twice but misses none. It runs in the
//! server's process and writes through the same checks as clients.
//!
//! An object is deleted if none of its owners exists; otherwise missing owners are removed from it. With
//! `foregroundDeletion`, an owner waits for blocking dependents. With `orphan`, it releases them. An Event is deleted
//! [`EVENT_LIFE`] after it last happened, as in Kubernetes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::core::Api;
use super::crd;
use super::delete::{FOREGROUND, ORPHAN};
use super::fields::{items, text};
use super::meta::metadata;
use super::query::{DeleteOptions, Propagation, WriteOptions};
use super::status::Result;
use super::store::{NAMESPACES, Object, StoreKey};
use super::target::Target;
use super::write::Part;

/// Maximum delay before a failed object is examined again.
const RETRY: Duration = Duration::from_secs(1);

/// Lifetime of an Event, as in Kubernetes. No client deletes Events, so a cluster would accumulate them.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Interval of the search for old Events.
const EVENT_PERIOD: Duration = Duration::from_secs(60);
/// Table of Events.
const EVENTS: &str = "/events";

/// Runs the collector until the server shuts down.
pub(crate) async fn run(api: Arc<Api>) {
    let mut failed = BTreeSet::new();
    let mut retries = tokio::time::interval(RETRY);
    retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut expiries = tokio::time::interval(EVENT_PERIOD);
    expiries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let work = tokio::select! {
            () = api.shutdown.cancelled() => return,
            work = api.store.work() => work,
            _ = retries.tick(), if !failed.is_empty() => failed.iter().cloned().collect(),
            _ = expiries.tick() => {
                api.expire_events(Timestamp::now());
                continue;
            }
        };
        for at in work {
            match api.examine(&at) {
                Ok(()) => drop(failed.remove(&at)),
                Err(error) if failed.insert(at.clone()) => {
                    let error = &error.body["message"];
                    tracing::warn!(table = %at.0, key = at.1, %error, "what follows from a deletion was not done yet");
                }
                Err(_) => {}
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Api {
    fn examine(&self, at: &StoreKey) -> Result<()> {
        let Some(resource) = self.registry.load().by_table(&at.0) else { return Ok(()) };
        let Some(object) = self.store.get(&at.0, &at.1) else { return Ok(()) };
        let target = Target::new(&resource, &object);
        if object.text("/metadata/deletionTimestamp").is_empty() {
            return self.examine_owners(target, &object);
        }
        if &*at.0 == NAMESPACES {
            return self.empty_namespace(target);
        }
        if &*at.0 == crd::TABLE {
            return self.empty_definition(target, &object);
        }
        if has_finalizer(&object, ORPHAN) {
            let uid = object.text("/metadata/uid");
            for dependent in self.store.dependents(uid) {
                self.remove_owners(&dependent, &|owner| owner == uid)?;
            }
            return self.remove_finalizer(target, ORPHAN);
        }
        if has_finalizer(&object, FOREGROUND) {
            return self.wait_for_dependents(target, &object);
        }
        Ok(())
    }

    /// Examines an object with owners: deletes it, or removes its missing owners.
    fn examine_owners(&self, target: Target<'_>, object: &Object) -> Result<()> {
        let owners: Vec<&str> = owner_references(&object.value).map(|owner| text(owner, "/uid")).collect();
        if owners.is_empty() {
            return Ok(());
        }
        let holds = |uid: &str| {
            self.store.owner(uid).is_some_and(|(_, owner)| {
                owner.text("/metadata/deletionTimestamp").is_empty() || !has_finalizer(&owner, FOREGROUND)
            })
        };
        let waits = owners.iter().any(|uid| self.store.owner(uid).is_some() && !holds(uid));
        if owners.iter().any(|uid| holds(uid)) {
            let at = (target.resource.table.clone(), target.key());
            return self.remove_owners(&at, &|uid| !holds(uid));
        }
        // An owner waits in the foreground, so the dependents of this object must be deleted before it too.
        let deeper = waits && !self.store.dependents(object.text("/metadata/uid")).is_empty();
        let propagation = if deeper { Propagation::Foreground } else { Propagation::Background };
        self.collect(target, object, Some(propagation))
    }

    fn wait_for_dependents(&self, target: Target<'_>, owner: &Object) -> Result<()> {
        let uid = owner.text("/metadata/uid");
        let mut blocked = false;
        for at in self.store.dependents(uid) {
            let Some(dependent) = self.store.get(&at.0, &at.1) else { continue };
            let blocks = owner_references(&dependent.value)
                .any(|reference| text(reference, "/uid") == uid && reference["blockOwnerDeletion"] == true);
            blocked |= blocks;
            if dependent.text("/metadata/deletionTimestamp").is_empty() {
                self.store.examine(at);
            }
        }
        if blocked { Ok(()) } else { self.remove_finalizer(target, FOREGROUND) }
    }

    fn empty_namespace(&self, target: Target<'_>) -> Result<()> {
        let contents = self.store.contents(target.name);
        if contents.is_empty() {
            return self.edit(target, |namespace| namespace["spec"]["finalizers"] = Value::Array(Vec::new()));
        }
        self.collect_all(contents)
    }

    fn empty_definition(&self, target: Target<'_>, definition: &Object) -> Result<()> {
        let table: Arc<str> = crd::table_of(&definition.value).into();
        let (objects, _) = self.store.list(&table, "");
        if objects.is_empty() {
            return self.remove_finalizer(target, crd::FINALIZER);
        }
        let Some(resource) = self.registry.load().by_table(&table) else { return Ok(()) };
        let key = |object: &Arc<Object>| (table.clone(), Target::new(&resource, object).key());
        self.collect_all(objects.iter().map(key).collect())
    }

    fn collect_all(&self, keys: Vec<StoreKey>) -> Result<()> {
        for at in keys {
            let Some(resource) = self.registry.load().by_table(&at.0) else { continue };
            let Some(object) = self.store.get(&at.0, &at.1) else { continue };
            if object.text("/metadata/deletionTimestamp").is_empty() {
                self.collect(Target::new(&resource, &object), &object, None)?;
            }
        }
        Ok(())
    }

    /// Deletes old Events. If a deletion fails, the next search repeats it.
    fn expire_events(&self, now: Timestamp) {
        let Some(resource) = self.registry.load().by_table(EVENTS) else { return };
        for event in self.store.list(EVENTS, "").0 {
            if last_of(&event).is_none_or(|last| now.duration_since(last) <= EVENT_LIFE) {
                continue;
            }
            let target = Target::new(&resource, &event);
            if let Err(error) = self.collect(target, &event, None) {
                tracing::debug!(event = target.key(), error = %error.body["message"], "an old Event was not deleted");
            }
        }
    }

    /// Deletes the object only if it still has the same uid.
    fn collect(&self, target: Target<'_>, object: &Object, propagation: Option<Propagation>) -> Result<()> {
        let uid = Some(object.text("/metadata/uid").to_string());
        match self.delete(target, &DeleteOptions { uid, propagation, ..DeleteOptions::default() }) {
            Err(error) if !matches!(error.code, 404 | 409) => Err(error),
            _ => Ok(()),
        }
    }

    fn remove_owners(&self, at: &StoreKey, gone: &dyn Fn(&str) -> bool) -> Result<()> {
        let Some(resource) = self.registry.load().by_table(&at.0) else { return Ok(()) };
        let Some(object) = self.store.get(&at.0, &at.1) else { return Ok(()) };
        self.edit(Target::new(&resource, &object), |value| {
            let fields = metadata(value);
            if let Some(owners) = fields.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                owners.retain(|owner| !gone(text(owner, "/uid")));
            }
        })
    }

    fn remove_finalizer(&self, target: Target<'_>, finalizer: &str) -> Result<()> {
        self.edit(target, |value| {
            if let Some(list) = metadata(value).get_mut("finalizers").and_then(Value::as_array_mut) {
                list.retain(|held| held != finalizer);
            }
        })
    }

    fn edit(&self, target: Target<'_>, change: impl Fn(&mut Value)) -> Result<()> {
        let done = self.update(target, Part::Internal, &WriteOptions::default(), false, |current| {
            let current = current.ok_or_else(|| target.not_found())?;
            let mut value = target.resource.full(&current.value);
            change(&mut value);
            Ok(value)
        });
        match done {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }
}

fn owner_references(value: &Value) -> impl Iterator<Item = &Value> {
    items(value, "/metadata/ownerReferences").iter()
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
    #[test]
    fn an_event_goes_an_hour_after_it_has_happened_last() {
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
            api.create(&resource, "default", event, &WriteOptions::default()).expect("taken");
        }
        let left = |minutes| {
            api.expire_events(made + SignedDuration::from_mins(minutes));
            let (events, _) = api.store.list(EVENTS, "");
            events.iter().map(|event| event.text("/metadata/name").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(left(59), ["counted", "made", "new", "series"]);
        assert_eq!(left(62), ["counted", "new", "series"]);
        assert_eq!(left(89), ["counted", "new", "series"]);
        assert_eq!(left(92), [""; 0]);
    }
}
