//! Backend of the TCP rows. A connection's first byte selects its behavior.

use super::announce::serve_each;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Requests bytes without end.
pub(crate) const STREAM: u8 = b'S';

/// Requests an echo of every byte, the first included.
pub(crate) const ECHO: u8 = b'E';

/// Bytes written at once.
const PIECE: usize = 256 * 1024;

pub(super) async fn run() -> anyhow::Result<()> {
    let piece: &'static [u8] = Box::leak(vec![0; PIECE].into());
    serve_each(|stream| serve(stream, piece)).await
}

async fn serve(mut stream: TcpStream, piece: &[u8]) -> std::io::Result<()> {
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
