//! A pod that serves HTTP/1.1 and h2c. It runs in its own thread, so it can live in another network namespace and end
//! at once.
//!
//! `?work=MS` delays the response by MS milliseconds, `?drip=COUNT` sends a part every 100 ms, and `?body=MIB` sends a
//! body of MIB mebibytes.

use anyhow::Context;
use bytes::Bytes;
use e2e::CountGuard;
use futures::StreamExt;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::SockRef;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Interval between two parts of a dripping response.
const DRIP: Duration = Duration::from_millis(100);

/// Size of a part of a large body, in bytes.
const PART: usize = 16 * 1024;

/// A running pod. It ends when dropped.
pub struct PodServer {
    /// Address at which the pod listens.
    pub address: SocketAddr,
    counts: Arc<Counts>,
    end: CancellationToken,
}

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    posts_running: AtomicUsize,
}

impl PodServer {
    /// Starts a pod with sockets of the calling thread's namespace.
    pub fn start(ip: IpAddr) -> anyhow::Result<Self> {
        let (counts, end) = (Arc::new(Counts::default()), CancellationToken::new());
        let (bound, started) = mpsc::channel();
        let (counted, ended) = (counts.clone(), end.clone());
        std::thread::Builder::new().name("pod".into()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::bind((ip, 0)).await else { return };
                let _ = bound.send(listener.local_addr());
                tokio::select! {
                    () = serve(listener, counted) => {}
                    () = ended.cancelled() => {}
                }
            });
        })?;
        let address = started.recv().context("the pod could not be started")??;
        Ok(Self { address, counts, end })
    }

    /// Returns the number of requests received.
    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// Returns the number of POSTs that still run.
    pub fn posts_running(&self) -> usize {
        self.counts.posts_running.load(Ordering::SeqCst)
    }

    /// Ends the pod as SIGKILL does, with a reset on every connection.
    pub fn kill(&self) {
        self.end.cancel();
    }
}

impl Drop for PodServer {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn serve(listener: TcpListener, counts: Arc<Counts>) {
    let mut serving = tokio::task::JoinSet::new(); // Dropped with the pod.
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        // A close sends a reset.
        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        let counts = counts.clone();
        serving.spawn(async move {
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let counts = counts.clone();
                async move { Ok::<_, Infallible>(answer(request, &counts).await) }
            });
            let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while serving.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>, counts: &Counts) -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
    counts.requests.fetch_add(1, Ordering::SeqCst);
    let _running = (request.method() == http::Method::POST).then(|| CountGuard::begin(&counts.posts_running));
    let query = request.uri().query().unwrap_or_default().to_owned();
    let _ = request.into_body().collect().await;
    let number = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.parse::<u64>().ok());
    if let Some(millis) = number("work=") {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    if let Some(mebibytes) = number("body=") {
        let part = || Ok(Frame::data(Bytes::from_static(&[b'x'; PART])));
        let parts = futures::stream::iter(0..mebibytes * (1 << 20) / PART as u64).map(move |_| part());
        return Response::new(StreamBody::new(parts).boxed_unsync());
    }
    match number("drip=") {
        None => Response::new(Full::new(Bytes::from_static(b"done")).map_err(|never| match never {}).boxed_unsync()),
        Some(count) => {
            let parts = futures::stream::unfold(0, move |sent| async move {
                if sent > 0 {
                    tokio::time::sleep(DRIP).await;
                }
                (sent < count).then(|| (Ok(Frame::data(Bytes::from_static(b"part"))), sent + 1))
            });
            Response::new(StreamBody::new(parts).boxed_unsync())
        }
    }
}
