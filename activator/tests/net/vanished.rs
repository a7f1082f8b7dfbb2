//! Clients that vanish silently, as when a node dies: their kernel neither ends the connection nor acknowledges
//! anything. [`silence`] makes a client do so.

use crate::rig::{self, Pod, Rig, read_until};
use crate::silence::{descriptor, silence};
use activator::KeepAlive;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::Socket;
use std::time::Duration;
use tokio::time::Instant;

/// Probes a client after a second, once; a second later it counts as vanished.
const KEEPALIVE: KeepAlive = KeepAlive { every: Duration::from_secs(1), probes: 1 };

/// Silence of a live client, longer than that.
const SILENCE: Duration = Duration::from_secs(4);

async fn start() -> Rig {
    Rig::with_options(|options| options.clients.keepalive = Some(KEEPALIVE), |_| {}).await
}

/// Sends a request over HTTP/2 that waits forever.
async fn http2(rig: &Rig) -> Socket {
    let stream = rig.raw().await;
    let socket = descriptor(&stream);
    let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.expect("nothing is sent yet");
    tokio::spawn(connection);
    let request = Request::get("http://app.ns/").body(Empty::<Bytes>::new()).expect("a request");
    tokio::spawn(async move { sender.send_request(request).await.map(|_| ()) });
    socket
}

/// Goal: the request is removed over either protocol, and with an unread body. A request of a live client continues to
/// wait, however silent the client is.
#[tokio::test]
async fn a_held_request_of_a_vanished_client_is_removed() {
    let rig = start().await;
    let mut vanishing = Vec::new();
    for request in [
        rig::GET,
        "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 4\r\n\r\nbody",
        "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 400000\r\n\r\nbody",
    ] {
        let client = rig.send_raw(request).await;
        vanishing.push((descriptor(&client), Some(client)));
    }
    vanishing.push((http2(&rig).await, None));
    let mut staying = rig.send_raw(rig::GET).await;
    http2(&rig).await;
    let all = u32::try_from(vanishing.len()).expect("a few");
    rig.until(|load| load.queued == all + 2).await;
    vanishing.iter().for_each(|(socket, _)| silence(socket));
    let start = Instant::now();
    rig.until(|load| load.queued == 2).await;
    tokio::time::sleep_until(start + SILENCE).await;
    rig.until(|load| load.queued == 2).await;
    let pod = rig.only_pod(Pod::saying("hello").await).await;
    read_until(&mut staying, "hello").await;
    rig::until(|| pod.requests() == 2).await;
}

/// Goal: after the response has begun, a silent tunnel, a silent body, and a body with unacknowledged data end. A
/// tunnel of a live client stays.
#[tokio::test]
async fn tunnels_and_responses_of_a_vanished_client_end() {
    let rig = start().await;
    let pod = Pod::start(|mut request: Request<Incoming>| async move {
        match request.uri().path() {
            "/tunnel" => {
                let upgrade = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let _open = upgrade.await;
                    std::future::pending::<()>().await;
                });
                rig::switching_to("x")
            }
            path => {
                let pause = Duration::from_millis(if path == "/chatty" { 50 } else { 1_000_000 });
                let parts = futures::stream::unfold(Duration::ZERO, move |wait| async move {
                    tokio::time::sleep(wait).await;
                    Some((Ok(Frame::data(Bytes::from_static(b"part"))), pause))
                });
                Response::new(StreamBody::new(parts).boxed_unsync())
            }
        }
    })
    .await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    let mut clients = Vec::new();
    for (path, answer) in [("/tunnel", "101 Switching"), ("/silent", "part"), ("/chatty", "part"), ("/tunnel", "101 ")]
    {
        let upgrade = if path == "/tunnel" { "connection: upgrade\r\nupgrade: x\r\n" } else { "" };
        let mut client = rig.send_raw(&format!("GET {path} HTTP/1.1\r\nhost: app.ns\r\n{upgrade}\r\n")).await;
        read_until(&mut client, answer).await;
        clients.push(client);
    }
    rig.until(|load| load.in_flight == 4).await;
    clients[..3].iter().for_each(silence);
    let start = Instant::now();
    rig.until(|load| load.in_flight == 1).await;
    tokio::time::sleep_until(start + SILENCE).await;
    rig.until(|load| load.in_flight == 1).await;
}
