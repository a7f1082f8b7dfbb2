//! Clients that disconnect while they wait: their resources are freed.

use crate::rig::{self, Pod, Rig, read_until, write};
use activator_net::HALF_CLOSE_MAX;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Requests of every kind: without a body, with a complete one, with an incomplete one, HTTP/1.0, with an `Expect`
/// header, with another request behind it, with an extra line end.
const REQUESTS: [&str; 7] = [
    "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 4\r\n\r\nbody",
    "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 400000\r\n\r\nbody",
    "GET / HTTP/1.0\r\nhost: app.ns\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: app.ns\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\nbody",
    "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\nGET /2 HTTP/1.1\r\nhost: app.ns\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n\r\n",
];

/// Requests that are sent to a pod although the client sends nothing more.
const COMPLETE: [&str; 5] = [REQUESTS[0], REQUESTS[1], REQUESTS[3], REQUESTS[5], REQUESTS[6]];

/// Goal: a held request whose client disconnects frees its slot, even if its body is unread, or more bytes follow it, at
/// once or while it is held. Clients that stay get responses, even if one has sent two requests at once.
#[tokio::test]
async fn a_held_request_whose_client_disconnects_is_removed() {
    let rig = Rig::with_revision(|_| {}).await;
    let mut clients = Vec::new();
    for request in [REQUESTS; 3].as_flattened() {
        clients.push(rig.send_raw(request).await);
    }
    for more in ["\r\n", "GET /2 HTTP/1.1\r\nhost: app.ns\r\n\r\n"] {
        for request in [REQUESTS[0], REQUESTS[1], REQUESTS[3]] {
            let mut client = rig.send_raw(request).await;
            let held = clients.len() as u32;
            rig.until(|load| load.queued == held + 1).await;
            write(&mut client, more).await;
            clients.push(client);
        }
    }
    let all = u32::try_from(clients.len()).expect("a few");
    rig.until(|load| load.queued == all).await;
    let (mut staying, mut with_two) = (rig.send_raw(REQUESTS[1]).await, rig.send_raw(REQUESTS[5]).await);
    rig.until(|load| load.queued == all + 2).await;
    clients.into_iter().for_each(rig::reset);
    rig.until(|load| load.queued == 2).await;
    let pod = rig.only_pod(Pod::echoing().await).await;
    read_until(&mut staying, "POST /").await;
    read_until(&mut with_two, "GET /2").await;
    assert_eq!(pod.requests(), 3, "no other request was sent there");
    assert_eq!(rig.activator.held(), (0, 0));
}

/// Goal: a client that half-closes directly after its requests gets responses, whether they were held or not.
#[tokio::test]
async fn a_half_close_directly_after_a_request_is_no_disconnect() {
    let rig = Rig::with_revision(|_| {}).await;
    let half_closed = async |request: &str| {
        let mut client = rig.send_raw(request).await;
        client.shutdown().await.expect("open");
        client
    };
    let answers = async |mut client: TcpStream| rig::read_to_end(&mut client).await.matches("http/1.1 ").count();
    let mut held = Vec::new();
    for request in COMPLETE {
        held.push(half_closed(request).await);
    }
    rig.until(|load| load.queued == held.len() as u32).await;
    tokio::time::sleep(HALF_CLOSE_MAX).await; // The half-close must not count later either.
    let _pod = rig.only_pod(Pod::echoing().await).await;
    for (client, request) in held.into_iter().zip(COMPLETE) {
        assert_eq!(answers(client).await, request.matches("HTTP/1.").count(), "held: {request:?}");
    }
    for request in COMPLETE {
        let client = half_closed(request).await;
        assert_eq!(answers(client).await, request.matches("HTTP/1.").count(), "{request:?}");
    }
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Goal: a client that half-closes later, or resets its connection, counts as disconnected, both while its request is
/// held and while its pod works. The activator sends it nothing, and no longer reports it as load.
#[tokio::test]
async fn a_late_half_close_is_a_disconnect() {
    let mut rig = Rig::with_revision(|_| {}).await;
    let send = async |requests: &[&str]| {
        let mut clients = Vec::new();
        for request in requests {
            clients.push(rig.send_raw(request).await);
        }
        clients
    };
    let end = async |clients: Vec<TcpStream>| {
        tokio::time::sleep(HALF_CLOSE_MAX).await;
        for mut client in clients {
            client.shutdown().await.expect("open");
            assert_eq!(rig::read_to_end(&mut client).await, "");
        }
    };
    let held = send(&REQUESTS).await;
    rig.until(|load| load.queued == REQUESTS.len() as u32).await;
    end(held).await;
    rig.until(|load| load.queued == 0).await;
    let pod = rig.only_pod(Pod::start(|_| std::future::pending()).await).await;
    rig.until_open().await;
    let sent = send(&COMPLETE).await;
    rig::until(|| pod.requests() == COMPLETE.len()).await;
    end(sent).await;
    rig.until(|load| load.in_flight == 0).await;
    let mut half_closed = send(&COMPLETE).await;
    for client in &mut half_closed {
        client.shutdown().await.expect("open");
    }
    rig::until(|| pod.requests() == 2 * COMPLETE.len()).await;
    tokio::time::sleep(HALF_CLOSE_MAX).await;
    rig.until(|load| load.in_flight == COMPLETE.len() as u32).await;
    half_closed.into_iter().for_each(rig::reset);
    rig.until(|load| load.in_flight == 0).await;
    let open = send(&COMPLETE).await;
    rig::until(|| pod.requests() == 3 * COMPLETE.len()).await;
    open.into_iter().for_each(rig::reset);
    rig.until(|load| load.in_flight == 0).await;
    while rig.is_load().await {} // The reported load falls to zero.
}
