//! Several elections against one store, in steps of 50 ms. Tests may lose responses and delay watches.

use super::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const STEP: Duration = Duration::from_millis(50);
const TIMING: Timing = Timing::STANDALONE;

#[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
pub(crate) fn origin() -> Instant {
    Instant::now()
}

struct Cluster {
    now: Instant,
    store: Vec<Option<Record>>,
    version: u64,
    nodes: Vec<Node>,
    rng: StdRng,
    /// Share of writes whose response is lost, before or after they take effect.
    loss: f64,
    /// Share of steps in which a node observes no changes.
    lag: f64,
}

struct Node {
    name: String,
    election: Election,
    /// Cleared for a crashed or disconnected node, which does nothing.
    alive: bool,
}

impl Cluster {
    fn new(leases: usize, nodes: usize, seed: u64) -> Self {
        let mut cluster = Self {
            now: origin(),
            store: vec![None; leases],
            version: 0,
            nodes: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
            loss: 0.0,
            lag: 0.0,
        };
        for node in 0..nodes {
            cluster.join(&format!("as-{node}_10.0.0.{node}"));
        }
        cluster
    }

    fn join(&mut self, name: &str) {
        let election = Election::new(name.to_owned(), self.store.len(), TIMING, true, self.now);
        self.nodes.push(Node { name: name.to_owned(), election, alive: true });
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        for node in 0..self.nodes.len() {
            if self.nodes[node].alive {
                for (lease, op) in self.nodes[node].election.due(self.now) {
                    self.perform(node, lease, &op);
                }
                self.deliver(node);
            }
        }
        for lease in 0..self.store.len() {
            let holders: Vec<_> = self.holders(lease);
            assert!(holders.len() <= 1, "lease {lease} is held by {holders:?}");
        }
    }

    /// Returns the nodes that regard themselves as holders. Crashed nodes count, because their last write may be in
    /// flight.
    fn holders(&self, lease: usize) -> Vec<&str> {
        let holds = |node: &&Node| node.election.held_until(lease).is_some_and(|until| self.now < until);
        self.nodes.iter().filter(holds).map(|node| node.name.as_str()).collect()
    }

    fn deliver(&mut self, node: usize) {
        if self.lag > 0.0 && self.rng.random_bool(self.lag) {
            return;
        }
        for lease in 0..self.store.len() {
            let record = self.store[lease].clone();
            self.nodes[node].election.observe(lease, record, self.now, &mut self.rng);
        }
    }

    fn perform(&mut self, node: usize, lease: usize, op: &Op) {
        if self.loss > 0.0 && self.rng.random_bool(self.loss) {
            if self.rng.random_bool(0.5) {
                self.apply(node, lease, op);
            }
            return self.nodes[node].election.failed(lease, self.now);
        }
        let answer = self.apply(node, lease, op);
        let election = &mut self.nodes[node].election;
        match (op, answer) {
            (Op::Claim, _) => election.done(lease),
            (Op::Read, _) => {
                let record = self.store[lease].clone();
                election.read(lease, record, self.now, &mut self.rng);
            }
            (_, true) => {
                let record = self.store[lease].clone().expect("just written");
                election.written(lease, record, self.now, self.now, &mut self.rng);
            }
            (_, false) => election.conflict(lease),
        }
    }

    /// Applies a write and returns true if the store accepted it.
    fn apply(&mut self, node: usize, lease: usize, op: &Op) -> bool {
        self.version += 1;
        let me = self.nodes[node].name.clone();
        let slot = &mut self.store[lease];
        let fresh = |holder: String| Record {
            duration: if holder.is_empty() { Duration::from_secs(1) } else { TIMING.lease_duration },
            holder,
            renewal: self.version.to_string(),
            claim: None,
            version: self.version.to_string(),
        };
        match (op, slot.as_mut()) {
            (Op::Create, None) => *slot = Some(fresh(me)),
            (Op::Write { version, holder, .. }, Some(old)) if *version == old.version => *old = fresh(holder.clone()),
            (Op::Claim, Some(record)) => {
                record.claim = Some(me);
                record.version = self.version.to_string();
            }
            (Op::Read, _) => {}
            _ => return false,
        }
        true
    }

    fn leave(&mut self, node: usize) {
        for (lease, op) in self.nodes[node].election.release(self.now) {
            self.apply(node, lease, &op);
        }
        self.nodes[node].alive = false;
    }

    fn shares(&self) -> Vec<usize> {
        let share = |node: &Node| {
            let held = |lease: &usize| node.alive && node.election.held_until(*lease).is_some();
            (0..self.store.len()).filter(held).count()
        };
        self.nodes.iter().map(share).collect()
    }

    /// Returns the time until every lease is held again.
    fn time_to_recover(&mut self, patience: Duration) -> Duration {
        let start = self.now;
        while self.shares().iter().sum::<usize>() < self.store.len() {
            self.step();
            assert!(self.now - start <= patience, "not recovered within {patience:?}: {:?}", self.shares());
        }
        self.now - start
    }
}

/// Goal: a single process takes all leases within a second and keeps them.
#[test]
fn one_process_takes_all_leases() {
    let mut cluster = Cluster::new(4, 1, 1);
    assert!(cluster.time_to_recover(Duration::from_secs(1)) <= Duration::from_secs(1));
    for _ in 0..600 {
        cluster.step();
        assert_eq!(cluster.shares(), [4]);
    }
}

/// Goal: shares end up at most one apart, whatever the order of arrival, and stay so.
#[test]
fn shares_become_fair() {
    for (nodes, mut expected) in [(2, vec![2, 2]), (3, vec![1, 1, 2]), (4, vec![1, 1, 1, 1]), (5, vec![0, 1, 1, 1, 1])]
    {
        let mut cluster = Cluster::new(4, 1, nodes);
        cluster.run(Duration::from_secs(5));
        for late in 1..nodes {
            cluster.join(&format!("late-{late}_10.0.1.{late}"));
        }
        cluster.run(Duration::from_secs(30));
        let mut shares = cluster.shares();
        shares.sort_unstable();
        expected.sort_unstable();
        assert_eq!(shares, expected, "{nodes} processes");
        let before = cluster.shares();
        cluster.run(Duration::from_secs(120));
        assert_eq!(cluster.shares(), before, "fair shares do not change");
    }
}

/// Goal: an orderly exit leaves no lease without a holder for longer than 2 s. A crash is taken over within the lease
/// duration plus 2 s, and never before the duration has passed since the last renewal. At each step the cluster checks
/// that no lease has two holders.
#[test]
fn an_exit_is_taken_over_at_once_and_a_crash_after_the_lease_duration() {
    for seed in 0..20 {
        let settled = || {
            let mut cluster = Cluster::new(4, 2, seed);
            cluster.run(Duration::from_secs(20));
            cluster
        };
        let (mut exited, mut crashed) = (settled(), settled());
        exited.leave(0);
        exited.time_to_recover(Duration::from_secs(2));
        crashed.nodes[0].alive = false;
        let took = crashed.time_to_recover(TIMING.lease_duration + Duration::from_secs(2));
        assert!(took + TIMING.retry_period >= TIMING.lease_duration, "taken over after {took:?}");
    }
}

/// Goal: a holder that cannot reach the API server steps down at the renew deadline, before others may take over.
#[test]
fn a_holder_that_cannot_renew_steps_down() {
    let mut cluster = Cluster::new(1, 1, 1);
    cluster.run(Duration::from_secs(5));
    let until = cluster.nodes[0].election.held_until(0).expect("held");
    cluster.loss = 1.0;
    cluster.lag = 1.0;
    cluster.run(TIMING.renew_deadline + Duration::from_secs(1));
    assert_eq!(cluster.shares(), [0]);
    assert!(cluster.now < until, "it stepped down before its lease ended");
}

/// Goal: no lease ever has two holders, whatever is lost or late, and once the network heals the shares are fair.
/// Method: seeded runs with lost responses, late watches, crashes and restarts; the check is in `step`.
#[test]
fn no_lease_has_two_holders_whatever_is_lost() {
    for seed in 0..40 {
        let mut cluster = Cluster::new(3, 3, seed);
        (cluster.loss, cluster.lag) = (0.2, 0.5);
        for _ in 0..6 {
            cluster.run(Duration::from_secs(10));
            let node = cluster.rng.random_range(0..3);
            cluster.nodes[node].alive ^= true;
        }
        (cluster.loss, cluster.lag) = (0.0, 0.0);
        for node in &mut cluster.nodes {
            node.alive = true;
        }
        cluster.run(Duration::from_secs(60));
        assert_eq!(cluster.shares(), [1, 1, 1], "seed {seed}");
    }
}

/// Goal: a restarted process holds the leases in its name at once. While writes of its earlier run may be in flight it
/// gives none of them away, neither to an entitled claimant nor when it exits.
#[test]
fn leases_of_an_earlier_run_are_not_given_away_too_soon() {
    let mut cluster = Cluster::new(4, 1, 7);
    cluster.run(Duration::from_secs(10));
    let (name, now) = (cluster.nodes[0].name.clone(), cluster.now);
    cluster.nodes[0].election = Election::new(name.clone(), 4, TIMING, true, now);
    cluster.join("as-1_10.0.0.1");
    let held_by = |cluster: &Cluster, node: usize| {
        (0..4).filter(|lease| cluster.nodes[node].election.held_until(*lease).is_some()).count()
    };
    cluster.run(STEP * 3);
    assert_eq!(held_by(&cluster, 0), 4, "it holds the leases in its name");
    cluster.run(TIMING.lease_duration - Duration::from_secs(1) - STEP * 3);
    assert_eq!((held_by(&cluster, 0), held_by(&cluster, 1)), (4, 0));

    let mut leaver = Election::new(name, 4, TIMING, true, cluster.now);
    for lease in 0..4 {
        let record = cluster.store[lease].clone().expect("there is one");
        leaver.written(lease, record, cluster.now, cluster.now, &mut cluster.rng);
    }
    assert_eq!(leaver.release(cluster.now + TIMING.lease_duration - STEP), [], "they are left to expire");

    cluster.run(Duration::from_secs(5));
    assert_eq!((held_by(&cluster, 0), held_by(&cluster, 1)), (2, 2), "then shares are fair");
}

/// Goal: a fraction that the Lease cannot store is dropped, and a long lease is respected in full by processes that
/// rely on the holder and by those that wait for it.
#[test]
fn holder_and_observers_apply_the_same_duration() {
    let (now, mut rng) = (origin(), StdRng::seed_from_u64(1));
    let record = |holder: &str, millis: u64| Record {
        holder: holder.into(),
        duration: Duration::from_millis(millis),
        renewal: "1".into(),
        claim: None,
        version: "1".into(),
    };
    let timing = Timing { lease_duration: Duration::from_millis(15_900), ..TIMING };
    let mut holder = Election::new("a".into(), 1, timing, false, now);
    holder.written(0, record("a", 15_000), now, now, &mut rng);
    assert_eq!(holder.held_until(0), Some(now + Duration::from_secs(15)));

    for (millis, seconds) in [(0, 1), (15_000, 15), (600_000, 600), (1_200_000, 1200), (7_200_000, 7200)] {
        let mut observer = Election::new("b".into(), 1, TIMING, false, now);
        observer.observe(0, Some(record("a", millis)), now, &mut rng);
        let end = now + Duration::from_secs(seconds);
        assert_eq!(observer.believed_until(0), Some(end), "{millis} ms");
        assert_eq!(observer.due(end - STEP), [], "{millis} ms: it is still held");
        assert_eq!(observer.due(end + STAGGER_MAX + STAGGER_JITTER).len(), 1, "{millis} ms: it is free");

        let mut restarted = Election::new("a".into(), 1, TIMING, true, now);
        restarted.observe(0, Some(record("a", millis)), now, &mut rng);
        restarted.written(0, record("a", millis), now, now, &mut rng);
        assert_eq!(restarted.release(end - STEP), [], "{millis} ms: a write of its earlier run may be in flight");
    }
}
