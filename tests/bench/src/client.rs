//! HTTP/1.1 client on raw connections, with one request at a time on each. Sending a request and reading the response
//! are separate steps, so that the activator can hold the request in between.

use crate::role::http1_backend::head_length;
use anyhow::{Context, ensure};
use futures::future::try_join_all;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Maximum time to wait for an expected response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of concurrent connects: less than the capacity of an accept queue.
const CONNECTS_MAX: usize = 100;

pub(crate) struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Connects without sending anything.
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends a browser-like request, without waiting for its response.
    pub(crate) async fn send(&mut self, host: &str) -> anyhow::Result<()> {
        let head = format!(
            "GET /some/path?query=value HTTP/1.1\r\nhost: {host}\r\nuser-agent: bench/1.0 (a client that waits)\r\n\
             accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\naccept-encoding: gzip\r\n\
             accept-language: en-GB,en;q=0.5\r\nx-request-id: 00000000-0000-0000-0000-000000000000\r\n\r\n"
        );
        Ok(self.stream.write_all(head.as_bytes()).await?)
    }

    /// Reads a whole response with status 200. Returns the arrival time of its first byte.
    pub(crate) async fn answer(&mut self) -> anyhow::Result<Instant> {
        tokio::time::timeout(RESPONSE_TIMEOUT, self.read()).await.context("no answer")?
    }

    async fn read(&mut self) -> anyhow::Result<Instant> {
        self.stream.readable().await?;
        let first = Instant::now();
        let mut bytes = Vec::with_capacity(1024);
        loop {
            ensure!(self.stream.read_buf(&mut bytes).await? > 0, "closed before the answer was complete");
            if is_complete(&bytes) {
                break;
            }
        }
        ensure!(bytes.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&bytes));
        Ok(first)
    }

    /// Reports whether nothing arrives within `wait`.
    pub(crate) async fn is_silent(&self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.stream.readable()).await.is_err()
    }
}

/// Reports whether the bytes contain a head, and as much body as it announces.
fn is_complete(bytes: &[u8]) -> bool {
    let Some(head_end) = head_length(bytes) else { return false };
    let head = String::from_utf8_lossy(&bytes[..head_end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    bytes.len() >= head_end + length.unwrap_or(0)
}

/// Opens `n` connections.
pub(crate) async fn open(address: SocketAddr, n: usize) -> anyhow::Result<Vec<Connection>> {
    let mut all = Vec::with_capacity(n);
    while all.len() < n {
        let batch = CONNECTS_MAX.min(n - all.len());
        all.extend(try_join_all((0..batch).map(|_| Connection::open(address))).await?);
    }
    Ok(all)
}

/// Sends one request on each connection.
pub(crate) async fn send(connections: &mut [Connection], host: &str) -> anyhow::Result<()> {
    for connection in connections {
        connection.send(host).await?;
    }
    Ok(())
}

/// Reads a response on each connection, concurrently. Returns the connections and the arrival times of the first bytes.
pub(crate) async fn answers(connections: Vec<Connection>) -> anyhow::Result<(Vec<Connection>, Vec<Instant>)> {
    let reading = connections.into_iter().map(|mut connection| {
        tokio::spawn(async move {
            let first = connection.answer().await?;
            anyhow::Ok((connection, first))
        })
    });
    let tasks: Vec<_> = reading.collect();
    let (mut connections, mut arrivals) = (Vec::with_capacity(tasks.len()), Vec::with_capacity(tasks.len()));
    for task in tasks {
        let (connection, first) = task.await??;
        connections.push(connection);
        arrivals.push(first);
    }
    Ok((connections, arrivals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_complete_with_the_announced_body() {
        assert!(!is_complete(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"));
        assert!(!is_complete(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na"));
        assert!(is_complete(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"));
        assert!(is_complete(b"HTTP/1.1 204 No Content\r\n\r\n"));
    }
}
