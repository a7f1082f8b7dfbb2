//! From a watch's events to changes of single objects, deletions that were missed included.
//!
//! A watch that breaks starts over with a full list, and what was deleted meanwhile is simply not in it. [`Mirror`]
//! keeps the names of what exists (nothing else), so that such an object is told as gone when the list is complete.

use super::slices::ObjectName;
use kube::ResourceExt;
use kube::runtime::watcher;
use std::collections::BTreeSet;

#[derive(Debug, PartialEq)]
pub(crate) enum Change<K> {
    Applied(K),
    Gone(ObjectName),
    /// The list is complete.
    Listed,
}

/// The names of the objects of one watch.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    known: BTreeSet<ObjectName>,
    listing: BTreeSet<ObjectName>,
}

impl Mirror {
    /// Moves on with one event.
    pub(crate) fn take<K: ResourceExt>(&mut self, event: watcher::Event<K>) -> Vec<Change<K>> {
        match event {
            watcher::Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                self.listing.insert(name_of(&object));
                vec![Change::Applied(object)]
            }
            watcher::Event::InitDone => {
                let listing = std::mem::take(&mut self.listing);
                let gone = self.known.difference(&listing).cloned().map(Change::Gone);
                let changes = gone.chain([Change::Listed]).collect();
                self.known = listing;
                changes
            }
            watcher::Event::Apply(object) => {
                self.known.insert(name_of(&object));
                vec![Change::Applied(object)]
            }
            watcher::Event::Delete(object) => {
                let name = name_of(&object);
                self.known.remove(&name);
                vec![Change::Gone(name)]
            }
        }
    }
}

pub(crate) fn name_of(object: &impl ResourceExt) -> ObjectName {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Whether the API server will not serve this kind to us, however often it is asked.
pub(crate) fn is_denied(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 403 | 404),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;

    fn service(name: &str) -> Service {
        let mut service = Service::default();
        service.metadata.namespace = Some("ns".to_owned());
        service.metadata.name = Some(name.to_owned());
        service
    }

    #[test]
    fn what_a_new_list_lacks_is_gone() {
        let mut mirror = Mirror::default();
        mirror.take::<Service>(watcher::Event::Init);
        mirror.take(watcher::Event::InitApply(service("a")));
        mirror.take(watcher::Event::InitApply(service("b")));
        assert_eq!(mirror.take::<Service>(watcher::Event::InitDone), [Change::Listed]);
        mirror.take(watcher::Event::Apply(service("c")));
        mirror.take::<Service>(watcher::Event::Init);
        mirror.take(watcher::Event::InitApply(service("b")));
        let gone = |name: &str| Change::<Service>::Gone(("ns".to_owned(), name.to_owned()));
        assert_eq!(mirror.take::<Service>(watcher::Event::InitDone), [gone("a"), gone("c"), Change::Listed]);
        assert_eq!(mirror.take(watcher::Event::Delete(service("b"))), [gone("b")]);
    }
}
