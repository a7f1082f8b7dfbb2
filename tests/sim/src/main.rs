//! `sim --seed N` prints the trace of one run; `sim --seeds N [--from M]` runs many. `sim many` counts the messages and
//! writes between processes.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use sim::many::{self, Size};
use sim::{Violation, Without, holders, ports};
use std::fmt::Debug;
use std::process::ExitCode;

/// Runs simulated clusters, and stops at the first violated invariant.
#[derive(Parser)]
#[command(name = "sim", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Run only this seed, and print its trace.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of seeds.
    #[arg(long, value_name = "N", default_value_t = 200)]
    seeds: u64,
    /// First seed.
    #[arg(long, value_name = "M", default_value_t = 0)]
    from: u64,
    /// Disable a rule of the simulation.
    #[arg(long, value_name = "RULE")]
    without: Option<String>,
    /// Part of the system to simulate: the scale of workloads, their port numbers, or the holders of a workload.
    #[arg(long, value_enum, default_value_t)]
    simulation: Simulation,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Simulation {
    #[default]
    Scale,
    Ports,
    Holders,
}

#[derive(Subcommand)]
enum Command {
    /// Counts the communication between processes.
    Many(Size),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Many(size)) = arguments.command {
        print!("{}", many::table(&adapted(size)));
        return ExitCode::SUCCESS;
    }
    let outcome = match arguments.simulation {
        Simulation::Scale => {
            let without: Option<Without> = rule(&arguments);
            runs(&arguments, |seed, verbose| sim::run(seed, without, verbose), |summary| summary.events)
        }
        Simulation::Ports => {
            let without: Option<ports::Without> = rule(&arguments);
            runs(&arguments, |seed, verbose| ports::run(seed, without, verbose), |summary| summary.events)
        }
        Simulation::Holders => {
            let without: Option<holders::Without> = rule(&arguments);
            runs(&arguments, |seed, verbose| holders::run(seed, without, verbose), |summary| summary.events)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(violation) => {
            eprintln!("broken: {violation}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the size with as many workloads whose requests have ended as busy ones, if there are enough.
fn adapted(size: Size) -> Size {
    let Size { workloads, busy, activators, autoscalers, .. } = size;
    let Some(others) = workloads.checked_sub(busy) else {
        refuse(&format!("--busy {busy}: there are {workloads} workloads"))
    };
    Size { ended: busy.min(others), activators: activators.max(1), autoscalers: autoscalers.max(1), ..size }
}

/// Returns the disabled rule, if any.
fn rule<T: ValueEnum>(arguments: &Arguments) -> Option<T> {
    let name = arguments.without.as_ref()?;
    let all = || T::value_variants().iter().filter_map(T::to_possible_value);
    let names = || all().map(|rule| rule.get_name().to_owned()).collect::<Vec<_>>().join(", ");
    Some(T::from_str(name, false).unwrap_or_else(|_| refuse(&format!("--without {name:?}: not one of {}", names()))))
}

fn refuse(error: &str) -> ! {
    Arguments::command().error(ErrorKind::InvalidValue, error).exit()
}

/// Runs the selected seeds and stops at the first one that violates an invariant. `events` reads the number of events.
fn runs<S: Debug>(
    arguments: &Arguments,
    run: impl Fn(u64, bool) -> Result<S, Violation>,
    events: impl Fn(&S) -> u64,
) -> Result<(), Violation> {
    if let Some(seed) = arguments.seed {
        println!("held: {:#?}", run(seed, true)?);
        return Ok(());
    }
    let mut all = 0;
    for done in 1..=arguments.seeds {
        all += events(&run(arguments.from + done - 1, false)?);
        if done % 500 == 0 || done == arguments.seeds {
            println!("{done} seeds hold: {all} events");
        }
    }
    Ok(())
}
