//! A proxy between one plane and the API server: a test observes the plane's writes, and holds some of them back.
//! Leases and events do not count as writes.
//!
//! To the plane this looks like a slow network: the write has not arrived yet, or its response has not.

use crate::CountGuard;
use anyhow::Context;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Part of the exchange that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The request: the API server does not know the write.
    Request,
    /// The response: the API server has carried the write out, and the plane does not know.
    Response,
}

/// Proxy of the API server. Ends when dropped.
pub struct Tap {
    state: Arc<TapState>,
    kubeconfig: PathBuf,
    _folder: TempDir,
    task: JoinHandle<()>,
}

struct TapState {
    server: String,
    client: Client<HttpConnector, Full<Bytes>>,
    stops: Mutex<Vec<Stop>>,
    /// Number of writes that were held back and are not complete.
    pending: AtomicUsize,
}

struct Stop {
    pattern: String,
    /// Number of matching writes until the first held one.
    remaining: usize,
    held: Held,
    stopped: watch::Sender<Option<String>>,
    is_released: watch::Sender<bool>,
}

/// Method and path of the write that was stopped, once it has arrived.
pub type Stopped = watch::Receiver<Option<String>>;

impl Tap {
    /// Starts a proxy of the API server in a kubeconfig.
    pub async fn start(kubeconfig: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(kubeconfig)?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("server: "));
        let url = line.context("a server")?.trim_matches('"');
        let server = url.replace("https://", "http://"); // The embedded server serves both at one port.
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, text.replace(url, &format!("http://{}", listener.local_addr()?)))?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let state = Arc::new(TapState { server, client, stops: Mutex::default(), pending: AtomicUsize::new(0) });
        let task = tokio::spawn(accept(listener, state.clone()));
        Ok(Self { state, kubeconfig: file, _folder: folder, task })
    }

    /// Returns the kubeconfig for the plane.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Holds back the `n`-th write from now on whose path or body contains `pattern`, and all such writes after it.
    /// ConfigMaps contain many names, so they are selected only by their paths.
    pub fn stop(&self, pattern: &str, n: usize, held: Held) -> Stopped {
        let (stopped, receiver) = watch::channel(None);
        let is_released = watch::Sender::new(false);
        self.state.stops.lock().push(Stop { pattern: pattern.to_owned(), remaining: n, held, stopped, is_released });
        receiver
    }

    /// Removes all stops, and releases the writes that were held back.
    pub fn clear(&self) {
        self.state.stops.lock().drain(..).for_each(|stop| _ = stop.is_released.send_replace(true));
    }

    /// Returns the number of held writes that are not complete.
    pub fn pending(&self) -> usize {
        self.state.pending.load(Ordering::SeqCst)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TapState {
    /// Returns the held part of a request's exchange and the end of the hold, or `None` if the request is not held.
    fn held(&self, head: &Parts, body: &[u8]) -> Option<(Held, watch::Receiver<bool>)> {
        let path = head.uri.path();
        if head.method == Method::GET || path.contains("/leases") || path.contains("/events") {
            return None;
        }
        let body = if path.contains("/configmaps") { "" } else { std::str::from_utf8(body).unwrap_or_default() };
        let mut found = None;
        let matches = |stop: &&mut Stop| path.contains(&stop.pattern) || body.contains(&stop.pattern);
        for stop in self.stops.lock().iter_mut().filter(matches) {
            stop.remaining = stop.remaining.saturating_sub(1);
            if stop.remaining > 0 {
                continue;
            }
            let is_first = stop.stopped.borrow().is_none();
            found = Some((if is_first { stop.held } else { Held::Request }, stop.is_released.subscribe()));
            if is_first {
                stop.stopped.send_replace(Some(format!("{} {path}", head.method)));
            }
        }
        found
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> anyhow::Result<Response<Incoming>> {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let held = self.held(&head, &body);
        let _pending = held.as_ref().map(|_| CountGuard::begin(&self.pending));
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = format!("{}{path}", self.server).parse::<Uri>()?;
        let send = self.client.request(Request::from_parts(head, Full::new(body)));
        Ok(match held {
            None => send.await?,
            Some((Held::Request, mut is_released)) => {
                is_released.wait_for(|released| *released).await?;
                send.await?
            }
            Some((Held::Response, mut is_released)) => {
                let response = send.await?;
                is_released.wait_for(|released| *released).await?;
                response
            }
        })
    }
}

async fn accept(listener: TcpListener, state: Arc<TapState>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, state.clone()));
    }
}

async fn serve(stream: TcpStream, state: Arc<TapState>) {
    let service = hyper::service::service_fn(move |request| state.clone().serve(request));
    // The plane may be killed at any time.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
