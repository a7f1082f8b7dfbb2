//! Backend of the TCP rows. A connection's first byte selects its behavior.

use super::announce::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Requests bytes without end.
pub(crate) const STREAM: u8 = b'S';

/// Requests an echo of every byte, the first included.
pub(crate) const ECHO: u8 = b'E';

/// Bytes written at once.
const PIECE: usize = 256 * 1024;

/// Serves forever.
pub(super) async fn run() -> anyhow::Result<()> {
    let listener = listen()?;
    let piece: &'static [u8] = Box::leak(vec![0; PIECE].into());
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let _ = serve(stream, piece).await; // The client has gone.
        });
    }
}

async fn serve(mut stream: TcpStream, piece: &[u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = [0; 4096];
    loop {
        let length = stream.read(&mut read).await?;
        match read[..length].first() {
            None => return Ok(()),
            Some(&STREAM) => loop {
                stream.write_all(piece).await?;
            },
            Some(_) => stream.write_all(&read[..length]).await?,
        }
    }
}
