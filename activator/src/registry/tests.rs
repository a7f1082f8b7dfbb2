//! The registry, told of workloads by hand.

use super::*;
use common::backend::Backend;
use common::time::Timestamp;
use common_runtime::telemetry;
use tokio_util::sync::CancellationToken;

/// One that knows nothing yet.
fn registry() -> Arc<Registry> {
    let start = Instant::now();
    Registry::new(Parts {
        clock: Arc::new(move || Timestamp::default() + start.elapsed()),
        metrics: Metrics::new(&telemetry::Metrics::default()),
        held: HeldBytes::new(None),
        pools: Pools::start((1, 1), None, CancellationToken::new()),
        readiness: Arc::new(Readiness::new(start)),
        own_ip: "10.0.0.1".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        ports: None,
    })
}

fn is(name: &str) -> Event {
    Event::Revision(Box::new(Spec::standalone("ns", Backend::plain(name))))
}

fn leads(registry: &Registry, host: &str) -> Option<RevisionKey> {
    registry.by_host(host, [127, 0, 0, 1].into()).map(|revision| revision.key.clone())
}

/// Goal: however many batches the workloads of a start come in, hosts are looked up in one table, made once. Method: the
/// table is another one whenever it was made anew.
#[tokio::test]
async fn the_table_of_hosts_is_made_once_at_the_start_and_then_once_for_a_burst() {
    let registry = registry();
    let mut rebuilds = 0;
    let mut take = |events: &mut dyn Iterator<Item = Event>| {
        let before = registry.hosts.load_full();
        registry.take(events);
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
