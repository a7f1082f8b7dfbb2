//! Messages of a role to the process that started it, on standard output.

use std::io::Write;
use std::net::Ipv4Addr;

/// Body of every backend's response.
pub(super) const BODY: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// Listens on a free port, with an accept queue that is long enough for a burst, and prints the address.
pub(super) fn listen() -> anyhow::Result<tokio::net::TcpListener> {
    let listener = common_runtime::listen::listen((Ipv4Addr::LOCALHOST, 0).into())?;
    print(listener.local_addr()?)?;
    Ok(listener)
}

/// Prints one line.
pub(super) fn print(line: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
