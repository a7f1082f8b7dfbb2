//! Clients that vanish silently, as when a node dies: neither an end nor any response comes from them.
//!
//! A client is silenced with a socket filter on its side that drops every packet before TCP sees it, so that its kernel
//! acknowledges nothing. This needs no privileges.

use crate::rig::{self, Pod, Rig, patient, read_until, write};
use crate::silence::{descriptor, silence};
use activator::KeepAlive;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::{SockRef, Socket};
use std::time::Duration;
use tokio::time::Instant;

/// Probes a client after a second, once; a second later it counts as vanished.
const KEEPALIVE: KeepAlive = KeepAlive { every: Duration::from_secs(1), questions: 1 };

/// Silence of a live client, longer than that.
const SILENCE: Duration = Duration::from_secs(4);

async fn start() -> Rig {
    let rig = Rig::start_with(|options| options.clients.keepalive = Some(KEEPALIVE)).await;
    rig.revision(|_| {}).await;
    rig
}

/// Sends a request over HTTP/2 that never ends by itself.
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

/// Goal: a held request whose client has vanished frees its slot, over either protocol and with an unread body; a
/// request of a live client continues to wait, however silent the client is.
#[tokio::test]
async fn a_vanished_client_gives_its_place_back() {
    let rig = start().await;
    let mut vanishing = Vec::new();
    for request in [
        "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 4\r\n\r\nbody",
        "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 400000\r\n\r\nbody",
    ] {
        let mut client = rig.raw().await;
        write(&mut client, request).await;
        vanishing.push((descriptor(&client), Some(client)));
    }
    vanishing.push((http2(&rig).await, None));
    let mut staying = rig.raw().await;
    write(&mut staying, "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n").await;
    http2(&rig).await;
    let all = u32::try_from(vanishing.len()).expect("a few");
    rig.until(|load| load.queued == all + 2).await;
    vanishing.iter().for_each(|(socket, _)| silence(socket));
    let start = Instant::now();
    rig.until(|load| load.queued == 2).await;
    tokio::time::sleep_until(start + SILENCE).await;
    rig.until(|load| load.queued == 2).await;
    let pod = Pod::saying("hello").await;
    rig.pods(&[pod.address]).await;
    read_until(&mut staying, "hello").await;
    rig::until(|| pod.requests() == 2).await;
}

/// Goal: the same after the response has begun: a silent tunnel, a silent body, and a body with data that is always
/// unacknowledged.
#[tokio::test]
async fn a_vanished_client_ends_its_tunnel_and_its_answer() {
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
        let mut client = rig.raw().await;
        let upgrade = if path == "/tunnel" { "connection: upgrade\r\nupgrade: x\r\n" } else { "" };
        write(&mut client, &format!("GET {path} HTTP/1.1\r\nhost: app.ns\r\n{upgrade}\r\n")).await;
        read_until(&mut client, answer).await;
        clients.push(client);
    }
    rig.until(|load| load.in_flight == 4).await;
    clients[..3].iter().for_each(|client| silence(&SockRef::from(client)));
    let start = Instant::now();
    rig.until(|load| load.in_flight == 1).await;
    tokio::time::sleep_until(start + SILENCE).await;
    rig.until(|load| load.in_flight == 1).await;
}

/// Goal: a live client that pauses reading is not affected, although bytes for it find no room.
#[tokio::test]
async fn a_client_that_pauses_reading_is_left_alone() {
    const LENGTH: usize = 16 * 1024 * 1024;
    let rig = start().await;
    let pod = Pod::start(|_| async { Response::new(rig::full(vec![b'x'; LENGTH])) }).await;
    rig.pods(&[pod.address]).await;
    let mut client = rig.raw().await;
    write(&mut client, "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n").await;
    read_until(&mut client, "\r\n\r\n").await;
    tokio::time::sleep(SILENCE).await;
    let rest = patient(rig::read_to_end(&mut client)).await;
    assert!(rest.len() > LENGTH - 4096, "{} bytes", rest.len());
}
