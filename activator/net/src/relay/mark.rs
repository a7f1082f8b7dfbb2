//! What begins a connection that one activator relays to another: a line that no protocol begins
//! with, and whose mark the caller proves.
//!
//! ```text
//! ▶ NUL "zeroscale " mark LF      ◀ CONNECTED: from here on it is the pod's    ◀ another byte: it has to go elsewhere
//! ```

use super::end::TcpEnd;
use rustix::net::{RecvFlags, recv};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What a pod's being there is told by.
pub const CONNECTED: u8 = b'+';

const BEGINS: &[u8] = b"\0zeroscale ";
const LINE_MAX: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(2);

/// The mark that a connection begins with, if it does: it is taken, and nothing else.
pub(crate) async fn taken(stream: &TcpStream) -> io::Result<Option<String>> {
    let peek = |line: &mut [u8]| Ok::<_, io::Error>(recv(stream, line, RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0);
    let mut first = [0; 2];
    if !matches!(peek(&mut first), Ok(1..)) || first[0] != BEGINS[0] {
        return Ok(None);
    }
    let mut line = [0; LINE_MAX];
    let whole = async {
        loop {
            stream.readable().await?;
            let read = stream.try_io(Interest::READABLE, || {
                let read = peek(&mut line)?;
                match line[..read].iter().position(|byte| *byte == b'\n') {
                    Some(end) => Ok(end + 1),
                    None if read == LINE_MAX || !BEGINS.starts_with(&line[..read.min(BEGINS.len())]) => Ok(0),
                    // Looked at again when more comes.
                    None => Err(ErrorKind::WouldBlock.into()),
                }
            });
            match read {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    };
    let length = timeout(PATIENCE, whole).await.map_err(|_| io::Error::from(ErrorKind::TimedOut))??;
    let Some(mark) = line[..length].strip_prefix(BEGINS) else { return Ok(None) };
    let mark = String::from_utf8_lossy(mark.trim_ascii()).into_owned();
    recv(stream, &mut [0; LINE_MAX][..length], RecvFlags::DONTWAIT)?;
    Ok(Some(mark))
}

/// Tells whoever relays a connection.
pub(crate) async fn say(stream: &TcpStream, byte: u8) -> io::Result<()> {
    loop {
        stream.writable().await?;
        match stream.try_write(&[byte]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            said => return said.map(drop),
        }
    }
}

/// Marks a new connection to another activator, and waits for its word.
///
/// # Errors
/// It is broken, or has ended.
pub(crate) async fn ask(end: &mut TcpEnd, mark: &str) -> io::Result<u8> {
    let line = [BEGINS, mark.as_bytes(), b"\n"].concat();
    let mut left = &line[..];
    while !left.is_empty() {
        let written = poll_fn(|cx| end.poll_write(cx, left)).await?;
        left = &left[written..];
    }
    let mut byte = [0];
    let mut read = ReadBuf::new(&mut byte);
    match poll_fn(|cx| end.poll_read(cx, &mut read)).await? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(byte[0]),
    }
}
