//! Roles of this program when a measurement starts it again, such as a backend, a proxy, or the launcher of another
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
    /// Becomes another program, which ends when the process that started this one ends.
    Exec {
        /// Program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Responds to HTTP/1.1 requests without bodies, as cheaply as possible.
    Http1Backend,
    /// Responds to HTTP/2 requests, and to gRPC calls with trailers.
    Http2Backend,
    /// Responds with bodies of the requested size, and accepts uploaded ones.
    BodyBackend,
    /// Relays HTTP with hyper only.
    Bare {
        /// Address of the backend.
        backend: SocketAddr,
        /// HTTP/2, instead of HTTP/1.1.
        #[arg(long)]
        h2c: bool,
    },
    /// Streams bytes without end, or echoes, depending on the first byte.
    TcpBackend,
    /// Runs an activator that relays TCP from the port of one workload to one pod.
    TcpActivator {
        /// Address of the pod.
        backend: SocketAddr,
    },
    /// Runs an API server, and reports writes to it.
    Api {
        /// Path for its kubeconfig.
        kubeconfig: PathBuf,
        /// Address range of Services.
        range: String,
    },
    /// Simulates the node of all pods: reports each as running at once.
    Kubelet {
        /// Kubeconfig of the API server.
        kubeconfig: PathBuf,
        /// Address of the first pod.
        first: Ipv4Addr,
        /// Also runs the controllers of Deployments, ReplicaSets and EndpointSlices.
        #[arg(long)]
        controllers: bool,
    },
    /// Simulates many pods, each with the metrics of a queue-proxy.
    QueueProxies {
        /// Address of the first pod.
        first: Ipv4Addr,
        /// Number of pods.
        count: u32,
    },
    /// Reads and decodes stat frames.
    StatFloor,
    /// Sends HTTP/1.1 requests at a steady rate, and prints the 99th percentile of the response times.
    Steady {
        /// Address of the server.
        address: SocketAddr,
        /// Host of the requests.
        host: String,
        /// Requests per second.
        rate: f64,
        /// Duration in seconds.
        seconds: f64,
    },
}

impl Role {
    /// Runs the role until the end of the process.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Exec { command } => exec::run(&command),
            Self::Http1Backend => one_thread()?.block_on(http1_backend::run()),
            Self::Http2Backend => one_thread()?.block_on(http2_backend::run()),
            Self::BodyBackend => all_cores()?.block_on(body_backend::run()),
            Self::Bare { backend, h2c } => all_cores()?.block_on(bare::run(h2c, backend)),
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
