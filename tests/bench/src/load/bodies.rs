//! Bodies of one size, one after the other on each connection or stream, at maximum throughput.
//!
//! Over HTTP/1.1 each connection has a thread, which blocks in the kernel; the kernel discards received bytes. Over
//! HTTP/2 the generator is h2load. The receiver ([`crate::role::Role::BodyBackend`]) counts uploaded bytes: bytes that
//! have left the client may still be in buffers.

use super::{LoadResult, on_threads};
use crate::cluster;
use crate::role::http1_backend::head_length;
use anyhow::{Context, ensure};
use common::backend::Protocol;
use rustix::net::{RecvFlags, recv};
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Direction of the bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Down,
    Up,
}

impl Direction {
    /// Returns the name of the direction for display.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// A load of bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bodies {
    pub(crate) protocol: Protocol,
    pub(crate) direction: Direction,
    /// Bytes of each body.
    pub(crate) size: u64,
    /// Number of concurrent bodies.
    pub(crate) number: usize,
}

const MIB: f64 = 1024.0 * 1024.0;

/// Bytes read or written at once.
const PIECE: usize = 256 * 1024;

/// Number of streams of each HTTP/2 connection, if there are several.
const STREAMS: usize = 8;

/// Returns the MiB transferred in `span`. `backend` counts uploaded bytes, `file` contains the bytes of an uploaded
/// body.
pub(crate) async fn run(
    bodies: Bodies,
    address: SocketAddr,
    host: &str,
    (backend, file): (SocketAddr, &Path),
    span: Duration,
) -> anyhow::Result<LoadResult> {
    let before = received(bodies, backend).await?;
    let began = Instant::now();
    let down = match bodies.protocol {
        Protocol::Http1 => {
            let (host, until) = (host.to_owned(), began + span);
            on_threads(bodies.number, move || drive(bodies, address, &host, until)).await?
        }
        Protocol::H2c => h2load(bodies, address, host, file, span).await?,
    };
    let took = began.elapsed();
    let up = received(bodies, backend).await? - before;
    let bytes = if bodies.direction == Direction::Up { up } else { down };
    ensure!(bytes > 0.0, "nothing got through");
    Ok(LoadResult { count: bytes / MIB, took })
}

/// Returns the number of bytes that the backend has received so far. Returns 0 for downloads.
async fn received(bodies: Bodies, backend: SocketAddr) -> anyhow::Result<f64> {
    if bodies.direction == Direction::Down {
        return Ok(0.0);
    }
    let answer = cluster::get(backend, "backend", "/received").await?;
    Ok(answer.lines().last().context("no number")?.trim().parse()?)
}

/// Transfers bodies on one connection. Returns the number of downloaded bytes.
fn drive(bodies: Bodies, address: SocketAddr, host: &str, until: Instant) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (mut bytes, mut piece) = (0, vec![0; PIECE]);
    while Instant::now() < until {
        let head = match bodies.direction {
            Direction::Down => format!("GET /{} HTTP/1.1\r\nhost: {host}\r\n\r\n", bodies.size),
            Direction::Up => format!("POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n\r\n", bodies.size),
        };
        stream.write_all(head.as_bytes())?;
        let mut left = bodies.size;
        while bodies.direction == Direction::Up && left > 0 && Instant::now() < until {
            let length = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
            stream.write_all(&piece[..length])?;
            left -= length as u64;
        }
        if bodies.direction == Direction::Up && left > 0 {
            break; // The time is over.
        }
        left = head_of_answer(&mut stream)?;
        while left > 0 && Instant::now() < until {
            let most = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
            let length = match recv(&stream, &mut piece[..most], RecvFlags::TRUNC) {
                Err(error) if std::io::Error::from(error).kind() == ErrorKind::Interrupted => continue,
                received => received?.1,
            };
            ensure!(length > 0, "closed within a body");
            bytes += length as u64;
            left -= length as u64;
        }
    }
    Ok(bytes as f64)
}

/// Reads the head of a response and no byte more. Returns the length of its body.
fn head_of_answer(stream: &mut TcpStream) -> anyhow::Result<u64> {
    let (mut head, mut peeked) = (Vec::new(), [0; 1024]);
    loop {
        let peeked_len = stream.peek(&mut peeked)?;
        ensure!(peeked_len > 0, "closed before an answer");
        let before = head.len();
        head.extend_from_slice(&peeked[..peeked_len]);
        let end = head_length(&head);
        let taken = end.unwrap_or(head.len()) - before;
        stream.read_exact(&mut peeked[..taken])?;
        let Some(end) = end else { continue };
        let head = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
        ensure!(head.starts_with("http/1.1 200"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).context("no length")?;
        return Ok(length.trim().parse()?);
    }
}

async fn h2load(bodies: Bodies, address: SocketAddr, host: &str, file: &Path, span: Duration) -> anyhow::Result<f64> {
    let streams = bodies.number.min(STREAMS);
    let (path, args) = match bodies.direction {
        Direction::Down => (bodies.size.to_string(), vec![]),
        Direction::Up => (String::new(), vec![OsStr::new("-d"), file.as_os_str()]),
    };
    let url = format!("http://{address}/{path}");
    super::h2load_with(&url, host, (bodies.number / streams, streams), span, &args, traffic).await
}

/// Parses `traffic: 1.00GB (1073741824) total, 12.00KB (12288) headers (space savings 90.00%), 1.00GB (1073729536)
/// data`.
fn traffic(text: &str) -> anyhow::Result<f64> {
    super::none_failed(text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("traffic: ")).context("no traffic")?;
    let data = line.split(", ").find(|part| part.ends_with(" data")).context("no data")?;
    let (_, bytes) = data.split_once('(').context("no number")?;
    Ok(bytes.split(')').next().context("no number")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_data_are_parsed_and_failed_requests_are_an_error() {
        let good = "requests: 2 total, 2 started, 2 done, 2 succeeded, 0 failed, 0 errored, 0 timeout\n\
                    traffic: 1.00GB (1073741824) total, 12.00KB (12288) headers (space savings 90.00%), \
                    1.00GB (1073729536) data\n";
        assert_eq!(traffic(good).expect("good"), 1_073_729_536.0);
        assert!(traffic(&good.replace("0 failed", "1 failed")).is_err());
        assert!(traffic("").is_err());
    }
}
