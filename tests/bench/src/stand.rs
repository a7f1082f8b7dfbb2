//! The activator and its peers before one backend, for `perf`, for `valgrind --tool=callgrind`, or for another kind of
//! load.

use crate::process::Process;
use crate::proxy::Target;
use crate::settings::Settings;
use common::backend::Protocol;

/// Starts the processes, prints the address and process id of each, and waits until it is ended. With `h2c`, both sides
/// of each use HTTP/2, otherwise HTTP/1.1.
pub(crate) async fn run(settings: &Settings, h2c: bool) -> anyhow::Result<()> {
    let (role, protocol) = if h2c { ("http2-backend", Protocol::H2c) } else { ("http1-backend", Protocol::Http1) };
    let (_backend, backend) = Process::server(&[role])?;
    let targets = [
        Target::direct(backend),
        Target::haproxy(protocol, backend).await?,
        Target::activator(settings, protocol, backend).await?,
        Target::bare(protocol, backend).await?,
    ];
    println!("host {}", Target::host());
    for target in &targets {
        let process = target.process().map_or_else(String::new, |process| format!(" process {}", process.id()));
        println!("{} {}{process}", target.name, target.address);
    }
    std::future::pending().await
}
