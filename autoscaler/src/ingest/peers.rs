//! Links to the other autoscalers, and the queues of forwarded stats.
//!
//! Each holder of a bucket has its own queue and durable websocket, created as soon as it appears on a lease. A holder
//! that cannot be reached therefore delays its own stats only. Entries that gather while a frame is written leave
//! together in the next frame. Stats on their second hop have a separate queue and link, because a handshake names the
//! hop of everything on its connection; it is created on first use.
//!
//! # Bounds
//!
//! [`QUEUE_MAX`] entries for each peer, and for stats without an owner; when full, the newest entry is dropped. A stat
//! that has not left after [`KEEP`] (upstream's intent: 30 attempts at 500 ms) is dropped and counted. An attestation
//! is dropped when it is outdated, which is no loss.
//!
//! # Addresses
//!
//! A link first dials the holder's own address. In a Knative install it then tries the Services of the holder's
//! buckets, since a mesh may hide pod addresses; standalone has no such Services. A link is re-created when its
//! holder's buckets change, because a Service leads to the holder of its bucket.

use super::attest::ATTESTED_WITHIN;
use super::counters::{Dropped, IngestCounters};
use super::forwarded;
use crate::stateful_set::stat_url;
use autoscaler_core::forwarding::{Forwarded, Hop, Route, route};
use common::RevisionKey;
use common::stat::{WireStatMessage, WireStatMessages};
use common_controller::shares::{Instance, Shares};
use common_runtime::credential::TokenFile;
use common_runtime::resolve::Resolve;
use common_runtime::tls::Trust;
use common_runtime::websocket::{Config, DurableSender};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Maximum number of entries waiting for one peer: the reports of 10 000 revisions in two seconds.
pub const QUEUE_MAX: usize = 20_000;
/// Time for which a stat is kept for an owner that cannot be reached.
pub const KEEP: Duration = Duration::from_secs(15);
/// Maximum number of entries in one frame.
const BATCH_MAX: usize = 4096;
/// Time between attempts to find an owner, and between checks for expired entries.
const RETRY: Duration = Duration::from_millis(500);

/// Receiver of stats whose owner turned out to be this process.
pub type LocalSink = Box<dyn Fn(WireStatMessage) + Send + Sync>;

/// Addresses and credentials of the links.
#[derive(Default)]
pub struct LinkSettings {
    /// Port of every instance's stat server.
    pub port: u16,
    /// Domain suffix of the buckets' Services (`NAMESPACE.svc.DOMAIN`); none if buckets have no Services.
    pub services: Option<String>,
    /// Token that proves our identity to peers.
    pub token: Option<TokenFile>,
    /// Requirements on peers' certificates, and whether peers without TLS may be linked in plain; none: all links are
    /// plain.
    pub trust: Option<(Trust, bool)>,
}

/// Links to the other autoscalers.
pub struct Peers {
    shares: Shares,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) settings: LinkSettings,
    local: LocalSink,
    counters: IngestCounters,
    pub(super) links: Mutex<HashMap<(Instance, Hop), PeerLink>>,
    /// Stats without an owner at the moment.
    ownerless: Mutex<Vec<WaitingStat>>,
    /// Notified when a stat without an owner arrives.
    arrived: Notify,
    shutdown: CancellationToken,
}

pub(super) struct PeerLink {
    /// URLs of the peer, in order of preference.
    urls: Vec<String>,
    queue: mpsc::Sender<WaitingStat>,
    retired: CancellationToken,
}

struct WaitingStat {
    message: WireStatMessage,
    /// Forwarding mark of the received stat; none if it is first-hand.
    mark: Option<Forwarded<Instance>>,
    expires: Instant,
}

impl Peers {
    /// Creates the component, without links; [`Peers::run`] creates them.
    pub fn new(
        shares: Shares,
        resolver: Arc<dyn Resolve>,
        settings: LinkSettings,
        local: LocalSink,
        counters: IngestCounters,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let (links, ownerless, arrived) = (Mutex::default(), Mutex::default(), Notify::new());
        Arc::new(Self { shares, resolver, settings, local, counters, links, ownerless, arrived, shutdown })
    }

    /// Executes a routing decision about a stat that was received with this mark.
    pub fn execute(self: &Arc<Self>, to: Route<Instance>, message: WireStatMessage, mark: Option<Forwarded<Instance>>) {
        self.dispatch(to, WaitingStat { message, mark, expires: Instant::now() + KEEP });
    }

    /// Forwards an attestation of an activator with these names to every peer.
    pub fn attest(self: &Arc<Self>, namespace: &str, names: [&str; 2]) {
        for holder in self.shares.others() {
            let queue = self.queue(&holder, Hop::First);
            for name in names {
                let (message, expires) = (common::wire::attestation(namespace, name), Instant::now() + ATTESTED_WITHIN);
                self.push(&queue, WaitingStat { message, mark: None, expires });
            }
        }
    }

    /// Maintains links to the holders of buckets, and finds owners for stats without one, until shutdown.
    pub async fn run(self: &Arc<Self>) {
        let mut changes = common_controller::Leadership::changes(&self.shares);
        loop {
            self.update_links();
            let rerouted = std::mem::take(&mut *self.ownerless.lock());
            let idle = rerouted.is_empty();
            for waiting in rerouted {
                self.reroute(waiting);
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                Ok(()) = changes.changed() => {}
                () = self.arrived.notified(), if idle => {}
                () = sleep(RETRY), if !idle => {}
            }
        }
    }

    /// Makes the links match the holders of buckets.
    fn update_links(self: &Arc<Self>) {
        let holders = self.shares.others();
        self.links.lock().retain(|(holder, _), link| {
            let stays = holders.contains(holder) && link.urls == self.urls(holder);
            if !stays {
                link.retired.cancel(); // Its task returns the waiting entries.
            }
            stays
        });
        for holder in &holders {
            self.queue(holder, Hop::First);
        }
    }

    /// Returns the URLs of a holder, in order of preference.
    pub(super) fn urls(&self, holder: &Instance) -> Vec<String> {
        let LinkSettings { services, port, trust, .. } = &self.settings;
        let schemes: &[_] = match trust {
            None => &["ws"],
            Some((_, false)) => &["wss"],
            Some((_, true)) => &["wss", "ws"],
        };
        let authorities = match holder {
            Instance::Member(bucket) => return schemes.iter().map(|scheme| stat_url(scheme, bucket)).collect(),
            Instance::Leased(holder) => {
                let mut authorities = vec![SocketAddr::new(holder.pod_ip, *port).to_string()];
                if let Some(domain) = services {
                    let buckets = self.shares.buckets_of(holder);
                    authorities.extend(buckets.iter().map(|bucket| format!("{bucket}.{domain}:{port}")));
                }
                authorities
            }
        };
        let with = |scheme| authorities.iter().map(move |authority| format!("{scheme}://{authority}"));
        schemes.iter().flat_map(with).collect()
    }

    fn reroute(self: &Arc<Self>, waiting: WaitingStat) {
        let left = waiting.expires.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return self.counters.dropped(Dropped::Expired, 1);
        }
        let key = RevisionKey::new(waiting.message.namespace.as_str(), waiting.message.name.as_str());
        let held = KEEP.saturating_sub(left);
        self.dispatch(route(self.shares.owner(&key), waiting.mark.as_ref(), held), waiting);
    }

    fn dispatch(self: &Arc<Self>, route: Route<Instance>, waiting: WaitingStat) {
        match route {
            Route::Record => (self.local)(waiting.message),
            Route::Send(holder, hop) => self.push(&self.queue(&holder, hop), waiting),
            Route::Hold => self.hold(waiting),
            Route::Drop => self.counters.dropped(Dropped::Misrouted, 1),
        }
    }

    /// Returns the queue of a link, which is created on first use.
    fn queue(self: &Arc<Self>, holder: &Instance, hop: Hop) -> mpsc::Sender<WaitingStat> {
        let mut links = self.links.lock();
        let link = links.entry((holder.clone(), hop)).or_insert_with(|| {
            let (queue, entries) = mpsc::channel(QUEUE_MAX);
            let link = PeerLink { urls: self.urls(holder), queue, retired: self.shutdown.child_token() };
            tokio::spawn(self.clone().run_link(hop, link.urls.clone(), entries, link.retired.clone()));
            link
        });
        link.queue.clone()
    }

    /// Sends a link's queue until it is retired, then returns the remaining entries.
    async fn run_link(
        self: Arc<Self>,
        hop: Hop,
        urls: Vec<String>,
        mut entries: mpsc::Receiver<WaitingStat>,
        retired: CancellationToken,
    ) {
        let LinkSettings { token, trust, .. } = &self.settings;
        let (headers, token) = (forwarded::headers(hop, self.shares.me()), token.clone());
        let (trust, allow_plain) = trust.clone().map_or((None, true), |(trust, plain)| (Some(trust), plain));
        let config = Config { headers, token, trust, allow_plain };
        let mut batch = Vec::new();
        match DurableSender::start(urls.clone(), self.resolver.clone(), config, retired.clone()) {
            Ok(link) => self.send(&link, &mut entries, &mut batch, &retired).await,
            Err(error) => tracing::error!(?urls, %error, "the link to another autoscaler cannot be created"),
        }
        entries.close();
        while let Ok(entry) = entries.try_recv() {
            batch.push(entry);
        }
        batch.into_iter().for_each(|waiting| self.hold(waiting));
    }

    /// Sends entries until the link is retired; `batch` is the part of the queue that is sent next. A frame in progress
    /// is not abandoned: the link's token ends the link and thereby the write.
    async fn send(
        &self,
        link: &DurableSender,
        entries: &mut mpsc::Receiver<WaitingStat>,
        batch: &mut Vec<WaitingStat>,
        retired: &CancellationToken,
    ) {
        let mut connected = link.connected();
        while !retired.is_cancelled() {
            self.expire(batch);
            if batch.is_empty() {
                retired.run_until_cancelled(entries.recv_many(batch, BATCH_MAX)).await;
            } else if !*connected.borrow_and_update() {
                tokio::select! {
                    () = retired.cancelled() => {}
                    _ = connected.changed() => {}
                    () = sleep(RETRY) => {}
                }
            } else {
                let messages = batch.iter().map(|waiting| waiting.message.clone()).collect();
                if link.send(common::wire::encode(&WireStatMessages { messages }).into()).await.is_ok() {
                    self.counters.forwarded.inc_by(batch.len() as u64);
                    batch.clear();
                }
            }
        }
    }

    fn push(&self, queue: &mpsc::Sender<WaitingStat>, entry: WaitingStat) {
        match queue.try_send(entry) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.counters.dropped(Dropped::QueueFull, 1),
            Err(TrySendError::Closed(entry)) => self.hold(entry), // Its link was retired just before.
        }
    }

    /// Holds a stat until it has an owner. Attestations are dropped, because each was for one link only.
    fn hold(&self, entry: WaitingStat) {
        if entry.message.stat.is_none() {
            return;
        }
        let mut ownerless = self.ownerless.lock();
        if ownerless.len() >= QUEUE_MAX {
            return self.counters.dropped(Dropped::QueueFull, 1);
        }
        ownerless.push(entry);
        self.arrived.notify_one();
    }

    fn expire(&self, batch: &mut Vec<WaitingStat>) {
        let now = Instant::now();
        let expired: Vec<_> = batch.extract_if(.., |waiting| waiting.expires <= now).collect();
        let stats = expired.iter().filter(|waiting| waiting.message.stat.is_some()).count();
        if stats > 0 {
            self.counters.dropped(Dropped::Expired, stats);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ownership::{Holder, bucket_names};
    use common::stat::Stat;
    use common_runtime::lease::Ownership;
    use common_runtime::resolve::Dns;

    /// Goal: a stat for a link that was just retired waits for an owner; an attestation does not.
    #[tokio::test]
    async fn a_stat_for_a_retired_link_waits_for_an_owner() {
        let me = Holder { pod_name: "as-0".into(), pod_ip: [127, 0, 0, 2].into() };
        let (_assign, ownership) = Ownership::manual(1);
        let shares = Shares::new(bucket_names(1), ownership).known_as(me);
        let (counters, shutdown) = (IngestCounters::default(), CancellationToken::new());
        let settings = LinkSettings::default();
        let peers = Peers::new(shares, Arc::new(Dns), settings, Box::new(|_| ()), counters, shutdown);
        let (queue, mut entries) = mpsc::channel(1);
        let push = |stat: Option<Stat>| {
            let message = WireStatMessage { stat, ..WireStatMessage::default() };
            peers.push(&queue, WaitingStat { message, mark: None, expires: Instant::now() + KEEP });
        };
        push(Some(Stat::default()));
        entries.close();
        assert!(entries.try_recv().is_ok());
        push(Some(Stat::default()));
        push(None);
        assert!(entries.try_recv().is_err());
        assert_eq!(peers.ownerless.lock().len(), 1);
    }
}
