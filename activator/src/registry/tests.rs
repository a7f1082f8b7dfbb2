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

/// Returns an empty registry.
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

fn is(name: &str) -> Event {
    Event::Revision(Arc::new(Spec::standalone("ns", name, Backend::plain(name))))
}

fn leads(registry: &Registry, host: &str) -> Option<RevisionKey> {
    registry.by_host(host, [127, 0, 0, 1].into()).map(|revision| revision.key.clone())
}

/// Applies events, and rebuilds the host table.
fn take(registry: &Registry, events: impl Iterator<Item = Event>) {
    registry.take(events);
    registry.renew_hosts();
}

/// Goal: the host table is built once at the start, regardless of the number of batches, and then once per burst.
/// Method: a rebuild replaces the table.
#[tokio::test]
async fn the_table_of_hosts_is_made_once_at_the_start_and_then_once_for_a_burst() {
    let registry = registry();
    let mut rebuilds = 0;
    let mut take = |events: &mut dyn Iterator<Item = Event>| {
        let before = registry.hosts.load_full();
        take(&registry, events);
        rebuilds += usize::from(!Arc::ptr_eq(&before, &registry.hosts.load_full()));
        rebuilds
    };
    for n in 0..50 {
        take(&mut [is(&format!("app-{n}"))].into_iter());
    }
    assert_eq!((take(&mut [].into_iter()), leads(&registry, "app-0.ns")), (0, None), "not everything is known yet");
    assert_eq!(take(&mut [is("last"), Event::Synced].into_iter()), 1);
    assert_eq!(leads(&registry, "app-49.ns"), Some(RevisionKey::new("ns", "app-49")));
    assert_eq!(leads(&registry, "last.ns.svc"), Some(RevisionKey::new("ns", "last")));
    assert_eq!(take(&mut [is("last")].into_iter()), 1, "nothing has changed");
    assert_eq!(take(&mut [is("a"), is("b"), Event::Deleted(RevisionKey::new("ns", "last"))].into_iter()), 2);
    assert_eq!(["a.ns", "last.ns"].map(|host| leads(&registry, host).is_some()), [true, false]);
}

fn key() -> RevisionKey {
    RevisionKey::new("ns", "app")
}

fn pods(addresses: &[&str]) -> Event {
    let ready = addresses.iter().map(|address| address.parse().expect("an address")).collect();
    Event::Pods { key: key(), listing: Listing { ready, ..Listing::default() } }
}

/// Returns the event that clients of the workload are led to these activators.
fn activators(addresses: &[&str]) -> Event {
    Event::Activators { key: key(), addresses: addresses.iter().map(ToString::to_string).collect() }
}

/// Returns the active revision without creating one.
fn at_work(registry: &Registry) -> Option<Arc<Revision>> {
    registry.workload("ns", "app")?.revision()
}

fn requested(registry: &Registry) -> Arc<Revision> {
    registry.by_key("ns", "app").expect("known")
}

/// Runs the registry's periodic checks, one per minute.
fn minutes_pass(registry: &Registry, now: &mut Instant, minutes: u32) {
    for _ in 0..minutes {
        *now += LOOK;
        registry.by_key.iter().for_each(|workload| workload.rest(*now));
    }
}

/// Goal: a sleeping workload has no revision and no series, but is known. The first request gets a revision with all
/// earlier events applied.
#[tokio::test]
async fn the_first_request_finds_what_was_told_while_it_slept() {
    let (registry, metrics) = registry_with_metrics();
    take(&registry, [activators(&[OWN_IP, "10.0.0.2"]), is("app"), Event::Synced].into_iter());
    let asleep = Load { in_flight: 0, queued: 0, capacity: Capacity::CLOSED };
    assert_eq!(registry.load("ns", "app"), Some(asleep));
    assert_eq!(registry.all().len(), 1);
    assert!(at_work(&registry).is_none() && !metrics().contains("app"), "{}", metrics());

    let revision = requested(&registry);
    assert!(Arc::ptr_eq(&revision, &requested(&registry)) && metrics().contains("app"));
    assert!(Arc::ptr_eq(&revision, &registry.by_host("app.ns", [127, 0, 0, 1].into()).expect("known")));
    revision.throttler.set_concurrency(1);
    let destinations = ["10.1.0.1:80", "10.1.0.2:80"].map(|address| address.parse().expect("an address"));
    revision.throttler.update(activator_core::Destinations::Pods(destinations.to_vec()));
    assert_eq!(registry.load("ns", "app").map(|load| load.capacity), Some(Capacity::Limited(1)), "half of two pods");
}

/// Goal: a terminating activator waits for the workloads that another activator can take over, whether listed beside it
/// or merely ready.
#[tokio::test]
async fn clients_are_led_here_for_now_where_another_can_take_them() {
    let registry = registry();
    let siblings = |others: &[(&str, bool)]| {
        let of = |(address, ready): &(&str, bool)| (address.parse().expect("an address"), *ready);
        Event::Siblings(discovery::Activators { all: others.iter().map(of).collect(), shows_leaving: true })
    };
    take(&registry, [is("app"), Event::Synced].into_iter());
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
    for events in [[pods(&["10.1.0.1:80"]), is("app")], [is("app"), pods(&["10.1.0.1:80"])]] {
        take(&registry, events.into_iter());
        assert!(at_work(&registry).is_some());
        take(&registry, [Event::Deleted(key()), pods(&[])].into_iter());
        assert!(registry.by_key.is_empty(), "nothing is kept of what is gone");
    }
}

/// Goal: the names of further Services lead to their workload, unless one is the main Service of another workload.
#[tokio::test]
async fn further_services_names_lead_to_their_workload() {
    let registry = registry();
    let spec = |name: &str, also: &[&str]| {
        let also = also.iter().map(|name| Box::from(*name)).collect();
        Event::Revision(Arc::new(Spec { also, ..Spec::standalone("ns", name, Backend::plain(name)) }))
    };
    take(&registry, [spec("app", &["edge", "other"]), spec("other", &[]), Event::Synced].into_iter());
    let key = |name: &str| Some(RevisionKey::new("ns", name));
    for (host, name) in [("app.ns", "app"), ("edge.ns", "app"), ("edge.ns.svc", "app"), ("other.ns", "other")] {
        assert_eq!(leads(&registry, host), key(name), "{host}");
    }
    take(&registry, [spec("app", &[])].into_iter());
    assert_eq!(leads(&registry, "edge.ns"), None, "served no more");
}

/// Goal: a revision is dropped if for the whole time it was unused and had no pod, and not a check sooner.
#[tokio::test]
async fn a_revision_of_no_use_is_dropped() {
    let (registry, metrics) = registry_with_metrics();
    take(&registry, [is("app"), Event::Synced].into_iter());
    let mut now = Instant::now();
    let rest = u32::try_from(workload::REST.as_secs() / LOOK.as_secs()).expect("few");
    let first = requested(&registry);
    minutes_pass(&registry, &mut now, 3 * rest);
    assert!(Arc::ptr_eq(&first, &at_work(&registry).expect("somebody has it")));

    drop(first);
    minutes_pass(&registry, &mut now, rest);
    let second = Arc::downgrade(&requested(&registry)); // Use restarts the time.
    minutes_pass(&registry, &mut now, rest);
    assert!(at_work(&registry).is_some() && second.strong_count() == 1);
    minutes_pass(&registry, &mut now, 1);
    assert!(at_work(&registry).is_none() && second.strong_count() == 0 && !metrics().contains("app"));

    drop(requested(&registry));
    take(&registry, [pods(&["10.1.0.1:80"])].into_iter());
    minutes_pass(&registry, &mut now, 3 * rest);
    assert!(at_work(&registry).is_some(), "a pod is probed");
    take(&registry, [pods(&[])].into_iter());
    minutes_pass(&registry, &mut now, rest + 1);
    assert!(at_work(&registry).is_none());

    let entered = requested(&registry).stats.enter();
    minutes_pass(&registry, &mut now, 3 * rest);
    assert_eq!(at_work(&registry).expect("it has something to report").stats.concurrency(), 1);
    drop(entered);
}

/// Goal: a request that is held when its workload is deleted is refused. Later requests find nothing, not even a
/// dropped revision.
#[tokio::test]
async fn what_is_deleted_does_no_work() {
    let registry = registry();
    take(&registry, [is("app"), Event::Synced].into_iter());
    let workload = registry.workload("ns", "app").expect("known");
    let held = requested(&registry).throttler.acquire();
    take(&registry, [Event::Deleted(key())].into_iter());
    assert!(held.await.is_err(), "it is gone");
    assert!(workload.at_work(&registry.parts, |_| true).is_none(), "found before, asked for later");
    assert!(registry.by_key("ns", "app").is_none() && registry.load("ns", "app").is_none());
}

/// Goal: while revisions are dropped all the time, requests never meet two revisions at once. Method: a thread with a
/// revision asks again, and must get the same one.
#[tokio::test]
async fn there_are_never_two_revisions_at_once() {
    let registry = registry();
    take(&registry, [is("app"), Event::Synced].into_iter());
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
            now += workload::REST;
            registry.by_key.iter().for_each(|workload| workload.rest(now));
        }
    });
}

/// Bytes that the registry keeps for a sleeping workload, including the ledger line of its number.
const ASLEEP_BYTES: i64 = 1000;

/// Goal: a sleeping workload costs only the known data, also after it was active. Method: the bytes allocated for many,
/// including the shared events.
#[tokio::test]
async fn a_workload_that_sleeps_costs_little() {
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
