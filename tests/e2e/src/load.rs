//! Requests, one or many, and what became of them.

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
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// No test waits longer for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one service.
#[derive(Clone)]
pub struct Load {
    client: Client<HttpConnector, Empty<Bytes>>,
    to: Destination,
    host: String,
    more: HeaderMap,
}

/// Where requests go.
#[derive(Clone)]
enum Destination {
    Address(SocketAddr),
    /// The Service that Host names, looked up for each request.
    Service(Arc<dyn Resolve>),
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Response headers.
    pub headers: HeaderMap,
    /// Whole body.
    pub body: Bytes,
    /// From sending to the last byte.
    pub took: Duration,
}

impl Answer {
    /// The pod that answered, as the sample program says.
    pub fn pod(&self) -> Option<&str> {
        self.headers.get("x-pod")?.to_str().ok()
    }
}

/// What became of many requests.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Answers with 200.
    pub ok: usize,
    /// Everything else, by status or error, with how often.
    pub failed: BTreeMap<String, usize>,
    /// Time that each answered request took, unsorted.
    pub latencies: Vec<Duration>,
    /// Answers for each pod.
    pub pods: BTreeMap<String, usize>,
}

impl Outcome {
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
                let text = String::from_utf8_lossy(&answer.body);
                *self.failed.entry(format!("{} {}", answer.status, text.trim())).or_default() += 1;
            }
            Err(error) => *self.failed.entry(format!("{error:#}")).or_default() += 1,
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.ok += other.ok;
        self.latencies.extend(other.latencies);
        for (pod, count) in other.pods {
            *self.pods.entry(pod).or_default() += count;
        }
        for (error, count) in other.failed {
            *self.failed.entry(error).or_default() += count;
        }
    }

    /// How many failed.
    pub fn failures(&self) -> usize {
        self.failed.values().sum()
    }

    /// Fails unless every request was answered with 200.
    ///
    /// # Errors
    /// Names each failure and how often it occurred.
    pub fn none_lost(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.failed.is_empty(), "{} answered, lost: {:#?}", self.ok, self.failed);
        Ok(())
    }

    /// The latency that `share` of the answered requests did not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort();
        let index = (sorted.len() as f64 * share).ceil() as usize;
        sorted.get(index.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
    }
}

impl Load {
    /// Sends to `address` with `host` as Host.
    pub fn new(address: SocketAddr, host: impl Into<String>) -> Self {
        Self::to(Destination::Address(address), host.into(), usize::MAX)
    }

    /// Sends to port 80 of the Service that `host` names, over a new connection each time: what is behind the Service
    /// may have changed.
    pub fn by_name(names: Arc<dyn Resolve>, host: impl Into<String>) -> Self {
        Self::to(Destination::Service(names), host.into(), 0)
    }

    fn to(to: Destination, host: String, kept: usize) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(kept)
            .build(connector);
        Self { client, to, host, more: HeaderMap::new() }
    }

    /// Sends this header with every request, too.
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.more.insert(name, HeaderValue::from_static(value));
        self
    }

    /// One GET.
    ///
    /// # Errors
    /// No answer within a minute, or a connection that broke.
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
        request.headers_mut().extend(self.more.clone());
        let started = Instant::now();
        let answered = async {
            let response = self.client.request(request).await.context("no answer")?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.context("broken off in mid-answer")?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body, took: started.elapsed() })
        };
        tokio::time::timeout(ANSWER_TIMEOUT, answered).await.context("no answer within a minute")?
    }

    /// `count` GETs at once.
    pub async fn burst(&self, count: usize, path: &str) -> Outcome {
        let mut requests = JoinSet::new();
        for _ in 0..count {
            let (load, path) = (self.clone(), path.to_owned());
            requests.spawn(async move { load.get(&path).await });
        }
        let mut outcome = Outcome::default();
        for answer in requests.join_all().await {
            outcome.add(answer);
        }
        outcome
    }

    /// `workers` clients, each sending its next GET when its last was answered, until `stop`.
    pub async fn steady(&self, workers: usize, path: &str, stop: CancellationToken) -> Outcome {
        let mut running = JoinSet::new();
        for _ in 0..workers {
            let (load, path, stop) = (self.clone(), path.to_owned(), stop.clone());
            running.spawn(async move {
                let mut outcome = Outcome::default();
                while !stop.is_cancelled() {
                    outcome.add(load.get(&path).await);
                }
                outcome
            });
        }
        let mut outcome = Outcome::default();
        for part in running.join_all().await {
            outcome.merge(part);
        }
        outcome
    }

    /// GETs at `rate` a second, evenly spaced and whether or not answers come, until `stop`; as long as `most` are under
    /// way, none: who asks for more than a machine can do would wait ever longer.
    pub async fn open(&self, rate: f64, most: usize, path: &str, stop: CancellationToken) -> Outcome {
        let outcome = Arc::new(Mutex::new(Outcome::default()));
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
