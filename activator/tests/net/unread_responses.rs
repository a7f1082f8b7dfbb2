//! Responses that clients do not read: their memory is bounded for the process, and they do not affect clients that read,
//! even if both share an HTTP/2 connection to a pod.

use crate::frames::{END_HEADERS, END_STREAM, Frames, HEADERS, SETTINGS, WINDOW_UPDATE, block, frame};
use crate::full_queue::one_worker;
use crate::hostile::GET;
use crate::memory::limited;
use crate::pressure::stalled;
use crate::rig::{self, Pod, Rig, patient};
use bytes::Bytes;
use common::backend::Protocol;
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncReadExt;

/// Length of a piece of a body.
const PIECE: usize = 32 << 10;

/// Fields of a GET of a GiB, which never ends if it is not read.
const ENDLESS: [(&[u8], &[u8]); 4] = [GET[0], GET[1], (b":path", b"/1024"), GET[3]];

/// Starts a pod whose responses have as many MiB as the path says. Counts the pieces that it sends.
async fn sending() -> (Pod, Arc<AtomicUsize>) {
    let pieces = Arc::new(AtomicUsize::new(0));
    let counted = pieces.clone();
    let pod = Pod::start(move |request: Request<Incoming>| {
        let counted = counted.clone();
        async move {
            let mebibytes: usize = request.uri().path()[1..].parse().expect("a number");
            let piece = move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(Frame::data(Bytes::from_static(&[7; PIECE])))
            };
            let pieces = futures::stream::iter(0..mebibytes * (1 << 20) / PIECE).map(piece);
            Response::new(StreamBody::new(pieces).boxed_unsync())
        }
    })
    .await;
    (pod, pieces)
}

/// Opens an HTTP/2 client that grants maximum windows, sends `streams` requests and reads nothing.
async fn open_unread(rig: &Rig, streams: u32) -> Frames {
    let mut client = Frames::open(rig).await;
    let open = (1_u32 << 31) - 1;
    let mut bytes = frame(SETTINGS, 0, 0, &[&4_u16.to_be_bytes()[..], &open.to_be_bytes()].concat());
    bytes.extend(frame(WINDOW_UPDATE, 0, 0, &(open - 0xffff).to_be_bytes()));
    (0..streams).for_each(|n| bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &block(&ENDLESS))));
    client.send(&bytes).await;
    client
}

/// Goal: clients that do not read use at most an eighth of the process's memory limit, in either protocol. A client
/// that reads still gets its megabyte, and all memory is freed at the end. Method: read the charge once the pod sends
/// nothing more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_responses_share_a_bound() {
    const BUDGET: u64 = 1 << 20;
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = limited(8 * BUDGET, protocol).await;
        let (pod, pieces) = sending().await;
        rig.pods(&[pod.address]).await;
        let mut slow = Vec::new();
        for _ in 0..20 {
            slow.push(rig.send_raw("GET /1024 HTTP/1.1\r\nhost: app.ns\r\n\r\n").await);
        }
        let streams = open_unread(&rig, 100).await;
        rig.until(|load| load.in_flight == 120).await;
        stalled(&pieces).await;
        let charged = rig.activator.output();
        assert!((BUDGET / 2..=BUDGET).contains(&charged), "{protocol:?}: {charged} bytes");
        assert_eq!(rig.get("app.ns", "/1").await.body.len(), 1 << 20, "{protocol:?}");
        // A client that starts to read gets more than the kernel's buffers hold.
        let mut last = slow.pop().expect("one of them");
        patient(last.read_exact(&mut vec![0; 24 << 20])).await.expect("more of its response");
        drop((slow, last, streams));
        rig::until(|| rig.activator.output() == 0).await;
        rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
    }
}

/// Goal: even with enough memory, an HTTP/2 stream buffers only a little ahead of its client, because a client with
/// many streams would use up the share of others. Method: as above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_buffers_little_ahead_of_its_client() {
    const STREAMS: u32 = 100;
    const AHEAD: u64 = 32 << 10;
    let rig = limited(8 << 30, Protocol::Http1).await;
    let (pod, pieces) = sending().await;
    rig.pods(&[pod.address]).await;
    let _streams = open_unread(&rig, STREAMS).await;
    rig.until(|load| load.in_flight == STREAMS).await;
    stalled(&pieces).await;
    // Up to the limit, and the piece that exceeded it.
    let most = u64::from(STREAMS) * (AHEAD + (64 << 10));
    let charged = rig.activator.output();
    assert!((u64::from(STREAMS) * AHEAD / 2..most).contains(&charged), "{charged} bytes, at most {most}");
}

/// Starts a pod whose response heads have `length` bytes.
async fn with_heads(length: usize) -> Pod {
    Pod::start(move |_| async move {
        let fields = length / 1000;
        let mut answer = Response::new(rig::full("done"));
        for n in 0..fields {
            let name = http::HeaderName::try_from(format!("x-{n:04}")).expect("a name");
            answer.headers_mut().insert(name, "v".repeat(990).try_into().expect("a value"));
        }
        answer
    })
    .await
}

/// Goal: large response heads are charged to their workload until they are written, and freed then. Beyond its share
/// they are refused with a reason. An HTTP/1 connection ends with such a response. Method: an HTTP/2 client sends
/// requests and reads nothing, until the kernel's buffers are full.
#[tokio::test]
async fn large_heads_are_charged_until_they_are_written() {
    const HELD: u64 = 2 << 20;
    const ROUND: u32 = 5; // So few that no streams are charged: an idle connection with a charge could be closed.
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = limited(2 * HELD, protocol).await;
        let pod = with_heads(300_000).await;
        rig.pods(&[pod.address]).await;
        let answer = rig.get("app.ns", "/").await;
        let received = (answer.status, answer.header("connection"), answer.body.as_str());
        assert_eq!(received, (StatusCode::OK, "close", "done"));
        rig::until(|| rig.activator.held() == (0, 0)).await;

        let mut stuck = open_unread(&rig, 0).await;
        let mut rounds = 0;
        let refused = loop {
            let before = pod.requests();
            let get = |n| frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &block(&GET));
            stuck.send(&(rounds * ROUND..(rounds + 1) * ROUND).flat_map(get).collect::<Vec<u8>>()).await;
            rig::until(|| pod.requests() == before + ROUND as usize).await;
            let answer = rig.get("app.ns", "/").await;
            if answer.status != StatusCode::OK {
                break answer;
            }
            rounds += 1;
            assert!(rounds < 50, "{protocol:?}: nothing is charged: {:?}", rig.activator.held());
        };
        let refusal = (refused.status, refused.header("x-zeroscale-reason"));
        assert_eq!(refusal, (StatusCode::BAD_GATEWAY, "answer-memory"), "{protocol:?}: {}", refused.body);
        assert!(refused.body.contains(&format!("share of {HELD}")), "{}", refused.body);
        assert!(rig.activator.held().1 <= HELD, "{protocol:?}");
        drop(stuck);
        rig::until(|| rig.activator.held() == (0, 0)).await;
        assert_eq!(rig.get("app.ns", "/").await.status, StatusCode::OK, "{protocol:?}");
    }
}

/// Reads this many MiB from a body.
async fn take(body: &mut Incoming, mebibytes: usize) {
    let mut taken = 0;
    while taken < mebibytes << 20 {
        let frame = patient(body.frame()).await.expect("more").expect("whole");
        taken += frame.data_ref().map_or(0, Bytes::len);
    }
}

async fn get(rig: &Rig, mebibytes: usize) -> Incoming {
    let request = Request::get(format!("/{mebibytes}")).header("host", "app.ns");
    let request = request.body(Empty::<Bytes>::new()).expect("valid");
    patient(rig::http1_client(rig.address).await.send_request(request)).await.expect("an answer").into_body()
}

/// Goal: regardless of the number of responses that clients do not read, older and newer streams continue, over
/// connections to the pod with large and small windows. Method: one worker, so that clients share connections to
/// the pod. They grant no window for any response, and request more than one connection to the pod can carry.
#[tokio::test]
async fn unread_responses_do_not_block_other_streams() {
    let (pod, pieces) = sending().await;
    let rig = Rig::with_options(one_worker, |backend| backend.protocol = Protocol::H2c).await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    let mut before = get(&rig, 1 << 10).await;
    take(&mut before, 1).await;
    let mut stuck = Vec::new();
    for streams in [20_u32, 40, 80, 120, 160] {
        let mut client = Frames::open(&rig).await;
        let mut bytes = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        (0..streams).for_each(|n| bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &block(&ENDLESS))));
        let requests = pod.requests();
        client.send(&bytes).await;
        stuck.push(client);
        rig::until(|| pod.requests() == requests + streams as usize).await;
        // The stream before them continues, and so does a new one.
        take(&mut before, 8).await;
        take(&mut get(&rig, 8).await, 8).await;
    }
    let most = (400 << 20) / PIECE;
    assert!(pieces.load(Ordering::SeqCst) < most, "the pod was not stopped");
}
