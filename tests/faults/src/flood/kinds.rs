//! The floods, each described by the behavior of one client.
//!
//! A client that is refused, or whose connection is closed, returns after [`PAUSE`]. So the run measures what the
//! activator holds, not how fast it can refuse clients.

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, NEWEST, PING, PRIORITY, SETTINGS, UNKNOWN, begin, entry,
    frame, request,
};
use super::hostile::HostileResponse;
use super::plane::{ASLEEP, BODIES, BODIES_HTTP2, METRICS, PAGED};
use super::probes::PAGE_EVENTS;
use super::readers::{Pace, ask_http1, ask_http2, until_closed, upload};
use anyhow::bail;
use clap::ValueEnum;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time until a client tries again: the value of `Retry-After`.
const PAUSE: Duration = Duration::from_secs(1);

/// Target with a response body of 100 GiB ([`crate::pod`]).
const ENDLESS: &str = "/?body=102400";

/// Kind of flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Held HTTP/2 requests whose fields are references to the client's table.
    References,
    /// Plain requests to one sleeping workload, each on its own connection.
    Plain,
    /// DATA frames of one byte on held HTTP/2 requests.
    Frames,
    /// Like `frames`, with an 8 KB frame of an unknown type between any two.
    Spread,
    /// HTTP/1 heads that do not end.
    Heads,
    /// HTTP/2 header blocks of references that do not end.
    Blocks,
    /// Requests to HTTP/2 pods with the largest response heads ([`HostileResponse`]), by clients that read slowly or
    /// not at all.
    Pods,
    /// Large bodies over HTTP/1.1 and HTTP/2 that no client reads, and uploads to a pod that reads nothing.
    Readers,
    /// More connections than the activator can have, without a request.
    Silent,
    /// More connections than the activator can have, each with the beginning of a head.
    Begun,
    /// HTTP/2 frames that carry nothing, as fast as the activator accepts them.
    Control,
    /// Scrapes of the metrics, each on its own connection, by each client once a second.
    Scrapes,
    /// Event streams of one workload's waiting page, opened again as soon as they end.
    Pages,
}

impl Kind {
    /// Returns the number of clients.
    pub fn clients(self) -> usize {
        match self {
            Self::Plain => 12_000,
            Self::Heads | Self::Blocks => 4_000,
            Self::References | Self::Frames | Self::Spread => 400,
            Self::Pods => 264,
            Self::Readers => 1_100,
            Self::Silent | Self::Begun => 10_500,
            Self::Control => 64,
            Self::Scrapes => 3_000,
            Self::Pages => 2_048,
        }
    }

    /// Returns the interval between two pieces of a request that a client sends in pieces. All clients together stay
    /// far below what the activator can read.
    fn drip(self) -> Duration {
        match self {
            Self::Spread => Duration::from_millis(2500),
            _ => Duration::from_millis(500),
        }
    }

    /// Runs the client with this number, forever.
    pub async fn client(self, number: usize, activator: SocketAddr) {
        loop {
            let _ = self.attack(number, activator).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn attack(self, number: usize, activator: SocketAddr) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(if self == Self::Scrapes { METRICS } else { activator }).await?;
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
                let block = [request("GET", ASLEEP, "/"), entry(16), vec![NEWEST; 4000]].concat();
                stream.write_all(&frame(HEADERS, END_STREAM, 1, &block)).await?;
                for _ in 0..4 {
                    stream.write_all(&frame(CONTINUATION, 0, 1, &[NEWEST; 3000])).await?;
                    tokio::time::sleep(self.drip()).await;
                }
                until_closed(stream).await
            }
            Self::Pods => {
                let host =
                    [HostileResponse::Heads, HostileResponse::References, HostileResponse::Huge][number % 3].host();
                let pace = if number.is_multiple_of(2) { Pace::Slow } else { Pace::None };
                if number.is_multiple_of(11) {
                    ask_http2(&mut stream, &host, "/").await?;
                } else {
                    ask_http1(&mut stream, &host, "/").await?;
                }
                pace.read(stream).await
            }
            Self::Readers => {
                let host = if number.is_multiple_of(2) { BODIES } else { BODIES_HTTP2 };
                match number % 100 {
                    0 | 1 => ask_http2(&mut stream, host, ENDLESS).await?,
                    2 => return upload(stream).await,
                    _ => ask_http1(&mut stream, host, ENDLESS).await?,
                }
                Pace::None.read(stream).await
            }
            Self::Silent => until_closed(stream).await,
            Self::Scrapes => {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: metrics\r\nconnection: close\r\n\r\n").await?;
                until_closed(stream).await
            }
            Self::Pages => {
                ask_http1(&mut stream, PAGED, PAGE_EVENTS).await?;
                until_closed(stream).await
            }
            Self::Begun => {
                stream.write_all(format!("GET / HTTP/1.1\r\nhost: {ASLEEP}\r\nx").as_bytes()).await?;
                until_closed(stream).await
            }
            Self::Control => {
                begin(&mut stream).await?;
                let kind = [PING, PRIORITY, SETTINGS, UNKNOWN][number % 4];
                let payload = [0; 8].get(..[8, 5, 0, 1][number % 4]).unwrap_or_default();
                let piece = frame(kind, 0, u32::from(kind == PRIORITY), payload).repeat(1000);
                loop {
                    stream.write_all(&piece).await?;
                }
            }
            Self::References => {
                begin(&mut stream).await?;
                for n in 0..250 {
                    // The first five heads would take 1 MB each when decoded; the others are within all limits.
                    let (size, references) = if n < 5 { (4000, 250) } else { (1000, 60) };
                    let block = [request("GET", ASLEEP, "/"), entry(size), vec![NEWEST; references]].concat();
                    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &block)).await?;
                }
                until_closed(stream).await
            }
            Self::Frames | Self::Spread => {
                begin(&mut stream).await?;
                let head = |n: u32| frame(HEADERS, END_HEADERS, 2 * n + 1, &request("POST", ASLEEP, "/"));
                stream.write_all(&(0..50).flat_map(head).collect::<Vec<_>>()).await?;
                let mut piece = Vec::new();
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
