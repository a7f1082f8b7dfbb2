//! What this program is when a measurement starts it again: a backend, a bare proxy, or the launcher of another
//! program.

mod announce;
pub(crate) mod api;
mod bare;
mod body_backend;
mod exec;
pub(crate) mod http1_backend;
mod http2_backend;
mod kubelet;
pub(crate) mod queue_proxies;
mod stat_floor;
mod steady;
mod tcp_activator;
pub(crate) mod tcp_backend;

use clap::Subcommand;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum Role {
    /// Becomes another program, which ends when our parent does.
    Exec {
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Answers HTTP/1.1 requests without bodies, as cheaply as can be.
    Http1Backend,
    /// Answers HTTP/2 requests; gRPC calls with trailers.
    Http2Backend,
    /// Answers with bodies of the size that is asked for, and takes those that come.
    BodyBackend {
        /// HTTP/2, in place of HTTP/1.1.
        #[arg(long)]
        h2c: bool,
    },
    /// Passes on HTTP/1.1.
    BareHttp1 {
        /// To whom.
        backend: SocketAddr,
    },
    /// Passes on HTTP/2.
    BareHttp2 {
        /// To whom.
        backend: SocketAddr,
    },
    /// Streams bytes without end, or echoes, as the first byte asks.
    TcpBackend,
    /// Is an activator with one port of a workload's own, which carries TCP to one pod.
    TcpActivator {
        /// The pod.
        backend: SocketAddr,
    },
    /// Is an API server, and says what is written to it.
    Api {
        /// Where to put a kubeconfig for it.
        kubeconfig: PathBuf,
        /// Where Services get their addresses.
        range: String,
    },
    /// Is the node of all pods: says that they run, as soon as they are there.
    Kubelet {
        /// Of the API server.
        kubeconfig: PathBuf,
        /// Address of the first pod.
        first: Ipv4Addr,
        /// Does also what the controllers of Deployments, ReplicaSets and EndpointSlices do.
        #[arg(long)]
        controllers: bool,
    },
    /// Is many pods, each with the metrics of a queue-proxy.
    QueueProxies {
        /// Address of the first.
        first: Ipv4Addr,
        /// How many.
        count: u32,
    },
    /// Reads stat frames and counts what is in them.
    StatFloor,
    /// Sends HTTP/1.1 requests at a steady rate, and says the 99th percentile of the answers' times.
    Steady {
        /// To whom.
        address: SocketAddr,
        /// For whom.
        host: String,
        /// Requests a second.
        rate: f64,
        /// For how long.
        seconds: f64,
    },
}

impl Role {
    /// Plays it until the end of the process.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Exec { command } => exec::run(&command),
            Self::Http1Backend => one_thread()?.block_on(http1_backend::run()),
            Self::Http2Backend => one_thread()?.block_on(http2_backend::run()),
            Self::BodyBackend { h2c } => all_cores()?.block_on(body_backend::run(h2c)),
            Self::BareHttp1 { backend } => all_cores()?.block_on(bare::http1(backend)),
            Self::BareHttp2 { backend } => all_cores()?.block_on(bare::http2(backend)),
            Self::TcpBackend => all_cores()?.block_on(tcp_backend::run()),
            Self::TcpActivator { backend } => tcp_activator::run(backend),
            Self::Api { kubeconfig, range } => all_cores()?.block_on(api::run(&kubeconfig, &range)),
            Self::Kubelet { kubeconfig, first, controllers } => {
                all_cores()?.block_on(kubelet::run(&kubeconfig, first, controllers))
            }
            Self::QueueProxies { first, count } => one_thread()?.block_on(queue_proxies::run(first, count)),
            Self::StatFloor => one_thread()?.block_on(stat_floor::run()),
            Self::Steady { address, host, rate, seconds } => steady::run(address, &host, rate, seconds),
        }
    }
}

fn one_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn all_cores() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new()
}
