//! Scale targets of any kind: one watch per resource, shared by all workloads that name it.
//!
//! Deployments are watched like all other kinds with `/scale`: in all namespaces of the install, as objects of which a
//! few facts are kept.
//!
//! # Watched resources
//!
//! Only resources with a scale subresource are watched, since a user may name any kind, even one that does not exist.
//! A resource that not every API server serves is therefore discovered first ([`Targets::discover`]), again and again
//! after pauses that double up to [`PAUSE_MAX`]: a resource may be created later, without an event.
//!
//! A failed discovery is not a refusal. A resource without a result is unknown, and is discovered again within
//! [`PAUSE_UNANSWERED`]. If discovery is forbidden, a resource is watched as if it had a scale.
//!
//! # Lifetime of a watch
//!
//! A watch starts as soon as a target of its resource is named, so that a new owner does not wait for the list;
//! otherwise it starts with the first read of a target. It ends once no workload names the resource any more and no
//! target of it has been read for [`LINGER`], whether the watch ever worked or not. A later read starts a new watch.
//!
//! If the API server rejects the watch (the resource no longer exists, cannot be watched, or a right is missing), it
//! is retried after the same growing pauses.

#[cfg(test)]
mod tests;

use super::facts::Target;
use super::target_key::{Served, TargetError, TargetKey, TargetResource};
use common::RevisionKey as Key;
use common_controller::Store;
use common_runtime::namespaces::Namespaces;
use common_runtime::watching;
use futures::StreamExt;
use kube::Client;
use kube::core::DynamicObject;
use kube::runtime::watcher;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Time that a watch outlives its last use, so that a user who edits a kind back and forth does not cause a new list
/// each time.
const LINGER: Duration = Duration::from_secs(10);
/// First pause before a rejected watch or a discovery is retried.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest pause after a discovery without a result.
const PAUSE_UNANSWERED: Duration = Duration::from_secs(10);
/// Timeout of a discovery request. The client's own timeout is a minute.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Version of the core group, which no list of groups contains.
const CORE: &str = "v1";

#[derive(Clone, Copy, Debug)]
pub(crate) enum TargetEvent<'a> {
    /// A target was created.
    Created(&'a TargetKey),
    /// A fact of a target changed, or the target is gone.
    Changed(&'a TargetKey),
    /// A resource has been listed for the first time. Objects that are unknown now do not exist.
    Listed(&'a TargetResource),
}

/// Receiver of events about targets.
pub(crate) trait TargetListener: Send + Sync + 'static {
    /// Returns whether some workload names a target of this resource.
    fn is_named(&self, resource: &TargetResource) -> bool;

    fn on_event(&self, event: TargetEvent<'_>);
}

/// Targets of all resources that are in use.
pub(crate) struct Targets {
    client: Client,
    namespaces: Namespaces,
    shutdown: CancellationToken,
    watched: Mutex<HashMap<TargetResource, Watched>>,
    listener: Arc<dyn TargetListener>,
}

struct Watched {
    store: Arc<Store<Target>>,
    /// Time of the last read.
    used: Instant,
}

impl Targets {
    /// Creates the component, without any watch.
    pub(crate) fn new(
        client: Client,
        namespaces: Namespaces,
        shutdown: CancellationToken,
        listener: Arc<dyn TargetListener>,
    ) -> Self {
        Self { client, namespaces, shutdown, watched: Mutex::default(), listener }
    }

    /// Returns the facts of a target. The first read of a resource starts its watch, if it can be scaled.
    pub(crate) fn get(self: &Arc<Self>, key: &TargetKey) -> Result<Arc<Target>, TargetError> {
        let store = self.store(&key.resource);
        match store.get(&key.object) {
            Some(target) => Ok(target),
            None if store.is_synced() => Err(TargetError::Missing(key.clone())),
            None => match store.failure() {
                Some(error) => Err(TargetError::Unwatchable { resource: key.resource.clone(), error }),
                None => Err(TargetError::NotListed(key.resource.clone())),
            },
        }
    }

    /// Starts to list the targets of a resource before any of them is read.
    pub(crate) fn prepare(self: &Arc<Self>, resource: &TargetResource) {
        self.store(resource);
    }

    /// Stores the result of our own patch until the watch has caught up.
    pub(crate) fn offer(self: &Arc<Self>, key: &TargetKey, version: &str, target: Target) {
        self.store(&key.resource).offer(&key.object, version, target);
    }

    /// Adds a target without a watch.
    #[cfg(test)]
    pub(crate) fn put(&self, key: &TargetKey, version: &str, target: Option<Target>) {
        let mut watched = self.watched.lock();
        let known = watched.entry(key.resource.clone()).or_insert_with(|| {
            let store = Arc::new(Store::new(|_: &Key, _: Option<&Arc<Target>>, _: Option<&Arc<Target>>| {}));
            store.take(watcher::Event::InitDone, |object: DynamicObject| Target::from_object(&object));
            Watched { store, used: Instant::now() }
        });
        known.store.apply(&key.object, version, target);
    }

    /// Simulates that the API server has refused to list a resource.
    #[cfg(test)]
    pub(crate) fn refuse(&self, resource: &TargetResource, error: &str) {
        let store = Arc::new(Store::new(|_: &Key, _: Option<&Arc<Target>>, _: Option<&Arc<Target>>| {}));
        store.failed(error.to_owned());
        self.watched.lock().insert(resource.clone(), Watched { store, used: Instant::now() });
    }

    fn store(self: &Arc<Self>, resource: &TargetResource) -> Arc<Store<Target>> {
        let mut watched = self.watched.lock();
        let begin = || Watched { store: self.watch(resource), used: Instant::now() };
        let known = watched.entry(resource.clone()).or_insert_with(begin);
        known.used = Instant::now();
        known.store.clone()
    }

    fn watch(self: &Arc<Self>, resource: &TargetResource) -> Arc<Store<Target>> {
        let (listener, watched) = (self.listener.clone(), resource.clone());
        let on_change = move |object: &Key, old: Option<&Arc<Target>>, new: Option<&Arc<Target>>| {
            let target = TargetKey { resource: watched.clone(), object: object.clone() };
            match (old, new) {
                (None, Some(_)) => listener.on_event(TargetEvent::Created(&target)),
                (old, new) if old != new => listener.on_event(TargetEvent::Changed(&target)),
                _ => {}
            }
        };
        let store = Arc::new(Store::packing(on_change));
        let (targets, resource, following) = (self.clone(), resource.clone(), store.clone());
        tokio::spawn(async move {
            let listed = async {
                following.synced().await;
                targets.listener.on_event(TargetEvent::Listed(&resource));
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = targets.follow(&resource, &following) => {}
                () = listed => {}
                () = targets.unused(&resource) => {}
                () = targets.shutdown.cancelled() => {}
            }
        });
        store
    }

    /// Waits until the API server serves the scale of a resource. Until then, the store has the reason as its failure.
    async fn discover(&self, resource: &TargetResource, store: &Store<Target>) {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            let longest = match timeout(ANSWERED_WITHIN, served(&self.client, &resource.api_version)).await {
                Ok(Ok(served)) => match resource.refusal(&served) {
                    Some(refusal) => {
                        store.failed(refusal);
                        PAUSE_MAX
                    }
                    None => return,
                },
                Ok(Err(kube::Error::Api(status))) if status.code == 403 => return, // The watch will report the error.
                Ok(Err(error)) => {
                    tracing::debug!(%resource, %error, "discovery failed");
                    PAUSE_UNANSWERED
                }
                Err(_) => PAUSE_UNANSWERED,
            };
            sleep_until(began + pause.min(longest)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Fills a store for ever.
    async fn follow(&self, resource: &TargetResource, store: &Store<Target>) {
        if !resource.is_everywhere() {
            self.discover(resource, store).await;
        }
        let reach = self.namespaces.reach_of::<DynamicObject>(&self.client, &resource.resource());
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            let mut events = watching::attempts(reach.clone(), watcher::Config::default());
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => store.take(event, |object| Target::from_object(&object)),
                    Err(error) => {
                        store.failed(error.to_string());
                        if is_refused(&error) {
                            break;
                        }
                    }
                }
            }
            drop(events);
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN; // The watch has worked for a while.
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits until a resource is no longer in use, and removes it.
    async fn unused(&self, resource: &TargetResource) {
        loop {
            sleep(LINGER).await;
            let mut watched = self.watched.lock();
            let idle = watched.get(resource).is_none_or(|known| known.used.elapsed() >= LINGER);
            if idle && !self.listener.is_named(resource) {
                watched.remove(resource);
                return;
            }
        }
    }
}

/// Returns the resources that a version serves. A version that does not exist serves none.
async fn served(client: &Client, version: &str) -> kube::Result<Served> {
    let list = match version {
        CORE => client.list_core_api_resources(version).await,
        _ => client.list_api_group_resources(version).await,
    };
    match list {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Served::new()),
        list => Ok(list?.resources.into_iter().map(|resource| resource.name).collect()),
    }
}

/// Returns whether the API server refuses to serve this resource to us, so that retries need pauses.
fn is_refused(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            matches!(status.code, 400 | 403..=407 | 415 | 422)
        }
        _ => false,
    }
}
