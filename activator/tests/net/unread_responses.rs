//! Responses that clients do not read: their memory is bounded for the process, and clients that read are not affected.

use crate::frames::{END_HEADERS, END_STREAM, HEADERS, SETTINGS, WINDOW_UPDATE, block, frame};
use crate::hostile::{Frames, GET};
use crate::rig::{self, AnyBody, Pod, Rig, patient};
use activator::Options;
use bytes::Bytes;
use common::backend::Protocol;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncReadExt;

/// Length of a piece of an endless body.
const PIECE: usize = 32 << 10;

/// Starts a pod that answers `/endless` with an endless body, and counts its pieces; other requests get a megabyte.
async fn endless() -> (Pod, Arc<AtomicUsize>) {
    let pieces = Arc::new(AtomicUsize::new(0));
    let counted = pieces.clone();
    let pod = Pod::start(move |request: Request<hyper::body::Incoming>| {
        let counted = counted.clone();
        async move {
            let body: AnyBody = match request.uri().path() {
                "/endless" => {
                    let piece = move || {
                        counted.fetch_add(1, Ordering::SeqCst);
                        Ok(Frame::data(Bytes::from_static(&[7; PIECE])))
                    };
                    StreamBody::new(futures::stream::repeat_with(piece)).boxed_unsync()
                }
                _ => rig::full(vec![7; 1 << 20]),
            };
            Response::new(body)
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
    let fields = [GET[0], GET[1], (b":path", b"/endless"), GET[3]];
    (0..streams).for_each(|n| bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &block(&fields))));
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
        let limit = |options: &mut Options| options.memory_limit = Some(8 * BUDGET);
        let rig = Rig::with_options(limit, |backend| backend.protocol = protocol).await;
        let (pod, pieces) = endless().await;
        rig.pods(&[pod.address]).await;
        let mut slow = Vec::new();
        for _ in 0..20 {
            slow.push(rig.send_raw("GET /endless HTTP/1.1\r\nhost: app.ns\r\n\r\n").await);
        }
        let streams = open_unread(&rig, 100).await;
        rig.until(|load| load.in_flight == 120).await;
        stops_changing(&pieces).await;
        let charged = rig.activator.output();
        assert!((BUDGET / 2..=BUDGET).contains(&charged), "{protocol:?}: {charged} bytes");
        assert_eq!(rig.get("app.ns", "/large").await.body.len(), 1 << 20, "{protocol:?}");
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
    let rig = Rig::with_options(|options| options.memory_limit = Some(8 << 30), |_| {}).await;
    let (pod, pieces) = endless().await;
    rig.pods(&[pod.address]).await;
    let _streams = open_unread(&rig, STREAMS).await;
    rig.until(|load| load.in_flight == STREAMS).await;
    stops_changing(&pieces).await;
    // Up to the limit, and the piece that exceeded it.
    let most = u64::from(STREAMS) * (AHEAD + (64 << 10));
    let charged = rig.activator.output();
    assert!((u64::from(STREAMS) * AHEAD / 2..most).contains(&charged), "{charged} bytes, at most {most}");
}

/// Waits until the count has not changed for a while.
async fn stops_changing(count: &AtomicUsize) {
    let mut before = usize::MAX;
    patient(async {
        while before != count.load(Ordering::SeqCst) {
            before = count.load(Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(300)).await; // An interval, not a wait for a state.
        }
    })
    .await
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
        let limit = |options: &mut Options| options.memory_limit = Some(2 * HELD);
        let rig = Rig::with_options(limit, |backend| backend.protocol = protocol).await;
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
