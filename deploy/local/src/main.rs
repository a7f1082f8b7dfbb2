//! `local`: a small Kubernetes on one machine. Its API server and its node also run on their own.

use clap::{Parser, Subcommand};
use common_runtime::{descriptor, telemetry};
use local::ending;
use local::node::NodeArgs;
use local::up::{self, ApiArgs, UpOptions};
use std::process::ExitCode;

/// A small Kubernetes in one process, with Zeroscale inside.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts a whole cluster, applies manifests and prints events.
    Up(Box<UpOptions>),
    /// Starts only an API server and its controllers.
    Api(ApiArgs),
    /// Makes this machine a node of any cluster, for pods with `schedulerName: zeroscale-local`.
    Node(NodeArgs),
    /// Runs the sample workload: an HTTP server on $HOST:$PORT, configured by its environment.
    Hello,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if matches!(command, Command::Hello) {
        return hello::main(); // It must start fast: no logs, no threads.
    }
    // The clients of the API server report its errors, so the server itself logs only warnings.
    telemetry::init_logs(telemetry::Format::Text, "warn");
    descriptor::raise_limit();
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("local: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = ending::token()?;
        match command {
            Command::Up(options) => up::run(*options, shutdown).await,
            Command::Api(args) => up::run_api(args, shutdown).await,
            Command::Node(args) => args.run(shutdown).await,
            Command::Hello => Ok(()),
        }
    })
}
