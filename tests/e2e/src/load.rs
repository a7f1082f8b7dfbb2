//! Sends requests, one or many, and records the results.

use anyhow::Context;
use bytes::Bytes;
use common_runtime::resolve::Resolve;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longest wait for one response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Client of one service.
#[derive(Clone)]
pub struct Load {
    client: Client<HttpConnector, Full<Bytes>>,
    to: Destination,
    host: String,
    headers: HeaderMap,
}

/// Destination of requests.
#[derive(Clone)]
enum Destination {
    Address(SocketAddr),
    /// The Service that Host names, looked up for each request.
    Service(Arc<dyn Resolve>),
}

/// Response to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Response headers.
    pub headers: HeaderMap,
    /// Complete body.
    pub body: Bytes,
    /// Time from sending the request to the last byte.
    pub took: Duration,
}

impl Answer {
    /// Fails unless the status is 200.
    pub fn ok(self) -> anyhow::Result<Self> {
        anyhow::ensure!(self.status == StatusCode::OK, "{} {:?}", self.status, self.body);
        Ok(self)
    }

    /// Returns the body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the pod that responded, as the sample program reports it.
    pub fn pod(&self) -> Option<&str> {
        self.headers.get("x-pod")?.to_str().ok()
    }
}

/// Results of many requests.
#[derive(Clone, Debug, Default)]
pub struct LoadOutcome {
    /// Number of responses with 200.
    pub ok: usize,
    /// Number of all other results, by status or error.
    pub failed: BTreeMap<String, usize>,
}

impl LoadOutcome {
    fn add(&mut self, answer: anyhow::Result<Answer>) {
        match answer {
            Ok(answer) if answer.status == StatusCode::OK => self.ok += 1,
            Ok(answer) => {
                *self.failed.entry(format!("{} {}", answer.status, answer.text().trim())).or_default() += 1;
            }
            Err(error) => *self.failed.entry(format!("{error:#}")).or_default() += 1,
        }
    }

    fn merge(&mut self, other: LoadOutcome) {
        self.ok += other.ok;
        for (error, count) in other.failed {
            *self.failed.entry(error).or_default() += count;
        }
    }

    /// Returns the number of failures.
    pub fn failures(&self) -> usize {
        self.failed.values().sum()
    }

    /// Fails unless every response has status 200, with each failure and its frequency.
    pub fn none_lost(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.failed.is_empty(), "{} answered, lost: {:#?}", self.ok, self.failed);
        Ok(())
    }
}

/// Returns the metrics of a plane's admin port.
pub async fn metrics(admin: SocketAddr) -> anyhow::Result<String> {
    Ok(Load::new(admin, "metrics").get("/metrics").await?.text())
}

/// Sends a request as raw bytes, and returns everything that is received until the end of the connection. Fails without
/// an end within a minute.
pub async fn raw_exchange(at: SocketAddr, request: &str) -> anyhow::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(ANSWER_TIMEOUT, exchange).await.context("no end within a minute")?
}

/// Running clients.
pub struct Clients {
    running: JoinSet<LoadOutcome>,
    stop: CancellationToken,
}

impl Clients {
    /// Stops the clients and returns their results.
    pub async fn stop(self) -> LoadOutcome {
        self.stop.cancel();
        let mut outcome = LoadOutcome::default();
        self.running.join_all().await.into_iter().for_each(|part| outcome.merge(part));
        outcome
    }

    /// Stops the clients and returns their results, which must all be successful.
    pub async fn end(self) -> anyhow::Result<LoadOutcome> {
        let outcome = self.stop().await;
        outcome.none_lost()?;
        Ok(outcome)
    }
}

impl Load {
    /// Creates a client that sends to `address` with `host` as Host.
    pub fn new(address: SocketAddr, host: impl Into<String>) -> Self {
        Self::to(Destination::Address(address), host.into(), usize::MAX)
    }

    /// Creates a client that sends to port 80 of the Service in `host`, over a new connection each time, because the
    /// Service's endpoints may have changed.
    pub fn by_name(names: Arc<dyn Resolve>, host: impl Into<String>) -> Self {
        Self::to(Destination::Service(names), host.into(), 0)
    }

    fn to(to: Destination, host: String, idle_max: usize) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(idle_max)
            .build(connector);
        Self { client, to, host, headers: HeaderMap::new() }
    }

    /// Adds this header to every request.
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// Sends one GET. Fails without a response within a minute.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Sends one request. Fails without a response within a minute.
    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Answer> {
        let address = match &self.to {
            Destination::Address(address) => *address,
            Destination::Service(names) => {
                let found = names.resolve(&self.host, 80).await?;
                *found.first().context("no address")?
            }
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"))
            .header(header::HOST, &self.host)
            .body(Full::new(body))?;
        request.headers_mut().extend(self.headers.clone());
        let started = Instant::now();
        let answered = async {
            let response = self.client.request(request).await.context("no answer")?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.context("broken off in mid-answer")?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body, took: started.elapsed() })
        };
        tokio::time::timeout(ANSWER_TIMEOUT, answered).await.context("no answer within a minute")?
    }

    /// Sends one GET, whose response must have status 200.
    pub async fn get_ok(&self, path: &str) -> anyhow::Result<Answer> {
        self.get(path).await?.ok().with_context(|| self.host.clone())
    }

    /// Starts to send one GET.
    pub fn spawn_get(&self, path: &'static str) -> JoinHandle<anyhow::Result<Answer>> {
        let load = self.clone();
        tokio::spawn(async move { load.get(path).await })
    }

    /// Sends `count` GETs at once.
    pub async fn burst(&self, count: usize, path: &str) -> LoadOutcome {
        let mut outcome = LoadOutcome::default();
        let answers = futures::future::join_all((0..count).map(|_| self.get(path))).await;
        answers.into_iter().for_each(|answer| outcome.add(answer));
        outcome
    }

    /// Starts `workers` clients. Each sends its next GET when its last one has a response.
    pub fn start(&self, workers: usize, path: &'static str) -> Clients {
        let mut clients = Clients { running: JoinSet::new(), stop: CancellationToken::new() };
        for _ in 0..workers {
            let (load, stop) = (self.clone(), clients.stop.clone());
            clients.running.spawn(async move {
                let mut outcome = LoadOutcome::default();
                while !stop.is_cancelled() {
                    outcome.add(load.get(path).await);
                }
                outcome
            });
        }
        clients
    }

    /// Starts to send GETs at `rate` per second, evenly spaced and independent of responses. Sends none while `most`
    /// are in flight: if the machine cannot keep up, waiting times would grow without bound.
    pub fn start_open(&self, rate: f64, most: usize, path: &'static str) -> Clients {
        let mut clients = Clients { running: JoinSet::new(), stop: CancellationToken::new() };
        let (load, stop) = (self.clone(), clients.stop.clone());
        clients.running.spawn(async move {
            let (mut outcome, mut requests) = (LoadOutcome::default(), JoinSet::new());
            let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
            loop {
                tokio::select! {
                    () = stop.cancelled() => break,
                    Some(answer) = requests.join_next() => {
                        outcome.add(answer.unwrap_or_else(|error| Err(error.into())));
                    }
                    _ = ticks.tick() => {
                        if requests.len() < most {
                            let load = load.clone();
                            requests.spawn(async move { load.get(path).await });
                        }
                    }
                }
            }
            requests.join_all().await.into_iter().for_each(|answer| outcome.add(answer));
            outcome
        });
        clients
    }
}
