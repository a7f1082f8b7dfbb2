//! Tests of the registry, with workloads as events.

use super::*;
use crate::discovery::{self, Listing, Port};
use common::backend::Backend;
use common::ports::{Block, Entry, Ledger, PortId};
use common::time::Timestamp;
use common_api::zeroscaler::PortProtocol;
use common_runtime::environment::Mode;
use common_runtime::telemetry;
use std::sync::Weak;
use std::thread::ScopedJoinHandle;
use tokio_util::sync::CancellationToken;

const OWN_IP: &str = "10.0.0.1";

fn registry() -> Arc<Registry> {
    registry_with_metrics().0
}

/// Returns an empty registry, and a function that exports its metrics.
fn registry_with_metrics() -> (Arc<Registry>, impl Fn() -> String) {
    let start = Instant::now();
    let exported = telemetry::Metrics::default();
    let registry = Registry::new(Parts {
        clock: Arc::new(move || Timestamp::default() + start.elapsed()),
        metrics: Metrics::new(&exported, Mode::Standalone, None),
        memory: Memory::new(None),
        pools: Pools::start((1, 1), None, CancellationToken::new()),
        readiness: Arc::new(Readiness::new(start)),
        own_ip: OWN_IP.to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        ports: None,
        runtime: Handle::current(),
        probe_budget: Arc::default(),
        holders: None,
    });
    (registry, move || exported.encode().expect("text"))
}

fn exists(name: &str) -> Event {
    Event::Revision(Arc::new(Spec::standalone("ns", name, Backend::plain(name))))
}

fn key_by_host(registry: &Registry, host: &str) -> Option<RevisionKey> {
    registry.by_host(host, [127, 0, 0, 1].into()).map(|revision| revision.key.clone())
}

/// Applies events, and rebuilds the host table.
fn take(registry: &Registry, events: impl Iterator<Item = Event>) {
    registry.take(events);
    registry.rebuild_changed_hosts();
}

/// Goal: the number of batches before the first sync does not matter. Method: a rebuild replaces the table.
#[tokio::test]
async fn the_host_table_is_built_once_at_the_start_and_once_per_burst() {
    let registry = registry();
    let mut rebuilds = 0;
    let mut take = |events: &mut dyn Iterator<Item = Event>| {
        let before = registry.hosts.load_full();
        take(&registry, events);
        rebuilds += usize::from(!Arc::ptr_eq(&before, &registry.hosts.load_full()));
        rebuilds
    };
    for n in 0..50 {
        take(&mut [exists(&format!("app-{n}"))].into_iter());
    }
    assert_eq!((take(&mut [].into_iter()), key_by_host(&registry, "app-0.ns")), (0, None), "not synced yet");
    assert_eq!(take(&mut [exists("last"), Event::Synced].into_iter()), 1);
    assert_eq!(key_by_host(&registry, "app-49.ns"), Some(RevisionKey::new("ns", "app-49")));
    assert_eq!(key_by_host(&registry, "last.ns.svc"), Some(RevisionKey::new("ns", "last")));
    assert_eq!(take(&mut [exists("last")].into_iter()), 1, "nothing has changed");
    assert_eq!(take(&mut [exists("a"), exists("b"), Event::Deleted(RevisionKey::new("ns", "last"))].into_iter()), 2);
    assert_eq!(["a.ns", "last.ns"].map(|host| key_by_host(&registry, host).is_some()), [true, false]);
}

fn key() -> RevisionKey {
    RevisionKey::new("ns", "app")
}

fn pods(addresses: &[&str]) -> Event {
    let ready = addresses.iter().map(|address| address.parse().expect("an address")).collect();
    Event::Pods { key: key(), listing: Listing { ready, ..Listing::default() } }
}

/// Returns the event that these activators receive the workload's traffic.
fn activators(addresses: &[&str]) -> Event {
    Event::Activators { key: key(), addresses: addresses.iter().map(ToString::to_string).collect() }
}

/// Returns the active revision without creating one.
fn active(registry: &Registry) -> Option<Arc<Revision>> {
    registry.workload("ns", "app")?.revision()
}

fn requested(registry: &Registry) -> Arc<Revision> {
    registry.by_key("ns", "app").expect("known")
}

/// Runs the registry's periodic checks, one per minute.
fn minutes_pass(registry: &Registry, now: &mut Instant, minutes: u32) {
    for _ in 0..minutes {
        *now += CHECK_INTERVAL;
        registry.by_key.iter().for_each(|workload| workload.drop_if_unused(*now));
    }
}

/// Goal: a sleeping workload has no revision and no series, but is known.
#[tokio::test]
async fn a_revision_is_created_by_the_first_request_with_all_earlier_events() {
    let (registry, metrics) = registry_with_metrics();
    take(&registry, [activators(&[OWN_IP, "10.0.0.2"]), exists("app"), Event::Synced].into_iter());
    let asleep = Load { in_flight: 0, queued: 0, capacity: Capacity::CLOSED };
    assert_eq!(registry.load("ns", "app"), Some(asleep));
    assert_eq!(registry.known().len(), 1);
    assert!(active(&registry).is_none() && !metrics().contains("app"), "{}", metrics());

    let revision = requested(&registry);
    assert!(Arc::ptr_eq(&revision, &requested(&registry)) && metrics().contains("app"));
    assert!(Arc::ptr_eq(&revision, &registry.by_host("app.ns", [127, 0, 0, 1].into()).expect("known")));
    revision.throttler.set_concurrency(1);
    let destinations = ["10.1.0.1:80", "10.1.0.2:80"].map(|address| address.parse().expect("an address"));
    revision.throttler.update(activator_core::Destinations::Pods(destinations.to_vec()));
    assert_eq!(registry.load("ns", "app").map(|load| load.capacity), Some(Capacity::Limited(1)), "half of two pods");
}

/// Goal: a terminating activator waits only for workloads that another activator can take over.
#[tokio::test]
async fn a_workload_is_replaceable_if_another_activator_is_listed_or_ready() {
    let registry = registry();
    let siblings = |others: &[(&str, bool)]| {
        let of = |(address, ready): &(&str, bool)| (address.parse().expect("an address"), *ready);
        Event::Siblings(discovery::Activators { all: others.iter().map(of).collect(), includes_terminating: true })
    };
    take(&registry, [exists("app"), Event::Synced].into_iter());
    let (own, other) = (OWN_IP, "10.0.0.9");
    let (leaving, coming) = (("10.0.0.1:8012", false), |ready| ("10.0.0.9:8012", ready));
    let rows = [
        (activators(&[own]), siblings(&[leaving]), 0),
        (activators(&[own]), siblings(&[leaving, coming(false)]), 0),
        (activators(&[own]), siblings(&[leaving, coming(true)]), 1),
        (activators(&[own, other]), siblings(&[leaving]), 1),
        (activators(&[other]), siblings(&[leaving, coming(true)]), 0),
        // In a dual-stack cluster an activator has two addresses, but counts once.
        (activators(&[own, "fd00::1"]), siblings(&[leaving, ("[fd00::1]:8012", true)]), 0),
    ];
    for (number, (led, siblings, left)) in rows.into_iter().enumerate() {
        take(&registry, [led, siblings].into_iter());
        assert_eq!(registry.replaceable_workloads(), left, "row {number}");
    }
}

/// Goal: the first address of a pod activates a revision, before any request.
#[tokio::test]
async fn pods_are_probed_before_the_first_request() {
    let registry = registry();
    for events in [[pods(&["10.1.0.1:80"]), exists("app")], [exists("app"), pods(&["10.1.0.1:80"])]] {
        take(&registry, events.into_iter());
        assert!(active(&registry).is_some());
        take(&registry, [Event::Deleted(key()), pods(&[])].into_iter());
        assert!(registry.by_key.is_empty(), "a deleted workload leaves nothing behind");
    }
}

/// Goal: the names of further Services lead to their workload, unless one is the main Service of another workload.
#[tokio::test]
async fn further_services_names_lead_to_their_workload() {
    let registry = registry();
    let spec = |name: &str, further: &[&str]| {
        let further_services = further.iter().map(|name| Box::from(*name)).collect();
        Event::Revision(Arc::new(Spec { further_services, ..Spec::standalone("ns", name, Backend::plain(name)) }))
    };
    take(&registry, [spec("app", &["edge", "other"]), spec("other", &[]), Event::Synced].into_iter());
    let key = |name: &str| Some(RevisionKey::new("ns", name));
    for (host, name) in [("app.ns", "app"), ("edge.ns", "app"), ("edge.ns.svc", "app"), ("other.ns", "other")] {
        assert_eq!(key_by_host(&registry, host), key(name), "{host}");
    }
    take(&registry, [spec("app", &[])].into_iter());
    assert_eq!(key_by_host(&registry, "edge.ns"), None, "no longer served");
}

/// Goal: it is dropped at the first check after the whole time, and any use restarts the time.
#[tokio::test]
async fn an_unused_revision_without_pods_is_dropped() {
    let (registry, metrics) = registry_with_metrics();
    take(&registry, [exists("app"), Event::Synced].into_iter());
    let mut now = Instant::now();
    let unused_max = u32::try_from(workload::UNUSED_MAX.as_secs() / CHECK_INTERVAL.as_secs()).expect("few");
    let first = requested(&registry);
    minutes_pass(&registry, &mut now, 3 * unused_max);
    assert!(Arc::ptr_eq(&first, &active(&registry).expect("it is in use")));

    drop(first);
    minutes_pass(&registry, &mut now, unused_max);
    let second = Arc::downgrade(&requested(&registry)); // A use restarts the time.
    minutes_pass(&registry, &mut now, unused_max);
    assert!(active(&registry).is_some() && second.strong_count() == 1);
    minutes_pass(&registry, &mut now, 1);
    assert!(active(&registry).is_none() && second.strong_count() == 0 && !metrics().contains("app"));

    drop(requested(&registry));
    take(&registry, [pods(&["10.1.0.1:80"])].into_iter());
    minutes_pass(&registry, &mut now, 3 * unused_max);
    assert!(active(&registry).is_some(), "a pod is probed");
    take(&registry, [pods(&[])].into_iter());
    minutes_pass(&registry, &mut now, unused_max + 1);
    assert!(active(&registry).is_none());

    let entered = requested(&registry).stats.enter();
    minutes_pass(&registry, &mut now, 3 * unused_max);
    assert_eq!(active(&registry).expect("a request is in flight").stats.concurrency(), 1);
    drop(entered);
}

#[tokio::test]
async fn a_deleted_workload_refuses_held_and_later_requests() {
    let registry = registry();
    take(&registry, [exists("app"), Event::Synced].into_iter());
    let workload = registry.workload("ns", "app").expect("known");
    let held = requested(&registry).throttler.acquire();
    take(&registry, [Event::Deleted(key())].into_iter());
    assert!(held.await.is_err(), "the workload was deleted");
    assert!(workload.active_revision(&registry.parts, |_| true).is_none(), "looked up before the deletion");
    assert!(registry.by_key("ns", "app").is_none() && registry.load("ns", "app").is_none());
}

/// Method: while revisions are dropped all the time, a thread with a revision asks again, and must get the same one.
#[tokio::test]
async fn a_workload_never_has_two_revisions_at_once() {
    let registry = registry();
    take(&registry, [exists("app"), Event::Synced].into_iter());
    std::thread::scope(|scope| {
        let asking = [(); 2].map(|()| {
            scope.spawn(|| {
                let (mut revisions, mut latest) = (0, Weak::new());
                while revisions < 50 {
                    let revision = requested(&registry);
                    std::thread::yield_now();
                    assert!(Arc::ptr_eq(&revision, &requested(&registry)));
                    revisions += usize::from(!latest.ptr_eq(&Arc::downgrade(&revision)));
                    latest = Arc::downgrade(&revision);
                    drop(revision);
                    // Continuous requests would leave no time to drop it.
                    (0..1000).take_while(|_| latest.strong_count() > 0).for_each(|_| std::thread::yield_now());
                }
            })
        });
        let mut now = Instant::now();
        while !asking.iter().all(ScopedJoinHandle::is_finished) {
            now += workload::UNUSED_MAX;
            registry.by_key.iter().for_each(|workload| workload.drop_if_unused(now));
        }
    });
}

/// Bytes that the registry keeps for a sleeping workload, including the ledger line of its number.
const ASLEEP_BYTES: i64 = 1000;

/// Goal: a sleeping workload costs only the known data, also after it was active. Method: the bytes allocated for many,
/// including the shared events.
#[tokio::test]
async fn a_sleeping_workload_needs_little_memory() {
    const MANY: u16 = 1000;
    let registry = registry();
    let allocated = allocation_counter::measure(|| {
        let mut blocks = BTreeMap::<Block, Ledger>::new();
        for n in 1..=MANY {
            let name = format!("asleep-{n:05}");
            let uid = format!("00000000-0000-0000-0000-{n:012}");
            let id = PortId { name: "http".to_owned(), port: 80 };
            let port =
                Port { id: id.clone(), protocol: PortProtocol::Auto, wake_after: None, pod_port: None, spoken: None };
            let spec = Spec {
                uid: uid.as_str().into(),
                ports: Box::new([port]),
                ..Spec::standalone("namespace", &name, Backend::plain(&name))
            };
            let key = spec.key.clone();
            let addresses = vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()];
            let led = Event::Activators { key: key.clone(), addresses };
            take(&registry, [Event::Revision(Arc::new(spec)), led].into_iter());
            let entry = Entry { state: common::ports::NumberState::Held, key, uid: uid.into(), port: id };
            blocks.entry(Block::containing(n)).or_default().insert(n, entry);
        }
        take(&registry, blocks.into_iter().map(|(block, entries)| Event::Numbers { block, entries }));
        take(&registry, [Event::Synced].into_iter());
    });
    let each = allocated.bytes_current / i64::from(MANY);
    assert!(each <= ASLEEP_BYTES, "{each} bytes");
}
