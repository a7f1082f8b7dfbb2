//! Tests of short histories of two activators. The simulator covers longer ones.

use std::sync::Mutex;

use super::*;

#[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
fn origin() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Throttler that records the last call, and reports a set of running requests.
#[derive(Debug, Default)]
struct RecordingPods(Mutex<(Lots, Running, Running)>);

impl Pods for RecordingPods {
    fn hold(&self, lots: Lots, taken: &Running) {
        let mut pods = self.0.lock().expect("nobody panics");
        (pods.0, pods.1) = (lots, taken.clone());
    }

    fn running(&self, _: Lots) -> Running {
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
    /// Creates two activators with a session that have listed each other for this time. The list assigns all lots to
    /// the first one.
    fn new(listed_for: Duration) -> Self {
        let now = origin();
        let mut names = [1, 2].map(|n| Peer::from([10, 1, 0, n]));
        names.sort_by_cached_key(|peer| std::cmp::Reverse(lots::score("ns/app", peer)));
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
        pair.tell(0, Input::Connected(second));
        pair.tell(1, Input::Connected(first));
        pair
    }

    fn tell(&mut self, at: usize, input: Input) {
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

    fn held(&self) -> [Lots; 2] {
        [0, 1].map(|at| self.all[at].2.0.lock().expect("nobody panics").0)
    }
}

/// Goal: on a scale from zero, the activator that all lists name holds the workload at once and the other one relays to
/// it. It also begins at once if the two are not in touch.
#[test]
fn a_wake_does_not_wait() {
    for in_touch in [true, false] {
        let mut pair = Pair::new(DEAD_AFTER);
        let [first, second] = pair.names;
        let route = Route { siblings: vec![(first, 1)], own: 0 };
        assert_eq!(pair.all[1].0.route(), route, "before there is a pod");
        if !in_touch {
            pair.tell(0, Input::Disconnected(second));
            pair.tell(1, Input::Disconnected(first));
        }
        for at in [1, 0] {
            pair.tell(at, Input::Pods([pod(1)].into(), 1));
        }
        assert_eq!(pair.held(), [Lots::ALL, Lots::NONE], "{in_touch}");
        assert_eq!(pair.all[0].0.route(), Route::default());
        assert_eq!(pair.all[1].0.route(), if in_touch { route } else { Route::default() });
    }
}

/// Goal: requests that one activator still runs take slots of the other's pods until they have ended.
#[test]
fn what_still_runs_is_taken() {
    let mut pair = Pair::new(DEAD_AFTER);
    let first = pair.names[0];
    pair.all[1].2.0.lock().expect("nobody panics").2 = Running::from([(pod(1), 3)]);
    for at in [0, 1] {
        pair.tell(at, Input::Pods([pod(1)].into(), 5));
    }
    let taken = |pair: &Pair| pair.all[0].2.0.lock().expect("nobody panics").1.clone();
    assert_eq!((pair.held(), taken(&pair)), ([Lots::ALL, Lots::NONE], Running::from([(pod(1), 3)])));
    pair.all[1].2.0.lock().expect("nobody panics").2 = Running::from([(pod(1), 1)]);
    pair.tell(1, Input::Ended);
    assert_eq!(taken(&pair), Running::from([(pod(1), 1)]));
    pair.tell(1, Input::Disconnected(first));
    pair.tell(0, Input::Disconnected(pair.names[1]));
    assert_eq!(taken(&pair), Running::from([(pod(1), 1)]), "silence ends nothing");
    pair.now += DEAD_AFTER;
    pair.tell(0, Input::Members([first].into()));
    pair.now += DEAD_AFTER;
    pair.tell(0, Input::Tick);
    assert_eq!(taken(&pair), Running::new(), "who has left and is silent has stopped");
}

/// Goal: pods that need two holders are divided evenly after a second, and later all lots return to one holder.
#[test]
fn many_pods_are_divided() {
    let mut pair = Pair::new(DEAD_AFTER);
    for count in [1, 600] {
        for at in [0, 1] {
            pair.tell(at, Input::Pods((0..count).map(pod).collect(), 1));
        }
        assert_eq!(pair.held(), [Lots::ALL, Lots::NONE], "{count}");
    }
    pair.now += DEAD_AFTER;
    [1, 0].iter().for_each(|at| pair.tell(*at, Input::Tick));
    let [first, second] = pair.held();
    assert_eq!((first.union(second), first.intersects(second), second), (Lots::ALL, false, pair.all[1].0.mine()));
    let Route { own, siblings } = pair.all[0].0.route();
    assert!((250..350).contains(&own) && own + siblings[0].1 == 600, "{own} {siblings:?}");
    for at in [0, 1] {
        pair.tell(at, Input::Pods([pod(1)].into(), 1));
    }
    pair.now += RETRY_AFTER;
    pair.tell(0, Input::Tick);
    assert_eq!(pair.held(), [Lots::ALL, Lots::NONE]);
}
