//! The Service proxy: each ClusterIP and port is a listener that forwards to the Service's current endpoints.
//!
//! Connections go to the ready endpoints in turn; if there is none, to those that end but still serve. An endpoint that
//! refuses the connection is passed over for the next, since nothing was sent to it. With no endpoint at all the
//! connection is reset at once. A change of endpoints concerns new connections only.
//!
//! The port that an address is asked for may need rights that this process lacks, or the address may not be this
//! machine's. Then a port that it can have is used instead, and [`ServiceTable::lookup`] tells where: in-process
//! clients resolve names through [`ServiceResolver`] and never see the difference.
//!
//! # Not here
//!
//! UDP, node ports, load balancers, session affinity, topology.

mod forward;
mod resolver;
mod table;

pub use resolver::ServiceResolver;
pub use table::{Destination, ServiceTable};

use common_controller::Cache;
use common_runtime::listen;
use common_runtime::watching::watch;
use forward::Backends;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use table::{PortKey, Wanted};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use futures::StreamExt;

/// Pause before a Service whose address or port could not be had is tried again.
const LISTEN_RETRY: Duration = Duration::from_secs(1);

/// Keeps listeners for all Services until `shutdown`, and `table` up to date.
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
        proxy.update().await;
    }
}

struct Proxy {
    table: ServiceTable,
    services: Cache<Arc<Service>>,
    slices: Cache<Arc<EndpointSlice>>,
    listeners: HashMap<PortKey, Listening>,
    /// Ports that could not be listened on, which has been said.
    refused: HashSet<PortKey>,
}

/// One listener; dropping it closes it. Connections under way go on.
struct Listening {
    asked: SocketAddr,
    local: SocketAddr,
    backends: Arc<Backends>,
    _accepting: DropGuard,
}

impl Proxy {
    /// Brings listeners and table in line with what is known.
    async fn update(&mut self) {
        if !self.services.is_synced() || !self.slices.is_synced() {
            return;
        }
        let wanted =
            table::wanted(self.services.all().map(|service| &**service), self.slices.all().map(|slice| &**slice));
        self.listeners.retain(|key, held| {
            wanted.get(key).is_some_and(|Wanted { address, .. }| address.is_some_and(|a| a == held.asked))
        });
        self.refused.retain(|key| wanted.contains_key(key));
        for (key, Wanted { address, backends }) in &wanted {
            match (self.listeners.get(key), address) {
                (Some(held), _) => held.backends.set(backends.clone()),
                (None, Some(asked)) => match listener(*asked) {
                    Ok(listener) => {
                        self.listeners.insert(key.clone(), accept(*asked, listener, backends.clone()));
                        if self.refused.remove(key) {
                            tracing::info!(service = %key, %asked, "the Service has its listener now");
                        }
                    }
                    Err(error) if self.refused.insert(key.clone()) => {
                        tracing::warn!(service = %key, %asked, %error, "a Service has no listener; trying again");
                    }
                    Err(_) => {} // Said before.
                },
                (None, None) => {}
            }
        }
        let listeners = &self.listeners;
        self.table.replace(wanted.into_iter().filter_map(|(key, wanted)| {
            let destination = match wanted.address {
                Some(_) => Destination::Proxy(listeners.get(&key)?.local),
                None => Destination::Endpoints(wanted.backends),
            };
            Some((key, destination))
        }));
    }
}

/// A listener at `asked`, or where there may be one.
fn listener(asked: SocketAddr) -> io::Result<TcpListener> {
    let elsewhere = [SocketAddr::new(asked.ip(), 0), SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)];
    let first = match listen::listen(asked) {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    if first.kind() == io::ErrorKind::AddrInUse {
        return Err(first);
    }
    for address in elsewhere {
        if let Ok(listener) = listen::listen(address) {
            let local = listener.local_addr()?;
            tracing::info!(%asked, %local, error = %first, "a Service is served elsewhere than at its address");
            return Ok(listener);
        }
    }
    Err(first)
}

fn accept(asked: SocketAddr, listener: TcpListener, endpoints: Vec<SocketAddr>) -> Listening {
    let backends = Arc::new(Backends::new(endpoints));
    let stop = CancellationToken::new();
    let local = listener.local_addr().unwrap_or(asked);
    tokio::spawn(forward::accept(listener, backends.clone(), stop.clone()));
    Listening { asked, local, backends, _accepting: stop.drop_guard() }
}

#[cfg(test)]
mod tests;
