//! Messages of a role to the process that started it, on standard output, and its connections.

use std::io::Write;
use std::net::Ipv4Addr;
use tokio::net::TcpStream;

/// Body of every backend's response.
pub(super) const BODY: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// Serves each connection in its own task, at a free port with an accept queue that is long enough for a burst. Prints
/// the address. An error of `serve` means that the client has gone.
pub(super) async fn serve_each<S>(serve: impl Fn(TcpStream) -> S) -> anyhow::Result<()>
where
    S: Future<Output: Send + 'static> + Send + 'static,
{
    let listener = common_runtime::listen::listen((Ipv4Addr::LOCALHOST, 0).into())?;
    print(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream));
    }
}

/// Prints one line.
pub(super) fn print(line: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
