//! TCP load at maximum throughput: bytes, exchanges, or new connections.
//!
//! Each connection has a thread, which blocks in the kernel. The kernel discards the bytes of a stream.

use super::{LoadResult, on_threads};
use crate::role::tcp_backend::{ECHO, STREAM};
use anyhow::ensure;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::time::Instant;

/// Counted event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// A MiB sent by the backend.
    Mebibyte,
    /// A round trip of this many bytes on a persistent connection.
    Exchange(usize),
    /// A connection with a round trip of one byte.
    Connection,
}

/// Bytes read at once.
const PIECE: usize = 256 * 1024;

/// Runs `connections` for `span`, at maximum throughput.
pub(crate) async fn run(
    address: SocketAddr,
    unit: Unit,
    connections: usize,
    span: Duration,
) -> anyhow::Result<LoadResult> {
    let count = on_threads(connections, move || drive(address, unit, span)).await?;
    Ok(LoadResult { count, took: span })
}

fn drive(address: SocketAddr, unit: Unit, span: Duration) -> anyhow::Result<f64> {
    let until = Instant::now() + span;
    match unit {
        Unit::Mebibyte => stream(address, until),
        Unit::Exchange(length) => exchange(&mut connect(address)?, length, || Instant::now() < until),
        Unit::Connection => {
            let mut made = 0.0;
            while Instant::now() < until {
                let mut left = 1;
                made += exchange(&mut connect(address)?, 1, || std::mem::take(&mut left) > 0)?;
            }
            Ok(made)
        }
    }
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn stream(address: SocketAddr, until: Instant) -> anyhow::Result<f64> {
    let mut stream = connect(address)?;
    stream.write_all(&[STREAM])?;
    let (mut bytes, mut piece) = (0, vec![0; PIECE]);
    while Instant::now() < until {
        let (_, length) = recv(&stream, &mut piece, RecvFlags::TRUNC)?;
        ensure!(length > 0, "the stream has ended");
        bytes += length;
    }
    Ok(bytes as f64 / f64::from(1 << 20))
}

fn exchange(stream: &mut TcpStream, length: usize, mut goes_on: impl FnMut() -> bool) -> anyhow::Result<f64> {
    let (sent, mut read, mut made) = (vec![ECHO; length], vec![0; length], 0.0);
    while goes_on() {
        stream.write_all(&sent)?;
        stream.read_exact(&mut read)?;
        made += 1.0;
    }
    Ok(made)
}
