//! Tests of workloads that start and end.

use super::*;
use activator_core::breaker::Capacity;
use activator_core::{Destination, Destinations};
use std::net::SocketAddr;

/// Returns an activator at 127.0.0.1 with one listed sibling at 127.0.0.9 that does not listen.
pub(super) fn beside_another() -> Arc<Holders> {
    let holders = Holders::start(Parts {
        address: IpAddr::from([127, 0, 0, 1]),
        port: 1,
        pools: Pools::start((1, 1), None, CancellationToken::new()),
        runtime: Handle::current(),
        ask_api: None,
        security: Security::default(),
        shutdown: CancellationToken::new(),
    });
    let all = [1, 9].map(|last| (SocketAddr::from(([127, 0, 0, last], 1)), true)).to_vec();
    holders.set_activators(&Activators { all, includes_terminating: true });
    holders
}

/// Returns the throttler of a workload with a limit and a pod.
pub(super) fn throttler() -> Arc<Throttler> {
    let throttler = Throttler::new(1, 10);
    throttler.update(Destinations::Pods(vec![Destination::from(SocketAddr::from(([10, 0, 0, 1], 8012)))]));
    throttler
}

/// Goal: an undecided activator gives no slots. A workload that is created again under its name is shared while the
/// former one is not, and the end of the former one does not affect it.
#[tokio::test]
async fn a_recreated_workload_is_shared_instead_of_the_former() {
    let (holders, key) = (beside_another(), RevisionKey::new("ns", "app"));
    assert_eq!(holders.sharing_mode(), SharingMode::Undecided);
    let (former, new) = (throttler(), throttler());
    let capacity = |throttler: &Arc<Throttler>| throttler.load().capacity;
    let link = holders.enter(&key, &former, true);
    assert_eq!((capacity(&former), link.sharing().is_some()), (Capacity::CLOSED, true));
    let next = holders.enter(&key, &new, true);
    assert_eq!((capacity(&former), capacity(&new)), (Capacity::Limited(1), Capacity::CLOSED));
    holders.exit(&link);
    assert_eq!((capacity(&new), holders.link(&key).is_some()), (Capacity::CLOSED, true));
    holders.exit(&next);
    assert_eq!((capacity(&new), holders.link(&key).is_some()), (Capacity::Limited(1), false));
}

/// Goal: activators of any version agree on which of two dials the other.
#[test]
fn addresses_are_compared_as_text() {
    let [nine, ten] = [9, 10].map(|last| Peer::from([10, 1, 0, last]));
    assert!(membership::is_lower(&ten, &nine) && !membership::is_lower(&nine, &ten));
}
