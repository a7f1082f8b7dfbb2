//! Tests with two instances on loopback sockets, each with its own address and one common port, like two pods.

use super::counters::Counters;
use super::peers::LinkSettings;
use super::stat_server::StatServer;
use super::*;
use crate::certificate::Certificate;
use crate::ingest::attest::ReadyActivator;
use crate::scale::fixture::{Names, collect_spec, sources, subject};
use crate::scale::multiscaler::Sources;
use crate::scale::{Collection, Deciders, Initial, PodSet, Pods, Requests, Surroundings};
use autoscaler_core::forwarding::Hop;
use common::ownership::{Holder, Owner, bucket_names};
use common::stat::WireStatMessages;
use common_runtime::lease::{Assign, Ownership};
use common_runtime::resolve::Dns;
use common_runtime::stat_tls::StatServerTls;
use common_runtime::telemetry::Metrics;
use common_runtime::websocket::{Config, DurableSender};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Timeout far beyond any expected duration, so that a bug fails a test and does not hang it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Two keys, owned by the first and the second of two buckets.
const FIRST: &str = "rev2-00002";
const SECOND: &str = "hello-00001";
/// Key that does not exist.
const UNKNOWN: &str = "nobody-has-this-name";
/// Name in the autoscalers' certificates.
const STATS: &str = "autoscaler.knative-serving.svc";

/// Certificate that is presented and required, and whether plain links are allowed too.
type Tls<'a> = Option<(&'a Certificate, bool)>;

struct Instance {
    me: Holder,
    address: SocketAddr,
    assign: Assign,
    requests: Requests,
    attestations: Arc<Attestations>,
    recorder: Arc<LocalRecorder>,
    ingest: Arc<Ingest>,
    names: Names,
    shutdown: CancellationToken,
}

/// Returns a port that is free at the addresses of three instances. It is not an ephemeral port: a connection to one
/// of the instances could take such a port at the same address.
fn shared_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 20_000).expect("less than 20 000");
    let numbers = std::iter::repeat_with(|| 10_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000);
    let free =
        |port: &u16| (2..=4).all(|n| std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, n], *port))).is_ok());
    numbers.take(20_000).find(free).expect("a free port")
}

impl Instance {
    /// Starts an instance on `ip` with leases, and with TLS if `tls` is given.
    async fn start(name: &str, ip: [u8; 4], port: u16, tls: Tls<'_>) -> Self {
        let (assign, ownership) = Ownership::manual(2);
        let me = Holder { pod_name: name.to_owned(), pod_ip: IpAddr::from(ip) };
        Self::sharing(Shares::new(bucket_names(2), ownership).known_as(me.clone()), assign, me, port, tls).await
    }

    async fn sharing(shares: Shares, assign: Assign, me: Holder, port: u16, tls: Tls<'_>) -> Self {
        let (shutdown, names, ip) = (CancellationToken::new(), Names::default(), me.pod_ip);
        let mut server = StatServer::bind((ip, port).into()).expect("bind");
        let address = server.local_addr().expect("address");
        let sources = sources(Clock::system(), &Metrics::default());
        let multiscaler = Arc::new(Multiscaler::new(sources.clone(), true));
        let Sources { collector, pods, attestations, clock, requests, .. } = sources;
        pods.end_list();
        for name in [FIRST, SECOND] {
            let key = RevisionKey::new("default", name);
            collector.ensure(&key, collect_spec());
            pods.track(&key, PodSet::Revision(name.into()), None);
            multiscaler.ensure(&key, subject(), Initial::Adopted(0));
            multiscaler.observe(&key, Surroundings { activators_in_path: true, replicas: Some(0) });
        }
        let counters = IngestCounters::default();
        let recorder = Arc::new(LocalRecorder { collector, multiscaler, clock, counters: counters.clone() });
        let (port, token) = (address.port(), shutdown.clone());
        let (resolver, services) = (Arc::new(names.clone()), Some("knative-serving.svc.cluster.local".to_owned()));
        let mut settings = LinkSettings { port, services, ..LinkSettings::default() };
        if let Some((certificate, allow_plain)) = tls {
            settings.trust = Some((certificate.trust(STATS, &shutdown).await, allow_plain));
            server.access.tls = Some(StatServerTls { config: certificate.server(&shutdown).await, allow_plain });
        }
        let local = recorder.clone();
        let accept = Box::new(move |message| local.accept(message));
        let peers = Peers::new(shares.clone(), resolver, settings, accept, counters, token);
        let (system_namespace, local) = ("knative-serving".to_owned(), recorder.clone());
        let (of_ingest, running) = (attestations.clone(), peers.clone());
        let ingest = Arc::new(Ingest { system_namespace, shares, local, attestations: of_ingest, peers });
        tokio::spawn(async move { running.run().await });
        tokio::spawn(server.serve(ingest.clone(), Counters::default(), shutdown.clone()));
        Self { me, address, assign, requests, attestations, recorder, ingest, names, shutdown }
    }

    /// Opens a stat stream into this instance, as an activator, or as another autoscaler for this hop.
    async fn stream(&self, forwarded: Option<(Hop, &Instance)>) -> DurableSender {
        let headers = forwarded.map(|(hop, by)| forwarded::headers(hop, Some(&by.me))).unwrap_or_default();
        let url = format!("ws://{}", self.address);
        let config = Config { headers, ..Config::default() };
        let stream = DurableSender::start(vec![url], Arc::new(Dns), config, self.shutdown.clone()).expect("valid URL");
        within(stream.connected().wait_for(|connected| *connected)).await.expect("alive");
        stream
    }

    /// Sets the holder of a bucket in this instance's view.
    fn believe(&self, bucket: usize, holder: Option<&Instance>) {
        self.assign.set(bucket, holder.map(|holder| holder.me.clone()), holder.is_some_and(|one| one.me == self.me));
    }

    /// Returns the number of recorded and of forwarded stats.
    fn totals(&self) -> (u64, u64) {
        (self.recorder.counters.recorded.get(), self.recorder.counters.forwarded.get())
    }

    fn dropped(&self, reason: Dropped) -> u64 {
        self.recorder.counters.dropped.get_or_create(&[("reason", reason)]).get()
    }

    /// Returns the name of the next revision that requests a reconcile.
    async fn next_request(&self) -> String {
        within(self.requests.next()).await.key().name().to_owned()
    }

    /// Receives these messages first-hand.
    fn receive(&self, messages: &[WireStatMessage]) {
        let from = Origin { ip: [127, 0, 0, 1].into(), forwarded: None, pod: None };
        assert!(self.ingest.frame(frame(messages), &from));
    }

    fn desired(&self, name: &str) -> Option<i32> {
        self.recorder.multiscaler.status(&RevisionKey::new("default", name)).and_then(|status| status.desired)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Returns two instances that agree: the first holds bucket 0, the second bucket 1.
async fn pair() -> (Instance, Instance) {
    pair_with([None, None]).await
}

/// Returns the same pair with these certificates.
async fn pair_with([first, second]: [Tls<'_>; 2]) -> (Instance, Instance) {
    let port = shared_port();
    let first = Instance::start("as-0", [127, 0, 0, 2], port, first).await;
    let second = Instance::start("as-1", [127, 0, 0, 3], port, second).await;
    for instance in [&first, &second] {
        instance.believe(0, Some(&first));
        instance.believe(1, Some(&second));
    }
    (first, second)
}

fn message(name: &str) -> WireStatMessage {
    let stat = Stat { average_concurrent_requests: 1.0, request_count: 1.0, ..Stat::default() };
    WireStatMessage { namespace: "default".into(), name: name.into(), stat: Some(stat), ..Default::default() }
}

fn frame(messages: &[WireStatMessage]) -> Bytes {
    common::wire::encode(&WireStatMessages { messages: messages.to_vec() }).into()
}

pub(super) async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("did not happen in time")
}

/// Polls for a condition that sends no event.
pub(super) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let watching = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, watching).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}

/// Goal: a batch that reaches the wrong instance wakes each revision at its owner, and is counted once.
#[tokio::test]
async fn a_stat_wakes_its_revision_at_its_owner() {
    let (first, second) = pair().await;
    let stream = first.stream(None).await;
    within(stream.send(frame(&[message(FIRST), message(SECOND)]))).await.expect("sent");
    assert_eq!(first.next_request().await, FIRST);
    assert_eq!(second.next_request().await, SECOND);
    assert_eq!((first.desired(FIRST), second.desired(SECOND)), (Some(1), Some(1)));
    assert_eq!((first.desired(SECOND), second.desired(FIRST)), (Some(0), Some(0)), "no instance decides for the other");
    eventually("counted", || first.totals() == (1, 1)).await;
    assert_eq!(second.totals(), (1, 0));
}

/// Goal: a stat wakes its revision even if the receiver's clock is ahead of the owner's, or behind it by more than a
/// window.
#[tokio::test]
async fn a_stat_wakes_its_revision_if_clocks_differ() {
    for ahead in [10, -600] {
        let (first, second) = pair().await;
        let mut sent = message(SECOND);
        sent.stat.as_mut().expect("a stat").timestamp = first.recorder.clock.now().as_secs() + ahead;
        first.receive(&[sent]);
        assert_eq!(second.next_request().await, SECOND, "{ahead} s");
        assert_eq!(second.desired(SECOND), Some(1), "{ahead} s");
    }
}

/// Goal: autoscalers forward to each other over TLS, by pod address, and continue after a renewal of their
/// certificate.
#[tokio::test]
async fn stats_are_forwarded_over_tls() {
    let certificate = Certificate::new(STATS);
    let (first, second) = pair_with([Some((&certificate, false)), Some((&certificate, false))]).await;
    first.receive(&[message(SECOND)]);
    assert_eq!(second.next_request().await, SECOND);

    certificate.renew();
    // The link is dialled anew, because its holder's address changes for a moment.
    let gone = Holder { pod_name: "as-9".into(), pod_ip: [127, 0, 0, 9].into() };
    first.assign.set(1, Some(gone), false);
    eventually("dialled anew", || first.ingest.peers.links.lock().len() == 1).await;
    first.believe(1, Some(&second));
    let before = second.totals().0;
    first.receive(&[message(SECOND)]);
    eventually("forwarded again", || second.totals().0 > before).await;
}

/// Goal: during a rollout of TLS, an autoscaler with TLS and one without forward to each other in plain.
#[tokio::test]
async fn tls_can_be_rolled_out() {
    let certificate = Certificate::new(STATS);
    let (first, second) = pair_with([Some((&certificate, true)), None]).await;
    first.receive(&[message(SECOND)]);
    assert_eq!(second.next_request().await, SECOND);
    second.receive(&[message(FIRST)]);
    assert_eq!(first.next_request().await, FIRST);
}

/// Goal: hostile stats are counted by their reason, and valid entries of the same frame are recorded.
#[tokio::test]
async fn hostile_stats_are_counted_by_reason() {
    let (first, _second) = pair().await;
    let from = Origin { ip: [127, 0, 0, 1].into(), forwarded: None, pod: None };
    let valid = message(FIRST);
    let with = |edit: &dyn Fn(&mut Stat)| {
        let mut message = valid.clone();
        edit(message.stat.as_mut().expect("a stat"));
        message
    };
    (0..2).for_each(|bucket| first.believe(bucket, Some(&first)));
    let rows = [
        (with(&|stat| stat.average_concurrent_requests = f64::NAN), Dropped::NotFinite),
        (with(&|stat| stat.request_count = f64::INFINITY), Dropped::NotFinite),
        (with(&|stat| stat.request_count = -1.0), Dropped::Negative),
        (with(&|stat| stat.average_concurrent_requests = 1e300), Dropped::TooLarge),
        (with(&|stat| stat.timestamp = i64::MAX), Dropped::Future),
        (message(UNKNOWN), Dropped::UnknownRevision),
    ];
    for (hostile, reason) in rows {
        let (before, recorded) = (first.dropped(reason), first.totals().0);
        assert!(first.ingest.frame(frame(&[hostile, valid.clone()]), &from));
        assert_eq!(first.dropped(reason), before + 1, "{reason:?}");
        assert_eq!(first.totals().0, recorded + 1, "the valid entry of the same frame");
    }
    assert!(!first.ingest.frame(Bytes::from_static(&[0xff]), &from), "this frame cannot be decoded");
}

/// Goal: a stat of an owned revision that is not reconciled yet, as after a change of leader, requests a reconcile at
/// once. Stats of names that do not exist request nothing, however many there are.
#[tokio::test]
async fn a_stat_of_an_unmeasured_revision_requests_a_reconcile() {
    let (first, _second) = pair().await;
    (0..2).for_each(|bucket| first.believe(bucket, Some(&first)));
    let key = RevisionKey::new("default", FIRST);
    first.recorder.collector.remove(&key);
    first.recorder.multiscaler.remove(&key);
    while first.requests.try_next().is_some() {}
    let queued = || first.requests.try_next().map(|item| item.key().clone());
    first.receive(&[message(FIRST)]);
    assert_eq!(queued(), None, "existing revisions are not known yet");
    first.recorder.multiscaler.set_existing(Arc::new(|key: &RevisionKey| key.name() == FIRST));
    first.receive(&[message(FIRST), message(UNKNOWN)]);
    assert_eq!((queued(), queued()), (Some(key), None));
    assert_eq!(first.dropped(Dropped::UnknownRevision), 3, "all of them are dropped");
}

/// Goal: an attestation reaches the owner of every bucket, under the pod's name and its source address. An entry
/// without a stat is no attestation if its namespace is not the system's.
#[tokio::test]
async fn an_attestation_reaches_every_owner() {
    let (first, second) = pair().await;
    let by_name = ReadyActivator { pod: Some("act-0".into()), address: "10.0.0.1".into() };
    let by_address = ReadyActivator { pod: None, address: "127.0.0.1".into() };
    first.attestations.set_ready(vec![by_name.clone()], Instant::now());
    first.receive(&[common::wire::attestation("default", "act-0")]);
    assert!(!first.attestations.attested(Instant::now()), "from another namespace");
    for ready in [by_name, by_address] {
        first.attestations.set_ready(vec![ready.clone()], Instant::now());
        second.attestations.set_ready(vec![ready], Instant::now());
        let stream = first.stream(None).await;
        let attestation = common::wire::attestation("knative-serving", "act-0");
        within(stream.send(frame(&[attestation]))).await.expect("sent");
        for instance in [&first, &second] {
            eventually("attested", || instance.attestations.attested(Instant::now())).await;
        }
    }
}

/// Goal: a stat that reaches a former owner is forwarded to its successor. A stat that was forwarded twice is not
/// forwarded again, and its loss is counted.
#[tokio::test]
async fn a_forwarded_stat_is_forwarded_once_more() {
    let (first, second) = pair().await;
    let third = Instance::start("as-2", [127, 0, 0, 4], first.address.port(), None).await;
    third.believe(1, Some(&first)); // It does not know yet that the second instance holds the bucket now.
    third.receive(&[message(SECOND)]);
    assert_eq!(second.next_request().await, SECOND);
    assert_eq!((third.dropped(Dropped::Misrouted), first.dropped(Dropped::Misrouted)), (0, 0));

    let forwarded = (first.totals().1, second.totals().0);
    let stream = first.stream(Some((Hop::Second, &third))).await;
    within(stream.send(frame(&[message(SECOND)]))).await.expect("sent");
    eventually("dropped", || first.dropped(Dropped::Misrouted) == 1).await;
    assert_eq!((first.totals().1, second.totals().0), forwarded);
}

/// Goal: a forwarded stat waits while its owner is unknown: before this instance learns of a handover, and while the
/// bucket is between two holders. It is not sent back, and its second hop is not used up.
#[tokio::test]
async fn a_forwarded_stat_waits_while_its_owner_is_unknown() {
    let (first, second) = pair().await;
    for hop in [Hop::First, Hop::Second] {
        for former in [Some(&second), None] {
            first.believe(1, former);
            let recorded = first.totals().0;
            let stream = first.stream(Some((hop, &second))).await;
            within(stream.send(frame(&[message(SECOND), message(FIRST)]))).await.expect("sent");
            eventually("the stat of the known owner is recorded", || first.totals().0 == recorded + 1).await;
            first.believe(1, Some(&first));
            eventually("the other one, too", || first.totals().0 == recorded + 2).await;
        }
    }
    assert_eq!((first.dropped(Dropped::Misrouted), second.totals()), (0, (0, 0)));
}

/// Goal: a stat that was forwarded by an instance is returned to it if it has meanwhile taken over the bucket.
#[tokio::test]
async fn a_forwarded_stat_follows_a_bucket_that_was_taken_over() {
    let (first, second) = pair().await;
    first.believe(1, Some(&second));
    second.believe(1, Some(&second));
    let stream = first.stream(Some((Hop::First, &second))).await;
    within(stream.send(frame(&[message(SECOND)]))).await.expect("sent");
    assert_eq!(second.next_request().await, SECOND);
    assert_eq!((first.totals().0, first.dropped(Dropped::Misrouted)), (0, 0));
}

/// Goal: a holder that releases its bucket keeps the bucket's stats until it knows the next holder, instead of sending
/// them to itself. Meanwhile it forwards no attestations.
#[tokio::test]
async fn stats_of_a_released_bucket_wait_for_its_next_holder() {
    let (first, second) = pair().await;
    first.assign.set(0, Some(first.me.clone()), false);
    first.receive(&[message(FIRST)]);
    assert!(!first.ingest.shares.are_settled());
    eventually("linked to the second only", || first.ingest.peers.links.lock().len() == 1).await;
    second.believe(0, Some(&second));
    first.believe(0, Some(&second));
    assert_eq!(second.next_request().await, FIRST);
    assert_eq!((first.totals(), second.dropped(Dropped::Misrouted)), ((0, 1), 0));
}

/// Goal: an unreachable owner loses only its own stats, after 15 s, and they are counted. Other stats do not wait.
#[tokio::test(start_paused = true)]
async fn an_unreachable_owner_costs_only_its_own_stats() {
    let first = Instance::start("as-0", [127, 0, 0, 2], 0, None).await;
    let gone = Holder { pod_name: "as-9".into(), pod_ip: [127, 0, 0, 9].into() };
    first.believe(0, Some(&first));
    first.assign.set(1, Some(gone), false);
    first.receive(&[message(SECOND), message(FIRST)]);
    assert_eq!(first.desired(FIRST), Some(1), "at once");
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(first.dropped(Dropped::Expired), 0, "still kept");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(first.dropped(Dropped::Expired), 1);
}

/// Goal: a holder whose address cannot be dialled, as in a mesh, is reached by the Service of a bucket that it holds,
/// also of a bucket that it gains later.
#[tokio::test]
async fn a_holder_is_reached_by_its_buckets_service_as_a_fallback() {
    let (first, second) = pair().await;
    let hidden = Holder { pod_name: "as-1".into(), pod_ip: [127, 0, 0, 9].into() };
    let services = ["autoscaler-bucket-00-of-02", "autoscaler-bucket-01-of-02"];
    let service = |bucket: usize| format!("{}.knative-serving.svc.cluster.local", services[bucket]);
    first.names.0.lock().insert(service(1), second.address);
    first.assign.set(1, Some(hidden.clone()), false);
    first.receive(&[message(SECOND)]);
    assert_eq!(second.next_request().await, SECOND);

    // Its bucket goes to another instance and it gains the other bucket: the former Service would refuse the link.
    for instance in [&first, &second] {
        instance.assign.set(0, Some(hidden.clone()), instance.me == second.me);
        instance.assign.set(1, None, false);
    }
    first.names.0.lock().insert(service(0), second.address);
    first.receive(&[message(FIRST)]);
    assert_eq!(second.next_request().await, FIRST);
}

/// Goal: members of a StatefulSet find each other by name, without leases.
#[tokio::test]
async fn members_of_a_stateful_set_forward_by_name() {
    let host = |n| format!("as-{n}.as.knative-serving.svc.cluster.local");
    let buckets: Vec<_> = (0..2).map(|n| format!("http://{}:80", host(n))).collect();
    let shares = |ordinal| Shares::members(buckets.clone(), ordinal);
    let assign = || Ownership::manual(0).0;
    let me = |n: u8| Holder { pod_name: format!("as-{n}"), pod_ip: [127, 0, 0, 2 + n].into() };
    let first = Instance::sharing(shares(0), assign(), me(0), 0, None).await;
    let second = Instance::sharing(shares(1), assign(), me(1), 0, None).await;
    let owned_by_first = shares(0).owner(&RevisionKey::new("default", FIRST)) == Owner::Us;
    let (owner, other, n) = if owned_by_first { (&first, &second, 0) } else { (&second, &first, 1) };
    other.names.0.lock().insert(host(n), owner.address);
    other.receive(&[message(FIRST)]);
    assert_eq!(owner.next_request().await, FIRST);
    assert_eq!(other.desired(FIRST), Some(0));
}
