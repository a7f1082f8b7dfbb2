//! `kubectl-zeroscale`, a program and a kubectl plugin.

use cli::arguments::Arguments;
use common::text::printable_line;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let arguments = Arguments::read();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    let run = |runtime: tokio::runtime::Runtime| runtime.block_on(cli::run(arguments, &mut out));
    let outcome = runtime.map_err(anyhow::Error::from).and_then(run).and_then(|()| Ok(std::io::stdout().flush()?));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed(&error) => ExitCode::SUCCESS, // The reader has closed the pipe, as `head` does.
        Err(error) => {
            eprintln!("error: {}", printable_line(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
