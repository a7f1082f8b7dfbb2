//! Requests whose reused connection was lost: the retry goes to another pod, if one has a free slot.

use crate::frames::{HEADERS, PREFACE, SETTINGS, block, frame, next_stream};
use crate::rig::{self, Pod, Rig, listen, patient};
use activator::discovery::{Event, Listing};
use activator_core::breaker::Capacity;
use activator_core::destination::Destination;
use bytes::Bytes;
use common::backend::{Backend, Probe, Protocol};
use http::{Request, StatusCode};
use http_body_util::Empty;
use socket2::SockRef;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Statuses that the lost pod and the other pod send.
const LOST: StatusCode = StatusCode::CREATED;
const OTHER: StatusCode = StatusCode::ACCEPTED;

/// Fate of a connection at its next request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The request gets a response.
    Answered,
    /// The connection is reset.
    Reset,
}

/// Reads requests and treats them in turn as in `fates`, and sends responses to all later ones. Counts requests in
/// `runs`.
async fn serve(mut stream: TcpStream, status: StatusCode, fates: Vec<Fate>, runs: Arc<AtomicUsize>) -> io::Result<()> {
    let mut fates = fates.into_iter();
    let mut start = [0; PREFACE.len()];
    stream.read_exact(&mut start).await?;
    let is_http2 = start == *PREFACE;
    let mut head = start.to_vec();
    if is_http2 {
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    }
    loop {
        let id = if is_http2 {
            next_stream(&mut stream).await?
        } else {
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            head.clear();
            0
        };
        runs.fetch_add(1, Ordering::SeqCst);
        match fates.next().unwrap_or(Fate::Answered) {
            Fate::Answered if is_http2 => {
                stream.write_all(&frame(HEADERS, 5, id, &block(&[(b":status", status.as_str().as_bytes())]))).await?;
            }
            Fate::Answered => {
                let answer = format!("HTTP/1.1 {} said\r\ncontent-length: 0\r\n\r\n", status.as_str());
                stream.write_all(answer.as_bytes()).await?;
            }
            Fate::Reset => return SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
        }
    }
}

/// Starts a pod whose first connection serves one request and is reset at the next. Later connections behave as in
/// `then`.
fn lost_pod(listener: TcpListener, then: Fate) -> Pod {
    let mut fates = vec![Fate::Answered, Fate::Reset];
    Pod::raw(listener, move |stream, runs| serve(stream, LOST, std::mem::replace(&mut fates, vec![then]), runs))
}

/// Goal: a GET that is lost on a reused connection runs once more, on another pod with a free slot, even if the first
/// pod's kernel still accepts connections. If no other pod has a free slot, it runs on the same pod. No pod exceeds its
/// limit meanwhile, and all counts return to zero. Method: two pods with one slot each. The first, in address order, is
/// used and then lost; the other is idle, or has a request that does not end.
#[tokio::test]
async fn a_retry_prefers_another_pod_with_a_free_slot() {
    for protocol in [Protocol::Http1, Protocol::H2c] {
        for (busy, then, expected, runs_at_first) in
            [(false, Fate::Reset, OTHER, 2), (false, Fate::Answered, OTHER, 2), (true, Fate::Answered, LOST, 3)]
        {
            let name = format!("{protocol:?}, the other is busy: {busy}, new connections are {then:?}");
            let mut listeners = [listen().await, listen().await];
            listeners.sort_by_key(address_of);
            let [first, second] = listeners.each_ref().map(address_of);
            let [at_first, at_second] = listeners;
            let lost = lost_pod(at_first, then);
            let (ended, running) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
            let end = ended.clone();
            let other = Pod::on(
                at_second,
                |_| {},
                move |_| {
                    let (end, running) = (end.clone(), running.clone());
                    async move {
                        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "one slot");
                        if busy {
                            end.notified().await;
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                        let mut answer = http::Response::new(rig::full(""));
                        *answer.status_mut() = OTHER;
                        answer
                    }
                },
            );
            let change = |backend: &mut Backend| {
                (backend.protocol, backend.probe, backend.container_concurrency) = (protocol, Probe::default(), 1);
            };
            let rig = Arc::new(Rig::with_revision(change).await);
            let list = async |pods: &[&Destination]| {
                let ready: BTreeSet<_> = pods.iter().map(|pod| pod.address().into()).collect();
                let slots = Capacity::Limited(ready.len() as u32);
                let listing = Listing { ready, ..Listing::default() };
                rig.emit(Event::Pods { key: rig::key("app"), listing }).await;
                rig.until(|load| load.capacity == slots).await;
            };
            // One client, so that one worker has all connections.
            let mut client = rig::http1_client(rig.address).await;
            let mut get = async || {
                patient(client.ready()).await.expect("kept alive");
                let request = Request::get("/").header("host", "app.ns").body(Empty::<Bytes>::new());
                patient(client.send_request(request.expect("a request"))).await.expect("an answer").status()
            };
            let mut occupying = None;
            if busy {
                list(&[&second]).await;
                occupying = Some(rig.get_many("/", 1));
                rig::until(|| other.requests() == 1).await;
                list(&[&first, &second]).await;
                assert_eq!(get().await, LOST, "{name}");
            } else {
                list(&[&first]).await;
                assert_eq!(get().await, LOST, "{name}");
                list(&[&first, &second]).await;
            }
            assert_eq!(get().await, expected, "{name}");
            assert_eq!(lost.requests(), runs_at_first, "{name}");
            ended.notify_one();
            if let Some(occupying) = occupying {
                assert_eq!(patient(occupying.join_all()).await[0].status, OTHER, "{name}");
            }
            assert_eq!(other.requests(), 1, "{name}");
            rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
        }
    }
}

fn address_of(listener: &TcpListener) -> Destination {
    listener.local_addr().expect("bound").into()
}
