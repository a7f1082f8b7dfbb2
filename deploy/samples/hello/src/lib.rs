//! Sample workload: a small HTTP server with configurable behavior.
//!
//! The server listens on `HOST:PORT` (default `0.0.0.0:8080`), speaks HTTP/1.1 and h2c, and starts in a millisecond. On
//! SIGTERM it finishes the requests in flight. It raises its limit of file descriptors to the hard limit. It is a
//! library with one entry point, so that `local` and the end-to-end tests can include it in their own binaries.
//!
//! | variable | query parameter | meaning | default |
//! |---|---|---|---|
//! | `HELLO_START_MS` | | wait before listening | 0 |
//! | `HELLO_NEVER_READY` | | if set, never listen | |
//! | `HELLO_EXIT_AFTER_MS` | | exit with code 1 after this time, even before listening | |
//! | `HELLO_LATENCY_MS` | `latency_ms` | wait before responding | 0 |
//! | `HELLO_CPU_MS` | `cpu_ms` | CPU time to use before responding | 0 |
//! | `HELLO_BODY_BYTES` | `bytes` | length of the body | length of the text |
//! | `HELLO_TEXT` | | text of the body, repeated or cut to its length | `hello\n` |
//! | | `status` | status code | 200 |
//!
//! `GET /healthz` returns 200 at once. `/headers` returns the received request as JSON. `POST /echo` streams the body
//! back. Every response names the pod in `x-pod`.

mod knobs;
mod server;

use knobs::Knobs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

/// Runs the server until SIGTERM or SIGINT.
pub fn main() -> ExitCode {
    // Raise the soft limit of file descriptors to the hard limit, as Go programs do. If that fails, the limit stays
    // unchanged.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let environment = |name: &str| std::env::var(name).ok();
    let served = Knobs::read(&environment).and_then(|knobs| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("the runtime cannot be created: {error}"))?;
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
