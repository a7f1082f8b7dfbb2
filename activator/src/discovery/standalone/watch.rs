//! Revisions from the backend annotation of private Services, addresses from EndpointSlices, both found by
//! one label, in all namespaces. Deployments are never looked at.
//!
//! Where EndpointSlices are denied to us or absent, core/v1 Endpoints take their place; where those are denied as well,
//! both are tried in turn. An annotation that cannot be read is reported and leaves the former one in force.

use crate::discovery::slices::{Entry, Index, Ports};
use crate::discovery::{Closed, Event, Spec};
use common::RevisionKey;
use common::backend::Backend;
use common::names;
use common_controller::changes::{self, Change, Changes};
use common_controller::{ObjectKey, key_of};
use common_runtime::watching::watch_unless;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time between two attempts where neither kind may be watched.
const BOTH_DENIED_PAUSE: Duration = Duration::from_secs(5);

/// Watches until the receiver of `events` is gone.
pub(super) async fn run(client: Client, events: mpsc::Sender<Event>) {
    let mut adapter =
        StandaloneWatch { services: HashMap::new(), index: Index::default(), listed: (false, false), events };
    // Ends with the receiver; there is nobody left to tell.
    let _ = adapter.watch(client).await;
}

struct StandaloneWatch {
    services: HashMap<ObjectKey, RevisionKey>,
    index: Index,
    /// Whether Services, and addresses, have been listed once.
    listed: (bool, bool),
    events: mpsc::Sender<Event>,
}

/// What one of the watches tells.
enum WatchEvent {
    Service(Box<Change<Service>>),
    Addresses(ObjectKey, Vec<Entry>),
    AddressesListed,
    SlicesDenied(watcher::Error),
    EndpointsDenied,
}

impl StandaloneWatch {
    async fn watch(&mut self, client: Client) -> Result<(), Closed> {
        let mut services = services(client.clone()).boxed();
        let mut addresses = slices(client.clone());
        loop {
            let change = tokio::select! {
                Some(change) = services.next() => change,
                Some(change) = addresses.next() => change,
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
                Change::Gone(name) => {
                    if let Some(key) = self.services.remove(&name) {
                        self.send(Event::Deleted(key)).await?;
                    }
                }
                Change::Listed => self.set_listed((true, self.listed.1)).await?,
            },
            WatchEvent::Addresses(name, entries) => {
                for owner in self.index.set(name, entries) {
                    let event = self.index.event(&owner, None, Ports::NamedOrOnly);
                    self.send(event).await?;
                }
            }
            WatchEvent::AddressesListed => self.set_listed((self.listed.0, true)).await?,
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
        let spec = Spec::standalone(name.namespace(), backend);
        let former = self.services.insert(name, spec.key.clone());
        if let Some(former) = former.filter(|former| *former != spec.key) {
            self.send(Event::Deleted(former)).await?;
        }
        self.send(Event::Revision(Box::new(spec))).await
    }

    async fn set_listed(&mut self, listed: (bool, bool)) -> Result<(), Closed> {
        let before = std::mem::replace(&mut self.listed, listed);
        if listed == (true, true) && before != listed {
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
