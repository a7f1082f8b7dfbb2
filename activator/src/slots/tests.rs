//! Revisions that come and go.

use super::*;
use activator_core::throttler::ContainerConcurrency;
use activator_core::{Destination, Destinations};
use std::time::Duration;

/// An activator at 127.0.0.1 that has one other in its list, at 127.0.0.9, where nobody listens.
pub(super) fn beside_another() -> Slots {
    let slots = Slots::start(Parts {
        address: IpAddr::from([127, 0, 0, 1]),
        pools: Pools::start((1, 1), None, CancellationToken::new()),
        runtime: Handle::current(),
        ask_api: None,
        security: Security::default(),
        shutdown: CancellationToken::new(),
    });
    let all = [1, 9].map(|last| (SocketAddr::from(([127, 0, 0, last], 1)), true)).to_vec();
    slots.set_activators(&Activators { all, shows_leaving: true });
    slots
}

/// A revision's, with a limit and a pod.
pub(super) fn throttler() -> Throttler {
    let throttler = Throttler::new(ContainerConcurrency::from_number(1), 10);
    throttler.update(Destinations::Pods(vec![Destination::from(SocketAddr::from(([10, 0, 0, 1], 8012)))]));
    throttler
}

/// Goal: a revision that is made anew under its name shares, and the former one's end does not end that.
#[tokio::test]
async fn a_revision_that_is_made_anew_shares() {
    let (slots, key) = (beside_another(), RevisionKey::new("ns", "app"));
    assert_eq!(slots.standing(), Standing::Undecided, "pools are used");
    let (former, new) = (throttler(), throttler());
    slots.enter(&key, &former, true);
    slots.enter(&key, &former, false);
    assert!(former.is_shared());
    slots.enter(&key, &new, true);
    assert_eq!((former.is_shared(), new.is_shared()), (false, true));
    slots.exit(&key, &former);
    assert!(new.is_shared());
    slots.exit(&key, &new);
    assert!(!new.is_shared());
}

/// Goal: one that is deleted gives its slots back to whom they belong as its requests end: until the last of them it goes on
/// sharing, and nobody finds it any more.
#[tokio::test]
async fn what_a_deleted_revision_runs_gives_its_slots_back() {
    let (slots, key, former) = (beside_another(), RevisionKey::new("ns", "app"), throttler());
    let permit = former.acquire().await.expect("a place").pick(&mut rand::rng()).expect("a pod");
    slots.enter(&key, &former, false);
    let in_use = || former.shared_pods().iter().map(|(_, pod)| pod.in_use).sum::<u32>();
    assert_eq!(in_use(), 1, "{:?}", former.shared_pods());
    slots.delete(&key, &former);
    assert!(former.is_shared() && slots.shared.revision(&key).is_none());
    drop(permit.abandon_pod());
    let over = async {
        while former.is_shared() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), over).await.expect("its last request has ended");
}
