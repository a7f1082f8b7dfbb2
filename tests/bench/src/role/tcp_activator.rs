//! Activator that listens on a port that belongs to one workload. It gets its objects as events instead of from an API
//! server, and no server receives its stats. Neither affects the cost of relayed bytes.

use super::announce::print;
use activator::discovery::{Event, Listing, Port, Spec};
use activator::{Configs, Options, WorkerRuntimes};
use common::RevisionKey;
use common::backend::Backend;
use common::ports::{Block, Entry, NumberState, PortId};
use common_api::zeroscaler::PortProtocol;
use common_runtime::environment::Mode;
use common_runtime::resolve::Dns;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const NAMESPACE: &str = "bench";
const NAME: &str = "warm";
const UID: &str = "warm-uid";

/// Serves forever. Prints the address once the port accepts connections.
pub(super) fn run(pod: SocketAddr) -> anyhow::Result<()> {
    let workers = WorkerRuntimes::for_cores(std::thread::available_parallelism()?)?;
    super::all_cores()?.block_on(serve(workers, pod))
}

async fn serve(workers: Arc<WorkerRuntimes>, pod: SocketAddr) -> anyhow::Result<()> {
    let free = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let mut options = Options::new("activator-0", IpAddr::from(Ipv4Addr::LOCALHOST), Mode::Standalone);
    (options.http1, options.h2c, options.workers) = (free, free, Some(workers));
    options.stat_url = "ws://127.0.0.1:9".to_owned(); // No server listens there.
    let (events, receiver) = mpsc::channel(4);
    let _activator = activator::start(options, receiver, Arc::new(Dns), Configs::default()).await?;
    let address = TcpListener::bind(free).await?.local_addr()?; // The port is free, since the listener is closed again.
    let (key, id) = (RevisionKey::new(NAMESPACE, NAME), PortId { name: String::new(), port: 80 });
    let port = Port { id: id.clone(), protocol: PortProtocol::Tcp, wake_after: None, pod_port: None, spoken: None };
    let spec =
        Spec { uid: UID.into(), ports: Box::new([port]), ..Spec::standalone(NAMESPACE, NAME, Backend::plain(NAME)) };
    let listing = Listing { ready: [pod.into()].into(), ..Listing::default() };
    let entry = Entry { state: NumberState::Held, key: key.clone(), uid: UID.into(), port: id };
    let numbers =
        Event::Numbers { block: Block::containing(address.port()), entries: [(address.port(), entry)].into() };
    for event in [Event::Revision(Arc::new(spec)), Event::Pods { key, listing }, numbers, Event::Synced] {
        events.send(event).await?;
    }
    while TcpStream::connect(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    print(address)?;
    std::future::pending().await
}
