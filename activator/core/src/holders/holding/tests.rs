//! Tests of short histories of two activators. The simulator covers longer ones.

use std::sync::Mutex;

use super::*;
use crate::testing::origin;

/// Throttler that records the last call, and reports a set of running requests.
#[derive(Debug, Default)]
struct RecordingPods(Mutex<(Shards, Running, Running)>);

impl Pods for RecordingPods {
    fn hold(&self, shards: Shards, taken: &Running) {
        let mut pods = self.0.lock().expect("nobody panics");
        (pods.0, pods.1) = (shards, taken.clone());
    }

    fn running(&self, _: Shards) -> Running {
        self.0.lock().expect("nobody panics").2.clone()
    }
}

fn pod(n: u16) -> Destination {
    let [high, low] = n.to_be_bytes();
    std::net::SocketAddr::from(([10, 0, high, low], 8012)).into()
}

struct Pair {
    now: Instant,
    names: [Peer; 2],
    all: [(Holding, Peers, RecordingPods); 2],
}

impl Pair {
    /// Creates two activators with a session that have listed each other for this time. The list assigns all shards to
    /// the first one.
    fn new(listed_for: Duration) -> Self {
        let now = origin() + Duration::from_secs(3600);
        let mut names = [1, 2].map(|n| Peer::from([10, 1, 0, n]));
        names.sort_by_cached_key(|peer| std::cmp::Reverse(shards::score("ns/app", peer)));
        let one = |n: usize| {
            let mut peers = Peers::new(now - listed_for);
            peers.connected(&names[1 - n], now);
            let begun = now - Duration::from_secs(60);
            let mut holding = Holding::new(names[n], "ns/app", 0, Some(begun), now);
            let pods = RecordingPods::default();
            let members = Input::Members(names.into_iter().collect());
            holding.handle(members, &peers, &pods, now - listed_for);
            (holding, peers, pods)
        };
        let mut pair = Self { now, all: [one(0), one(1)], names };
        let [first, second] = pair.names;
        pair.deliver(0, Input::Connected(second));
        pair.deliver(1, Input::Connected(first));
        pair
    }

    fn deliver(&mut self, at: usize, input: Input) {
        let mut inputs = vec![(at, input)];
        while let Some((at, input)) = inputs.pop() {
            let (holding, peers, pods) = &mut self.all[at];
            for output in holding.handle(input, peers, pods, self.now) {
                if let Output::Send { to, message } = output {
                    let to = usize::from(to == self.names[1]);
                    inputs.push((to, Input::Received { from: self.names[at], message }));
                }
            }
        }
    }

    fn held(&self) -> [Shards; 2] {
        [0, 1].map(|at| self.all[at].2.0.lock().expect("nobody panics").0)
    }
}

/// Goal: on a scale from zero, the activator that all lists name holds the workload at once and the other one relays to
/// it. It also begins at once if the two are not in touch.
#[test]
fn on_a_scale_from_zero_the_listed_holder_begins_at_once() {
    for in_touch in [true, false] {
        let mut pair = Pair::new(DEAD_AFTER);
        let [first, second] = pair.names;
        let route = Route { siblings: vec![(first, 1)], own: 0 };
        assert_eq!(pair.all[1].0.route(), route, "before there are pods");
        if !in_touch {
            pair.deliver(0, Input::Disconnected(second));
            pair.deliver(1, Input::Disconnected(first));
        }
        for at in [1, 0] {
            pair.deliver(at, Input::Pods([pod(1)].into(), 1));
        }
        assert_eq!(pair.held(), [Shards::ALL, Shards::NONE], "{in_touch}");
        assert_eq!(pair.all[0].0.route(), Route::default());
        assert_eq!(pair.all[1].0.route(), if in_touch { route } else { Route::default() });
    }
}

/// Goal: requests that one activator still runs take slots of the other's pods until they have ended.
#[test]
fn running_requests_of_a_sibling_take_slots_until_they_end() {
    let mut pair = Pair::new(DEAD_AFTER);
    let first = pair.names[0];
    pair.all[1].2.0.lock().expect("nobody panics").2 = Running::from([(pod(1), 3)]);
    for at in [0, 1] {
        pair.deliver(at, Input::Pods([pod(1)].into(), 5));
    }
    let taken = |pair: &Pair| pair.all[0].2.0.lock().expect("nobody panics").1.clone();
    assert_eq!((pair.held(), taken(&pair)), ([Shards::ALL, Shards::NONE], Running::from([(pod(1), 3)])));
    pair.all[1].2.0.lock().expect("nobody panics").2 = Running::from([(pod(1), 1)]);
    pair.deliver(1, Input::Ended);
    assert_eq!(taken(&pair), Running::from([(pod(1), 1)]));
    pair.deliver(1, Input::Disconnected(first));
    pair.deliver(0, Input::Disconnected(pair.names[1]));
    assert_eq!(taken(&pair), Running::from([(pod(1), 1)]), "a lost session ends no request");
    pair.now += DEAD_AFTER;
    pair.deliver(0, Input::Members([first].into()));
    pair.now += DEAD_AFTER;
    pair.deliver(0, Input::Tick);
    assert_eq!(taken(&pair), Running::new(), "an activator that left the list and is silent has stopped");
}

/// Goal: pods that need two holders are divided evenly after a second, and later all shards return to one holder.
#[test]
fn many_pods_are_divided() {
    let mut pair = Pair::new(DEAD_AFTER);
    for count in [1, 600] {
        for at in [0, 1] {
            pair.deliver(at, Input::Pods((0..count).map(pod).collect(), 1));
        }
        assert_eq!(pair.held(), [Shards::ALL, Shards::NONE], "{count}");
    }
    pair.now += DEAD_AFTER;
    [1, 0].iter().for_each(|at| pair.deliver(*at, Input::Tick));
    let [first, second] = pair.held();
    assert_eq!((first.union(second), first.intersects(second)), (Shards::ALL, false));
    assert_eq!(second, pair.all[1].0.own_shards());
    let Route { own, siblings } = pair.all[0].0.route();
    assert!((250..350).contains(&own) && own + siblings[0].1 == 600, "{own} {siblings:?}");
    for at in [0, 1] {
        pair.deliver(at, Input::Pods([pod(1)].into(), 1));
    }
    pair.now += RETRY_AFTER;
    pair.deliver(0, Input::Tick);
    assert_eq!(pair.held(), [Shards::ALL, Shards::NONE]);
}
