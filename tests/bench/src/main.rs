//! `cargo run --profile dist -p bench -- activator|autoscaler [--row NAME]... [--quick]` prints performance figures,
//! one row each.
//!
//! A row is a ratio to a peer that does the same work on the same machine in the same run, or an absolute figure with a
//! unit. Peers and the plane under test take turns in each repetition, so that other activity of the machine affects
//! all of them. A row shows the minimum, median and maximum of its repetitions. Nothing here is a test: no figure fails
//! a build.
//!
//! `report` stores figures in the target directory and writes a page with all of them, so rows can be measured
//! separately ([`report`]). `stand` starts processes for profilers.
//!
//! The planes are the binaries of the same profile, started as in a cluster. The images use `dist`; `release` builds
//! faster, but its programs are a tenth slower. The activator's API server lives in this process and is idle while load
//! runs. The autoscaler's API server and pods are separate processes, since they work at the same time ([`fleet`]).
//! Peers are Debian packages ([`process::Tool`]), and minimal programs of our own ([`role`]).
//!
//! A measurement is one file with its [`report::Row`]s and one function ([`report::Measurement`]).

mod activator;
mod autoscaler;
mod client;
mod cluster;
mod fleet;
mod idle;
mod load;
mod process;
mod proxy;
mod report;
mod role;
mod settings;
mod stalls;

use clap::{Parser, Subcommand};
use common::backend::Protocol;
use process::Process;
use proxy::Target;
use report::{Measurement, PlaneRows, Report};
use settings::{Settings, Sizes};
use std::path::PathBuf;

#[derive(Parser)]
#[command(about = "Measures activator and autoscaler, and other programs that do the same work in the same run")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures rows of a single activator.
    Activator(Selection),
    /// Measures rows of a single autoscaler.
    Autoscaler(Selection),
    /// Measures rows of both planes, and writes pages with all figures of this run and earlier ones.
    Report(ReportArguments),
    /// Starts an activator and its peers for profilers, prints their addresses, and waits.
    Stand {
        /// HTTP/2 on both sides, instead of HTTP/1.1.
        #[arg(long)]
        h2c: bool,
    },
    /// Processes that measurements start.
    #[command(hide = true, subcommand)]
    Role(role::Role),
}

#[derive(clap::Args)]
struct Selection {
    /// Only rows whose names begin with NAME; repeatable.
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// Few and short repetitions, for a first impression.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    sizes: Sizes,
}

#[derive(clap::Args)]
struct ReportArguments {
    #[command(flatten)]
    selection: Selection,
    /// Only rows without figures of this commit.
    #[arg(long)]
    missing: bool,
    /// Folder of the short page and its plots.
    #[arg(long, value_name = "FOLDER", default_value = "deploy/docs")]
    to: PathBuf,
    /// Folder of the page of all rows and its plots.
    #[arg(long, value_name = "FOLDER", default_value = "target/performance")]
    whole: PathBuf,
}

const ACTIVATOR: PlaneRows = ("activator", activator::MEASUREMENTS);
const AUTOSCALER: PlaneRows = ("autoscaler", autoscaler::MEASUREMENTS);

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Role(role) => role.run(),
        Command::Stand { h2c } => run(stand(h2c)),
        Command::Activator(selection) => run(measure(&[ACTIVATOR], &selection, None)),
        Command::Autoscaler(selection) => run(measure(&[AUTOSCALER], &selection, None)),
        Command::Report(arguments) => run(write_report(&arguments)),
    }
}

fn run(running: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(interruptible(running))
}

/// Starts the activator and its peers before one backend, for `perf`, for `valgrind --tool=callgrind`, or for another
/// kind of load. Prints the address and process id of each, and waits until it is ended. With `h2c`, both sides of each
/// use HTTP/2, otherwise HTTP/1.1.
async fn stand(h2c: bool) -> anyhow::Result<()> {
    e2e::process::build(&["activator"])?;
    let settings = Settings::new(true, &Sizes::default());
    let (role, protocol) = if h2c { ("http2-backend", Protocol::H2c) } else { ("http1-backend", Protocol::Http1) };
    let (_backend, backend) = Process::server(&[role])?;
    let targets = [
        Target::direct(backend),
        Target::haproxy(protocol, backend).await?,
        Target::activator(&settings, protocol, backend).await?,
        Target::bare(protocol, backend).await?,
    ];
    println!("host {}", Target::host());
    for target in &targets {
        let process = target.process().map_or_else(String::new, |process| format!(" process {}", process.id()));
        println!("{} {}{process}", target.name, target.address);
    }
    std::future::pending().await
}

/// Measures the selected rows of both planes, and writes the pages of all stored figures.
async fn write_report(arguments: &ReportArguments) -> anyhow::Result<()> {
    let planes = [ACTIVATOR, AUTOSCALER];
    let mut report = Report::open(arguments.missing)?;
    measure(&planes, &arguments.selection, Some(&mut report)).await?;
    report.write(&arguments.to, &arguments.whole, &planes)
}

/// Measures the selected rows. `report` stores the figures after each measurement.
async fn measure(planes: &[PlaneRows], selection: &Selection, mut report: Option<&mut Report>) -> anyhow::Result<()> {
    let all = planes.iter().flat_map(|(plane, all)| all.iter().map(move |measurement| (*plane, measurement)));
    let is_named = |row: &report::Row| selection.rows.iter().any(|name| row.name.starts_with(name.as_str()));
    let is_selected = |measurement: &Measurement| selection.rows.is_empty() || measurement.rows.iter().any(is_named);
    let mut chosen: Vec<_> = all.clone().filter(|(_, measurement)| is_selected(measurement)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = all.flat_map(|(_, measurement)| measurement.rows).map(|row| row.name).collect();
        anyhow::bail!("there is no row of this name; all rows: {}", names.join(", "));
    }
    chosen.retain(|(plane, measurement)| report.as_ref().is_none_or(|report| !report.skips(plane, measurement)));
    let settings = Settings::new(selection.quick, &selection.sizes);
    // Rows of the autoscaler need both planes.
    let both = chosen.iter().any(|(plane, _)| *plane == AUTOSCALER.0);
    e2e::process::build(if both { &["activator", "autoscaler"] } else { &["activator"] })?;
    report::print_title(&settings);
    for (plane, measurement) in chosen {
        let figures = (measurement.run)(&settings).await?;
        report::print(measurement, &figures)?;
        if let Some(report) = &mut report {
            report.add(plane, measurement, &settings, figures)?;
        }
    }
    Ok(())
}

/// Runs `running` until it ends, or until SIGINT or SIGTERM. In all cases, the processes that it started end, too.
async fn interruptible(running: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        done = running => done,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        _ = terminated.recv() => anyhow::bail!("terminated"),
    }
}
