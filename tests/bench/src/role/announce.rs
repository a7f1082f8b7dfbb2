//! What a role says to the process that started it.

use std::io::Write;
use std::net::Ipv4Addr;

/// The body of every backend's answer.
pub(super) const BODY: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// Listens on a free port and says where.
pub(super) async fn listen() -> anyhow::Result<tokio::net::TcpListener> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    say(listener.local_addr()?)?;
    Ok(listener)
}

/// Says one line.
pub(super) fn say(line: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
