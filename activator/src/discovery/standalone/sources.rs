//! The watches of standalone, as streams of what they tell.

use crate::discovery::listing;
use crate::discovery::slices::{Entry, Labels};
use common::names;
use common_api::ZeroScaler;
use common_controller::changes::{self, Change, Changes};
use common_controller::{ObjectKey, key_of};
use common_runtime::watching::watch_unless;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::time::Duration;

/// Time between two attempts at what may not be watched.
const DENIED_PAUSE: Duration = Duration::from_secs(5);

/// What one of the watches tells.
pub(super) enum WatchEvent {
    Scaler(Box<Change<ZeroScaler>>),
    ScalersDenied(watcher::Error),
    Numbers(Box<Change<ConfigMap>>),
    Service(Box<Change<Service>>),
    Hosts(Box<Change<ConfigMap>>),
    Addresses(ObjectKey, Vec<Entry>),
    AddressesListed,
    SlicesDenied(watcher::Error),
    EndpointsDenied,
}

pub(super) fn services(client: Client) -> impl Stream<Item = WatchEvent> + Send {
    let selector = format!("{}={}", names::SIDE, names::SERVICE_TYPE_PRIVATE);
    let config = listing().labels(&selector);
    changes::watch(Api::<Service>::all(client), config).map(|change| WatchEvent::Service(Box::new(change)))
}

pub(super) fn zero_scalers(client: Client) -> BoxStream<'static, WatchEvent> {
    let mut changes = Changes::default();
    watch_unless(Api::<ZeroScaler>::all(client), listing(), is_denied)
        .flat_map(move |event| {
            let news = match event {
                Ok(event) => changes.take(event).into_iter().map(|c| WatchEvent::Scaler(Box::new(c))).collect(),
                Err(error) => vec![WatchEvent::ScalersDenied(error)],
            };
            futures::stream::iter(news)
        })
        .boxed()
}

pub(super) fn numbers(client: Client, system_namespace: &str) -> impl Stream<Item = WatchEvent> + Send + use<> {
    let selector = format!("{}={}", names::LEDGER, names::LEDGER_OF_PORTS);
    let config = watcher::Config::default().labels(&selector);
    changes::watch(Api::<ConfigMap>::namespaced(client, system_namespace), config)
        .map(|change| WatchEvent::Numbers(Box::new(change)))
}

/// The same, later.
pub(super) fn after_pause(stream: BoxStream<'static, WatchEvent>) -> BoxStream<'static, WatchEvent> {
    let pause = tokio::time::sleep(DENIED_PAUSE);
    futures::stream::once(pause).filter_map(|()| std::future::ready(None)).chain(stream).boxed()
}

pub(super) fn hosts(client: Client, system_namespace: &str) -> impl Stream<Item = WatchEvent> + Send + use<> {
    let selector = format!("{}={}", names::LEDGER, names::LEDGER_OF_HOSTS);
    let config = watcher::Config::default().labels(&selector);
    changes::watch(Api::<ConfigMap>::namespaced(client, system_namespace), config)
        .map(|change| WatchEvent::Hosts(Box::new(change)))
}

pub(super) fn slices(client: Client) -> BoxStream<'static, WatchEvent> {
    let config = listing().labels(names::SIDE);
    let mut changes = Changes::default();
    watch_unless(Api::<EndpointSlice>::all(client), config, is_denied)
        .flat_map(move |event| {
            let news = match event {
                Ok(event) => changes
                    .take(event)
                    .into_iter()
                    .map(|c| addresses(c, |slice| Entry::of_slice(Labels::OWN, slice)))
                    .collect(),
                Err(error) => vec![WatchEvent::SlicesDenied(error)],
            };
            futures::stream::iter(news)
        })
        .boxed()
}

pub(super) fn endpoints(client: Client) -> BoxStream<'static, WatchEvent> {
    let config = listing().labels(names::SIDE);
    let mut changes = Changes::default();
    watch_unless(Api::<Endpoints>::all(client), config, is_denied)
        .flat_map(move |event| {
            let news = match event {
                Ok(event) => changes
                    .take(event)
                    .into_iter()
                    .map(|c| addresses(c, |of| Entry::of_endpoints(Labels::OWN, of)))
                    .collect(),
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
