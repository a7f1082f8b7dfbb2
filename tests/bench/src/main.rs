//! `cargo run --profile dist -p bench -- activator|autoscaler [--row NAME]... [--quick]` prints the rows of "how fast
//! is fast".
//!
//! Every row is a ratio to a peer that does the same work on the same machine in the same run, or a figure that no
//! machine changes much (bytes). Peers and the plane under test take turns, repetition by repetition, so that what the
//! machine does meanwhile falls on all of them; a row shows the least, the median and the greatest of the repetitions.
//! Nothing here is a test: no figure fails a build.
//!
//! The planes are the binaries of the same profile (`dist` is what images hold; `release` builds sooner and costs a
//! tenth more), started as a cluster starts them. The activator's API server lives in this process and does nothing
//! while load runs; the autoscaler's, and its pods, are processes of their own, since they work while it does
//! ([`fleet`]). Peers are Debian's packages ([`tools`]), and ours that do the least ([`role`]).
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
mod tools;

use clap::{Parser, Subcommand};
use report::Measurement;
use settings::Settings;

#[derive(Parser)]
#[command(about = "What the planes cost, beside peers that do the same work in the same run")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Rows of a single activator.
    Activator(Selection),
    /// Rows of a single autoscaler.
    Autoscaler(Selection),
    /// Processes that measurements start.
    #[command(hide = true, subcommand)]
    Role(role::Role),
}

#[derive(clap::Args)]
struct Selection {
    /// Only rows whose names begin so; may be given several times.
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// Few and short repetitions: a first impression.
    #[arg(long)]
    quick: bool,
    /// Repetitions of what is measured by repetitions.
    #[arg(long, value_name = "N")]
    repetitions: Option<usize>,
    /// Revisions of a large autoscaler; 10 000, or 1 000 of a quick one, unless it is said.
    #[arg(long, value_name = "N")]
    revisions: Option<usize>,
    /// Names the rows and ends.
    #[arg(long)]
    list: bool,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Role(role) => role.run(),
        Command::Activator(selection) => measure_planes(&["activator"], activator::MEASUREMENTS, &selection),
        Command::Autoscaler(selection) => {
            measure_planes(&["autoscaler", "activator"], autoscaler::MEASUREMENTS, &selection)
        }
    }
}

fn measure_planes(planes: &[&str], all: &[Measurement], selection: &Selection) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(measure(planes, all, selection))
}

/// Runs what was selected; ends early, and ends every process, when it is asked to.
async fn measure(planes: &[&str], all: &[Measurement], selection: &Selection) -> anyhow::Result<()> {
    let wanted = |m: &&Measurement| {
        let is_named = |row: &report::Row| selection.rows.iter().any(|name| row.name.starts_with(name.as_str()));
        selection.rows.is_empty() || m.rows.iter().any(is_named)
    };
    let chosen: Vec<&Measurement> = all.iter().filter(wanted).collect();
    if selection.list {
        chosen.iter().flat_map(|m| m.rows).for_each(|row| println!("{:24} {}", row.name, row.what));
        return Ok(());
    }
    anyhow::ensure!(!chosen.is_empty(), "no row is named so; --list names them");
    let settings = Settings::new(selection.quick, selection.repetitions, selection.revisions);
    process::build(planes)?;
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let running = async {
        report::print_title(&settings);
        for measurement in chosen {
            let figures = (measurement.run)(&settings).await?;
            report::print(measurement, &figures);
        }
        Ok(())
    };
    tokio::select! {
        done = running => done,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        _ = terminated.recv() => anyhow::bail!("terminated"),
    }
}
