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
//! A holder is dialled at its own address first. In a Knative install the Services of its buckets come second, since a
//! mesh may hide pod addresses; standalone has no such Services. A link is re-created when its holder's buckets
//! change, because a Service follows its bucket.

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
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
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
pub trait LocalSink: Send + Sync + 'static {
    /// Records a stat here.
    fn accept(&self, message: WireStatMessage);
}

/// Links to the other autoscalers.
pub struct Peers {
    shares: Shares,
    pub(super) resolver: Arc<dyn Resolve>,
    /// Port of every instance's stat server.
    port: u16,
    /// Token that proves our identity to peers.
    pub(super) token: OnceLock<TokenFile>,
    /// Requirements on peers' certificates, and whether peers without TLS may be linked in plain; none: all links are
    /// plain.
    pub(super) trust: OnceLock<(Trust, bool)>,
    /// Domain suffix of the buckets' Services; none if buckets have no Services.
    services: Option<String>,
    local: Arc<dyn LocalSink>,
    counters: IngestCounters,
    peers: Mutex<HashMap<(Instance, Hop), Arc<PeerLink>>>,
    /// Entries without an owner at the moment.
    ownerless: SendQueue,
    shutdown: CancellationToken,
}

struct PeerLink {
    /// URLs of the peer, in order of preference.
    urls: Vec<String>,
    queue: SendQueue,
    retired: CancellationToken,
}

#[derive(Default)]
struct SendQueue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<WaitingStat>,
    /// Set once no task reads this queue any more.
    is_closed: bool,
}

struct WaitingStat {
    message: WireStatMessage,
    /// Forwarding mark of the received stat; none if it is first-hand.
    came: Option<Forwarded<Instance>>,
    expires: Instant,
}

impl Peers {
    /// Creates the component, without links; [`Peers::run`] creates them. `port`: port of every instance's stat
    /// server. `services`: domain of the buckets' Services (`NAMESPACE.svc.DOMAIN`), if they have any.
    pub fn new(
        shares: Shares,
        resolver: Arc<dyn Resolve>,
        port: u16,
        services: Option<String>,
        local: Arc<dyn LocalSink>,
        counters: IngestCounters,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let (peers, ownerless) = (Mutex::default(), SendQueue::default());
        let (token, trust) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { shares, resolver, port, token, trust, services, local, counters, peers, ownerless, shutdown })
    }

    /// Presents this token to every peer dialled from now on. The first one given stays.
    pub fn present(&self, token: TokenFile) {
        let _ = self.token.set(token);
    }

    /// Encrypts links from now on, and requires that peers' certificates prove this. `allow_plain`: a peer without TLS
    /// is linked in plain. The first setting given stays.
    pub fn believe(&self, trust: Trust, allow_plain: bool) {
        let _ = self.trust.set((trust, allow_plain));
    }

    /// Returns the number of links.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.peers.lock().len()
    }

    /// Executes a routing decision about a stat that was received with this mark.
    pub fn pass(
        self: &Arc<Self>,
        onward: Route<Instance>,
        message: WireStatMessage,
        came: Option<Forwarded<Instance>>,
    ) {
        self.carry_out(onward, WaitingStat { message, came, expires: Instant::now() + KEEP });
    }

    /// Forwards an attestation of an activator with these names to every peer.
    pub fn attest(self: &Arc<Self>, namespace: &str, names: [&str; 2]) {
        for holder in self.shares.others() {
            let peer = self.peer(&holder, Hop::First);
            for name in names {
                let (message, expires) = (common::wire::attestation(namespace, name), Instant::now() + ATTESTED_WITHIN);
                self.push(&peer.queue, WaitingStat { message, came: None, expires });
            }
        }
    }

    /// Maintains links to the holders of buckets, and finds owners for stats without one, until shutdown.
    pub async fn run(self: &Arc<Self>) {
        let mut changes = common_controller::Leadership::changes(&self.shares);
        loop {
            self.follow_leases();
            let rerouted = self.ownerless.take(QUEUE_MAX);
            let idle = rerouted.is_empty();
            for waiting in rerouted {
                self.reroute(waiting);
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                Ok(()) = changes.changed() => {}
                () = self.ownerless.arrived.notified(), if idle => {}
                () = sleep(RETRY), if !idle => {}
            }
        }
    }

    /// Makes the links match the holders of buckets.
    fn follow_leases(self: &Arc<Self>) {
        let holders = self.shares.others();
        self.peers.lock().retain(|(holder, _), peer| {
            let stays = holders.contains(holder) && peer.urls == self.urls(holder);
            if !stays {
                peer.retired.cancel(); // Its task returns the waiting entries.
            }
            stays
        });
        for holder in &holders {
            self.peer(holder, Hop::First);
        }
    }

    /// Returns the URLs of a holder, in order of preference.
    pub(super) fn urls(&self, holder: &Instance) -> Vec<String> {
        let Self { shares, services, port, .. } = self;
        let schemes: &[_] = match self.trust.get() {
            None => &["ws"],
            Some((_, false)) => &["wss"],
            Some((_, true)) => &["wss", "ws"],
        };
        let authorities = match holder {
            Instance::Member(bucket) => return schemes.iter().map(|scheme| stat_url(scheme, bucket)).collect(),
            Instance::Leased(holder) => {
                let mut authorities = vec![SocketAddr::new(holder.pod_ip, *port).to_string()];
                if let Some(domain) = services {
                    authorities
                        .extend(shares.buckets_of(holder).iter().map(|bucket| format!("{bucket}.{domain}:{port}")));
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
        self.carry_out(route(self.shares.owner(&key), waiting.came.as_ref(), held), waiting);
    }

    fn carry_out(self: &Arc<Self>, onward: Route<Instance>, waiting: WaitingStat) {
        match onward {
            Route::Record => self.local.accept(waiting.message),
            Route::Send(holder, hop) => self.push(&self.peer(&holder, hop).queue, waiting),
            Route::Hold => self.push(&self.ownerless, waiting),
            Route::Drop => self.counters.dropped(Dropped::Misrouted, 1),
        }
    }

    fn peer(self: &Arc<Self>, holder: &Instance, hop: Hop) -> Arc<PeerLink> {
        let mut peers = self.peers.lock();
        let link = (holder.clone(), hop);
        if let Some(peer) = peers.get(&link) {
            return peer.clone();
        }
        let (urls, queue, retired) = (self.urls(holder), SendQueue::default(), self.shutdown.child_token());
        let peer = Arc::new(PeerLink { urls, queue, retired });
        peers.insert(link, peer.clone());
        tokio::spawn(self.clone().carry(holder.clone(), hop, peer.clone()));
        peer
    }

    /// Sends one peer's queue until it is retired, then returns the remaining entries.
    async fn carry(self: Arc<Self>, holder: Instance, hop: Hop, peer: Arc<PeerLink>) {
        let headers = forwarded::headers(hop, self.shares.me());
        let token = self.token.get().cloned();
        let (trust, allow_plain) =
            self.trust.get().cloned().map_or((None, true), |(trust, plain)| (Some(trust), plain));
        let config = Config { headers, token, trust, allow_plain, ..Config::default() };
        match DurableSender::start(peer.urls.clone(), self.resolver.clone(), config, peer.retired.child_token()) {
            Ok(link) => self.drain(&link, &peer).await,
            Err(error) => tracing::error!(%holder, %error, "peer cannot be linked"),
        }
        peer.queue.close().into_iter().for_each(|waiting| self.push_ownerless(waiting));
    }

    /// Sends entries until the link is retired. A frame in progress is not abandoned: the peer's token ends the link
    /// and thereby the write.
    async fn drain(&self, link: &DurableSender, peer: &PeerLink) {
        let mut connected = link.connected();
        while !peer.retired.is_cancelled() {
            self.expire(&peer.queue);
            if peer.queue.is_empty() {
                tokio::select! {
                    () = peer.retired.cancelled() => {}
                    () = peer.queue.arrived.notified() => {}
                }
            } else if !*connected.borrow_and_update() {
                tokio::select! {
                    () = peer.retired.cancelled() => {}
                    _ = connected.changed() => {}
                    () = sleep(RETRY) => {}
                }
            } else {
                self.write(link, peer).await;
            }
        }
    }

    async fn write(&self, link: &DurableSender, peer: &PeerLink) {
        let batch = peer.queue.take(BATCH_MAX);
        let messages = batch.iter().map(|waiting| waiting.message.clone()).collect();
        match link.send(common::wire::encode(&WireStatMessages { messages }).into()).await {
            Ok(()) => self.counters.forwarded(batch.len()),
            Err(_) => peer.queue.give_back(batch),
        }
    }

    fn push(&self, queue: &SendQueue, entry: WaitingStat) {
        let mut waiting = queue.waiting.lock();
        if waiting.is_closed {
            drop(waiting);
            return self.push_ownerless(entry); // Its link was retired just before.
        }
        if waiting.entries.len() >= QUEUE_MAX {
            drop(waiting);
            return self.counters.dropped(Dropped::QueueFull, 1);
        }
        waiting.entries.push_back(entry);
        drop(waiting);
        queue.arrived.notify_one();
    }

    /// Queues a stat of a retired link until it has an owner. Attestations are dropped, because they were for that
    /// link alone.
    fn push_ownerless(&self, entry: WaitingStat) {
        if entry.message.stat.is_some() {
            self.push(&self.ownerless, entry);
        }
    }

    fn expire(&self, queue: &SendQueue) {
        let now = Instant::now();
        let mut expired = 0;
        queue.waiting.lock().entries.retain(|waiting| {
            let is_good = waiting.expires > now;
            expired += usize::from(!is_good && waiting.message.stat.is_some());
            is_good
        });
        if expired > 0 {
            self.counters.dropped(Dropped::Expired, expired);
        }
    }
}

impl SendQueue {
    fn is_empty(&self) -> bool {
        self.waiting.lock().entries.is_empty()
    }

    fn take(&self, max: usize) -> Vec<WaitingStat> {
        let mut waiting = self.waiting.lock();
        let count = waiting.entries.len().min(max);
        waiting.entries.drain(..count).collect()
    }

    /// Takes all entries, and closes the queue for good.
    fn close(&self) -> VecDeque<WaitingStat> {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        std::mem::take(&mut waiting.entries)
    }

    fn give_back(&self, batch: Vec<WaitingStat>) {
        let mut waiting = self.waiting.lock();
        for entry in batch.into_iter().rev() {
            waiting.entries.push_front(entry);
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

    struct Nobody;

    impl LocalSink for Nobody {
        fn accept(&self, _: WireStatMessage) {}
    }

    /// Goal: a stat for a link that was just retired waits for an owner; an attestation does not.
    #[tokio::test]
    async fn what_comes_to_a_closed_queue_waits_for_an_owner() {
        let me = Holder { pod_name: "as-0".into(), pod_ip: [127, 0, 0, 2].into() };
        let (_assign, ownership) = Ownership::by_hand(1);
        let shares = Shares::new(bucket_names(1), ownership).known_as(me);
        let (counters, shutdown) = (IngestCounters::default(), CancellationToken::new());
        let peers = Peers::new(shares, Arc::new(Dns), 8080, None, Arc::new(Nobody), counters, shutdown);
        let push = |queue: &SendQueue, stat: Option<Stat>| {
            let message = WireStatMessage { stat, ..WireStatMessage::default() };
            peers.push(queue, WaitingStat { message, came: None, expires: Instant::now() + KEEP });
        };
        let queue = SendQueue::default();
        push(&queue, Some(Stat::default()));
        assert_eq!(queue.close().len(), 1);
        push(&queue, Some(Stat::default()));
        push(&queue, None);
        assert!(queue.is_empty());
        assert_eq!(peers.ownerless.take(QUEUE_MAX).len(), 1);
    }
}
