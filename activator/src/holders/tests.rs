//! Workloads that come and go.

use super::*;
use activator_core::breaker::Capacity;
use activator_core::throttler::ContainerConcurrency;
use activator_core::{Destination, Destinations};

/// An activator at 127.0.0.1 that has one other in its list, at 127.0.0.9, where nobody listens.
pub(super) fn beside_another() -> Holders {
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

/// A workload's, with a limit and a pod.
pub(super) fn throttler() -> Throttler {
    let throttler = Throttler::new(ContainerConcurrency::from_number(1), 10);
    throttler.update(Destinations::Pods(vec![Destination::from(SocketAddr::from(([10, 0, 0, 1], 8012)))]));
    throttler
}

/// Goal: while nothing is decided nobody has a slot; a workload that is made anew under its name is held, the former one not,
/// and the former one's end does not end that.
#[tokio::test]
async fn a_workload_that_is_made_anew_is_held() {
    let (holders, key) = (beside_another(), RevisionKey::new("ns", "app"));
    assert_eq!(holders.standing(), Standing::Undecided);
    let (former, new) = (throttler(), throttler());
    let places = |throttler: &Throttler| throttler.load().capacity;
    let link = holders.enter(&key, &former, true);
    assert_eq!((places(&former), link.shown().is_some()), (Capacity::CLOSED, true));
    let next = holders.enter(&key, &new, true);
    assert_eq!((places(&former), places(&new)), (Capacity::Limited(1), Capacity::CLOSED));
    holders.exit(&link);
    assert_eq!((places(&new), holders.shared.link(&key).is_some()), (Capacity::CLOSED, true));
    holders.exit(&next);
    assert_eq!((places(&new), holders.shared.link(&key).is_some()), (Capacity::Limited(1), false));
}
