//! An activator with one port of a workload's own. Its cluster is a stream of events, and nobody hears its stats: none
//! of that is on the way of a byte.

use super::announce::say;
use activator::discovery::{Event, Listing, Spec};
use activator::{Configs, Options, Port, PortListeners, PortProtocol, WorkerRuntimes};
use common::RevisionKey;
use common::backend::Backend;
use common_runtime::environment::Mode;
use common_runtime::resolve::Dns;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const NAMESPACE: &str = "bench";
const NAME: &str = "warm";

/// Serves for ever, and says where once the pod is in use.
pub(super) fn run(pod: SocketAddr) -> anyhow::Result<()> {
    let workers = WorkerRuntimes::for_cores(std::thread::available_parallelism()?, |_| {})?;
    super::all_cores()?.block_on(serve(workers, pod))
}

async fn serve(workers: WorkerRuntimes, pod: SocketAddr) -> anyhow::Result<()> {
    let free = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let mut options = Options::new("activator-0", IpAddr::from(Ipv4Addr::LOCALHOST), Mode::Standalone);
    (options.http1, options.h2c, options.workers) = (free, free, Some(workers));
    options.stat_url = "ws://127.0.0.1:9".to_owned(); // Where nobody listens.
    let (events, receiver) = mpsc::channel(4);
    let activator = activator::start(options, receiver, Arc::new(Dns), Configs::default()).await?;
    let key = RevisionKey::new(NAMESPACE, NAME);
    let spec = Spec::standalone(NAMESPACE, Backend::plain(NAME));
    let listing = Listing { ready: [pod.into()].into(), ..Listing::default() };
    for event in [Event::Revision(Arc::new(spec)), Event::Pods { key: key.clone(), listing }, Event::Synced] {
        events.send(event).await?;
    }
    let address = TcpListener::bind(free).await?.local_addr()?; // Free, since it is closed again.
    let protocol = PortProtocol::Tcp { wake_after: Duration::from_millis(100) };
    let listeners = PortListeners::new(address.ip(), None)?;
    listeners.bind(address.port(), Arc::new(Port { workload: Arc::new(key), pod_port: None, protocol }));
    activator.ports.listen(&listeners);
    say(address)?;
    std::future::pending().await
}
