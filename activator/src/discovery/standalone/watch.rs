//! Revisions from the backend annotation of private Services, addresses from EndpointSlices, both found by
//! one label, in all namespaces. Deployments are never looked at. Which hosts they have beside the names of their Services
//! is the word of the ledger in the system namespace.
//!
//! Who may edit Services and slices of a namespace may write such objects there; what is believed of them is in [`super::proof`].
//!
//! Where EndpointSlices are denied to us or absent, core/v1 Endpoints take their place; where those are denied as well,
//! both are tried in turn. An annotation that cannot be read is reported and leaves the former one in force.

use super::proof::Proof;
use crate::discovery::slices::{Entry, Index, Owner, Ports, Side};
use crate::discovery::{Closed, Event, Spec};
use common::RevisionKey;
use common::backend::Backend;
use common::hosts::ledger;
use common::names;
use common_controller::changes::{self, Change, Changes};
use common_controller::{ObjectKey, key_of};
use common_runtime::watching::watch_unless;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time between two attempts where neither kind may be watched.
const BOTH_DENIED_PAUSE: Duration = Duration::from_secs(5);

/// Watches until the receiver of `events` is gone.
pub(super) async fn run(client: Client, system_namespace: &str, events: mpsc::Sender<Event>) {
    let mut adapter =
        StandaloneWatch { revisions: HashMap::new(), index: Index::default(), listed: Listed::default(), events };
    // Ends with the receiver; there is nobody left to tell.
    let _ = adapter.watch(client, system_namespace).await;
}

struct StandaloneWatch {
    /// By private Service, whose name follows from the revision's.
    revisions: HashMap<ObjectKey, (RevisionKey, Proof)>,
    index: Index,
    listed: Listed,
    events: mpsc::Sender<Event>,
}

/// What has been listed once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Listed {
    services: bool,
    addresses: bool,
    hosts: bool,
}

/// What one of the watches tells.
enum WatchEvent {
    Service(Box<Change<Service>>),
    Hosts(Box<Change<ConfigMap>>),
    Addresses(ObjectKey, Vec<Entry>),
    AddressesListed,
    SlicesDenied(watcher::Error),
    EndpointsDenied,
}

impl StandaloneWatch {
    async fn watch(&mut self, client: Client, system_namespace: &str) -> Result<(), Closed> {
        let mut services = services(client.clone()).boxed();
        let mut hosts = hosts(client.clone(), system_namespace).boxed();
        let mut addresses = slices(client.clone());
        loop {
            let change = tokio::select! {
                Some(change) = services.next() => change,
                Some(change) = addresses.next() => change,
                Some(change) = hosts.next() => change,
                () = self.events.closed() => return Err(Closed),
            };
            match change {
                WatchEvent::SlicesDenied(error) => {
                    tracing::info!(%error, "EndpointSlices cannot be watched, watching Endpoints instead");
                    addresses = endpoints(client.clone());
                }
                WatchEvent::EndpointsDenied => {
                    let slices = slices(client.clone());
                    let pause = tokio::time::sleep(BOTH_DENIED_PAUSE);
                    addresses =
                        futures::stream::once(pause).filter_map(|()| std::future::ready(None)).chain(slices).boxed();
                }
                change => self.take(change).await?,
            }
        }
    }

    async fn take(&mut self, change: WatchEvent) -> Result<(), Closed> {
        match change {
            WatchEvent::Service(change) => match *change {
                Change::Applied(service) => self.service(&service).await?,
                Change::Gone(name) => self.gone(&name).await?,
                Change::Listed => self.set_listed(Listed { services: true, ..self.listed }).await?,
            },
            WatchEvent::Hosts(change) => match *change {
                Change::Applied(map) => self.hosts(&map).await?,
                Change::Gone(name) => {
                    if let Some(namespace) = ledger::namespace_of(name.name()) {
                        self.send(Event::Hosts { namespace: namespace.to_owned(), hosts: Vec::new() }).await?;
                    }
                }
                Change::Listed => self.set_listed(Listed { hosts: true, ..self.listed }).await?,
            },
            WatchEvent::Addresses(name, entries) => {
                for owner in self.index.set(name, entries) {
                    self.tell_addresses(&owner).await?;
                }
            }
            WatchEvent::AddressesListed => self.set_listed(Listed { addresses: true, ..self.listed }).await?,
            WatchEvent::SlicesDenied(_) | WatchEvent::EndpointsDenied => {}
        }
        Ok(())
    }

    async fn service(&mut self, service: &Service) -> Result<(), Closed> {
        let Some(text) = service.annotations().get(names::BACKEND) else { return Ok(()) };
        let name = key_of(service);
        let backend: Backend = match serde_json::from_str(text) {
            Ok(backend) => backend,
            Err(error) => {
                tracing::error!(namespace = name.namespace(), service = name.name(), annotation = names::BACKEND, %error,
                    "annotation refused; what was known stays in force");
                return Ok(());
            }
        };
        let Some(proof) = Proof::of(service, &backend) else {
            tracing::warn!(
                namespace = name.namespace(),
                service = name.name(),
                annotation = names::BACKEND,
                "ignored: the autoscaler makes no such Service"
            );
            return self.gone(&name).await;
        };
        let spec = Spec::standalone(name.namespace(), backend);
        let key = spec.key.clone();
        let former = self.revisions.insert(name, (key.clone(), proof.clone()));
        self.send(Event::Revision(Box::new(spec))).await?;
        // Its slices may have come before it.
        match former {
            Some((_, former)) if former == proof => Ok(()),
            _ => self.tell_all_addresses(&key).await,
        }
    }

    async fn gone(&mut self, name: &ObjectKey) -> Result<(), Closed> {
        let Some((key, _)) = self.revisions.remove(name) else { return Ok(()) };
        self.send(Event::Deleted(key.clone())).await?;
        self.tell_all_addresses(&key).await
    }

    async fn hosts(&mut self, map: &ConfigMap) -> Result<(), Closed> {
        let name = map.name_any();
        let Some(namespace) = ledger::namespace_of(&name) else { return Ok(()) };
        match ledger::grants(map.data.as_ref()) {
            Ok(grants) => {
                let hosts = ledger::hosts(&grants).map(|(host, name)| (host, name.to_owned())).collect();
                self.send(Event::Hosts { namespace: namespace.to_owned(), hosts }).await
            }
            Err(error) => {
                tracing::error!(config_map = name, %error, "hosts refused; what was known stays in force");
                Ok(())
            }
        }
    }

    async fn tell_all_addresses(&self, key: &RevisionKey) -> Result<(), Closed> {
        for side in [Side::Private, Side::Public] {
            self.tell_addresses(&(key.clone(), side)).await?;
        }
        Ok(())
    }

    /// Of slices that are proven to be the revision's.
    async fn tell_addresses(&self, owner: &Owner) -> Result<(), Closed> {
        let (key, side) = owner;
        let service = ObjectKey::new(key.namespace(), names::private_service(key.name()));
        let proof = self.revisions.get(&service).map(|(_, proof)| proof);
        let counts = |entry: &Entry| proof.is_some_and(|proof| proof.covers(entry.owner.as_ref(), *side));
        self.send(self.index.event_of(owner, None, Ports::NamedOrOnly, counts)).await
    }

    async fn set_listed(&mut self, listed: Listed) -> Result<(), Closed> {
        let all = Listed { services: true, addresses: true, hosts: true };
        let before = std::mem::replace(&mut self.listed, listed);
        if listed == all && before != listed {
            self.send(Event::Synced).await?;
        }
        Ok(())
    }

    async fn send(&self, event: Event) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_| Closed)
    }
}

fn services(client: Client) -> impl Stream<Item = WatchEvent> + Send {
    let selector = format!("{}={}", names::SERVICE_TYPE, names::SERVICE_TYPE_PRIVATE);
    let config = watcher::Config::default().labels(&selector);
    changes::watch(Api::<Service>::all(client), config).map(|change| WatchEvent::Service(Box::new(change)))
}

fn hosts(client: Client, system_namespace: &str) -> impl Stream<Item = WatchEvent> + Send + use<> {
    let selector = format!("{}={}", names::LEDGER, names::LEDGER_OF_HOSTS);
    let config = watcher::Config::default().labels(&selector);
    changes::watch(Api::<ConfigMap>::namespaced(client, system_namespace), config)
        .map(|change| WatchEvent::Hosts(Box::new(change)))
}

fn slices(client: Client) -> BoxStream<'static, WatchEvent> {
    let config = watcher::Config::default().labels(names::SERVICE_TYPE);
    let mut changes = Changes::default();
    watch_unless(Api::<EndpointSlice>::all(client), config, is_denied)
        .flat_map(move |event| {
            let news = match event {
                Ok(event) => changes.take(event).into_iter().map(|c| addresses(c, Entry::of_slice)).collect(),
                Err(error) => vec![WatchEvent::SlicesDenied(error)],
            };
            futures::stream::iter(news)
        })
        .boxed()
}

fn endpoints(client: Client) -> BoxStream<'static, WatchEvent> {
    let config = watcher::Config::default().labels(names::SERVICE_TYPE);
    let mut changes = Changes::default();
    watch_unless(Api::<Endpoints>::all(client), config, is_denied)
        .flat_map(move |event| {
            let news = match event {
                Ok(event) => changes.take(event).into_iter().map(|c| addresses(c, Entry::of_endpoints)).collect(),
                Err(_) => vec![WatchEvent::EndpointsDenied],
            };
            futures::stream::iter(news)
        })
        .boxed()
}

/// Whether the API server will not serve this kind to us, however often it is asked.
fn is_denied(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 403 | 404),
        _ => false,
    }
}

fn addresses<K: ResourceExt>(change: Change<K>, entries: impl Fn(&K) -> Vec<Entry>) -> WatchEvent {
    match change {
        Change::Applied(object) => WatchEvent::Addresses(key_of(&object), entries(&object)),
        Change::Gone(name) => WatchEvent::Addresses(name, Vec::new()),
        Change::Listed => WatchEvent::AddressesListed,
    }
}
