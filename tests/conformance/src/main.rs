//! `conformance [--kind NAME]... [--api URL --token TOKEN] FILE...`

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use conformance::run::{Options, run};

/// Runs vector files through our code. Prints each mismatch, and the score as the last line.
#[derive(Parser)]
#[command(name = "conformance", version)]
struct Arguments {
    /// Run only this kind; may be repeated. Without it every kind in the files must be known.
    #[arg(long = "kind", value_name = "NAME")]
    kinds: Vec<String>,
    /// Send API scenarios to this server instead of an embedded one.
    #[arg(long, value_name = "URL", requires = "token")]
    api: Option<String>,
    /// Administrator token of that server.
    #[arg(long, value_name = "TOKEN", requires = "api")]
    token: Option<String>,
    /// Files with one case per line, plain or packed with gzip.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let options = Options { kinds: arguments.kinds, target: arguments.api.zip(arguments.token) };
    let score = run(&options, &arguments.files, &mut io::stdout().lock())?;
    Ok(if score.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
