//! What the reconcilers know of the cluster: one watch and one store for each kind, indices that are up to date with
//! every event, and the way from an event to the keys it concerns.
//!
//! | event | PodAutoscaler keys | Metric keys |
//! |---|---|---|
//! | PodAutoscaler | itself, and those that the front end names | – |
//! | ServerlessService | its owner | – |
//! | Metric | its owner | itself |
//! | target | those that name it | – |
//!
//! A front end hears of the same events, and watches what it needs besides ([`watches`]).
//!
//! Pods are counted behind [`crate::scale::Pods`], and decisions made behind [`crate::scale::Deciders`]: both come over
//! the queue of requests.

pub(crate) mod facts;
pub(crate) mod links;
pub(crate) mod target_key;
pub(crate) mod targets;
pub(crate) mod watches;

use common::RevisionKey as Key;
use common_api::{Metric, PodAutoscaler, ServerlessService};
use common_controller::objects::controller;
use common_controller::{Priority, Store, WorkQueue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use links::{Links, Named};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use target_key::{TargetKey, TargetResource};
use targets::{Audience, News, Targets};
use tokio_util::sync::CancellationToken;
use watches::Watches;

/// The queues of the controllers that both front ends have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    /// PodAutoscalers.
    pub(crate) autoscalers: WorkQueue<Key>,
    /// Metrics.
    pub(crate) metrics: WorkQueue<Key>,
}

/// Everything that is watched in both front ends.
pub(crate) struct Stores {
    /// PodAutoscalers, of all classes.
    pub(crate) autoscalers: Arc<Store<PodAutoscaler>>,
    pub(crate) serverless: Arc<Store<ServerlessService>>,
    pub(crate) metrics: Arc<Store<Metric>>,
    /// What PodAutoscalers scale.
    pub(crate) targets: Targets,
    routes: Arc<Routes>,
}

/// From events to keys.
struct Routes {
    queues: Queues,
    watches: Arc<dyn Watches>,
    links: Links,
    /// All PodAutoscalers, for events that concern each of them.
    autoscalers: RwLock<BTreeSet<Key>>,
}

impl Stores {
    /// Empty stores; [`Stores::follow`] fills them. `watches` is the front end's part in them.
    pub(crate) fn new(client: Client, queues: Queues, watches: Arc<dyn Watches>, shutdown: CancellationToken) -> Self {
        let (links, autoscalers) = (Links::default(), RwLock::default());
        let routes = Arc::new(Routes { queues, watches, links, autoscalers });
        let r = || routes.clone();
        let (a, s, m) = (r(), r(), r());
        Self {
            autoscalers: Arc::new(Store::packing(move |key, old, new| a.autoscaler(key, old, new))),
            serverless: Arc::new(Store::packing(move |key, old, new| s.serverless(key, old, new))),
            metrics: Arc::new(Store::packing(move |key, old, new| m.metric(key, old, new))),
            targets: Targets::new(client, routes.watches.namespaces(), shutdown, routes.clone()),
            routes,
        }
    }

    /// Starts all watches, which end with `shutdown`, and waits until each kind has been listed once.
    pub(crate) async fn follow(&self, client: &Client, shutdown: &CancellationToken) {
        let besides = self.routes.watches.follow(self, client, shutdown);
        let synced = async {
            self.autoscalers.synced().await;
            self.routes.links.resources().iter().for_each(|resource| self.targets.prepare(resource));
            self.serverless.synced().await;
            self.metrics.synced().await;
            besides.await;
        };
        tokio::select! {
            () = synced => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Fills them with the objects of the API server.
    pub(crate) fn follow_api_objects(&self, client: &Client, shutdown: &CancellationToken) {
        self.autoscalers.spawn(Api::all(client.clone()), shutdown);
        self.serverless.spawn(Api::all(client.clone()), shutdown);
        self.metrics.spawn(Api::all(client.clone()), shutdown);
    }

    /// Asks for everything to be reconciled when there is time: whoever gains a revision begins to collect, whoever
    /// loses it stops.
    pub(crate) fn reconcile_all(&self) {
        for key in self.routes.autoscalers.read().iter() {
            self.routes.queues.metrics.add(key.clone(), Priority::Slow);
            self.routes.revision(key, Priority::Slow);
        }
    }

    /// Asks for the revision of this name to be reconciled now, because a decision, its measurement or its pods have
    /// changed.
    pub(crate) fn reconcile_now(&self, key: &Key) {
        self.routes.queues.metrics.add(key.clone(), Priority::Normal);
        self.routes.watches.look_at_path(key, Priority::Normal);
        // Last: the runtime runs first whom it has woken last.
        self.routes.queues.autoscalers.add(key.clone(), Priority::Urgent);
    }

    /// Asks for a look at where the traffic of a revision goes, after `delay`.
    pub(crate) fn look_at_path_after(&self, key: &Key, delay: Duration) {
        self.routes.watches.look_at_path_after(key, delay);
    }

    /// Tells those that name a target of something about it.
    pub(crate) fn concern(&self) -> impl Fn(&TargetKey) + Send + 'static {
        let routes = self.routes.clone();
        move |target| routes.told(News::Changed(target))
    }

    /// Those that name a target.
    pub(crate) fn naming(&self, target: &TargetKey) -> Vec<Key> {
        self.routes.links.of_target(target)
    }

    /// As if a watch of targets had told it.
    #[cfg(test)]
    pub(crate) fn tell_of_target(&self, news: News<'_>) {
        self.routes.told(news);
    }

    /// The keys that wait to be reconciled.
    pub(crate) fn queues(&self) -> &Queues {
        &self.routes.queues
    }
}

impl Routes {
    /// A revision, and where its traffic goes.
    fn revision(&self, key: &Key, priority: Priority) {
        self.queues.autoscalers.add(key.clone(), priority);
        self.watches.look_at_path(key, priority);
    }

    fn autoscaler(&self, key: &Key, old: Option<&Arc<PodAutoscaler>>, new: Option<&Arc<PodAutoscaler>>) {
        let left = match new {
            Some(autoscaler) => {
                self.autoscalers.write().insert(key.clone());
                // Of an edit that cannot be used the former version stays in force, and so does its target.
                match TargetKey::of(key.namespace(), &autoscaler.spec.scale_target_ref) {
                    Ok(target) => {
                        let held = self.watches.held(autoscaler).filter(|held| *held != target);
                        self.links.apply(key, [target].into_iter().chain(held).collect())
                    }
                    Err(_) => Named::default(),
                }
            }
            None => {
                self.autoscalers.write().remove(key);
                self.links.apply(key, Named::default())
            }
        };
        // Perhaps somebody has waited for it.
        for waiting in left.iter().flat_map(|target| self.links.of_target(target)) {
            self.queues.autoscalers.add(waiting, Priority::Normal);
        }
        self.watches.autoscaler(key, old, new);
        self.queues.autoscalers.add(key.clone(), Priority::of_change(old, new));
    }

    fn serverless(&self, key: &Key, old: Option<&Arc<ServerlessService>>, new: Option<&Arc<ServerlessService>>) {
        self.watches.serverless(key, new);
        self.owner(key, old.map(|o| &o.metadata), new.map(|o| &o.metadata));
    }

    fn metric(&self, key: &Key, old: Option<&Arc<Metric>>, new: Option<&Arc<Metric>>) {
        self.queues.metrics.add(key.clone(), Priority::Normal);
        self.owner(key, old.map(|o| &o.metadata), new.map(|o| &o.metadata));
    }

    fn owner(&self, key: &Key, old: Option<&ObjectMeta>, new: Option<&ObjectMeta>) {
        let owner = new.or(old).and_then(controller).filter(|owner| owner.kind == "PodAutoscaler");
        if let Some(owner) = owner {
            self.queues.autoscalers.add(Key::new(key.namespace(), owner.name.as_str()), Priority::Normal);
        }
    }
}

impl Audience for Routes {
    fn is_named(&self, resource: &TargetResource) -> bool {
        self.links.is_named(resource)
    }

    fn told(&self, news: News<'_>) {
        let (concerned, priority) = match news {
            News::Came(target) => (self.links.of_target(target), Priority::New),
            News::Changed(target) => (self.links.of_target(target), Priority::Normal),
            News::Listed(resource) => (self.links.of_resource(resource), Priority::New),
        };
        for autoscaler in concerned {
            self.queues.autoscalers.add(autoscaler.clone(), priority);
            self.watches.look_at_path(&autoscaler, Priority::Normal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::{ObjectReference, PodAutoscalerSpec};
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use http::{Request, Response};
    use kube::client::Body;
    use kube::runtime::watcher::Event;
    use tokio::sync::mpsc;

    /// A front end that watches nothing.
    struct Nothing;

    impl Watches for Nothing {
        fn follow<'a>(&'a self, _: &'a Stores, _: &'a Client, _: &'a CancellationToken) -> BoxFuture<'a, ()> {
            std::future::ready(()).boxed()
        }
        fn autoscaler(&self, _: &Key, _: Option<&Arc<PodAutoscaler>>, _: Option<&Arc<PodAutoscaler>>) {}
        fn serverless(&self, _: &Key, _: Option<&Arc<ServerlessService>>) {}
        fn look_at_path(&self, _: &Key, _: Priority) {}
        fn look_at_path_after(&self, _: &Key, _: Duration) {}
    }

    fn autoscaler(name: &str, version: &str) -> PodAutoscaler {
        let some = |text: &str| Some(text.to_owned());
        let mut autoscaler = PodAutoscaler::new(name, PodAutoscalerSpec::default());
        autoscaler.spec.scale_target_ref =
            ObjectReference { api_version: some("apps/v1"), kind: some("Deployment"), name: some(name) };
        (autoscaler.metadata.namespace, autoscaler.metadata.resource_version) = (some("ns"), some(version));
        autoscaler
    }

    /// Goal: of many that come at once the first is done before the last is begun.
    #[tokio::test]
    async fn what_follows_from_one_goes_before_others_that_have_come() {
        let service = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let client = Client::new(service, "default");
        let stores = Stores::new(client, Queues::default(), Arc::new(Nothing), CancellationToken::new());
        let takes = |name, version| stores.autoscalers.take(Event::Apply(autoscaler(name, version)), |object| object);
        ["a", "b", "c"].into_iter().for_each(|name| takes(name, "1"));
        let deployment = |name: &str| TargetKey {
            resource: TargetResource::of("apps/v1", "Deployment"),
            object: Key::new("ns", name),
        };
        stores.tell_of_target(News::Came(&deployment("c")));
        let queue = &stores.queues().autoscalers;
        let next = || queue.try_next().expect("one waits").key().name().to_owned();
        assert_eq!(next(), "a");
        takes("a", "2"); // As what its pass has written.
        assert_eq!([next(), next()], ["a", "b"]);
        stores.tell_of_target(News::Changed(&deployment("b")));
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
        let (client, shutdown) = (Client::new(service, "default"), CancellationToken::new());
        let stores = Stores::new(client.clone(), Queues::default(), Arc::new(Nothing), shutdown.clone());
        stores.autoscalers.take(Event::Init, |object| object);
        stores.autoscalers.take(Event::InitApply(autoscaler("hello", "1")), |object| object);
        stores.autoscalers.take(Event::InitDone, |object| object);
        stores.serverless.take(Event::InitDone, |object| object);
        stores.metrics.take(Event::InitDone, |object| object);
        stores.follow(&client, &shutdown).await;
        assert_eq!(asked.recv().await.as_deref(), Some("/apis/apps/v1/deployments"));
    }
}
