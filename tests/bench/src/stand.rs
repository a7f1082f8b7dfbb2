//! The activator and its peers before one backend, for as long as somebody looks at them: with `perf`, with
//! `valgrind --tool=callgrind`, or with a load of another kind.

use crate::process::Process;
use crate::proxy::Target;
use crate::settings::Settings;
use common::backend::Protocol;

/// Starts them, says where each listens and which process it is, and waits to be ended. `h2c` is spoken on both sides of
/// each, or else HTTP/1.1.
pub(crate) async fn run(settings: &Settings, h2c: bool) -> anyhow::Result<()> {
    let (role, protocol) = if h2c { ("http2-backend", Protocol::H2c) } else { ("http1-backend", Protocol::Http1) };
    let (_backend, address) = Process::role(&[role])?;
    let backend = address.parse()?;
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
