//! Watches of standalone mode, as streams of events.

use crate::discovery::listing;
use common::names;
use common_api::ZeroScaler;
use common_controller::changes::{self, Change};
use common_runtime::namespaces::Namespaces;
use common_runtime::watching::{watch, watch_unless};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client};
use std::time::Duration;

/// Pause before another attempt to watch a denied kind.
const DENIED_PAUSE: Duration = Duration::from_secs(5);

/// Client and namespaces of the watches.
pub(super) type WatchScope<'a> = (&'a Client, &'a Namespaces);

/// Event of one of the watches.
pub(super) enum WatchEvent {
    Scaler(Box<watcher::Event<ZeroScaler>>),
    ScalersDenied(watcher::Error),
    Numbers(Box<Change<ConfigMap>>),
    Service(Box<watcher::Event<Service>>),
    Hosts(Box<Change<ConfigMap>>),
    Slice(Box<watcher::Event<EndpointSlice>>),
    Endpoints(Box<watcher::Event<Endpoints>>),
    SlicesDenied(watcher::Error),
    EndpointsDenied,
}

pub(super) fn services((client, namespaces): WatchScope<'_>) -> impl Stream<Item = WatchEvent> + Send + use<> {
    let selector = format!("{}={}", names::SIDE, names::SERVICE_TYPE_PRIVATE);
    let config = listing().labels(&selector);
    watch(namespaces.reach::<Service>(client), config).map(|event| WatchEvent::Service(Box::new(event)))
}

pub(super) fn zero_scalers((client, namespaces): WatchScope<'_>) -> BoxStream<'static, WatchEvent> {
    watch_unless(namespaces.reach::<ZeroScaler>(client), listing(), is_denied)
        .map(|event| event.map_or_else(WatchEvent::ScalersDenied, |event| WatchEvent::Scaler(Box::new(event))))
        .boxed()
}

pub(super) fn numbers(client: Client, system_namespace: &str) -> impl Stream<Item = WatchEvent> + Send + use<> {
    let selector = format!("{}={}", names::LEDGER, names::LEDGER_OF_PORTS);
    let config = watcher::Config::default().labels(&selector);
    changes::watch(Api::<ConfigMap>::namespaced(client, system_namespace), config)
        .map(|change| WatchEvent::Numbers(Box::new(change)))
}

/// Returns the stream, delayed by a pause.
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

pub(super) fn slices((client, namespaces): WatchScope<'_>) -> BoxStream<'static, WatchEvent> {
    let config = listing().labels(names::SIDE);
    watch_unless(namespaces.reach::<EndpointSlice>(client), config, is_denied)
        .map(|event| event.map_or_else(WatchEvent::SlicesDenied, |event| WatchEvent::Slice(Box::new(event))))
        .boxed()
}

pub(super) fn endpoints((client, namespaces): WatchScope<'_>) -> BoxStream<'static, WatchEvent> {
    let config = listing().labels(names::SIDE);
    watch_unless(namespaces.reach::<Endpoints>(client), config, is_denied)
        .map(|event| event.map_or(WatchEvent::EndpointsDenied, |event| WatchEvent::Endpoints(Box::new(event))))
        .boxed()
}

/// Reports whether the API server permanently refuses to serve this kind.
fn is_denied(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 403 | 404),
        _ => false,
    }
}
