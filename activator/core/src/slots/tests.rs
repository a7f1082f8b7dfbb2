//! Pools that talk to each other, step by step and in every order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::destination::Destination;

/// Pools with a session between each two, a clock, and pods that count what they run.
struct Cluster {
    now: Instant,
    limit: usize,
    names: Vec<Peer>,
    pools: Vec<Pool>,
    peers: Vec<Peers>,
    open: BTreeSet<(usize, usize)>,
    wires: BTreeMap<(usize, usize), VecDeque<Message>>,
    /// Where each request runs, and at whose it came.
    running: BTreeMap<Request, (usize, Destination)>,
    cut: Vec<Request>,
    requests: u64,
    /// Whose pool has not begun yet, and the claims that were answered for it.
    asleep: BTreeMap<usize, Vec<(usize, Message)>>,
}

#[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
fn origin() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn pod(n: u8) -> Destination {
    std::net::SocketAddr::from(([10, 0, 0, n], 8012)).into()
}

fn pods(n: u8) -> BTreeMap<Destination, bool> {
    (1..=n).map(|n| (pod(n), true)).collect()
}

impl Cluster {
    /// Nobody knows of anybody yet.
    fn new(n: usize, limit: u32) -> Self {
        let now = origin();
        let names: Vec<Peer> = (1..=n).map(|n| Peer::from(format!("10.1.0.{n}").as_str())).collect();
        let limit = NonZeroU32::new(limit).expect("a limit");
        Self {
            now,
            limit: limit.get() as usize,
            pools: names.iter().map(|name| Pool::new(name.clone(), limit, 0, now - Duration::from_secs(30))).collect(),
            peers: vec![Peers::new(now); n],
            names,
            open: BTreeSet::new(),
            wires: BTreeMap::new(),
            running: BTreeMap::new(),
            cut: Vec::new(),
            requests: 0,
            asleep: BTreeMap::new(),
        }
    }

    /// All know all, and have agreed.
    fn settled(n: usize, limit: u32, pods: u8) -> Self {
        let mut cluster = Self::new(n, limit);
        cluster.connect_all();
        (0..n).for_each(|at| cluster.list(at, 0..n));
        (0..n).for_each(|at| cluster.feed(at, Input::Pods(self::pods(pods))));
        cluster.deliver_all();
        cluster.pass(DEAD_AFTER);
        cluster.pass(Duration::from_millis(20));
        cluster
    }

    fn connect_all(&mut self) {
        let n = self.names.len();
        (0..n).flat_map(|one| (one + 1..n).map(move |other| (one, other))).for_each(|(a, b)| self.connect(a, b));
    }

    fn connect(&mut self, one: usize, other: usize) {
        if self.open.insert((one.min(other), one.max(other))) {
            for (at, with) in [(one, other), (other, one)] {
                self.peers[at].connected(&self.names[with], self.now);
                self.feed(at, Input::Connected(self.names[with].clone()));
            }
        }
    }

    /// Both learn of it at once, and what was on its way is lost.
    fn disconnect(&mut self, one: usize, other: usize) {
        if self.open.remove(&(one.min(other), one.max(other))) {
            for (at, with) in [(one, other), (other, one)] {
                self.wires.remove(&(at, with));
                self.peers[at].disconnected(&self.names[with]);
                self.feed(at, Input::Disconnected(self.names[with].clone()));
            }
            for way in [(one, other), (other, one)] {
                self.wires.remove(&way);
            }
        }
    }

    fn list(&mut self, at: usize, members: impl IntoIterator<Item = usize>) {
        let members = members.into_iter().map(|index| self.names[index].clone()).collect();
        self.feed(at, Input::Members(members));
    }

    fn feed(&mut self, at: usize, input: Input) {
        let mut cut = Vec::new();
        for output in self.pools[at].handle(input, &self.peers[at], self.now) {
            match output {
                Output::Run { request, pod } => {
                    self.running.insert(request, (at, pod));
                }
                Output::Send { to, message } => {
                    let to = self.names.iter().position(|name| *name == to).expect("a known one");
                    assert!(self.open.contains(&(at.min(to), at.max(to))), "sent without a session: {message:?}");
                    self.wires.entry((at, to)).or_default().push_back(message);
                }
                Output::Cut(request) => {
                    self.running.remove(&request).expect("it ran");
                    self.cut.push(request);
                    cut.push(request);
                }
            }
        }
        cut.into_iter().for_each(|request| self.feed(at, Input::End(request)));
        self.check();
    }

    /// What must hold at any instant.
    fn check(&self) {
        let mut runs: BTreeMap<&Destination, usize> = BTreeMap::new();
        self.running.values().for_each(|(_, pod)| *runs.entry(pod).or_default() += 1);
        assert!(runs.values().all(|runs| *runs <= self.limit), "above the limit: {runs:?}");
        let held = |pool: &Pool| pool.pods().filter(|(_, pod)| pod.held).map(|(at, _)| at.clone()).collect::<Vec<_>>();
        let held: Vec<Destination> = self.pools.iter().flat_map(held).collect();
        let distinct: BTreeSet<&Destination> = held.iter().collect();
        assert_eq!(held.len(), distinct.len(), "two grant the slots of one pod: {held:?}");
    }

    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some(message) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return false };
        if let Some(claims) = self.asleep.get_mut(&to) {
            // As the process answers for a pool that has not begun.
            if let Message::Claim { pod, number } = message {
                claims.push((from, Message::Claim { pod: pod.clone(), number }));
                let confirm = Message::Confirm { pod, number, held: false, own: Vec::new() };
                self.wires.entry((to, from)).or_default().push_back(confirm);
            }
            return true;
        }
        self.feed(to, Input::Received { from: self.names[from].clone(), message });
        true
    }

    fn deliver_all(&mut self) {
        while let Some((from, to)) = self.wires.iter().find(|(_, wire)| !wire.is_empty()).map(|(way, _)| *way) {
            self.deliver(from, to);
        }
    }

    /// It has had neither request nor pod for long: its pool is no more.
    fn sleep(&mut self, at: usize) {
        assert_eq!((self.pools[at].queued(), self.pools[at].pods().count()), (0, 0), "it rests");
        self.asleep.insert(at, Vec::new());
    }

    /// Its pool begins, in a process that has known the list for long.
    fn begin(&mut self, at: usize) {
        let Some(claims) = self.asleep.remove(&at) else { return };
        let since = self.now - Duration::from_secs(30);
        let limit = NonZeroU32::new(self.limit as u32).expect("a limit");
        self.pools[at] = Pool::new(self.names[at].clone(), limit, (self.requests + 1) << 32, since);
        let members = self.names.iter().cloned().collect();
        self.pools[at].handle(Input::Members(members), &self.peers[at], since);
        self.feed(at, Input::Pods(BTreeMap::new()));
        for (one, other) in self.open.clone() {
            if one == at || other == at {
                self.feed(at, Input::Connected(self.names[one + other - at].clone()));
            }
        }
        for (from, message) in claims {
            self.feed(at, Input::Received { from: self.names[from].clone(), message });
        }
    }

    /// Time passes for all, and what is sent arrives.
    fn pass(&mut self, time: Duration) {
        self.wait(time);
        self.deliver_all();
    }

    /// Time passes for all, with beats on every session.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        for (one, other) in self.open.clone() {
            for (at, with) in [(one, other), (other, one), (one, other)] {
                let beat = self.peers[at].beat(&self.names[with], self.now);
                self.peers[with].received(&self.names[at], beat, self.now);
            }
        }
        let awake: Vec<usize> = (0..self.names.len()).filter(|at| !self.asleep.contains_key(at)).collect();
        awake.into_iter().for_each(|at| self.feed(at, Input::Tick));
    }

    fn arrive(&mut self, at: usize) -> Request {
        self.requests += 1;
        let request = Request(self.requests);
        self.feed(at, Input::Arrive { request, since: self.now });
        request
    }

    fn end(&mut self, request: Request) {
        let at = self.running.remove(&request).expect("it runs").0;
        self.feed(at, Input::End(request));
    }

    fn runs(&self, request: Request) -> Option<&Destination> {
        self.running.get(&request).map(|(_, pod)| pod)
    }

    fn holder(&self, of: &Destination) -> Option<usize> {
        let holds = |pool: &Pool| pool.pods().any(|(at, pod)| at == of && pod.held);
        self.pools.iter().position(holds)
    }

    fn state(&self, at: usize, of: &Destination) -> PodState {
        self.pools[at].pods().find(|(pod, _)| *pod == of).expect("a known pod").1
    }

    /// The one that is not the pod's holder, of two.
    fn borrower(&self) -> (usize, usize) {
        let holder = self.holder(&pod(1)).expect("somebody grants");
        (holder, 1 - holder)
    }
}

#[test]
fn each_pod_is_granted_by_the_one_that_all_lists_name() {
    let cluster = Cluster::settled(3, 1, 20);
    let members: BTreeSet<Peer> = cluster.names.iter().cloned().collect();
    for n in 1..=20 {
        let holder = cluster.holder(&pod(n)).map(|index| &cluster.names[index]);
        assert_eq!(holder, grantor(&pod(n), &members), "pod {n}");
    }
}

/// Goal: a slot is borrowed within one way there and one back, used by the borrower, and returned when the request ends.
#[test]
fn a_slot_is_borrowed_and_comes_back() {
    let mut cluster = Cluster::settled(2, 1, 1);
    let (holder, borrower) = cluster.borrower();
    let request = cluster.arrive(borrower);
    assert_eq!(cluster.runs(request), None);
    assert!(cluster.deliver(borrower, holder) && cluster.deliver(holder, borrower));
    assert_eq!(cluster.runs(request), Some(&pod(1)));
    assert_eq!(cluster.state(holder, &pod(1)).lent, 1);
    let own = cluster.arrive(holder);
    cluster.deliver_all();
    assert_eq!(cluster.runs(own), None, "the limit is one for both");
    cluster.end(request);
    cluster.deliver_all();
    assert_eq!(cluster.runs(own), Some(&pod(1)));
    assert_eq!(cluster.state(holder, &pod(1)).lent, 0);
}

/// Goal: whoever has waited longest is next, wherever it waits.
#[test]
fn slots_go_to_whoever_has_waited_longest() {
    for own_first in [true, false] {
        let mut cluster = Cluster::settled(2, 1, 1);
        let (holder, borrower) = cluster.borrower();
        let runs = cluster.arrive(holder);
        let order = if own_first { [holder, borrower] } else { [borrower, holder] };
        let waiting = order.map(|at| {
            let request = cluster.arrive(at);
            cluster.deliver_all();
            cluster.pass(Duration::from_millis(10));
            request
        });
        cluster.end(runs);
        cluster.deliver_all();
        assert!(cluster.runs(waiting[0]).is_some() && cluster.runs(waiting[1]).is_none(), "own first: {own_first}");
    }
}

#[test]
fn the_slot_that_is_idle_longest_is_used() {
    let mut cluster = Cluster::settled(1, 1, 3);
    let first: Vec<Request> = (0..3).map(|_| cluster.arrive(0)).collect();
    for nth in [1, 2, 0] {
        cluster.pass(Duration::from_millis(1));
        cluster.end(first[nth]);
    }
    let again: Vec<Request> = (0..3).map(|_| cluster.arrive(0)).collect();
    let order: Vec<_> = again.iter().map(|request| cluster.runs(*request).cloned()).collect();
    assert_eq!(order, [pod(2), pod(3), pod(1)].map(Some));
}

/// Goal: a client that leaves while its question is on its way leaves no slot behind.
#[test]
fn a_loan_that_nobody_needs_any_more_is_returned() {
    let mut cluster = Cluster::settled(2, 1, 1);
    let (holder, borrower) = cluster.borrower();
    let request = cluster.arrive(borrower);
    cluster.deliver(borrower, holder);
    cluster.feed(borrower, Input::End(request));
    cluster.deliver_all();
    assert_eq!((cluster.state(holder, &pod(1)).in_use, cluster.pools[borrower].queued()), (0, 0));
}

/// Goal: with an idle slot nowhere a request asks everybody, and takes what becomes idle first.
#[test]
fn who_finds_nothing_asks_everybody() {
    let mut cluster = Cluster::settled(3, 1, 12);
    let busy: Vec<Request> = (0..12).map(|_| cluster.arrive(0)).collect();
    cluster.deliver_all();
    assert!(busy.iter().all(|request| cluster.runs(*request).is_some()), "one takes all slots");
    let waiting = cluster.arrive(0);
    cluster.deliver_all();
    let borrowed = busy.iter().find(|request| cluster.holder(&cluster.running[*request].1) == Some(2));
    cluster.end(*borrowed.expect("one of its pods"));
    cluster.deliver_all();
    assert!(cluster.runs(waiting).is_some());
}

/// Goal: one that comes takes its pods over with what is in use there, own and lent, and lends no slot twice.
#[test]
fn a_newcomer_counts_what_runs() {
    let mut cluster = Cluster::new(3, 2);
    cluster.connect_all();
    for at in 0..3 {
        cluster.list(at, 0..2);
        cluster.feed(at, Input::Pods(pods(6)));
    }
    cluster.pass(DEAD_AFTER);
    let requests: Vec<Request> = (0..12).map(|n| cluster.arrive(n % 2)).collect();
    cluster.deliver_all();
    assert!(requests.iter().all(|request| cluster.runs(*request).is_some()));
    (0..3).for_each(|at| cluster.list(at, 0..3));
    cluster.pass(DEAD_AFTER);
    let taken = (1..=6).filter(|n| cluster.holder(&pod(*n)) == Some(2)).collect::<Vec<_>>();
    assert!(!taken.is_empty(), "some pod of six is the third's");
    for n in &taken {
        assert_eq!(cluster.state(2, &pod(*n)).in_use, 2, "pod {n}");
    }
    let waits = cluster.arrive(2);
    cluster.deliver_all();
    assert_eq!(cluster.runs(waits), None);
    requests.into_iter().for_each(|request| cluster.end(request));
    cluster.deliver_all();
    assert!(cluster.runs(waits).is_some());
    cluster.end(waits);
    cluster.deliver_all();
    let left: u32 = (0..3).flat_map(|at| cluster.pools[at].pods().map(|(_, pod)| pod.in_use).collect::<Vec<_>>()).sum();
    assert_eq!(left, 0);
}

/// Goal: a new grantor does not begin before the former one has confirmed.
/// Goal: a new grantor claims what is its own after a second, and does not begin before the former one has confirmed.
#[test]
fn a_new_grantor_waits_for_the_former() {
    let mut cluster = Cluster::settled(2, 1, 1);
    let (former, new) = cluster.borrower();
    let runs = cluster.arrive(former);
    cluster.list(new, [new]);
    let waits = cluster.arrive(new);
    cluster.pass(DEAD_AFTER - Duration::from_millis(1));
    assert_eq!(cluster.holder(&pod(1)), Some(former), "the new one is not yet sure who is gone");
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.holder(&pod(1)), Some(new));
    assert_eq!((cluster.runs(waits), cluster.state(new, &pod(1)).in_use), (None, 1));
    cluster.end(runs);
    cluster.deliver_all();
    assert_eq!(cluster.runs(waits), Some(&pod(1)), "the former one's slot came back to the new one");
}

/// Goal: what a sibling borrows from the holder after it has confirmed to the new grantor is counted by that one.
#[test]
fn who_borrowed_after_its_confirmation_is_asked_again() {
    let mut cluster = Cluster::settled(3, 2, 1);
    let holder = cluster.holder(&pod(1)).expect("somebody grants");
    let (new, borrower) = ((holder + 1) % 3, (holder + 2) % 3);
    cluster.list(new, [new]);
    cluster.wait(DEAD_AFTER);
    while cluster.deliver(new, borrower) || cluster.deliver(borrower, new) {}
    let request = cluster.arrive(borrower);
    for _ in 0..3 {
        while cluster.deliver(borrower, holder) || cluster.deliver(holder, borrower) {}
        cluster.wait(RETRY_AFTER);
    }
    assert_eq!((cluster.runs(request), cluster.holder(&pod(1))), (Some(&pod(1)), Some(holder)));
    cluster.deliver_all();
    assert_eq!((cluster.holder(&pod(1)), cluster.state(new, &pod(1)).in_use), (Some(new), 1));
    cluster.end(request);
    cluster.deliver_all();
    assert_eq!(cluster.state(new, &pod(1)).in_use, 0);
}

/// Goal: who is gone and silent is believed to have stopped a second later, not before; who is listed is waited for.
#[test]
fn a_second_after_the_former_is_gone() {
    let mut cluster = Cluster::settled(2, 1, 1);
    let (former, new) = cluster.borrower();
    cluster.arrive(former);
    cluster.disconnect(former, new);
    let waits = cluster.arrive(new);
    for _ in 0..5 {
        cluster.pass(DEAD_AFTER);
    }
    assert_eq!(cluster.runs(waits), None, "silent, and listed");
    cluster.list(new, [new]);
    cluster.feed(former, Input::Members(BTreeSet::from([cluster.names[new].clone()])));
    cluster.pass(STOP_AFTER - Duration::from_millis(1));
    assert_eq!(cluster.cut, []);
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.cut, [Request(1)], "the former one has left and is not heard: it makes room");
    cluster.pass(DEAD_AFTER - STOP_AFTER - Duration::from_millis(1));
    assert_eq!(cluster.runs(waits), None);
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.runs(waits), Some(&pod(1)));
}

/// Goal: neither leaving nor losing touch alone cuts a request.
#[test]
fn nothing_is_cut_lightly() {
    let mut cluster = Cluster::settled(2, 1, 1);
    let (former, other) = cluster.borrower();
    let request = cluster.arrive(former);
    (0..2).for_each(|at| cluster.list(at, [other]));
    (0..50).for_each(|_| cluster.pass(Duration::from_millis(100)));
    assert!(cluster.runs(request).is_some(), "it has left, and is in touch");
    (0..2).for_each(|at| cluster.list(at, [former, other]));
    cluster.pass(Duration::from_millis(100));
    cluster.disconnect(former, other);
    (0..50).for_each(|_| cluster.pass(Duration::from_millis(100)));
    assert!(cluster.runs(request).is_some(), "it is not in touch, and listed");
    assert_eq!(cluster.cut, []);
}

/// Goal: one that ends cuts what it runs, own and borrowed, and neither grants nor borrows afterwards; who is left has all pods
/// a second after it left the list.
#[test]
fn one_that_ends_stops_at_once() {
    let mut cluster = Cluster::settled(2, 1, 4);
    let running: Vec<Request> = (0..4).map(|_| cluster.arrive(0)).collect();
    cluster.deliver_all();
    assert!(running.iter().all(|request| cluster.runs(*request).is_some()), "all pods are its own or lent to it");
    let waits = cluster.arrive(0);
    cluster.feed(0, Input::Stop);
    assert_eq!(cluster.cut.iter().copied().collect::<BTreeSet<_>>(), running.into_iter().collect());
    cluster.deliver_all();
    assert!((1..=4).all(|n| cluster.holder(&pod(n)) != Some(0)));
    cluster.disconnect(0, 1);
    cluster.list(1, [1]);
    (0..10).for_each(|_| cluster.pass(Duration::from_millis(100)));
    assert!((1..=4).all(|n| cluster.holder(&pod(n)) == Some(1)));
    assert_eq!(cluster.runs(waits), None);
}

/// Goal: a dead sibling keeps old pods from being taken over while it is listed, and new ones not.
#[test]
fn new_pods_do_not_wait_for_a_silent_sibling() {
    let mut cluster = Cluster::settled(2, 1, 1);
    cluster.disconnect(0, 1);
    cluster.pass(DEAD_AFTER);
    cluster.feed(0, Input::Pods(pods(9)));
    let mine = (2..=9).filter(|n| cluster.holder(&pod(*n)) == Some(0)).count();
    let names: BTreeSet<Peer> = cluster.names.iter().cloned().collect();
    assert_eq!(mine, (2..=9).filter(|n| grantor(&pod(*n), &names) == Some(&cluster.names[0])).count());
    assert!(mine > 0);
}

/// Goal: what was lent when a session broke is found again, whether its message arrived or not.
#[test]
fn a_session_that_breaks_loses_no_slot() {
    for arrived in [true, false] {
        let mut cluster = Cluster::settled(2, 2, 1);
        let (holder, borrower) = cluster.borrower();
        let kept = cluster.arrive(borrower);
        cluster.deliver_all();
        let other = cluster.arrive(borrower);
        cluster.deliver(borrower, holder);
        if arrived {
            cluster.deliver(holder, borrower);
        }
        assert_eq!(cluster.runs(other).is_some(), arrived);
        cluster.disconnect(holder, borrower);
        if arrived {
            cluster.end(other);
        }
        assert_eq!(cluster.state(holder, &pod(1)).in_use, 2, "nothing is known of it");
        cluster.connect(holder, borrower);
        cluster.deliver_all();
        assert_eq!(cluster.state(holder, &pod(1)).in_use, if arrived { 1 } else { 2 });
        assert_eq!(cluster.runs(other).is_some(), !arrived, "who had waited asks again");
        cluster.end(kept);
        if !arrived {
            cluster.end(other);
        }
        cluster.deliver_all();
        assert_eq!(cluster.state(holder, &pod(1)).in_use, 0);
    }
}

/// Goal: two that never agree move a pod once a second and no more, and serve all the while.
#[test]
fn lists_that_differ_cost_a_move_each_second() {
    let mut cluster = Cluster::settled(2, 1, 1);
    (0..2).for_each(|at| cluster.list(at, [at]));
    cluster.pass(DEAD_AFTER);
    let (mut moves, mut holder) = (0, cluster.holder(&pod(1)));
    for n in 0..100 {
        let request = cluster.arrive(n % 2);
        cluster.pass(Duration::from_millis(100));
        cluster.end(request);
        cluster.deliver_all();
        moves += usize::from(cluster.holder(&pod(1)) != holder);
        holder = cluster.holder(&pod(1));
    }
    assert!((8..=22).contains(&moves), "{moves} in ten seconds");
}

#[test]
fn a_pod_that_one_cannot_use_is_not_offered_to_it_again_and_again() {
    let mut cluster = Cluster::settled(2, 1, 1);
    let (_, borrower) = cluster.borrower();
    cluster.feed(borrower, Input::Pods(BTreeMap::from([(pod(1), false)])));
    cluster.arrive(borrower);
    let mut messages = 0;
    while let Some((from, to)) = cluster.wires.iter().find(|(_, wire)| !wire.is_empty()).map(|(way, _)| *way) {
        cluster.deliver(from, to);
        messages += 1;
    }
    // Asked, lent, declined, asked again; and up to two changed numbers of idle slots.
    assert!(messages <= 6, "{messages}");
    for _ in 0..1000 {
        cluster.wait(Duration::from_millis(5));
        while let Some((from, to)) = cluster.wires.iter().find(|(_, wire)| !wire.is_empty()).map(|(way, _)| *way) {
            cluster.deliver(from, to);
            messages += 1;
        }
    }
    // Eleven times in five seconds, 5 ms, 10 ms and so on to a second apart: claimed, confirmed, asked for anew, lent, declined.
    assert!((40..100).contains(&messages), "{messages}");
}

/// Goal: who declined a loan because it had not proven the pod yet is lent a slot there a few milliseconds later, once it has.
#[test]
fn a_pod_that_is_proven_late_is_lent_soon_after() {
    let mut cluster = Cluster::settled(2, 1, 1);
    let (holder, borrower) = cluster.borrower();
    for _ in 0..2 {
        cluster.feed(borrower, Input::Pods(BTreeMap::from([(pod(1), false)])));
        let request = cluster.arrive(borrower);
        cluster.deliver_all();
        assert_eq!(cluster.runs(request), None);
        cluster.feed(borrower, Input::Pods(pods(1)));
        let soon = cluster.now + Duration::from_millis(5);
        assert!(cluster.pools[holder].due(cluster.now).is_some_and(|due| due <= soon), "nobody else tells it");
        cluster.pass(Duration::from_millis(5));
        assert_eq!(cluster.runs(request), Some(&pod(1)));
        // A loan that was taken: the next one that is declined is the first again.
        cluster.end(request);
        cluster.deliver_all();
        cluster.pass(Duration::from_millis(20));
    }
}

/// Goal: who has died, with its slots free again and its pods taken over, leaves nothing to look at again and again, nor does it
/// where there are no pods.
#[test]
fn the_dead_leave_nothing_to_look_at() {
    for pods in [0, 5] {
        let mut cluster = Cluster::settled(3, 1, pods);
        (0..pods).for_each(|_| _ = cluster.arrive(2));
        cluster.deliver_all();
        assert_eq!(cluster.running.len(), usize::from(pods), "it has its own slots and the others'");
        (0..2).for_each(|at| cluster.disconnect(at, 2));
        (0..2).for_each(|at| cluster.list(at, 0..2));
        cluster.feed(2, Input::Stop); // As if it had died: nobody hears of it.
        let is_due = |cluster: &Cluster, at: usize| cluster.pools[at].due(cluster.now).is_some();
        assert_eq!((0..2).any(|at| is_due(&cluster, at)), pods > 0);
        (0..30).for_each(|_| cluster.pass(Duration::from_millis(100)));
        assert!((1..=pods).all(|n| cluster.holder(&pod(n)).is_some_and(|at| at < 2)));
        for at in 0..2 {
            assert!(!is_due(&cluster, at), "{at}, {pods} pods");
            assert_eq!(cluster.pools[at].pods().map(|(_, pod)| pod.in_use).sum::<u32>(), 0);
        }
    }
}

/// Goal: a question that came before there was a pool to hear it does not keep its request from the pod's idle slot.
/// Method: one activator alone has a request; the other one's pool begins with the pod, which either of them learns of first.
#[test]
fn who_begins_after_it_was_asked_is_asked_again() {
    for pod_is_first_known_to in [0, 1] {
        let mut cluster = Cluster::settled(2, 1, 0);
        let names: BTreeSet<Peer> = cluster.names.iter().cloned().collect();
        let holder = usize::from(grantor(&pod(1), &names) == Some(&cluster.names[1]));
        let borrower = 1 - holder;
        cluster.sleep(holder);
        let request = cluster.arrive(borrower);
        cluster.deliver_all();
        cluster.begin(holder);
        let order = if pod_is_first_known_to == 0 { [holder, borrower] } else { [borrower, holder] };
        for at in order {
            cluster.feed(at, Input::Pods(pods(1)));
            cluster.deliver_all();
        }
        assert_eq!((cluster.holder(&pod(1)), cluster.runs(request)), (Some(holder), Some(&pod(1))));
        cluster.end(request);
        cluster.deliver_all();
        assert_eq!(cluster.state(holder, &pod(1)).in_use, 0);
    }
}

/// Goal: what is asked again while the answer to the former question is on its way becomes no second loan that stays.
#[test]
fn who_is_asked_again_has_lent_already() {
    for lent_first in [true, false] {
        let mut cluster = Cluster::settled(2, 1, 1);
        let (holder, borrower) = cluster.borrower();
        let names: BTreeSet<Peer> = cluster.names.iter().cloned().collect();
        let other = (2..).map(pod).find(|at| grantor(at, &names) == Some(&cluster.names[holder])).expect("another one");
        let runs = cluster.arrive(holder);
        let waits = cluster.arrive(borrower);
        cluster.deliver_all();
        let both = BTreeMap::from([(pod(1), true), (other, true)]);
        if lent_first {
            cluster.end(runs);
        }
        (0..2).for_each(|at| cluster.feed(at, Input::Pods(both.clone())));
        if !lent_first {
            cluster.end(runs);
        }
        while cluster.deliver(holder, borrower) {}
        assert_eq!(cluster.runs(waits), Some(&pod(1)), "lent before the question came again");
        cluster.deliver_all();
        let in_use = |cluster: &Cluster| cluster.pools[holder].pods().map(|(_, pod)| pod.in_use).sum::<u32>();
        assert_eq!(in_use(&cluster), 1);
        let third = cluster.arrive(borrower);
        cluster.deliver_all();
        assert!(cluster.runs(third).is_some());
        [waits, third].into_iter().for_each(|request| cluster.end(request));
        cluster.deliver_all();
        assert_eq!(in_use(&cluster), 0);
    }
}

/// Goal: many pods that are claimed at once, while requests wait, cost an answer each and not all questions each.
#[test]
fn a_crowd_of_claims_is_asked_again_once() {
    let mut cluster = Cluster::settled(2, 1, 1);
    let (_, borrower) = cluster.borrower();
    (0..=ASKS_MAX).for_each(|_| _ = cluster.arrive(borrower));
    cluster.deliver_all();
    let unusable = (1..=200).map(|n| (pod(n), n == 1)).collect::<BTreeMap<_, _>>();
    (0..2).for_each(|at| cluster.feed(at, Input::Pods(unusable.clone())));
    let mut messages = 0;
    for _ in 0..2 {
        while let Some((from, to)) = cluster.wires.iter().find(|(_, wire)| !wire.is_empty()).map(|(way, _)| *way) {
            cluster.deliver(from, to);
            messages += 1;
        }
        cluster.wait(Duration::from_millis(5));
    }
    assert!(messages <= 2 * 200 + 2 * 2 * ASKS_MAX, "{messages}");
}

#[derive(Clone, Debug)]
enum Op {
    Arrive(usize),
    End(usize),
    Deliver(usize, usize),
    List(usize, u8),
    Pods(usize, u8),
    Break(usize, usize),
    Mend(usize, usize),
    Wait,
}

const POOLS: usize = 4;

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..POOLS).prop_map(Op::Arrive),
        4 => any::<usize>().prop_map(Op::End),
        16 => (0..POOLS, 0..POOLS).prop_map(|(from, to)| Op::Deliver(from, to)),
        2 => (0..POOLS, 1u8..16).prop_map(|(at, members)| Op::List(at, members)),
        1 => (0..POOLS, 0u8..8).prop_map(|(at, pods)| Op::Pods(at, pods)),
        1 => (0..POOLS, 0..POOLS).prop_map(|(one, other)| Op::Break(one, other)),
        2 => (0..POOLS, 0..POOLS).prop_map(|(one, other)| Op::Mend(one, other)),
        2 => Just(Op::Wait),
    ]
}

impl Cluster {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Arrive(at) => _ = self.arrive(at),
            Op::End(nth) => {
                let nth = self.running.keys().nth(nth.checked_rem(self.running.len()).unwrap_or(0)).copied();
                if let Some(request) = nth {
                    self.end(request);
                }
            }
            Op::Deliver(from, to) => _ = self.deliver(from, to),
            Op::List(at, members) => self.list(at, (0..POOLS).filter(|index| members >> index & 1 == 1)),
            Op::Pods(at, pods) => {
                let pods = (0..3).map(|n| (pod(n + 1), pods >> n & 1 == 1));
                self.feed(at, Input::Pods(pods.collect()));
            }
            Op::Break(one, other) if one != other => self.disconnect(one, other),
            Op::Mend(one, other) if one != other => self.connect(one, other),
            Op::Break(..) | Op::Mend(..) => {}
            // All can be heard again and list all pods, so nobody is believed dead, and no pod is another one. What is on
            // its way stays there.
            Op::Wait => {
                self.connect_all();
                (0..POOLS).for_each(|at| self.feed(at, Input::Pods(pods(3))));
                self.wait(DEAD_AFTER);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Wake {
    Arrive(usize),
    Leave,
    Pods(usize),
    Deliver(usize, usize),
    Pass,
}

fn any_wake() -> impl Strategy<Value = Wake> {
    prop_oneof![
        2 => (0..3usize).prop_map(Wake::Arrive),
        1 => Just(Wake::Leave),
        1 => (0..3usize).prop_map(Wake::Pods),
        8 => (0..3usize, 0..3usize).prop_map(|(from, to)| Wake::Deliver(from, to)),
        1 => Just(Wake::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Goal: whenever each activator's pool begins, by a request or by a pod, and in whatever order all learn of it, no request
    /// waits beside an idle slot.
    #[test]
    fn a_wake_serves_all_whoever_begins_when(ops in prop::collection::vec(any_wake(), 1..60)) {
        let mut cluster = Cluster::settled(3, 1, 0);
        (0..3).for_each(|at| cluster.sleep(at));
        let mut came = Vec::new();
        let lists = |cluster: &mut Cluster, at: usize| {
            cluster.begin(at);
            cluster.feed(at, Input::Pods(pods(2)));
        };
        for op in ops {
            match op {
                Wake::Arrive(at) => {
                    cluster.begin(at);
                    came.push((at, cluster.arrive(at)));
                }
                Wake::Leave => {
                    let waits = came.iter().position(|(_, request)| cluster.runs(*request).is_none());
                    if let Some((at, request)) = waits.map(|nth| came.remove(nth)) {
                        cluster.feed(at, Input::End(request));
                    }
                }
                Wake::Pods(at) => lists(&mut cluster, at),
                Wake::Deliver(from, to) => _ = cluster.deliver(from, to),
                Wake::Pass => cluster.wait(Duration::from_millis(5)),
            }
        }
        (0..3).for_each(|at| lists(&mut cluster, at));
        (0..3).for_each(|_| cluster.pass(Duration::from_millis(5)));
        while let Some((_, request)) = came.iter().find(|(_, request)| cluster.runs(*request).is_some()).copied() {
            (0..3).for_each(|_| cluster.pass(Duration::from_millis(5)));
            let runs = came.iter().filter(|(_, request)| cluster.runs(*request).is_some()).count();
            prop_assert_eq!(runs, came.len().min(2));
            came.retain(|(_, other)| *other != request);
            cluster.end(request);
            cluster.deliver_all();
        }
        prop_assert_eq!(came, []);
        (0..3).for_each(|_| cluster.pass(Duration::from_millis(5)));
        for at in 0..3 {
            prop_assert_eq!(cluster.pools[at].pods().map(|(_, pod)| pod.in_use).sum::<u32>(), 0);
        }
    }

    /// Whatever the order of messages, lists and broken sessions: no pod is above its limit, one at a time grants its
    /// slots, and in the end all come back.
    #[test]
    fn one_limit_whatever_the_order(limit in 1u32..3, ops in prop::collection::vec(any_op(), 1..250)) {
        let mut cluster = Cluster::new(POOLS, limit);
        cluster.connect_all();
        for at in 0..POOLS {
            cluster.list(at, [at]);
            cluster.feed(at, Input::Pods(pods(3)));
        }
        cluster.pass(DEAD_AFTER);
        for op in &ops {
            cluster.apply(op);
        }
        cluster.connect_all();
        for at in 0..POOLS {
            cluster.list(at, 0..POOLS);
            cluster.feed(at, Input::Pods(pods(3)));
        }
        (0..5).for_each(|_| cluster.pass(RETRY_AFTER));
        while let Some(request) = cluster.running.keys().next().copied() {
            cluster.end(request);
            cluster.pass(RETRY_AFTER);
        }
        prop_assert_eq!(cluster.pools.iter().map(Pool::queued).sum::<usize>(), 0);
        cluster.pass(RETRY_AFTER);
        for at in 0..POOLS {
            prop_assert_eq!(cluster.pools[at].pods().map(|(_, pod)| pod.in_use).sum::<u32>(), 0);
        }
    }
}
