//! Scale targets of any kind: one watch for each resource, shared by all PodAutoscalers that name it.
//!
//! Deployments are watched like everything else that has `/scale`: in all namespaces that are looked at, as objects of which a few facts
//! are read.
//!
//! # How long a watch lasts
//!
//! It begins with the first look at a target of its resource. It ends [`LINGER`] after the last PodAutoscaler that
//! names the resource has gone, and nobody has looked at a target of it since, whether it ever worked or not. Whoever
//! looks again begins another.
//!
//! A resource that the API server refuses (it does not exist, cannot be watched, or is for want of a right) is asked
//! for again after pauses that double, up to [`PAUSE_MAX`]: it may come to exist, and nobody tells when.

#[cfg(test)]
mod tests;

use super::facts::Target;
use super::target_key::{TargetError, TargetKey, TargetResource};
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
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How long a watch outlasts its last use: who edits a kind back and forth does not have everything listed each time.
const LINGER: Duration = Duration::from_secs(10);
/// First pause before a resource that was refused is asked for again.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest one.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What becomes known of targets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News<'a> {
    /// A target came, changed in one of its facts, or went.
    Changed(&'a TargetKey),
    /// A resource has been listed for the first time: what is not known now does not exist.
    Listed(&'a TargetResource),
}

/// Whom targets concern.
pub(crate) trait Audience: Send + Sync + 'static {
    /// Whether some PodAutoscaler names a target of this resource.
    fn is_named(&self, resource: &TargetResource) -> bool;

    /// Hears what becomes known.
    fn told(&self, news: News<'_>);
}

/// All resources that somebody looks at.
pub(crate) struct Targets {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    namespaces: Namespaces,
    shutdown: CancellationToken,
    watched: Mutex<HashMap<TargetResource, Watched>>,
    audience: Arc<dyn Audience>,
}

struct Watched {
    store: Arc<Store<Target>>,
    /// When somebody last looked.
    used: Instant,
}

impl Targets {
    /// Nothing watched yet.
    pub(crate) fn new(
        client: Client,
        namespaces: Namespaces,
        shutdown: CancellationToken,
        audience: Arc<dyn Audience>,
    ) -> Self {
        Self { shared: Arc::new(Shared { client, namespaces, shutdown, watched: Mutex::default(), audience }) }
    }

    /// The facts of a target. The first look at a resource starts its watch.
    ///
    /// # Errors
    /// It does not exist, or nothing can be said about it yet.
    pub(crate) fn get(&self, key: &TargetKey) -> Result<Arc<Target>, TargetError> {
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

    /// Shows the outcome of our own patch until the watch has caught up.
    pub(crate) fn offer(&self, key: &TargetKey, version: &str, target: Target) {
        self.store(&key.resource).offer(&key.object, version, target);
    }

    /// Makes a target known without a watch.
    #[cfg(test)]
    pub(crate) fn put(&self, key: &TargetKey, version: &str, target: Option<Target>) {
        let mut watched = self.shared.watched.lock();
        let known = watched.entry(key.resource.clone()).or_insert_with(|| {
            let store = Arc::new(Store::new(|_: &Key, _: Option<&Arc<Target>>, _: Option<&Arc<Target>>| {}));
            store.take(watcher::Event::InitDone, |object: DynamicObject| Target::from_object(&object));
            Watched { store, used: Instant::now() }
        });
        known.store.apply(&key.object, version, target);
    }

    /// As if the API server had refused to list a resource.
    #[cfg(test)]
    pub(crate) fn refuse(&self, resource: &TargetResource, error: &str) {
        let store = Arc::new(Store::new(|_: &Key, _: Option<&Arc<Target>>, _: Option<&Arc<Target>>| {}));
        store.failed(error.to_owned());
        self.shared.watched.lock().insert(resource.clone(), Watched { store, used: Instant::now() });
    }

    fn store(&self, resource: &TargetResource) -> Arc<Store<Target>> {
        let mut watched = self.shared.watched.lock();
        if let Some(known) = watched.get_mut(resource) {
            known.used = Instant::now();
            return known.store.clone();
        }
        let store = self.shared.watch(resource);
        watched.insert(resource.clone(), Watched { store: store.clone(), used: Instant::now() });
        store
    }
}

impl Shared {
    fn watch(self: &Arc<Self>, resource: &TargetResource) -> Arc<Store<Target>> {
        let (audience, of) = (self.audience.clone(), resource.clone());
        let told = move |object: &Key, old: Option<&Arc<Target>>, new: Option<&Arc<Target>>| {
            if old != new {
                audience.told(News::Changed(&TargetKey { resource: of.clone(), object: object.clone() }));
            }
        };
        let store = Arc::new(Store::packing(told));
        let (shared, resource, following) = (self.clone(), resource.clone(), store.clone());
        tokio::spawn(async move {
            let listed = async {
                following.synced().await;
                shared.audience.told(News::Listed(&resource));
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = shared.follow(&resource, &following) => {}
                () = listed => {}
                () = shared.unused(&resource) => {}
                () = shared.shutdown.cancelled() => {}
            }
        });
        store
    }

    /// Fills a store for ever.
    async fn follow(&self, resource: &TargetResource, store: &Store<Target>) {
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
                pause = PAUSE_MIN; // It has worked for a while.
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Ends when nobody uses a resource any more, which is unknown from then on.
    async fn unused(&self, resource: &TargetResource) {
        loop {
            sleep(LINGER).await;
            let mut watched = self.watched.lock();
            let idle = watched.get(resource).is_none_or(|known| known.used.elapsed() >= LINGER);
            if idle && !self.audience.is_named(resource) {
                watched.remove(resource);
                return;
            }
        }
    }
}

/// Whether the API server will not serve this resource to us, however often it is asked.
fn is_refused(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            matches!(status.code, 400 | 403..=407 | 415 | 422)
        }
        _ => false,
    }
}
