//! Command line of the runs. It prints figures; see the library's documentation.

use clap::{Parser, Subcommand, ValueEnum};
use common::backend::{Probe, ProbeKind, Protocol};
use faults::netns::Fault;
use faults::pod_failure::{self, Plan};
use faults::{client_timeouts, far, flood, front};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "The activator with pods that fail or are far away, and clients that time out or flood")]
struct Arguments {
    #[command(subcommand)]
    run: Run,
}

#[derive(Subcommand)]
enum Run {
    /// One of three pods fails at 100 requests per second. Needs root and iproute2.
    PodFailure {
        /// Load after the failure, in seconds.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Faults to run; all by default.
        #[arg(long)]
        fault: Vec<Fault>,
        /// Only with pods that speak HTTP/2.
        #[arg(long)]
        h2c: bool,
        /// Only with pods that speak HTTP/1.1.
        #[arg(long, conflicts_with = "h2c")]
        http1: bool,
        /// Work of each request, in milliseconds; if it is as long as the load, no connection is ever idle.
        #[arg(long, default_value_t = 50)]
        work: u64,
    },
    /// A distant pod wakes. Needs root, iproute2 and /dev/net/tun.
    Far {
        /// Round-trip times to the pod, in milliseconds.
        #[arg(long, default_values_t = [20, 200, 400, 1200])]
        round_trip: Vec<u64>,
    },
    /// 200 requests per second to one pod that takes two at a time; each times out after a second.
    ClientTimeouts {
        /// Duration of the load, in minutes.
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
    /// Clients or pods make the activator, a separate process, hold as much as they can.
    Flood {
        /// Floods to run; all by default.
        kind: Vec<flood::Kind>,
        /// Duration of each flood, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Number of clients, in percent of each flood's own number.
        #[arg(long, default_value_t = 100)]
        clients: usize,
        /// Program of the activator; by default cargo builds it in this program's profile.
        #[arg(long)]
        activator: Option<PathBuf>,
    },
    /// Silent connections to the stat port of an autoscaler, a separate process.
    StatPort {
        /// Number of connections.
        #[arg(long, default_value_t = 4096)]
        clients: usize,
        /// Duration, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Program of the autoscaler; by default cargo builds it in this program's profile.
        #[arg(long)]
        autoscaler: Option<PathBuf>,
    },
    /// An activator before one pod, controlled by standard input; for `tests/suites`.
    Front {
        /// Address of the pod.
        pod: SocketAddr,
        /// The pod speaks HTTP/2.
        #[arg(long)]
        h2c: bool,
        /// Another host of the revision, besides app.ns.
        #[arg(long)]
        host: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    match Arguments::parse().run {
        Run::PodFailure { seconds, fault, h2c, http1, work } => {
            let faults = if fault.is_empty() { Fault::value_variants().to_vec() } else { fault };
            let (after, work) = (Duration::from_secs(seconds), Duration::from_millis(work));
            for (protocol, is_skipped) in [(Protocol::Http1, h2c), (Protocol::H2c, http1)] {
                for fault in faults.iter().filter(|_| !is_skipped) {
                    println!("{}", pod_failure::run(Plan { fault: *fault, protocol, work, after })?);
                }
            }
        }
        Run::Far { round_trip } => {
            for round_trip in round_trip.into_iter().map(Duration::from_millis) {
                for protocol in [Protocol::Http1, Protocol::H2c] {
                    for probe in [ProbeKind::Tcp.into(), Probe::http("/")] {
                        println!("{}", far::run(far::Plan { round_trip, protocol, probe })?);
                    }
                }
            }
        }
        Run::ClientTimeouts { minutes } => {
            print!("{}", runtime()?.block_on(client_timeouts::run(Duration::from_secs(minutes * 60)))?);
        }
        Run::Front { pod, h2c, host } => {
            let protocol = if h2c { Protocol::H2c } else { Protocol::Http1 };
            runtime()?.block_on(front::run(pod, protocol, host))?;
        }
        Run::Flood { kind, seconds, clients, activator } => {
            let kinds = if kind.is_empty() { flood::Kind::value_variants().to_vec() } else { kind };
            let mut all_good = true;
            for kind in kinds {
                let figures = flood::run(kind, clients, Duration::from_secs(seconds), activator.clone())?;
                println!("{figures}");
                all_good &= figures.is_good();
            }
            anyhow::ensure!(all_good, "a flood went beyond the bounds");
        }
        Run::StatPort { clients, seconds, autoscaler } => {
            let figures = flood::run_stat_port(clients, Duration::from_secs(seconds), autoscaler)?;
            println!("{figures}");
            anyhow::ensure!(figures.is_good(), "the flood went beyond the bounds");
        }
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
