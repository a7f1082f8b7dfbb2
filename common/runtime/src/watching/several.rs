//! Merges the watches of several namespaces into one.
//!
//! The reader gets one list, which is complete once each namespace has been listed. Afterwards the namespaces are
//! independent: if one is listed again, its missing objects are reported as deleted, and the others are not affected.
//!
//! # Edge cases
//!
//! - A namespace without read permission counts as listed and empty until the permission is granted: deleting it, with
//!   the Role in it, must not stop the others. Its known objects stay known. The error has been logged and is not
//!   passed on.
//! - A deletion implied by a list has an object with the correct name, namespace and uid, but otherwise the content of
//!   another object of its kind, because only names are stored here.

use super::is_denied;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{Error, Event};
use kube::{Resource, ResourceExt};
use std::collections::{HashMap, HashSet};

/// All namespaces of one watch.
#[derive(Debug)]
pub(super) struct Several<K> {
    parts: Vec<Part>,
    /// An arbitrary object of the kind.
    sample: Option<K>,
    is_begun: bool,
    is_listed: bool,
}

/// One namespace.
#[derive(Debug, Default)]
struct Part {
    /// Name of the namespace, from its objects.
    namespace: Option<String>,
    /// Objects of the namespace: name and uid.
    known: HashMap<String, Option<String>>,
    /// Names in the list in progress.
    listed: Option<HashSet<String>>,
    /// Set once the namespace was listed or denied.
    is_settled: bool,
}

impl<K: Resource + Clone> Several<K> {
    /// Creates the state of `count` namespaces.
    pub(super) fn with_parts(count: usize) -> Self {
        let parts = std::iter::repeat_with(Part::default).take(count).collect();
        Self { parts, sample: None, is_begun: false, is_listed: false }
    }

    /// Returns the events to pass on for one event of the namespace with this number.
    pub(super) fn take(&mut self, number: usize, event: Result<Event<K>, Error>) -> Vec<Result<Event<K>, Error>> {
        let mut events = Vec::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            events.push(Ok(Event::Init));
        }
        let Some(part) = self.parts.get_mut(number) else { return events };
        match event {
            Ok(Event::Init) => part.listed = Some(HashSet::new()),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let name = object.name_any();
                if let Some(listed) = &mut part.listed {
                    listed.insert(name.clone());
                }
                part.known.insert(name, object.uid());
                part.namespace = object.namespace();
                if self.sample.is_none() {
                    self.sample = Some(object.clone());
                }
                events.push(Ok(if self.is_listed { Event::Apply(object) } else { Event::InitApply(object) }));
            }
            Ok(Event::Delete(object)) => {
                part.known.remove(&object.name_any());
                events.push(Ok(Event::Delete(object)));
            }
            Ok(Event::InitDone) => {
                let listed = part.listed.take().unwrap_or_default();
                for (name, uid) in part.known.extract_if(|name, _| !listed.contains(name)) {
                    let (name, namespace) = (Some(name), part.namespace.clone());
                    let meta = ObjectMeta { name, namespace, uid, ..ObjectMeta::default() };
                    if let Some(mut object) = self.sample.clone() {
                        *object.meta_mut() = meta;
                        events.push(Ok(Event::Delete(object)));
                    }
                }
                part.is_settled = true;
                events.extend(self.list_end());
            }
            Err(error) if is_denied(&error) => {
                part.is_settled = true;
                events.extend(self.list_end());
            }
            Err(error) => events.push(Err(error)),
        }
        events
    }

    /// Returns the end of the list, once, when all namespaces are settled.
    fn list_end(&mut self) -> Option<Result<Event<K>, Error>> {
        if self.is_listed || !self.parts.iter().all(|part| part.is_settled) {
            return None;
        }
        self.is_listed = true;
        Some(Ok(Event::InitDone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::Status;

    fn map(namespace: &str, name: &str) -> ConfigMap {
        let [uid, namespace, name] = [format!("{namespace}-{name}"), namespace.to_owned(), name.to_owned()].map(Some);
        ConfigMap { metadata: ObjectMeta { namespace, name, uid, ..ObjectMeta::default() }, ..ConfigMap::default() }
    }

    fn refused(code: u16) -> Error {
        let status = Status { code, ..Status::default() };
        Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    /// Returns the passed-on events, each in a few words.
    fn after(several: &mut Several<ConfigMap>, number: usize, event: Result<Event<ConfigMap>, Error>) -> Vec<String> {
        let named = |word: &str, map: &ConfigMap| {
            let [namespace, uid] = [map.namespace(), map.uid()].map(Option::unwrap_or_default);
            format!("{word} {namespace}/{} {uid}", map.name_any())
        };
        let word = |event: &Result<Event<ConfigMap>, Error>| match event {
            Ok(Event::Init) => "init".to_owned(),
            Ok(Event::InitApply(map)) => named("list", map),
            Ok(Event::InitDone) => "done".to_owned(),
            Ok(Event::Apply(map)) => named("apply", map),
            Ok(Event::Delete(map)) => named("delete", map),
            Err(_) => "error".to_owned(),
        };
        several.take(number, event).iter().map(word).collect()
    }

    /// Goal: there is one list, complete with the last namespace. Afterwards a new list of one namespace reports its
    /// deleted objects and leaves the others alone.
    #[test]
    fn namespaces_are_listed_independently() {
        let mut both = Several::with_parts(2);
        assert_eq!(after(&mut both, 0, Ok(Event::Init)), ["init"]);
        assert_eq!(after(&mut both, 0, Ok(Event::InitApply(map("a", "x")))), ["list a/x a-x"]);
        assert!(after(&mut both, 0, Ok(Event::InitDone)).is_empty());
        assert_eq!(after(&mut both, 0, Ok(Event::Apply(map("a", "y")))), ["list a/y a-y"]);
        assert!(after(&mut both, 1, Ok(Event::Init)).is_empty());
        assert_eq!(after(&mut both, 1, Ok(Event::InitApply(map("b", "x")))), ["list b/x b-x"]);
        assert_eq!(after(&mut both, 1, Ok(Event::InitDone)), ["done"]);

        assert!(after(&mut both, 0, Ok(Event::Init)).is_empty());
        assert_eq!(after(&mut both, 1, Ok(Event::Apply(map("b", "z")))), ["apply b/z b-z"]);
        assert_eq!(after(&mut both, 0, Ok(Event::InitApply(map("a", "y")))), ["apply a/y a-y"]);
        assert_eq!(after(&mut both, 0, Ok(Event::InitDone)), ["delete a/x a-x"]);
        assert_eq!(after(&mut both, 1, Ok(Event::Delete(map("b", "x")))), ["delete b/x b-x"]);
        assert!(after(&mut both, 1, Ok(Event::Init)).is_empty());
        assert_eq!(after(&mut both, 1, Ok(Event::InitDone)), ["delete b/z b-z"]);
    }

    /// Goal: a denied namespace delays no other, and its known objects stay. Every other error reaches the reader, and
    /// the list waits for that namespace.
    #[test]
    fn a_denied_namespace_does_not_stop_the_others() {
        let mut both = Several::with_parts(2);
        after(&mut both, 0, Ok(Event::Init));
        assert!(after(&mut both, 0, Ok(Event::InitDone)).is_empty());
        assert_eq!(after(&mut both, 1, Err(refused(500))), ["error"]);
        assert_eq!(after(&mut both, 1, Err(refused(403))), ["done"]);
        after(&mut both, 1, Ok(Event::Init));
        assert_eq!(after(&mut both, 1, Ok(Event::InitApply(map("b", "x")))), ["apply b/x b-x"]);
        assert!(after(&mut both, 1, Ok(Event::InitDone)).is_empty());
        after(&mut both, 1, Ok(Event::Init));
        assert!(after(&mut both, 1, Err(refused(403))).is_empty());
        after(&mut both, 1, Ok(Event::Init));
        assert_eq!(after(&mut both, 1, Ok(Event::InitDone)), ["delete b/x b-x"]);
    }
}
