//! The floods: what one client of each does, over and over.
//!
//! A client that is refused or whose connection is closed comes back after [`PAUSE`], so that what is measured is what
//! the activator keeps, and not how fast it can be asked.

use super::plane::ASLEEP;
use anyhow::bail;
use clap::ValueEnum;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Until a client tries again: what `Retry-After` says.
const PAUSE: Duration = Duration::from_secs(1);

/// A flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Held HTTP/2 requests whose fields are references to the client's table.
    References,
    /// Plain requests to one sleeping workload, each on a connection of its own.
    Plain,
    /// DATA frames of one byte on held HTTP/2 requests.
    Frames,
    /// The same, with a frame of 8 KB of no known kind between any two of them.
    Spread,
    /// HTTP/1 heads that do not end.
    Heads,
    /// HTTP/2 header blocks that do not end, of references.
    Blocks,
}

impl Kind {
    /// How many clients there are.
    pub fn clients(self) -> usize {
        match self {
            Self::Plain => 12_000,
            Self::Heads | Self::Blocks => 4_000,
            Self::References | Self::Frames | Self::Spread => 400,
        }
    }

    /// Time between two pieces of what a client sends bit by bit. All clients together stay far below what the activator
    /// can read.
    fn drip(self) -> Duration {
        match self {
            Self::Spread => Duration::from_millis(2500),
            _ => Duration::from_millis(500),
        }
    }

    /// One client, for ever.
    pub async fn client(self, activator: SocketAddr) {
        loop {
            let _ = self.attack(activator).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn attack(self, activator: SocketAddr) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(activator).await?;
        match self {
            Self::Plain => {
                let request = format!("GET / HTTP/1.1\r\nhost: {ASLEEP}\r\nuser-agent: flood\r\naccept: */*\r\n\r\n");
                stream.write_all(request.as_bytes()).await?;
                while stream.read(&mut [0; 1024]).await? > 0 {
                    tokio::time::sleep(PAUSE).await;
                    stream.write_all(request.as_bytes()).await?;
                }
                bail!("closed")
            }
            Self::Heads => {
                let head = format!("GET / HTTP/1.1\r\nhost: {ASLEEP}\r\n");
                stream.write_all(head.as_bytes()).await?;
                let piece = format!("x-a: {}\r\n", "v".repeat(4000));
                for _ in 0..95 {
                    stream.write_all(piece.as_bytes()).await?;
                    tokio::time::sleep(self.drip()).await;
                }
                until_closed(stream).await
            }
            Self::Blocks => {
                begin(&mut stream).await?;
                let block = [request(b"GET"), entry(16), vec![0xbe; 4000]].concat();
                stream.write_all(&frame(HEADERS, END_STREAM, 1, &block)).await?;
                for _ in 0..4 {
                    stream.write_all(&frame(CONTINUATION, 0, 1, &[0xbe; 3000])).await?;
                    tokio::time::sleep(self.drip()).await;
                }
                until_closed(stream).await
            }
            Self::References => {
                begin(&mut stream).await?;
                for n in 0..250 {
                    // The first ones would be 1 MB each if they were written out, the others are within any bound.
                    let (size, references) = if n < 5 { (4000, 250) } else { (1000, 60) };
                    let block = [request(b"GET"), entry(size), vec![0xbe; references]].concat();
                    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &block)).await?;
                }
                until_closed(stream).await
            }
            Self::Frames | Self::Spread => {
                begin(&mut stream).await?;
                let mut piece = Vec::new();
                for stream in 0..50 {
                    let id = 2 * stream + 1;
                    piece.extend(frame(HEADERS, END_HEADERS, id, &request(b"POST")));
                }
                stream.write_all(&piece).await?;
                piece.clear();
                for stream in 0..50 {
                    piece.extend(frame(DATA, 0, 2 * stream + 1, b"x"));
                    if self == Self::Spread {
                        piece.extend(frame(UNKNOWN, 0, 0, &[0; 8192]));
                    }
                }
                let (mut read, mut write) = stream.split();
                let sending = async {
                    while write.write_all(&piece).await.is_ok() {
                        tokio::time::sleep(self.drip()).await;
                    }
                };
                let mut sink = [0; 4096];
                let reading = async { while read.read(&mut sink).await.is_ok_and(|n| n > 0) {} };
                tokio::select! {
                    () = sending => {}
                    () = reading => {}
                }
                Ok(())
            }
        }
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 0xfa;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

async fn begin(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    hello.extend(frame(SETTINGS, 0, 0, &[]));
    Ok(stream.write_all(&hello).await?)
}

async fn until_closed(mut stream: TcpStream) -> anyhow::Result<()> {
    while stream.read(&mut [0; 4096]).await? > 0 {}
    Ok(())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The pseudo-header fields, as literals that enter no table.
fn request(method: &[u8]) -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 4] =
        [(b":method", method), (b":scheme", b"http"), (b":path", b"/"), (b":authority", ASLEEP.as_bytes())];
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(text.len() as u8);
            bytes.extend(text);
        }
    }
    bytes
}

/// A field that enters the client's table, where it is the newest and has the index 62.
fn entry(size: usize) -> Vec<u8> {
    let mut bytes = vec![0x40, 3, b'x', b'-', b'a'];
    if size < 0x7f {
        bytes.push(size as u8);
    } else {
        bytes.push(0x7f);
        let mut rest = size - 0x7f;
        while rest >= 0x80 {
            bytes.push(0x80 | (rest % 0x80) as u8);
            rest /= 0x80;
        }
        bytes.push(rest as u8);
    }
    bytes.extend(vec![b'v'; size]);
    bytes
}
