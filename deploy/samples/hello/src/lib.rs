//! The sample workload: a small HTTP server with knobs.
//!
//! It listens on `HOST:PORT` (default `0.0.0.0:8080`), speaks HTTP/1.1 and h2c, starts in a millisecond, and finishes
//! what it has begun when it gets SIGTERM. It has as many descriptors as the system permits. It is a library with one
//! entry point, so that `local` and the end-to-end tests can carry it inside their own binaries.
//!
//! | variable | query parameter | meaning | default |
//! |---|---|---|---|
//! | `HELLO_START_MS` | | wait before listening | 0 |
//! | `HELLO_NEVER_READY` | | set: never listen | |
//! | `HELLO_EXIT_AFTER_MS` | | exit with code 1 after so long, before listening if it is shorter than the start | |
//! | `HELLO_LATENCY_MS` | `latency_ms` | wait before answering | 0 |
//! | `HELLO_CPU_MS` | `cpu_ms` | computing before answering, processor time | 0 |
//! | `HELLO_BODY_BYTES` | `bytes` | length of the body | the text's |
//! | `HELLO_TEXT` | | the body, repeated to its length | `hello\n` |
//! | | `status` | status code | 200 |
//!
//! `GET /healthz` answers 200 at once; `/headers` answers with the request as the program saw it, as JSON; `POST /echo`
//! streams the body back. Every answer names the pod in `x-pod`.

mod knobs;
mod server;

use knobs::Knobs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

/// Runs the server until SIGTERM or SIGINT.
pub fn main() -> ExitCode {
    // As many connections as it may have, as with Go's programs. What the system refuses stays as it was.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let environment = |name: &str| std::env::var(name).ok();
    let served = Knobs::read(&environment).and_then(|knobs| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
        runtime.block_on(server::run(knobs))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}
