//! An activator in this process, with the limits that follow from the manifests' memory limit. A stream of events
//! replaces the cluster; a silent listener replaces the autoscaler. Clients send it requests of a steady load.

use crate::flood::LIMIT;
use activator::discovery::{Event, Listing, Spec};
use activator::{Activator, ClientOptions, Options};
use activator_core::breaker::{Capacity, Load};
use anyhow::Context;
use bytes::Bytes;
use common::RevisionKey;
use common::backend::Backend;
use common::host::HostPattern;
use common_runtime::environment::Mode;
use common_runtime::resolve::Dns;
use http::{Method, StatusCode};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Maximum time to wait for any state.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An activator, and the channel of its events.
pub struct Rig {
    /// The activator.
    pub activator: Activator,
    events: mpsc::Sender<Event>,
    _autoscaler: TcpListener,
}

impl Rig {
    /// Starts an activator with the revision `ns/app`, modified by `change`.
    pub async fn start(change: impl FnOnce(&mut Backend)) -> anyhow::Result<Self> {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let autoscaler = TcpListener::bind(free).await?;
        let mut options = Options::new("activator-0", IpAddr::from(Ipv4Addr::LOCALHOST), Mode::Standalone);
        (options.http1, options.h2c) = (free, free);
        options.stat_url = format!("ws://{}", autoscaler.local_addr()?);
        (options.memory_limit, options.clients) = (Some(LIMIT), ClientOptions::new(Some(LIMIT)));
        options.linger = Duration::ZERO;
        options.drain = Duration::from_secs(1);
        let (events, receiver) = mpsc::channel(64);
        let activator = activator::start(options, receiver, Arc::new(Dns), activator::Configs::default()).await?;
        let rig = Self { activator, events, _autoscaler: autoscaler };
        let mut backend = Backend::plain("app");
        change(&mut backend);
        rig.send(Event::Synced).await?;
        rig.send(Event::Revision(Arc::new(Spec::standalone("ns", "app", backend)))).await?;
        rig.until("the revision is known", |_| true).await?;
        Ok(rig)
    }

    /// Gives the revision these hosts in addition.
    pub async fn hosts(&self, hosts: &[String]) -> anyhow::Result<()> {
        let pattern = |host: &String| HostPattern::parse(host).with_context(|| format!("host {host:?}"));
        let hosts = hosts.iter().map(|host| Ok((pattern(host)?, "app".to_owned()))).collect::<anyhow::Result<_>>()?;
        self.send(Event::Hosts { namespace: "ns".to_owned(), hosts }).await
    }

    /// Replaces all pods by `pods`, and waits until one of them is in use.
    pub async fn serve(&self, pods: &[SocketAddr]) -> anyhow::Result<()> {
        self.sleep().await?;
        self.wake(pods).await
    }

    /// Removes all pods, and waits until none is in use.
    pub async fn sleep(&self) -> anyhow::Result<()> {
        self.send(Event::Pods { key: key(), listing: Listing::default() }).await?;
        self.until("the revision is closed", |load| load.capacity == Capacity::CLOSED).await
    }

    /// Adds `pods`, and waits until one of them is in use.
    pub async fn wake(&self, pods: &[SocketAddr]) -> anyhow::Result<()> {
        let listing = Listing { not_ready: pods.iter().map(|pod| (*pod).into()).collect(), ..Listing::default() };
        self.send(Event::Pods { key: key(), listing }).await?;
        self.until("the revision is open", |load| load.capacity != Capacity::CLOSED).await
    }

    /// Waits until the revision's load fulfills `wanted`.
    pub async fn until(&self, what: &str, wanted: impl Fn(Load) -> bool) -> anyhow::Result<()> {
        let reached = async {
            while !self.activator.load(&key()).is_some_and(&wanted) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, reached).await;
        waited.with_context(|| format!("{what}: not in time, the load is {:?}", self.activator.load(&key())))
    }

    async fn send(&self, event: Event) -> anyhow::Result<()> {
        self.events.send(event).await.ok().context("the activator has ended")
    }
}

/// Returns the key of `ns/app`.
pub fn key() -> RevisionKey {
    RevisionKey::new("ns", "app")
}

/// Body of a POST.
const BODY: &[u8] = &[b'x'; 100];

/// Result of one request.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Method of the request.
    pub method: Method,
    /// Time at which the request was sent.
    pub sent: Instant,
    /// Duration until its response was complete or it failed.
    pub took: Duration,
    /// Status of a complete response.
    pub status: Option<StatusCode>,
    /// Set if the response names the activator as its origin.
    pub named: bool,
}

impl Sample {
    /// Reports whether the request succeeded.
    pub fn is_good(&self) -> bool {
        self.status == Some(StatusCode::OK)
    }
}

/// Sends one request and reads its whole response.
pub async fn send(load: &e2e::Load, method: Method, query: &str) -> Sample {
    let sent = Instant::now();
    let body = if method == Method::POST { Bytes::from_static(BODY) } else { Bytes::new() };
    let answer = load.send(method.clone(), &format!("/?{query}"), body).await.ok();
    let named = answer.as_ref().is_some_and(|answer| answer.headers.contains_key("x-zeroscale-origin"));
    Sample { method, sent, took: sent.elapsed(), status: answer.map(|answer| answer.status), named }
}
