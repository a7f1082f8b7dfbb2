//! `cargo run --profile dist -p bench -- activator [--row NAME]... [--quick]` prints the rows of "how fast is fast".
//!
//! Every row is a ratio to a peer that does the same work on the same machine in the same run, or a figure that no
//! machine changes much (bytes). Peers and the plane under test take turns, repetition by repetition, so that what the
//! machine does meanwhile falls on all of them; a row shows the least, the median and the greatest of the repetitions.
//! Nothing here is a test: no figure fails a build.
//!
//! The activator is the binary of the same profile (`dist` is what images hold; `release` builds sooner and costs a tenth
//! more), started as a cluster starts it, on an API server that this process embeds.
//! Peers are Debian's packages ([`tools`]).
//!
//! A measurement is one file with its [`report::Row`]s and one function ([`report::Measurement`]).

mod activator;
mod client;
mod cluster;
mod lab;
mod load;
mod process;
mod proxy;
mod report;
mod role;
mod tools;

use clap::{Parser, Subcommand};
use lab::Lab;
use report::Measurement;

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
    /// Names the rows and ends.
    #[arg(long)]
    list: bool,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Role(role) => role.run(),
        Command::Activator(selection) => {
            tokio::runtime::Runtime::new()?.block_on(measure(activator::MEASUREMENTS, &selection))
        }
    }
}

/// Runs what was selected; ends early, and ends every process, when it is asked to.
async fn measure(all: &[Measurement], selection: &Selection) -> anyhow::Result<()> {
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
    let lab = Lab::new(selection.quick, selection.repetitions);
    process::build_activator()?;
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let running = async {
        report::print_title(&lab);
        for measurement in chosen {
            let figures = (measurement.run)(&lab).await?;
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
