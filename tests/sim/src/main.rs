//! `sim --seed N` tells one run; `sim --seeds N [--from M]` runs many. `--without RULE` leaves a
//! rule out.

use sim::Without;
use std::process::ExitCode;

const USAGE: &str = "usage: sim (--seed N | --seeds N [--from M]) [--without RULE]\nrules: lease, guard, proof, attestation, doubt, contest";

struct Arguments {
    seed: Option<u64>,
    seeds: u64,
    from: u64,
    without: Option<Without>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Arguments { seed: Some(seed), without, .. }) => report(sim::run(seed, without, true).map(|summary| {
            println!("held: {summary:#?}");
        })),
        Ok(arguments) => report(many(&arguments)),
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn report(outcome: Result<(), sim::Broken>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(broken) => {
            eprintln!("broken: {broken}");
            ExitCode::FAILURE
        }
    }
}

/// Stops at the first seed that breaks a rule.
fn many(arguments: &Arguments) -> Result<(), sim::Broken> {
    let (mut events, mut pokes, mut patches) = (0, 0, 0);
    for done in 1..=arguments.seeds {
        let summary = sim::run(arguments.from + done - 1, arguments.without, false)?;
        events += summary.events;
        pokes += summary.pokes;
        patches += summary.patches;
        if done % 500 == 0 || done == arguments.seeds {
            println!("{done} seeds hold: {events} events, {pokes} pokes, {patches} patches");
        }
    }
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments { seed: None, seeds: 200, from: 0, without: None };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{name} {value:?}: {error}"));
        match name.as_str() {
            "--seed" => parsed.seed = Some(number()?),
            "--seeds" => parsed.seeds = number()?,
            "--from" => parsed.from = number()?,
            "--without" => {
                parsed.without = Some(match value.as_str() {
                    "lease" => Without::Lease,
                    "guard" => Without::Guard,
                    "proof" => Without::Proof,
                    "attestation" => Without::Attestation,
                    "doubt" => Without::Doubt,
                    "contest" => Without::Contest,
                    _ => return Err(format!("{name} {value:?}: there is no such rule")),
                });
            }
            _ => return Err(format!("{name} is not an option")),
        }
    }
    Ok(parsed)
}
