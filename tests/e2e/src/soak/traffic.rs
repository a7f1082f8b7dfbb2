//! Clients of every kind, each of which runs until it is stopped.

use super::client_counts::{Ends, Tally};
use crate::load::{Load, raw_exchange};
use crate::space::Space;
use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

/// Longest duration of an exchange, including scaling from zero.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two exchanges of one client.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause between two messages of a stream.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(50);
/// Number of messages of a stream.
const MESSAGES: usize = 60;
/// Number of requests over one HTTP/2 connection.
const REQUESTS_PER_CONNECTION: usize = 100;
/// Time after which a client gives up.
const GIVE_UP_AFTER: Duration = Duration::from_millis(300);
/// Size of an upload's part in bytes; an upload has `PARTS` parts.
const PART: usize = 16 * 1024;
const PARTS: usize = 64;
const CHUNKED: &str = "transfer-encoding: chunked";
/// Interval at which a workload is checked that should scale to zero.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Destination of the clients, and their counters.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) activator: SocketAddr,
    pub(super) namespace: String,
    pub(super) tally: Arc<Tally>,
    pub(super) ends: Arc<Ends>,
}

impl Clients {
    fn host(&self, service: &str) -> String {
        format!("{service}.{}", self.namespace)
    }

    async fn count<T>(&self, kind: &'static str, exchange: impl Future<Output = anyhow::Result<T>>) {
        self.tally.add(kind, limited(exchange).await);
    }

    /// Counts an exchange that may break with its pod, and for no other reason.
    async fn count_with_pod<T>(
        &self,
        kind: &'static str,
        service: &str,
        exchange: impl Future<Output = anyhow::Result<T>>,
    ) {
        let begun = Instant::now();
        let result = limited(exchange).await;
        if let Err(error) = &result
            && !self.ends.any_since(begun, service).await
        {
            self.tally.unexplained(kind, error);
        }
        self.tally.add(kind, result);
    }

    /// Sends GETs over keep-alive connections.
    pub(super) async fn kept_alive(self, service: &'static str) {
        let load = Load::new(self.activator, self.host(service));
        loop {
            self.count("kept alive", load.get_ok("/")).await;
            sleep(PAUSE).await;
        }
    }

    /// Sends GETs over one connection each.
    pub(super) async fn one_by_one(self, service: &'static str) {
        let request = format!("GET / HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.host(service));
        loop {
            self.count("one by one", async {
                let answer = raw_exchange(self.activator, &request).await?;
                ensure!(answer.starts_with("HTTP/1.1 200 "), "{}", answer.lines().next().unwrap_or("no answer"));
                Ok(())
            })
            .await;
            sleep(PAUSE * 4).await;
        }
    }

    /// Sends GETs over HTTP/2, many on one connection.
    pub(super) async fn over_http2(self, service: &'static str) {
        let uri = format!("http://{}/", self.host(service));
        loop {
            let Ok(mut sender) = connect::<Empty<Bytes>>(self.activator).await else {
                self.tally.add("HTTP/2", Err::<(), _>(anyhow::anyhow!("no connection")));
                sleep(PAUSE).await;
                continue;
            };
            for _ in 0..REQUESTS_PER_CONNECTION {
                if sender.is_closed() {
                    break;
                }
                self.count("HTTP/2", async {
                    let response = sender.send_request(Request::get(&uri).body(Empty::new())?).await?;
                    ensure!(response.status() == 200, "{}", response.status());
                    response.into_body().collect().await?;
                    Ok(())
                })
                .await;
                sleep(PAUSE).await;
            }
        }
    }

    /// Opens bidirectional streams, as gRPC does: each message comes back before the next is sent.
    pub(super) async fn streams(self, service: &'static str) {
        let uri = format!("http://{}/echo", self.host(service));
        loop {
            self.count_with_pod("gRPC-like stream", service, async {
                let mut sender = connect(self.activator).await?;
                let (messages, mut queue) = mpsc::channel::<Bytes>(1);
                let body = futures::stream::poll_fn(move |cx| queue.poll_recv(cx));
                let body = StreamBody::new(body.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes))));
                let request = Request::post(&uri).header("content-type", "application/grpc").header("te", "trailers");
                // The response may begin with the first message.
                messages.send(Bytes::from_static(b"message")).await?;
                let response = sender.send_request(request.body(body)?).await?;
                ensure!(response.status() == 200, "{}", response.status());
                let mut echo = response.into_body();
                for n in 0..MESSAGES {
                    if n > 0 {
                        messages.send(Bytes::from_static(b"message")).await?;
                    }
                    read_echo(&mut echo, b"message").await?;
                    sleep(MESSAGE_INTERVAL).await;
                }
                drop(messages);
                let rest = echo.collect().await?.to_bytes();
                ensure!(rest.is_empty(), "{} bytes more than were sent", rest.len());
                Ok(())
            })
            .await;
            sleep(PAUSE).await;
        }
    }

    /// Opens WebSockets.
    pub(super) async fn websockets(self, service: &'static str) {
        let url = format!("ws://{}/ws", self.host(service));
        loop {
            self.count_with_pod("WebSocket", service, async {
                let stream = TcpStream::connect(self.activator).await?;
                let (mut socket, _) = tokio_tungstenite::client_async(&url, stream).await?;
                for n in 0..MESSAGES {
                    let message = Message::binary(vec![1; n * n]);
                    socket.send(message.clone()).await?;
                    ensure!(socket.next().await.context("closed")?? == message, "another message");
                    sleep(MESSAGE_INTERVAL).await;
                }
                socket.close(None).await?;
                while socket.next().await.transpose()?.is_some() {}
                Ok(())
            })
            .await;
            sleep(PAUSE).await;
        }
    }

    /// Uploads a megabyte, alternately with a length and in chunks.
    pub(super) async fn uploads(self, service: &'static str) {
        let expected = format!("{} {}", PART * PARTS, PART * PARTS);
        for turn in 0_usize.. {
            let framing = if turn % 2 == 0 { format!("content-length: {}", PART * PARTS) } else { CHUNKED.to_owned() };
            let head = format!(
                "POST /upload HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{framing}\r\n\r\n",
                self.host(service),
            );
            self.count_with_pod("upload", service, async {
                let mut stream = TcpStream::connect(self.activator).await?;
                stream.write_all(head.as_bytes()).await?;
                for _ in 0..PARTS {
                    let part = [1; PART];
                    if turn % 2 == 0 {
                        stream.write_all(&part).await?;
                    } else {
                        let (size, end) = (format!("{PART:x}\r\n"), "\r\n");
                        stream.write_all(&[size.as_bytes(), &part, end.as_bytes()].concat()).await?;
                    }
                }
                if turn % 2 == 1 {
                    stream.write_all(b"0\r\n\r\n").await?;
                }
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await?;
                ensure!(answer.ends_with(&expected), "{}", answer.lines().next().unwrap_or("no answer"));
                Ok(())
            })
            .await;
            sleep(PAUSE * 10).await;
        }
    }

    /// Wakes a workload whenever it is at zero.
    pub(super) async fn wakes(self, space: Arc<Space>, service: String) {
        let load = Load::new(self.activator, self.host(&service));
        loop {
            self.count("wake", load.get_ok("/")).await;
            while !space.is_asleep(&service).await.unwrap_or(false) {
                sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Sends requests and gives up while they wait for a pod; some get a response before.
    pub(super) async fn give_up(self, service: &'static str) {
        let host = self.host(service);
        for turn in 0_usize.. {
            let request = match turn % 3 {
                0 => format!("POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: 5\r\n\r\nhello"),
                _ => format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"),
            };
            self.count("given up", async {
                let mut stream = TcpStream::connect(self.activator).await?;
                stream.write_all(request.as_bytes()).await?;
                let mut answer = [0; 12];
                match timeout(GIVE_UP_AFTER, stream.read_exact(&mut answer)).await {
                    Ok(read) => read.map(|_| ()).map_err(Into::into),
                    Err(_) => Ok(()),
                }
            })
            .await;
        }
    }
}

async fn limited<T>(exchange: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    timeout(PATIENCE, exchange).await.context("no end in a minute")?
}

async fn connect<B>(address: SocketAddr) -> anyhow::Result<http2::SendRequest<B>>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(address).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection); // It ends with its sender.
    Ok(sender)
}

/// Reads the expected bytes of an echo, which may arrive in parts.
async fn read_echo(echo: &mut Incoming, expected: &[u8]) -> anyhow::Result<()> {
    let mut received = Vec::new();
    while received.len() < expected.len() {
        let frame = echo.frame().await.context("the stream ended")??;
        received.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    ensure!(received == expected, "another message came back");
    Ok(())
}
