//! `sim --seed N` prints the trace of one run; `sim --seeds N [--from M]` runs many. `--without RULE` disables a rule.
//! `--simulation ports` selects the simulation of port numbers, `--simulation holders` that of the holders of a
//! workload.
//!
//! `sim many` counts the communication between processes, for 100 000 workloads or the given number.

use sim::many::{self, Size};
use sim::{Violation, Without, holders, ports};
use std::process::ExitCode;

const USAGE: &str = "usage: sim (--seed N | --seeds N [--from M]) [--without RULE] [--simulation holders|ports]\n\
                     usage: sim many [--workloads N] [--busy N] [--activators N] [--autoscalers N]\n\
                     rules: lease, guard, proof, attestation, doubt, contest\n\
                     of ports: arbiter, ledger, proof, rest, slices, open\n\
                     of holders: confirmation, uses, second, stop, return";

#[derive(Clone, Copy)]
enum Simulation {
    Scale(Option<Without>),
    Ports(Option<ports::Without>),
    Holders(Option<holders::Without>),
}

struct Arguments {
    seed: Option<u64>,
    seeds: u64,
    from: u64,
    simulation: Simulation,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == "many").is_some() {
        return match size(arguments) {
            Ok(size) => {
                print!("{}", many::table(&size));
                ExitCode::SUCCESS
            }
            Err(error) => refuse(&error),
        };
    }
    match parse(arguments) {
        Ok(Arguments { seed: Some(seed), simulation, .. }) => report(one(seed, simulation, true).map(|summary| {
            println!("held: {summary}");
        })),
        Ok(arguments) => report(many(&arguments)),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &str) -> ExitCode {
    eprintln!("{error}\n{USAGE}");
    ExitCode::from(2)
}

/// Parses the options of `sim many`.
fn size(mut arguments: impl Iterator<Item = String>) -> Result<Size, String> {
    let mut size = Size::LARGE;
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = value.parse::<usize>().map_err(|error| format!("{name} {value:?}: {error}"))?;
        match name.as_str() {
            "--workloads" => size.workloads = number,
            "--busy" => size.busy = number,
            "--activators" => size.activators = number.max(1),
            "--autoscalers" => size.autoscalers = number.max(1),
            _ => return Err(format!("{name} is not an option")),
        }
    }
    size.ended = size.busy.min(size.workloads.saturating_sub(size.busy));
    if size.busy > size.workloads {
        return Err(format!("--busy {}: there are {} workloads", size.busy, size.workloads));
    }
    Ok(size)
}

fn report(outcome: Result<(), Violation>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(violation) => {
            eprintln!("broken: {violation}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one seed and returns its summary.
fn one(seed: u64, simulation: Simulation, verbose: bool) -> Result<String, Violation> {
    Ok(match simulation {
        Simulation::Scale(without) => format!("{:#?}", sim::run(seed, without, verbose)?),
        Simulation::Ports(without) => format!("{:#?}", ports::run(seed, without, verbose)?),
        Simulation::Holders(without) => format!("{:#?}", holders::run(seed, without, verbose)?),
    })
}

/// Runs many seeds and stops at the first one that violates an invariant.
fn many(arguments: &Arguments) -> Result<(), Violation> {
    let mut events = 0;
    for done in 1..=arguments.seeds {
        let seed = arguments.from + done - 1;
        events += match arguments.simulation {
            Simulation::Scale(without) => sim::run(seed, without, false)?.events,
            Simulation::Ports(without) => ports::run(seed, without, false)?.events,
            Simulation::Holders(without) => holders::run(seed, without, false)?.events,
        };
        if done % 500 == 0 || done == arguments.seeds {
            println!("{done} seeds hold: {events} events");
        }
    }
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (mut parsed, mut rule, mut selected) =
        (Arguments { seed: None, seeds: 200, from: 0, simulation: Simulation::Scale(None) }, None, String::new());
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{name} {value:?}: {error}"));
        match name.as_str() {
            "--seed" => parsed.seed = Some(number()?),
            "--seeds" => parsed.seeds = number()?,
            "--from" => parsed.from = number()?,
            "--without" => rule = Some(value),
            "--simulation" if matches!(value.as_str(), "holders" | "ports") => selected = value,
            "--simulation" => return Err(format!("{name} {value:?}: there is no such simulation")),
            _ => return Err(format!("{name} is not an option")),
        }
    }
    parsed.simulation = match selected.as_str() {
        "ports" => Simulation::Ports(named(&ports::Without::ALL, rule)?),
        "holders" => Simulation::Holders(named(&holders::Without::ALL, rule)?),
        _ => Simulation::Scale(named(&Without::ALL, rule)?),
    };
    Ok(parsed)
}

/// Returns the rule with the given name, if any.
fn named<T: Copy>(all: &[(&str, T)], name: Option<String>) -> Result<Option<T>, String> {
    let Some(name) = name else { return Ok(None) };
    let rule = all.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule);
    rule.map(Some).ok_or_else(|| format!("--without {name:?}: there is no such rule"))
}
