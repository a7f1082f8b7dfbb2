//! HTTP/2 connections to pods, shared by requests of many clients: a response that one client does not read does not
//! block others.

use crate::frames::{END_HEADERS, END_STREAM, HEADERS, SETTINGS, block, frame};
use crate::hostile::{Frames, GET};
use crate::rig::{self, Pod, Rig, patient};
use activator::WorkerRuntimes;
use bytes::Bytes;
use common::backend::Protocol;
use futures::StreamExt;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PIECE: usize = 16 << 10;

/// Starts a pod whose responses have as many MiB as the path says. Counts the pieces of 16 KiB that it sends.
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

/// Starts an activator with one worker, so that its clients share connections to the pod, which speaks HTTP/2.
async fn start_rig(pod: &Pod) -> Rig {
    let workers = WorkerRuntimes::start(NonZeroUsize::MIN).expect("a thread");
    let rig = Rig::with_options(|options| options.workers = Some(workers), |backend| backend.protocol = Protocol::H2c);
    let rig = rig.await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    rig
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
    patient(rig.client().await.send_request(request)).await.expect("an answer").into_body()
}

/// Goal: regardless of the number of responses that clients do not read, older and newer streams continue, over
/// connections to the pod with large and small windows. Method: clients grant no window for any response, and request
/// more than one connection to the pod can carry.
#[tokio::test]
async fn unread_responses_do_not_block_other_streams() {
    let (pod, pieces) = sending().await;
    let rig = start_rig(&pod).await;
    let mut before = get(&rig, 1 << 10).await;
    take(&mut before, 1).await;
    let mut stuck = Vec::new();
    for streams in [20_u32, 40, 80, 120, 160] {
        let mut client = Frames::open(&rig).await;
        let mut bytes = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        let fields = [GET[0], GET[1], (b":path", b"/1024"), GET[3]];
        (0..streams).for_each(|n| bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &block(&fields))));
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
