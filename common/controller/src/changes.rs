//! Converts a watch's events to changes of single objects, for readers that store their own data instead of objects.
//!
//! An object that was deleted while the watch was broken is reported as deleted when the next list is complete. This
//! requires the keys of all objects that existed: [`Changes`] stores only those. A reader that has the keys anyway
//! passes them in instead ([`changes`]).

use crate::ObjectKey;
use crate::relist::Relist;
use crate::store::key_of;
use common_runtime::namespaces::Reach;
use common_runtime::watching::{self, Watched};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::Resource;
use kube::runtime::watcher;
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

/// Change of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// New content of an object.
    Applied(K),
    /// The object was deleted.
    Gone(ObjectKey),
    /// The list is complete.
    Listed,
}

/// Keys of the objects of one watch.
#[derive(Debug, Default)]
pub struct Changes {
    known: BTreeSet<ObjectKey>,
    relist: Relist<ObjectKey>,
}

impl Changes {
    /// Applies one event.
    pub fn take<K: Resource>(&mut self, event: watcher::Event<K>) -> Vec<Change<K>> {
        let changes = changes(event, &mut self.relist, self.known.iter());
        for change in &changes {
            match change {
                Change::Applied(object) => _ = self.known.insert(key_of(object)),
                Change::Gone(key) => _ = self.known.remove(key),
                Change::Listed => {}
            }
        }
        changes
    }
}

/// Returns the changes of one event. `known`: the keys of all objects of which the reader stores data; after a list
/// only deletions of those are reported.
pub fn changes<'a, K: Resource>(
    event: watcher::Event<K>,
    relist: &mut Relist<ObjectKey>,
    known: impl Iterator<Item = &'a ObjectKey>,
) -> Vec<Change<K>> {
    match event {
        watcher::Event::Init => {
            relist.begin();
            Vec::new()
        }
        watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
            relist.record_existing(&key_of(&object));
            vec![Change::Applied(object)]
        }
        watcher::Event::InitDone => relist.end(known).into_iter().map(Change::Gone).chain([Change::Listed]).collect(),
        watcher::Event::Delete(object) => vec![Change::Gone(key_of(&object))],
    }
}

/// Streams all changes of the objects of `reach` that `config` selects. Never ends.
pub fn watch<K: Watched>(reach: impl Into<Reach<K>>, config: watcher::Config) -> BoxStream<'static, Change<K>> {
    let mut changes = Changes::default();
    watching::watch(reach, config).flat_map(move |event| stream::iter(changes.take(event))).boxed()
}

/// Passes all changes of the objects of `reach` to `apply` until `shutdown`, in a separate task.
pub fn follow<K: Watched>(
    reach: impl Into<Reach<K>>,
    shutdown: &CancellationToken,
    mut apply: impl FnMut(Change<K>) + Send + 'static,
) {
    let (mut changes, shutdown) = (watch(reach, watcher::Config::default()), shutdown.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(change) = changes.next() => apply(change),
                () = shutdown.cancelled() => return,
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::object;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn objects_missing_from_a_new_list_are_gone() {
        let mut changes = Changes::default();
        changes.take::<ConfigMap>(watcher::Event::Init);
        changes.take(watcher::Event::InitApply(object("a", "", 1)));
        changes.take(watcher::Event::InitApply(object("b", "", 1)));
        assert_eq!(changes.take::<ConfigMap>(watcher::Event::InitDone), [Change::Listed]);
        changes.take(watcher::Event::Apply(object("c", "", 1)));
        changes.take::<ConfigMap>(watcher::Event::Init);
        changes.take(watcher::Event::InitApply(object("b", "", 1)));
        let gone = |name: &str| Change::<ConfigMap>::Gone(ObjectKey::new("ns", name));
        assert_eq!(changes.take::<ConfigMap>(watcher::Event::InitDone), [gone("a"), gone("c"), Change::Listed]);
        assert_eq!(changes.take(watcher::Event::Delete(object("b", "", 1))), [gone("b")]);
    }
}
