//! Scale targets of any kind: one watch per resource, shared by all workloads that name it.
//!
//! Deployments are watched like all other kinds with `/scale`: in all namespaces of the install, as objects of which a
//! few facts are kept.
//!
//! # Watched resources
//!
//! Only resources with a scale subresource are watched, since a user may name any kind, even one that does not exist.
//! Resources that not every API server serves are therefore discovered first ([`Shared::look`]), all by one task. It
//! runs at once when another resource is named, then after pauses that double up to [`PAUSE_MAX`]: a resource may be
//! created later, without an event. A missing group or version costs no request of its own, however many resources
//! name it. A version whose server is down does not delay other versions.
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
use futures::stream::{self, StreamExt};
use kube::Client;
use kube::core::DynamicObject;
use kube::runtime::watcher;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::sync::Notify;
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
/// Pause before the discovery request of each version.
const BETWEEN: Duration = Duration::from_millis(100);
/// Maximum number of concurrent discovery requests.
const AT_ONCE: usize = 8;
/// Timeout of a discovery request. The client's own timeout is a minute.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Version of the core group, which no list of groups contains.
const CORE: &str = "v1";

/// Events about targets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News<'a> {
    /// A target was created.
    Came(&'a TargetKey),
    /// A fact of a target changed, or the target is gone.
    Changed(&'a TargetKey),
    /// A resource has been listed for the first time. Objects that are unknown now do not exist.
    Listed(&'a TargetResource),
}

/// Receiver of events about targets.
pub(crate) trait Audience: Send + Sync + 'static {
    /// Returns whether some workload names a target of this resource.
    fn is_named(&self, resource: &TargetResource) -> bool;

    /// Receives an event.
    fn told(&self, news: News<'_>);
}

/// Targets of all resources that are in use.
pub(crate) struct Targets {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    namespaces: Namespaces,
    shutdown: CancellationToken,
    /// Locked before `asked`.
    watched: Mutex<HashMap<TargetResource, Watched>>,
    asked: Mutex<HashMap<TargetResource, Asked>>,
    /// Notified when another resource needs discovery.
    asks: Notify,
    /// Starts the discovery task once.
    looking: Once,
    audience: Arc<dyn Audience>,
}

struct Watched {
    store: Arc<Store<Target>>,
    /// Time of the last read.
    used: Instant,
}

/// Resource that has not been found scalable yet.
struct Asked {
    /// Time of the last read.
    used: Instant,
    /// Reason why it cannot be scaled; none: not known yet.
    refused: Option<String>,
    /// Set if the last discovery had a result.
    is_answered: bool,
}

/// Reason for a discovery without a result.
#[derive(Clone, Copy, Debug)]
enum Unknown {
    /// The API server does not allow discovery.
    Forbidden,
    /// The API server did not respond, or failed.
    Unanswered,
}

impl Targets {
    /// Creates the component, without any watch.
    pub(crate) fn new(
        client: Client,
        namespaces: Namespaces,
        shutdown: CancellationToken,
        audience: Arc<dyn Audience>,
    ) -> Self {
        let (watched, asked) = (Mutex::default(), Mutex::default());
        let (asks, looking) = (Notify::new(), Once::new());
        Self { shared: Arc::new(Shared { client, namespaces, shutdown, watched, asked, asks, looking, audience }) }
    }

    /// Returns the facts of a target. The first read of a resource starts its watch, if it can be scaled.
    ///
    /// # Errors
    /// The target does not exist, cannot be scaled, or is not known yet.
    pub(crate) fn get(&self, key: &TargetKey) -> Result<Arc<Target>, TargetError> {
        let store = self.store(&key.resource)?;
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
    pub(crate) fn prepare(&self, resource: &TargetResource) {
        let _ = self.store(resource); // A failure is reported to the next reader.
    }

    /// Stores the result of our own patch until the watch has caught up.
    pub(crate) fn offer(&self, key: &TargetKey, version: &str, target: Target) {
        if let Ok(store) = self.store(&key.resource) {
            store.offer(&key.object, version, target);
        }
    }

    /// Adds a target without a watch.
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

    /// Simulates that the API server has refused to list a resource.
    #[cfg(test)]
    pub(crate) fn refuse(&self, resource: &TargetResource, error: &str) {
        let store = Arc::new(Store::new(|_: &Key, _: Option<&Arc<Target>>, _: Option<&Arc<Target>>| {}));
        store.failed(error.to_owned());
        self.shared.watched.lock().insert(resource.clone(), Watched { store, used: Instant::now() });
    }

    fn store(&self, resource: &TargetResource) -> Result<Arc<Store<Target>>, TargetError> {
        let mut watched = self.shared.watched.lock();
        if let Some(known) = watched.get_mut(resource) {
            known.used = Instant::now();
            return Ok(known.store.clone());
        }
        if !resource.is_everywhere() {
            return Err(self.ask(resource));
        }
        let store = self.shared.watch(resource);
        watched.insert(resource.clone(), Watched { store: store.clone(), used: Instant::now() });
        Ok(store)
    }

    /// Requests discovery of a resource, and returns the error that describes its present state.
    fn ask(&self, resource: &TargetResource) -> TargetError {
        let shared = &self.shared;
        let mut asked = shared.asked.lock();
        if let Some(known) = asked.get_mut(resource) {
            known.used = Instant::now();
            return match known.refused.clone() {
                Some(error) => TargetError::Unwatchable { resource: resource.clone(), error },
                None => TargetError::NotListed(resource.clone()),
            };
        }
        asked.insert(resource.clone(), Asked { used: Instant::now(), refused: None, is_answered: false });
        shared.asks.notify_one();
        shared.looking.call_once(|| {
            let shared = shared.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = shared.look_for_asked() => {}
                    () = shared.shutdown.cancelled() => {}
                }
            });
        });
        TargetError::NotListed(resource.clone())
    }
}

impl Shared {
    /// Runs discovery for ever.
    async fn look_for_asked(self: &Arc<Self>) {
        let (mut pause, mut next, mut began) = (PAUSE_MIN, Instant::now(), Instant::now());
        loop {
            let (is_any_left, is_any_unanswered) = {
                let asked = self.asked.lock();
                (!asked.is_empty(), asked.values().any(|asked| !asked.is_answered))
            };
            let all = tokio::select! {
                biased;
                () = self.asks.notified() => {
                    pause = PAUSE_MIN;
                    true
                }
                () = sleep_until(next), if is_any_left => {
                    pause = (pause * 2).min(PAUSE_MAX);
                    true
                }
                () = sleep_until(began + PAUSE_UNANSWERED), if is_any_unanswered => false,
            };
            began = Instant::now();
            self.look(all).await;
            if all {
                next = Instant::now() + pause;
            }
            sleep(PAUSE_MIN).await; // Limits the rate even if new resources are named quickly.
        }
    }

    /// Runs one discovery, for all resources or only for those without a result, and starts to watch those that can be
    /// scaled.
    async fn look(self: &Arc<Self>, all: bool) {
        let asked: Vec<_> = {
            let mut asked = self.asked.lock();
            asked.retain(|resource, asked| asked.used.elapsed() < LINGER || self.audience.is_named(resource));
            let due = asked.iter().filter(|(_, asked)| all || !asked.is_answered);
            due.map(|(resource, _)| resource.clone()).collect()
        };
        if asked.is_empty() {
            return;
        }
        let groups = match answered("/apis", self.client.list_api_groups()).await {
            Ok(list) => list.groups,
            Err(unknown) => return self.take(&asked, Err(unknown)),
        };
        let versions = groups.iter().flat_map(|group| &group.versions).map(|version| version.group_version.as_str());
        let versions: HashSet<_> = versions.chain([CORE]).collect();
        let (there, not_there): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|resource| versions.contains(resource.api_version()));
        self.take(&not_there, Ok(Served::new()));
        let mut of_version: HashMap<String, Vec<TargetResource>> = HashMap::new();
        for resource in there {
            of_version.entry(resource.api_version().to_owned()).or_default().push(resource);
        }
        let questions = stream::iter(of_version).for_each_concurrent(AT_ONCE, |(version, resources)| {
            let shared = self.clone();
            async move {
                sleep(BETWEEN).await;
                shared.take(&resources, served_by(&shared.client, &version).await);
            }
        });
        questions.await;
    }

    /// Applies a discovery result to these resources of one version.
    fn take(self: &Arc<Self>, resources: &[TargetResource], served: Result<Served, Unknown>) {
        for resource in resources {
            match &served {
                Ok(served) => self.found(resource, resource.refusal(served)),
                Err(Unknown::Forbidden) => self.found(resource, None), // The watch will report the error.
                Err(Unknown::Unanswered) => {
                    if let Some(known) = self.asked.lock().get_mut(resource) {
                        known.is_answered = false;
                    }
                }
            }
        }
    }

    /// Records why a resource cannot be scaled; none: it can, and its watch starts.
    fn found(self: &Arc<Self>, resource: &TargetResource, refused: Option<String>) {
        let mut watched = self.watched.lock();
        let mut asked = self.asked.lock();
        if refused.is_none() {
            asked.remove(resource);
            let begin = || Watched { store: self.watch(resource), used: Instant::now() };
            watched.entry(resource.clone()).or_insert_with(begin);
        } else if let Some(known) = asked.get_mut(resource) {
            (known.refused, known.is_answered) = (refused, true);
        }
    }

    fn watch(self: &Arc<Self>, resource: &TargetResource) -> Arc<Store<Target>> {
        let (audience, of) = (self.audience.clone(), resource.clone());
        let told = move |object: &Key, old: Option<&Arc<Target>>, new: Option<&Arc<Target>>| {
            let target = TargetKey { resource: of.clone(), object: object.clone() };
            match (old, new) {
                (None, Some(_)) => audience.told(News::Came(&target)),
                (old, new) if old != new => audience.told(News::Changed(&target)),
                _ => {}
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
                pause = PAUSE_MIN; // The watch has worked for a while.
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Ends when a resource is no longer in use, and removes it.
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

/// Returns the resources that a version serves.
async fn served_by(client: &Client, version: &str) -> Result<Served, Unknown> {
    let list = match version {
        CORE => answered(version, client.list_core_api_resources(version)).await,
        _ => answered(version, client.list_api_group_resources(version)).await,
    };
    Ok(list?.resources.into_iter().map(|resource| resource.name).collect())
}

/// Returns the result of a discovery request, if it arrives in time.
async fn answered<T>(what: &str, question: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Unknown> {
    match timeout(ANSWERED_WITHIN, question).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            tracing::debug!(what, "discovery is forbidden");
            Err(Unknown::Forbidden)
        }
        Ok(Err(error)) => {
            tracing::debug!(what, %error, "discovery failed");
            Err(Unknown::Unanswered)
        }
        Err(_) => {
            tracing::debug!(what, "discovery was not answered in time");
            Err(Unknown::Unanswered)
        }
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
