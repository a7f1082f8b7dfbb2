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
    holders.set_activators(&Activators { all, shows_leaving: true });
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
async fn a_workload_that_is_made_anew_is_held() {
    let (holders, key) = (beside_another(), RevisionKey::new("ns", "app"));
    assert_eq!(holders.sharing_mode(), SharingMode::Undecided);
    let (former, new) = (throttler(), throttler());
    let places = |throttler: &Arc<Throttler>| throttler.load().capacity;
    let link = holders.enter(&key, &former, true);
    assert_eq!((places(&former), link.sharing().is_some()), (Capacity::CLOSED, true));
    let next = holders.enter(&key, &new, true);
    assert_eq!((places(&former), places(&new)), (Capacity::Limited(1), Capacity::CLOSED));
    holders.exit(&link);
    assert_eq!((places(&new), holders.link(&key).is_some()), (Capacity::CLOSED, true));
    holders.exit(&next);
    assert_eq!((places(&new), holders.link(&key).is_some()), (Capacity::Limited(1), false));
}

/// Goal: activators of any version agree on which of two dials the other: addresses are compared as text.
#[test]
fn the_lower_address_is_the_lower_text() {
    let [nine, ten] = [9, 10].map(|last| Peer::from([10, 1, 0, last]));
    assert!(membership::is_lower(&ten, &nine) && !membership::is_lower(&nine, &ten));
}
