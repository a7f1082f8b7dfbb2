//! Back pressure: a slow reader slows down the writer, through the activator, and buffers in between are bounded.

use crate::protocols::{PAIRS, Pair, nothing, streamed};
use crate::rig::{self, FullResponse, Pod, Rig, patient};
use activator::discovery::{Event, Spec};
use bytes::Bytes;
use common::backend::{Backend, Protocol};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes sent in each direction.
const TOTAL: usize = 32 << 20;
const PIECE: usize = 64 << 10;

/// Maximum number of bytes between writer and reader: four kernel buffers (at most 6 MiB each by Linux' defaults), and
/// windows.
const BETWEEN_MAX: usize = 30 << 20;

/// Timeout for a stalled exchange, and the interval between two pieces of an active one: a busy machine may take
/// seconds.
const BOUND_MS: u64 = 6_000;
const PIECES_APART: Duration = Duration::from_millis(400);
/// Number of pieces that take longer than the timeout.
const PIECES: usize = 18;

/// Returns a body of [`TOTAL`] bytes, and counts those that were taken from it.
fn counted(taken: Arc<AtomicUsize>) -> impl futures::Stream<Item = Frame<Bytes>> + Send {
    let piece = Bytes::from(vec![b'x'; PIECE]);
    futures::stream::unfold((0, piece, taken), |(sent, piece, taken)| async move {
        (sent < TOTAL).then(|| {
            taken.fetch_add(PIECE, Ordering::SeqCst);
            (Frame::data(piece.clone()), (sent + PIECE, piece, taken))
        })
    })
}

/// Waits until the count stops changing, and returns it.
pub(crate) async fn stalled(count: &AtomicUsize) -> usize {
    patient(async {
        let mut before = usize::MAX;
        loop {
            let now = count.load(Ordering::SeqCst);
            if now == before && now > 0 {
                return now;
            }
            before = now;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    })
    .await
}

/// Waits for `future` as long as the count keeps changing.
async fn during_progress<T>(count: &AtomicUsize, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        let before = count.load(Ordering::SeqCst);
        if let Ok(done) = tokio::time::timeout(rig::PATIENCE, &mut future).await {
            return done;
        }
        assert_ne!(count.load(Ordering::SeqCst), before, "no progress");
    }
}

/// Goal: once the pod reads, everything arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_does_not_read_stops_its_client() {
    let checks = PAIRS.map(|pair| async move {
        let read = Arc::new(Notify::new());
        let go = read.clone();
        let pod = Pod::start(move |request: Request<Incoming>| {
            let go = go.clone();
            async move {
                go.notified().await;
                let mut body = request.into_body();
                let mut length = 0;
                while let Some(Ok(frame)) = body.frame().await {
                    length += frame.data_ref().map_or(0, Bytes::len);
                }
                Response::new(rig::full(length.to_string()))
            }
        })
        .await;
        let rig = pair.start(&pod).await;
        let taken = Arc::new(AtomicUsize::new(0));
        let body = StreamBody::new(futures::StreamExt::map(counted(taken.clone()), Ok::<_, Infallible>)).boxed_unsync();
        let sending = during_progress(&taken, async {
            let response = pair.send_slowly(&rig, Request::post("/"), body).await;
            FullResponse::read(response).await
        });
        let watching = async {
            let between = stalled(&taken).await;
            assert!(between <= BETWEEN_MAX, "{pair:?}: {between} bytes were taken from the client and not read");
            read.notify_one();
        };
        let (answer, ()) = tokio::join!(sending, watching);
        assert_eq!((answer.status, answer.body), (StatusCode::OK, TOTAL.to_string()), "{pair:?}");
    });
    futures::future::join_all(checks).await;
}

/// Goal: once the client reads, everything arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_stops_its_pod() {
    let checks = PAIRS.map(|pair| async move {
        let taken = Arc::new(AtomicUsize::new(0));
        let counting = taken.clone();
        let pod = Pod::start(move |_| {
            let body = StreamBody::new(futures::StreamExt::map(counted(counting.clone()), Ok)).boxed_unsync();
            async move { Response::new(body) }
        })
        .await;
        let rig = pair.start(&pod).await;
        let mut body = pair.send(&rig, Request::get("/"), nothing()).await.into_body();
        let between = stalled(&taken).await;
        assert!(between <= BETWEEN_MAX, "{pair:?}: {between} bytes were taken from the pod and not read");
        let mut length = 0;
        while let Some(frame) = patient(body.frame()).await {
            length += frame.unwrap_or_else(|e| panic!("{pair:?}: {e}")).data_ref().map_or(0, Bytes::len);
        }
        assert_eq!(length, TOTAL, "{pair:?}");
    });
    futures::future::join_all(checks).await;
}

/// Goal: progress of an upload counts even before the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_idle_timeout_does_not_cut_an_upload_with_progress() {
    let checks = PAIRS.map(|pair| async move {
        let pod = Pod::returning().await;
        let change = |backend: &mut Backend| (backend.protocol, backend.idle_timeout_ms) = (pair.pod, BOUND_MS);
        let rig = Rig::with_pods(&[pod.address], change).await;
        rig.until_open().await;
        let (upload, body) = streamed();
        let sending = async {
            // Longer than the timeout, a piece at a time.
            for _ in 0..PIECES {
                upload.send(Frame::data(Bytes::from_static(b"."))).await.expect("open");
                tokio::time::sleep(PIECES_APART).await;
            }
            drop(upload);
        };
        let (response, ()) = tokio::join!(pair.send(&rig, Request::post("/"), body), sending);
        assert_eq!(response.status(), 200, "{pair:?}");
        let whole = response.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(whole.len(), PIECES, "{pair:?}");
    });
    futures::future::join_all(checks).await;
}

/// Goal: a hundred uploads to a sleeping revision do not slow down an upload to an active revision on the same
/// connection.
#[tokio::test]
async fn held_uploads_do_not_stall_another_upload_on_their_connection() {
    const HELD: usize = 100;
    const LARGE: usize = 4 << 20;
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let pod = Pod::measuring().await;
        let rig = Pair { client: Protocol::H2c, pod: protocol }.start(&pod).await;
        rig.emit(Event::Revision(Arc::new(Spec::standalone("ns", "asleep", rig::backend("asleep"))))).await;
        rig.until_named("asleep.ns").await;
        let client = rig::http2_client(rig.address).await;
        let mut held = tokio::task::JoinSet::new();
        let upload = |host: &str, size: usize| {
            let body = http_body_util::Full::new(Bytes::from(vec![b'x'; size]));
            Request::post(format!("http://{host}/")).body(body).expect("a request")
        };
        for _ in 0..HELD {
            let mut client = client.clone();
            let request = upload("asleep.ns", 256 << 10);
            held.spawn(async move { FullResponse::receive(client.send_request(request)).await.body });
        }
        let asleep = rig::key("asleep");
        rig::until(|| rig.activator.load(&asleep).is_some_and(|load| load.queued as usize >= HELD)).await;
        let mut active = client.clone();
        let answer = FullResponse::receive(active.send_request(upload("app.ns", LARGE))).await;
        assert_eq!(answer.body, LARGE.to_string(), "{protocol:?}");
        rig.pods_of("asleep", &[pod.address]).await;
        while let Some(length) = patient(held.join_next()).await {
            assert_eq!(length.expect("no panic"), (256 << 10).to_string());
        }
    }
}
