//! What the reconcilers know of the cluster: one watch for each kind, indices that are up to date with every event, and
//! the way from an event to the keys it concerns.
//!
//! | event | PodAutoscaler keys | ServerlessService keys (standalone) | Metric keys |
//! |---|---|---|---|
//! | PodAutoscaler | itself; those that share a host | itself, unless only its status changed; those that share a host | – |
//! | ServerlessService | its owner | itself | – |
//! | Metric | its owner | – | itself |
//! | target | those that name it | the same | – |
//! | Service | those whose public Service it is | the same, and its owner | – |
//! | EndpointSlice | – | its label's; those whose public Service it is about; all, if about `activator-service` | – |
//!
//! Pods are counted behind [`crate::scale::Pods`], and decisions made behind [`crate::scale::Deciders`]: both come over
//! the attention feed.
//!
//! Services and slices are watched in standalone alone. There the watches are not narrowed by labels: a foreign Service
//! of our name, and slices that others left behind, have none of ours.

pub(crate) mod facts;
pub(crate) mod links;
pub(crate) mod targets;

use crate::standalone::Hpa;
use common::RevisionKey as Key;
use common::annotations::{self, Settings};
use common::names;
use common_api::{Metric, PodAutoscaler, ServerlessService};
use common_controller::objects::controller;
use common_controller::{Priority, Store, WorkQueue};
use common_runtime::environment::Mode;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use links::{Links, Refers};
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use targets::{News, TargetKey, Targets};
use tokio_util::sync::CancellationToken;

/// The three controllers' queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    /// PodAutoscalers.
    pub(crate) autoscalers: WorkQueue<Key>,
    /// ServerlessServices; stays empty in a Knative install.
    pub(crate) serverless: WorkQueue<Key>,
    /// Metrics.
    pub(crate) metrics: WorkQueue<Key>,
}

/// Everything that is watched.
pub(crate) struct World {
    /// PodAutoscalers, of all classes.
    pub(crate) autoscalers: Arc<Store<PodAutoscaler>>,
    /// ServerlessServices.
    pub(crate) serverless: Arc<Store<ServerlessService>>,
    /// Metrics.
    pub(crate) metrics: Arc<Store<Metric>>,
    /// Services; standalone only.
    pub(crate) services: Arc<Store<Service>>,
    /// EndpointSlices; standalone only.
    pub(crate) slices: Arc<Store<EndpointSlice>>,
    /// What PodAutoscalers scale.
    pub(crate) targets: Targets,
    routes: Arc<Routes>,
}

/// From events to keys.
struct Routes {
    mode: Mode,
    hpa: Hpa,
    /// `activator-service`.
    activators: Key,
    queues: Queues,
    links: Links,
    /// Slices by the Service they are about.
    slices: RwLock<HashMap<Key, BTreeSet<Key>>>,
    /// All ServerlessServices, for events that concern each of them.
    serverless: RwLock<BTreeSet<Key>>,
    /// All PodAutoscalers, likewise.
    autoscalers: RwLock<BTreeSet<Key>>,
}

impl World {
    /// A world that knows nothing yet; [`World::follow`] fills it.
    pub(crate) fn new(
        client: Client,
        (mode, hpa): (Mode, Hpa),
        system_namespace: &str,
        queues: Queues,
        shutdown: CancellationToken,
    ) -> Self {
        let routes = Arc::new(Routes {
            mode,
            hpa,
            activators: Key::new(system_namespace, names::ACTIVATOR_SERVICE),
            queues,
            links: Links::default(),
            slices: RwLock::default(),
            serverless: RwLock::default(),
            autoscalers: RwLock::default(),
        });
        let r = || routes.clone();
        let (a, s, m, v, e, t) = (r(), r(), r(), r(), r(), r());
        Self {
            autoscalers: Arc::new(Store::packing(move |key, old, new| a.autoscaler(key, old, new))),
            serverless: Arc::new(Store::packing(move |key, old, new| s.serverless(key, old, new))),
            metrics: Arc::new(Store::packing(move |key, old, new| m.metric(key, old, new))),
            services: Arc::new(Store::packing(move |key, old, new| v.service(key, old, new))),
            slices: Arc::new(Store::packing(move |key, old, new| e.slice(key, old, new))),
            targets: Targets::new(client, shutdown, move |news| t.target(news)),
            routes,
        }
    }

    /// Starts all watches, which end with `shutdown`, and waits until each kind has been listed once.
    pub(crate) async fn follow(&self, client: &Client, shutdown: &CancellationToken) {
        self.autoscalers.spawn(Api::all(client.clone()), shutdown);
        self.serverless.spawn(Api::all(client.clone()), shutdown);
        self.metrics.spawn(Api::all(client.clone()), shutdown);
        if self.routes.mode == Mode::Standalone {
            self.services.spawn(Api::all(client.clone()), shutdown);
            self.slices.spawn(Api::all(client.clone()), shutdown);
        }
        let synced = async {
            self.autoscalers.synced().await;
            self.serverless.synced().await;
            self.metrics.synced().await;
            if self.routes.mode == Mode::Standalone {
                self.services.synced().await;
                self.slices.synced().await;
            }
        };
        tokio::select! {
            () = synced => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Asks for all PodAutoscalers, their Metrics, and in standalone all ServerlessServices, to be reconciled when
    /// there is time: whoever gains a revision begins to collect, whoever loses it stops.
    pub(crate) fn sweep(&self) {
        for key in self.routes.autoscalers.read().iter() {
            self.routes.queues.metrics.add(key.clone(), Priority::Slow);
            self.routes.both(key, Priority::Slow);
        }
    }

    /// Asks for the revision of this name to be reconciled now, because a decision, its measurement or its pods have
    /// changed.
    pub(crate) fn attend(&self, key: &Key) {
        self.routes.queues.autoscalers.add(key.clone(), Priority::Urgent);
        self.routes.queues.metrics.add(key.clone(), Priority::Normal);
        if self.routes.mode == Mode::Standalone {
            self.routes.queues.serverless.add(key.clone(), Priority::Normal);
        }
    }

    /// Slices about a Service, whoever wrote them, in order of their names.
    pub(crate) fn slices_of(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        let keys = self.routes.slices.read().get(service).cloned().unwrap_or_default();
        keys.iter().filter_map(|key| self.slices.get(key)).collect()
    }

    /// Slices of `activator-service`.
    pub(crate) fn activators(&self) -> Vec<Arc<EndpointSlice>> {
        self.slices_of(&self.routes.activators)
    }

    /// The PodAutoscaler that a host belongs to.
    pub(crate) fn owner_of_host(&self, host: &str) -> Option<Key> {
        self.routes.links.owner_of_host(host)
    }
}

impl Routes {
    fn both(&self, key: &Key, lane: Priority) {
        self.queues.autoscalers.add(key.clone(), lane);
        if self.mode == Mode::Standalone {
            self.queues.serverless.add(key.clone(), lane);
        }
    }

    fn autoscaler(&self, key: &Key, old: Option<&Arc<PodAutoscaler>>, new: Option<&Arc<PodAutoscaler>>) {
        match new {
            Some(_) => self.autoscalers.write().insert(key.clone()),
            None => self.autoscalers.write().remove(key),
        };
        for other in self.links.apply(key, new.map(|autoscaler| self.refers(key, autoscaler))) {
            self.both(&other, Priority::Normal);
        }
        self.queues.autoscalers.add(key.clone(), Priority::Normal);
        let same = |a: &Arc<PodAutoscaler>, b: &Arc<PodAutoscaler>| {
            a.spec == b.spec && asked(&a.metadata) == asked(&b.metadata)
        };
        if self.mode == Mode::Standalone && !old.zip(new).is_some_and(|(old, new)| same(old, new)) {
            self.queues.serverless.add(key.clone(), Priority::Normal);
        }
    }

    fn refers(&self, key: &Key, autoscaler: &PodAutoscaler) -> Refers {
        let target = TargetKey::of(key.namespace(), &autoscaler.spec.scale_target_ref).ok();
        if self.mode == Mode::Knative {
            return Refers { target, ..Refers::default() };
        }
        // What cannot be read is refused by the reconciler; until it is put right the object claims nothing but its
        // name.
        let settings = Settings::read(autoscaler.annotations()).unwrap_or_default();
        let of = autoscaler.annotations();
        let claims = annotations::is_kpa(of) || (annotations::is_hpa(of) && self.hpa == Hpa::Engine);
        Refers {
            created: autoscaler.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            target,
            service: Some(Key::new(key.namespace(), public_service(key, &settings))),
            hosts: settings.hosts.iter().filter(|_| claims).map(ToString::to_string).collect(),
        }
    }

    fn serverless(&self, key: &Key, old: Option<&Arc<ServerlessService>>, new: Option<&Arc<ServerlessService>>) {
        match new {
            Some(_) => self.serverless.write().insert(key.clone()),
            None => self.serverless.write().remove(key),
        };
        if self.mode == Mode::Standalone {
            self.queues.serverless.add(key.clone(), Priority::Normal);
        }
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

    fn service(&self, key: &Key, old: Option<&Arc<Service>>, new: Option<&Arc<Service>>) {
        for autoscaler in self.links.of_service(key) {
            self.both(&autoscaler, Priority::Normal);
        }
        let owner = new.or(old).and_then(|service| controller(&service.metadata));
        if let Some(owner) = owner.filter(|owner| owner.kind == "ServerlessService") {
            self.queues.serverless.add(Key::new(key.namespace(), owner.name.as_str()), Priority::Normal);
        }
    }

    fn slice(&self, key: &Key, old: Option<&Arc<EndpointSlice>>, new: Option<&Arc<EndpointSlice>>) {
        let about = |slice: &Arc<EndpointSlice>| {
            let service = slice.labels().get(crate::standalone::serverless::slices::SERVICE_NAME)?;
            Some(Key::new(key.namespace(), service.as_str()))
        };
        let (before, after) = (old.and_then(about), new.and_then(about));
        if before != after {
            let mut slices = self.slices.write();
            if let Some(service) = &before {
                slices.entry(service.clone()).or_default().remove(key);
                if slices.get(service).is_some_and(BTreeSet::is_empty) {
                    slices.remove(service);
                }
            }
            if let Some(service) = &after {
                slices.entry(service.clone()).or_default().insert(key.clone());
            }
        }
        for service in before.iter().chain(after.iter().filter(|after| before.as_ref() != Some(*after))) {
            if *service == self.activators {
                for serverless in self.serverless.read().iter() {
                    self.queues.serverless.add(serverless.clone(), Priority::Slow);
                }
            }
            for autoscaler in self.links.of_service(service) {
                self.queues.serverless.add(autoscaler, Priority::Normal);
            }
        }
        let label = new.or(old).and_then(|slice| slice.labels().get(names::SERVERLESS_SERVICE).cloned());
        if let Some(name) = label {
            self.queues.serverless.add(Key::new(key.namespace(), name), Priority::Normal);
        }
    }

    fn target(&self, news: News<'_>) {
        match news {
            News::Changed(target) => {
                for autoscaler in self.links.of_target(target) {
                    self.both(&autoscaler, Priority::Normal);
                }
            }
            News::Listed => {
                for key in self.autoscalers.read().iter() {
                    self.both(key, Priority::Normal);
                }
            }
        }
    }
}

/// The parts of the metadata that a user asks something with.
fn asked(meta: &ObjectMeta) -> impl PartialEq + '_ {
    (&meta.annotations, &meta.labels, &meta.deletion_timestamp, &meta.uid)
}

/// Name of the Service that clients call.
pub(crate) fn public_service<'a>(autoscaler: &'a Key, settings: &'a Settings) -> &'a str {
    settings.service.as_deref().unwrap_or(autoscaler.name())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
