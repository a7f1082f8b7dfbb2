//! Sends requests, one or many, and records the results.

use anyhow::Context;
use bytes::Bytes;
use common_runtime::resolve::Resolve;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longest wait for one response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Client of one service.
#[derive(Clone)]
pub struct Load {
    client: Client<HttpConnector, Empty<Bytes>>,
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
    /// Latency of each successful request, unsorted.
    pub latencies: Vec<Duration>,
    /// Number of responses by pod.
    pub pods: BTreeMap<String, usize>,
}

impl LoadOutcome {
    fn add(&mut self, answer: anyhow::Result<Answer>) {
        match answer {
            Ok(answer) if answer.status == StatusCode::OK => {
                self.ok += 1;
                self.latencies.push(answer.took);
                if let Some(pod) = answer.pod() {
                    *self.pods.entry(pod.to_owned()).or_default() += 1;
                }
            }
            Ok(answer) => {
                *self.failed.entry(format!("{} {}", answer.status, answer.text().trim())).or_default() += 1;
            }
            Err(error) => *self.failed.entry(format!("{error:#}")).or_default() += 1,
        }
    }

    fn merge(&mut self, other: LoadOutcome) {
        self.ok += other.ok;
        self.latencies.extend(other.latencies);
        for (pod, count) in other.pods {
            *self.pods.entry(pod).or_default() += count;
        }
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

    /// Returns the latency that `share` of the successful requests did not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        quantile(&self.latencies, share)
    }
}

/// Returns the duration that `share` of `times` did not exceed; zero if there are none.
pub fn quantile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let index = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(index.saturating_sub(1)).copied().unwrap_or_default()
}

/// Returns the metrics of a plane's admin port.
pub async fn metrics(admin: SocketAddr) -> anyhow::Result<String> {
    Ok(Load::new(admin, "metrics").get("/metrics").await?.text())
}

/// Running clients.
pub struct Clients {
    running: JoinHandle<LoadOutcome>,
    stop: CancellationToken,
}

impl Clients {
    /// Stops the clients and returns their results.
    pub async fn stop(self) -> anyhow::Result<LoadOutcome> {
        self.stop.cancel();
        Ok(self.running.await?)
    }

    /// Stops the clients and returns their results, which must all be successful.
    pub async fn end(self) -> anyhow::Result<LoadOutcome> {
        let outcome = self.stop().await?;
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
        let address = match &self.to {
            Destination::Address(address) => *address,
            Destination::Service(names) => {
                let found = names.resolve(&self.host, 80).await?;
                *found.first().context("no address")?
            }
        };
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(format!("http://{address}{path}"))
            .header(header::HOST, &self.host)
            .body(Empty::new())?;
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
        let mut requests = JoinSet::new();
        for _ in 0..count {
            let (load, path) = (self.clone(), path.to_owned());
            requests.spawn(async move { load.get(&path).await });
        }
        let mut outcome = LoadOutcome::default();
        for answer in requests.join_all().await {
            outcome.add(answer);
        }
        outcome
    }

    /// Runs `workers` clients until `stop`. Each sends its next GET when its last one has a response.
    pub async fn steady(&self, workers: usize, path: &str, stop: CancellationToken) -> LoadOutcome {
        let mut running = JoinSet::new();
        for _ in 0..workers {
            let (load, path, stop) = (self.clone(), path.to_owned(), stop.clone());
            running.spawn(async move {
                let mut outcome = LoadOutcome::default();
                while !stop.is_cancelled() {
                    outcome.add(load.get(&path).await);
                }
                outcome
            });
        }
        let mut outcome = LoadOutcome::default();
        for part in running.join_all().await {
            outcome.merge(part);
        }
        outcome
    }

    /// Starts [`Self::steady`].
    pub fn start(&self, workers: usize, path: &'static str) -> Clients {
        let (load, stop) = (self.clone(), CancellationToken::new());
        let until = stop.clone();
        Clients { running: tokio::spawn(async move { load.steady(workers, path, until).await }), stop }
    }

    /// Starts [`Self::open`].
    pub fn start_open(&self, rate: f64, most: usize, path: &'static str) -> Clients {
        let (load, stop) = (self.clone(), CancellationToken::new());
        let until = stop.clone();
        Clients { running: tokio::spawn(async move { load.open(rate, most, path, until).await }), stop }
    }

    /// Sends GETs at `rate` per second until `stop`, evenly spaced and independent of responses. Sends none while
    /// `most` are in flight: if the machine cannot keep up, waiting times would grow without bound.
    pub async fn open(&self, rate: f64, most: usize, path: &str, stop: CancellationToken) -> LoadOutcome {
        let outcome = Arc::new(Mutex::new(LoadOutcome::default()));
        let mut requests = JoinSet::new();
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            while requests.try_join_next().is_some() {}
            if requests.len() >= most {
                continue;
            }
            let (load, path, outcome) = (self.clone(), path.to_owned(), outcome.clone());
            requests.spawn(async move {
                let answer = load.get(&path).await;
                outcome.lock().await.add(answer);
            });
        }
        requests.join_all().await;
        Arc::into_inner(outcome).map(Mutex::into_inner).unwrap_or_default()
    }
}
