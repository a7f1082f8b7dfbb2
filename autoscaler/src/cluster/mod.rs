//! What the reconcilers know of the cluster beside a front end's own objects: the targets that workloads name, an index that
//! is up to date with every event, and the way from an event to the workloads that it concerns.
//!
//! A front end watches its own objects, and tells [`Index`] which there are and what they scale. It hears of other events by
//! [`Beside`].
//!
//! Pods are counted behind [`crate::scale::Pods`], and decisions made behind [`crate::scale::Deciders`]: both come over
//! the queue of requests.

pub(crate) mod error;
pub(crate) mod facts;
pub(crate) mod links;
pub(crate) mod target_key;
pub(crate) mod targets;
pub(crate) mod watches;
pub(crate) mod writes;

use common::RevisionKey as Key;
use common_controller::{Priority, WorkQueue};
use common_runtime::namespaces::Namespaces;
use kube::Client;
use links::{Links, Named};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::Arc;
use target_key::{TargetKey, TargetResource};
use targets::{Audience, News, Targets};
use tokio_util::sync::CancellationToken;
use watches::Beside;

/// Everything that both front ends watch.
pub(crate) struct Stores {
    /// What workloads scale.
    pub(crate) targets: Targets,
    pub(crate) index: Arc<Index>,
}

/// All workloads, and what they scale.
pub(crate) struct Index {
    /// Workloads to reconcile.
    queue: WorkQueue<Key>,
    beside: Arc<dyn Beside>,
    links: Links,
    /// All workloads, for events that concern each of them.
    known: RwLock<BTreeSet<Key>>,
}

impl Stores {
    /// Stores that know nothing yet. Targets are watched in `namespaces`.
    pub(crate) fn new(
        client: Client,
        queue: WorkQueue<Key>,
        (beside, namespaces): (Arc<dyn Beside>, Namespaces),
        shutdown: CancellationToken,
    ) -> Self {
        let index = Arc::new(Index { queue, beside, links: Links::default(), known: RwLock::default() });
        Self { targets: Targets::new(client, namespaces, shutdown, index.clone()), index }
    }

    /// Has the targets of all workloads that are known by now watched, before anybody looks at one.
    pub(crate) fn prepare_targets(&self) {
        self.index.links.resources().iter().for_each(|resource| self.targets.prepare(resource));
    }

    /// The keys that wait to be reconciled.
    #[cfg(test)]
    pub(crate) fn queue(&self) -> &WorkQueue<Key> {
        &self.index.queue
    }
}

impl Index {
    /// Takes in a workload that came or changed, and what it scales.
    pub(crate) fn put(&self, key: &Key, targets: Named, priority: Priority) {
        self.known.write().insert(key.clone());
        self.apply(key, targets, priority);
    }

    /// Takes in that a workload has gone.
    pub(crate) fn remove(&self, key: &Key) {
        self.known.write().remove(key);
        self.apply(key, Named::default(), Priority::Normal);
    }

    fn apply(&self, key: &Key, targets: Named, priority: Priority) {
        // Perhaps somebody has waited for what it scales no longer.
        for left in self.links.apply(key, targets) {
            self.links.of_target(&left).into_iter().for_each(|waiting| self.queue.add(waiting, Priority::Normal));
        }
        self.queue.add(key.clone(), priority);
    }

    /// Returns whether there is a workload of this name.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.known.read().contains(key)
    }

    /// Asks for a pass over a workload.
    pub(crate) fn reconcile(&self, key: &Key) {
        self.queue.add(key.clone(), Priority::Normal);
    }

    /// Asks for everything to be reconciled when there is time: whoever gains a workload begins to collect, whoever
    /// loses it stops.
    pub(crate) fn reconcile_all(&self) {
        for key in self.known.read().iter() {
            self.beside.look_at_measurement(key, Priority::Slow);
            self.queue.add(key.clone(), Priority::Slow);
            self.beside.look_at_path(key, Priority::Slow);
        }
    }

    /// Asks for the workload of this name to be reconciled now, because a decision, its measurement or its pods have
    /// changed.
    pub(crate) fn reconcile_now(&self, key: &Key) {
        self.beside.look_at_measurement(key, Priority::Normal);
        self.beside.look_at_path(key, Priority::Normal);
        // Last: the runtime runs first whom it has woken last.
        self.queue.add(key.clone(), Priority::Urgent);
    }

    /// Those that name a target.
    pub(crate) fn naming(&self, target: &TargetKey) -> Vec<Key> {
        self.links.of_target(target)
    }
}

impl Audience for Index {
    fn is_named(&self, resource: &TargetResource) -> bool {
        self.links.is_named(resource)
    }

    fn told(&self, news: News<'_>) {
        let (concerned, priority) = match news {
            News::Came(target) => (self.links.of_target(target), Priority::New),
            News::Changed(target) => (self.links.of_target(target), Priority::Normal),
            News::Listed(resource) => (self.links.of_resource(resource), Priority::New),
        };
        for workload in concerned {
            self.queue.add(workload.clone(), priority);
            self.beside.look_at_path(&workload, Priority::Normal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use smallvec::smallvec;
    use tokio::sync::mpsc;

    /// A front end that has nothing to look at besides.
    struct Nothing;

    impl Beside for Nothing {}

    fn deployment(name: &str) -> TargetKey {
        TargetKey { resource: TargetResource::of("apps/v1", "Deployment"), object: Key::new("ns", name) }
    }

    fn stores(client: Client) -> Stores {
        Stores::new(client, WorkQueue::new(), (Arc::new(Nothing), Namespaces::default()), CancellationToken::new())
    }

    /// Goal: of many that come at once the first is done before the last is begun.
    #[tokio::test]
    async fn what_follows_from_one_goes_before_others_that_have_come() {
        let service = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let stores = stores(Client::new(service, "default"));
        let put = |name, priority| stores.index.put(&Key::new("ns", name), smallvec![deployment(name)], priority);
        ["a", "b", "c"].into_iter().for_each(|name| put(name, Priority::New));
        stores.index.told(News::Came(&deployment("c")));
        let queue = stores.queue();
        let next = || queue.try_next().expect("one waits").key().name().to_owned();
        assert_eq!(next(), "a");
        put("a", Priority::Normal); // As what its pass has written.
        assert_eq!([next(), next()], ["a", "b"]);
        stores.index.told(News::Changed(&deployment("b")));
        assert_eq!([next(), next()], ["b", "c"]);
    }

    /// Goal: targets are listed as soon as it is known who is named, and not once somebody leads.
    #[tokio::test]
    async fn targets_are_listed_before_anybody_looks_at_one() {
        let (sender, mut asked) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let _ = sender.send(request.uri().path().to_owned());
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let stores = stores(Client::new(service, "default"));
        stores.index.put(&Key::new("ns", "hello"), smallvec![deployment("hello")], Priority::New);
        stores.prepare_targets();
        assert_eq!(asked.recv().await.as_deref(), Some("/apis/apps/v1/deployments"));
    }
}
