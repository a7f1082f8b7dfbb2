//! Timing is tested on an in-memory pipe with paused time, the rest on loopback sockets.

use super::backoff::Backoff;
use super::link::{End, Link, drive, run};
use super::*;
use crate::resolve::Dns;
use crate::tests::listen;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::{WebSocketStream, accept_async};

/// Upper bound, far beyond the duration of anything here, so that a bug fails a test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(20);

async fn pipe() -> (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    (client, WebSocketStream::from_raw_socket(server, Role::Server, None).await)
}

pub(super) async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("did not happen in time")
}

async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (socket, _) = within(listener.accept()).await.expect("accept");
    within(accept_async(socket)).await.expect("handshake")
}

/// Returns the next message.
pub(super) async fn received<S: AsyncRead + AsyncWrite + Unpin>(server: &mut WebSocketStream<S>) -> Message {
    within(server.next()).await.expect("open").expect("readable")
}

fn start(urls: Vec<String>) -> (DurableSender, CancellationToken) {
    let shutdown = CancellationToken::new();
    (DurableSender::start(urls, Arc::new(Dns), Config::default(), shutdown.clone()).expect("valid URLs"), shutdown)
}

pub(super) async fn connected(link: &DurableSender, expected: bool) {
    within(link.connected().wait_for(|now| *now == expected)).await.expect("the link's task lives");
}

/// Goal: a peer that never sends a pong is given up exactly at the read deadline, even if it sends data: only a pong
/// proves that the peer responds.
#[tokio::test(start_paused = true)]
async fn a_peer_that_never_pongs_is_lost_after_the_read_deadline() {
    for sends_data in [false, true] {
        let (client, mut server) = pipe().await;
        let (_queue, mut frames) = mpsc::channel(1);
        let chatter = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if sends_data {
                    server.send(Message::binary(vec![1])).await.expect("open");
                }
            }
        };
        let (shutdown, mut backoff) = (CancellationToken::new(), Backoff::default());
        let start = Instant::now();
        let end = tokio::select! {
            end = drive(client, &mut frames, &mut backoff, &shutdown) => end,
            () = chatter => unreachable!("chatter never ends"),
        };
        assert!(matches!(end, End::Lost(ref reason) if reason.contains("no pong")), "{end:?}");
        assert_eq!(start.elapsed(), Duration::from_secs(10));
    }
}

/// Goal: the link stays up while the peer responds to pings.
#[tokio::test(start_paused = true)]
async fn pongs_keep_the_link_up() {
    let (client, mut server) = pipe().await;
    let (_queue, mut frames) = mpsc::channel(1);
    let (shutdown, mut backoff) = (CancellationToken::new(), Backoff::default());
    let mut pings = 0;
    tokio::select! {
        end = drive(client, &mut frames, &mut backoff, &shutdown) => panic!("ended: {end:?}"),
        () = async {
            let deadline = tokio::time::sleep(Duration::from_secs(100));
            tokio::pin!(deadline);
            loop {
                tokio::select! {
                    () = &mut deadline => return,
                    message = server.next() => pings += u32::from(matches!(message, Some(Ok(Message::Ping(_))))),
                }
            }
        } => {}
    }
    assert_eq!(pings, 30, "one ping each 10/3 s");
}

/// Goal: each sent frame arrives as one binary frame, and `send` returns once it was written. On shutdown, queued
/// frames are still sent, followed by a close frame.
#[tokio::test]
async fn frames_arrive_and_a_shutdown_still_writes_queued_ones() {
    let (listener, address) = listen().await;
    let (link, shutdown) = start(vec![format!("ws://{address}")]);
    let mut server = accept(&listener).await;
    connected(&link, true).await;
    assert_eq!(within(link.send(Bytes::from_static(b"one"))).await, Ok(()));
    assert_eq!(link.try_send(Bytes::from_static(b"two")), Ok(()));
    shutdown.cancel();
    for expected in [&b"one"[..], b"two"] {
        assert_eq!(received(&mut server).await, Message::binary(expected.to_vec()));
    }
    let close = received(&mut server).await;
    assert!(matches!(close, Message::Close(Some(ref frame)) if frame.code == CloseCode::Normal), "{close:?}");
}

/// Goal: a frame is rejected, not stored, while there is no connection.
#[tokio::test]
async fn frames_are_refused_before_the_handshake() {
    let (listener, address) = listen().await;
    let (link, _shutdown) = start(vec![format!("ws://{address}")]);
    let _silent = within(listener.accept()).await.expect("accept");
    assert_eq!(link.try_send(Bytes::new()), Err(SendError::NotConnected));
    assert_eq!(within(link.send(Bytes::new())).await, Err(SendError::NotConnected));
}

/// Goal: a peer that announces a restart (1012) is dialled again at once, without a back-off.
#[tokio::test]
async fn a_restarting_peer_is_dialled_again_at_once() {
    let (listener, address) = listen().await;
    let (queue, frames) = mpsc::channel(1);
    let (flag, is_connected) = watch::channel(false);
    let link = DurableSender { queue, connected: is_connected };
    tokio::spawn(run(Link {
        targets: vec![Target::parse(&format!("ws://{address}")).expect("valid")],
        resolver: Arc::new(Dns),
        config: Config::default(),
        // The back-off exceeds the test's patience, so only an attempt without one can pass.
        backoff: Backoff::new(PATIENCE * 10, PATIENCE * 10),
        frames,
        connected: flag,
        shutdown: CancellationToken::new(),
    }));
    let mut first = accept(&listener).await;
    connected(&link, true).await;
    first.close(Some(CloseFrame { code: CloseCode::Restart, reason: "Restarting".into() })).await.expect("close");
    let mut second = accept(&listener).await;
    connected(&link, true).await;
    within(link.send(Bytes::from_static(b"again"))).await.expect("connected");
    assert_eq!(received(&mut second).await, Message::binary(b"again".to_vec()));
}

/// Goal: the second URL is used if the first does not respond. A connection that breaks silently is replaced, and the
/// flag reports both changes.
#[tokio::test]
async fn urls_are_tried_in_order_and_a_broken_connection_is_replaced() {
    let (closed, refused) = listen().await;
    drop(closed);
    let (listener, address) = listen().await;
    let (link, _shutdown) = start(vec![format!("ws://{refused}"), format!("ws://localhost:{}", address.port())]);
    let first = accept(&listener).await;
    connected(&link, true).await;
    drop(first);
    connected(&link, false).await;
    let _second = accept(&listener).await;
    connected(&link, true).await;
}

/// Goal: if the queue is full, the newest frame is rejected and its sender is notified.
#[tokio::test]
async fn a_full_queue_refuses_the_newest_frame() {
    let (queue, _frames) = mpsc::channel(1);
    let (_flag, connected) = watch::channel(true);
    let link = DurableSender { queue, connected };
    assert_eq!(link.try_send(Bytes::from_static(b"1")), Ok(()));
    assert_eq!(link.try_send(Bytes::from_static(b"2")), Err(SendError::Full));
}

/// Goal: an unusable URL is rejected at the start, and the error contains it.
#[test]
fn urls_are_checked_at_the_start() {
    for bad in ["https://host:1", "http://host", "ws://", "no url at all", "/path"] {
        let (urls, resolver, stop) = (vec![bad.to_owned()], Arc::new(Dns), CancellationToken::new());
        let error = DurableSender::start(urls, resolver, Config::default(), stop).expect_err(bad);
        assert!(error.to_string().contains(bad), "{error}");
    }
    for (url, host, port, tls) in [
        ("ws://[fd00::1]:8080", "fd00::1", 8080, false),
        ("ws://host", "host", 80, false),
        ("wss://host/path", "host", 443, true),
    ] {
        let target = Target::parse(url).expect("valid");
        assert_eq!((target.host.as_str(), target.port, target.tls), (host, port, tls), "{url}");
    }
}
