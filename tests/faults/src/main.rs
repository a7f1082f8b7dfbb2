//! Command line of the runs. It prints figures; see the library's documentation.

use clap::{Parser, Subcommand, ValueEnum};
use common::backend::{Probe, ProbeKind, Protocol};
use faults::pod_failure::{self, Fault, Plan};
use faults::{far, flood, front};
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "The activator with pods that fail or are far away, and clients that flood")]
struct Arguments {
    #[command(subcommand)]
    run: Run,
}

#[derive(Subcommand)]
enum Run {
    /// One of three pods fails at 100 requests per second. Needs root and iproute2.
    PodFailure,
    /// A distant pod wakes. Needs root, iproute2 and /dev/net/tun.
    Far,
    /// Clients or pods make the activator, a separate process, hold as much as they can.
    Flood {
        /// Floods to run; all by default.
        kind: Vec<flood::Kind>,
    },
    /// Silent connections to the stat port of an autoscaler, a separate process.
    StatPort,
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
        Run::PodFailure => {
            let (after, work) = (Duration::from_secs(10), Duration::from_millis(50));
            for protocol in [Protocol::Http1, Protocol::H2c] {
                for fault in [Fault::LinkGone, Fault::Unreachable, Fault::BlackHole, Fault::Reset] {
                    println!("{}", pod_failure::run(Plan { fault, protocol, work, after })?);
                }
            }
        }
        Run::Far => {
            for round_trip in [20, 200, 400, 1200].map(Duration::from_millis) {
                for protocol in [Protocol::Http1, Protocol::H2c] {
                    for probe in [ProbeKind::Tcp.into(), Probe::http("/")] {
                        println!("{}", far::run(far::Plan { round_trip, protocol, probe })?);
                    }
                }
            }
        }
        Run::Front { pod, h2c, host } => {
            let protocol = if h2c { Protocol::H2c } else { Protocol::Http1 };
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(front::run(pod, protocol, host))?;
        }
        Run::Flood { kind } => {
            let kinds = if kind.is_empty() { flood::Kind::value_variants().to_vec() } else { kind };
            let mut all_good = true;
            for kind in kinds {
                let figures = flood::run(kind)?;
                println!("{figures}");
                all_good &= figures.is_good();
            }
            anyhow::ensure!(all_good, "a flood went beyond the bounds");
        }
        Run::StatPort => {
            let figures = flood::run_stat_port()?;
            println!("{figures}");
            anyhow::ensure!(figures.is_good(), "the flood went beyond the bounds");
        }
    }
    Ok(())
}
