//! The watches of several namespaces, told as if they were one.
//!
//! A reader is told of one list, which is complete once each namespace has been listed. From then on each namespace goes
//! its own way: where one is listed anew, what is missing there is told as deleted, and nothing else is touched.
//!
//! # Odd cases
//!
//! - A namespace that we may not read counts as listed, and empty, until we may: whoever deletes it, and the Role in it,
//!   must not stop the others. What was known of it stays known. That it is denied has been logged, and goes no further.
//! - The object of a deletion that a list implies has the right name, namespace and uid, and is otherwise another one of
//!   its kind: names alone are kept here.

use super::is_denied;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{Error, Event};
use kube::{Resource, ResourceExt};
use std::collections::{HashMap, HashSet};

/// All namespaces of one watch.
#[derive(Debug)]
pub(super) struct Several<K> {
    parts: Vec<Part>,
    /// Any object of the kind.
    sample: Option<K>,
    is_begun: bool,
    is_listed: bool,
}

/// One namespace.
#[derive(Debug, Default)]
struct Part {
    /// Its name, as its objects have it.
    namespace: Option<String>,
    /// Its objects: name and uid.
    known: HashMap<String, Option<String>>,
    /// What a list under way has shown.
    seen: Option<HashSet<String>>,
    /// It was listed once, or refused to be.
    is_settled: bool,
}

impl<K: Resource + Clone> Several<K> {
    /// So many namespaces.
    pub(super) fn of(count: usize) -> Self {
        let parts = std::iter::repeat_with(Part::default).take(count).collect();
        Self { parts, sample: None, is_begun: false, is_listed: false }
    }

    /// What to tell of one event of the namespace with this number.
    pub(super) fn take(&mut self, number: usize, event: Result<Event<K>, Error>) -> Vec<Result<Event<K>, Error>> {
        let mut told = Vec::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            told.push(Ok(Event::Init));
        }
        let Some(part) = self.parts.get_mut(number) else { return told };
        match event {
            Ok(Event::Init) => part.seen = Some(HashSet::new()),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let name = object.name_any();
                if let Some(seen) = &mut part.seen {
                    seen.insert(name.clone());
                }
                part.known.insert(name, object.uid());
                part.namespace = object.namespace();
                if self.sample.is_none() {
                    self.sample = Some(object.clone());
                }
                told.push(Ok(if self.is_listed { Event::Apply(object) } else { Event::InitApply(object) }));
            }
            Ok(Event::Delete(object)) => {
                part.known.remove(&object.name_any());
                told.push(Ok(Event::Delete(object)));
            }
            Ok(Event::InitDone) => {
                let seen = part.seen.take().unwrap_or_default();
                for (name, uid) in part.known.extract_if(|name, _| !seen.contains(name)) {
                    let meta = ObjectMeta { name: Some(name), uid, ..ObjectMeta::default() };
                    let meta = ObjectMeta { namespace: part.namespace.clone(), ..meta };
                    told.extend(self.sample.clone().map(|sample| Ok(Event::Delete(named(sample, meta)))));
                }
                part.is_settled = true;
                told.extend(self.listed());
            }
            Err(error) if is_denied(&error) => {
                part.is_settled = true;
                told.extend(self.listed());
            }
            Err(error) => told.push(Err(error)),
        }
        told
    }

    fn listed(&mut self) -> Option<Result<Event<K>, Error>> {
        if self.is_listed || !self.parts.iter().all(|part| part.is_settled) {
            return None;
        }
        self.is_listed = true;
        Some(Ok(Event::InitDone))
    }
}

/// An object under another name.
fn named<K: Resource>(mut object: K, meta: ObjectMeta) -> K {
    *object.meta_mut() = meta;
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::Status;

    fn map(namespace: &str, name: &str) -> ConfigMap {
        let meta = |uid: String| ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata: meta(format!("{namespace}-{name}")), ..ConfigMap::default() }
    }

    fn refused(code: u16) -> Error {
        let status = Status { code, ..Status::default() };
        Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    /// What is told, each event in a word or two.
    fn told(several: &mut Several<ConfigMap>, number: usize, event: Result<Event<ConfigMap>, Error>) -> Vec<String> {
        let named = |word: &str, map: &ConfigMap| {
            format!(
                "{word} {}/{} {}",
                map.namespace().unwrap_or_default(),
                map.name_any(),
                map.uid().unwrap_or_default()
            )
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

    /// Goal: one list, complete when the last namespace is; after that, a namespace's new list tells what is gone there and
    /// leaves the others alone.
    #[test]
    fn each_namespace_is_listed_by_itself() {
        let mut both = Several::of(2);
        assert_eq!(told(&mut both, 0, Ok(Event::Init)), ["init"]);
        assert_eq!(told(&mut both, 0, Ok(Event::InitApply(map("a", "x")))), ["list a/x a-x"]);
        assert!(told(&mut both, 0, Ok(Event::InitDone)).is_empty());
        assert_eq!(told(&mut both, 0, Ok(Event::Apply(map("a", "y")))), ["list a/y a-y"]);
        assert!(told(&mut both, 1, Ok(Event::Init)).is_empty());
        assert_eq!(told(&mut both, 1, Ok(Event::InitApply(map("b", "x")))), ["list b/x b-x"]);
        assert_eq!(told(&mut both, 1, Ok(Event::InitDone)), ["done"]);

        assert!(told(&mut both, 0, Ok(Event::Init)).is_empty());
        assert_eq!(told(&mut both, 1, Ok(Event::Apply(map("b", "z")))), ["apply b/z b-z"]);
        assert_eq!(told(&mut both, 0, Ok(Event::InitApply(map("a", "y")))), ["apply a/y a-y"]);
        assert_eq!(told(&mut both, 0, Ok(Event::InitDone)), ["delete a/x a-x"]);
        assert_eq!(told(&mut both, 1, Ok(Event::Delete(map("b", "x")))), ["delete b/x b-x"]);
        assert!(told(&mut both, 1, Ok(Event::Init)).is_empty());
        assert_eq!(told(&mut both, 1, Ok(Event::InitDone)), ["delete b/z b-z"]);
    }

    /// Goal: a namespace that may not be read keeps nobody waiting, and what was known of it stays; every other error
    /// reaches the reader, and is waited for.
    #[test]
    fn a_namespace_that_is_denied_stops_nobody() {
        let mut both = Several::of(2);
        told(&mut both, 0, Ok(Event::Init));
        assert!(told(&mut both, 0, Ok(Event::InitDone)).is_empty());
        assert_eq!(told(&mut both, 1, Err(refused(500))), ["error"]);
        assert_eq!(told(&mut both, 1, Err(refused(403))), ["done"]);
        told(&mut both, 1, Ok(Event::Init));
        assert_eq!(told(&mut both, 1, Ok(Event::InitApply(map("b", "x")))), ["apply b/x b-x"]);
        assert!(told(&mut both, 1, Ok(Event::InitDone)).is_empty());
        told(&mut both, 1, Ok(Event::Init));
        assert!(told(&mut both, 1, Err(refused(403))).is_empty());
        told(&mut both, 1, Ok(Event::Init));
        assert_eq!(told(&mut both, 1, Ok(Event::InitDone)), ["delete b/x b-x"]);
    }
}
