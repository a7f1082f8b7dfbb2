//! What a role says to the process that started it.

use std::io::Write;
use std::net::Ipv4Addr;

/// The body of every backend's answer.
pub(super) const BODY: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// Listens on a free port, with room for a burst, and says where.
pub(super) fn listen() -> anyhow::Result<tokio::net::TcpListener> {
    let listener = common_runtime::listen::listen((Ipv4Addr::LOCALHOST, 0).into())?;
    say(listener.local_addr()?)?;
    Ok(listener)
}

/// Says one line.
pub(super) fn say(line: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
