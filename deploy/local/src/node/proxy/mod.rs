//! Service proxy: a listener for each ClusterIP and port forwards to the current endpoints of the Service.
//!
//! Connections go to the ready endpoints in turn, or, if there is none, to terminating endpoints that still serve. If
//! an endpoint refuses the connection, the next one is tried, since nothing was sent yet. Without any endpoint, the
//! connection is reset at once. Changes of endpoints affect new connections only.
//!
//! This process may lack the rights for a port, or the ClusterIP may not be an address of this machine. Then the proxy
//! listens on another port or address, which [`ServiceTable::lookup`] returns. In-process clients resolve names through
//! [`ServiceResolver`] and do not notice the difference.
//!
//! # Limits
//!
//! UDP, node ports, load balancers, session affinity and topology are not supported.

mod forward;
mod table;

pub use table::{ServiceResolver, ServiceTable};

use common_controller::Cache;
use common_runtime::listen;
use common_runtime::watching::watch;
use forward::Backends;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use table::PortKey;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Pause before the proxy tries again to listen for a Service.
const LISTEN_RETRY: Duration = Duration::from_secs(1);

/// Keeps listeners for all Services until `shutdown`, and updates `table`.
pub(crate) async fn run(client: Client, table: ServiceTable, shutdown: CancellationToken) {
    let mut services = watch(Api::<Service>::all(client.clone()), watcher::Config::default());
    let slices = watcher::Config::default().labels("kubernetes.io/service-name");
    let mut slices = watch(Api::<EndpointSlice>::all(client), slices);
    let mut proxy = Proxy {
        table,
        services: Cache::default(),
        slices: Cache::default(),
        listeners: HashMap::new(),
        refused: HashSet::new(),
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            Some(event) = services.next() => {
                proxy.services.take(event, Arc::new);
                proxy.table.replace_services(proxy.services.all().cloned().collect());
            }
            Some(event) = slices.next() => drop(proxy.slices.take(event, Arc::new)),
            () = tokio::time::sleep(LISTEN_RETRY), if !proxy.refused.is_empty() => {}
        }
        proxy.update();
    }
}

struct Proxy {
    table: ServiceTable,
    services: Cache<Arc<Service>>,
    slices: Cache<Arc<EndpointSlice>>,
    listeners: HashMap<PortKey, Listening>,
    /// Ports without a listener, which are already logged.
    refused: HashSet<PortKey>,
}

/// A listener. Dropping it closes it; its connections continue.
struct Listening {
    requested: SocketAddr,
    local: SocketAddr,
    backends: Arc<Backends>,
    _accepting: DropGuard,
}

impl Proxy {
    /// Updates listeners and table from the known Services and slices.
    fn update(&mut self) {
        if !self.services.is_synced() || !self.slices.is_synced() {
            return;
        }
        let (services, slices) = (self.services.all(), self.slices.all());
        let ports = table::service_ports(services.map(|service| &**service), slices.map(|slice| &**slice));
        self.listeners.retain(|key, open| ports.get(key).is_some_and(|(address, _)| *address == Some(open.requested)));
        self.refused.retain(|key| ports.contains_key(key));
        for (key, (address, backends)) in &ports {
            match (self.listeners.get(key), address) {
                (Some(open), _) => open.backends.set(backends.clone()),
                (None, Some(requested)) => match listener(*requested) {
                    Ok(listener) => {
                        self.listeners.insert(key.clone(), accept(*requested, listener, backends.clone()));
                        if self.refused.remove(key) {
                            tracing::info!(service = %key.0, %requested, "the proxy now listens for the Service");
                        }
                    }
                    Err(error) if self.refused.insert(key.clone()) => {
                        tracing::warn!(service = %key.0, %requested, %error, "the proxy cannot listen for the Service; it tries again until it can");
                    }
                    Err(_) => {} // Already logged.
                },
                (None, None) => {}
            }
        }
        let listeners = &self.listeners;
        self.table.replace(ports.into_iter().filter_map(|(key, (address, backends))| match address {
            Some(_) => listeners.get(&key).map(|open| (key.clone(), vec![open.local])),
            None => Some((key, backends)),
        }));
    }
}

/// Listens at `requested`, or at a substitute address.
fn listener(requested: SocketAddr) -> io::Result<TcpListener> {
    let first = match listen::listen(requested) {
        Ok(listener) => return Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
        Err(error) => error,
    };
    let elsewhere = [SocketAddr::new(requested.ip(), 0), SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)];
    let listener = elsewhere.into_iter().find_map(|address| listen::listen(address).ok());
    let Some(listener) = listener else { return Err(first) };
    let local = listener.local_addr()?;
    tracing::info!(%requested, %local, error = %first, "the proxy listens for the Service on another address");
    Ok(listener)
}

fn accept(requested: SocketAddr, listener: TcpListener, endpoints: Vec<SocketAddr>) -> Listening {
    let backends = Arc::new(Backends::new(endpoints));
    let stop = CancellationToken::new();
    let local = listener.local_addr().unwrap_or(requested);
    tokio::spawn(forward::accept(listener, backends.clone(), stop.clone()));
    Listening { requested, local, backends, _accepting: stop.drop_guard() }
}

#[cfg(test)]
mod tests;
