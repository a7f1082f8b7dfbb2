//! Tests of addresses from listing to publication, at explicit instants.

use proptest::prelude::*;

use super::*;
use crate::testing::origin;

mod upstream;

fn at(n: u8) -> Destination {
    std::net::SocketAddr::from(([10, 0, 0, n], 8012)).into()
}

fn set(ns: &[u8]) -> BTreeSet<Destination> {
    ns.iter().copied().map(at).collect()
}

fn cluster_ip() -> Destination {
    "10.1.0.1:80".parse().expect("address")
}

/// Results of one step: pods probed, and the published set, if any.
type Did = (Vec<u8>, Option<Published>);

#[derive(Clone, Debug, PartialEq)]
enum Published {
    Pods(Vec<u8>),
    ClusterIp { ready: u32 },
}

/// State machine with its clock and the last attempt at each address. Address 255 stands for the cluster IP.
struct Watch {
    machine: Backends,
    epoch: Instant,
    now: Instant,
    attempts: BTreeMap<u8, Attempt>,
    latest: Option<Attempt>,
}

impl Watch {
    fn new(proof: Proof, fallback: Fallback) -> Self {
        let rules = Rules { proof, fallback, answer_timeout: Duration::from_millis(300) };
        let epoch = origin();
        Self { machine: Backends::new(rules), epoch, now: epoch, attempts: BTreeMap::new(), latest: None }
    }

    fn standalone() -> Self {
        Self::new(Proof::Probe, Fallback::Never)
    }

    fn auto() -> Self {
        let mut watch = Self::new(Proof::Probe, Fallback::WhenUnaddressable);
        watch.handle(Event::ClusterIp(Some(cluster_ip())));
        watch
    }

    fn handle(&mut self, event: Event) -> Did {
        let actions = self.machine.handle(event, self.now);
        self.did(actions)
    }

    fn set_rules(&mut self, rules: Rules) -> Did {
        let actions = self.machine.set_rules(rules, self.now);
        self.did(actions)
    }

    fn did(&mut self, actions: Vec<Action>) -> Did {
        let name = |at: &Destination| if *at == cluster_ip() { 255 } else { last_octet(at) };
        let (mut probed, mut published) = (Vec::new(), None);
        for action in actions {
            match action {
                Action::Probe { destination, attempt, .. } => {
                    assert!(self.latest.is_none_or(|latest| latest < attempt), "each probe has a number of its own");
                    self.latest = Some(attempt);
                    let n = name(&destination);
                    self.attempts.insert(n, attempt);
                    probed.push(n);
                }
                Action::Publish(destinations) => {
                    assert!(published.is_none(), "one set for one event");
                    published = Some(match destinations {
                        Destinations::Pods(pods) => Published::Pods(pods.iter().map(last_octet).collect()),
                        Destinations::ClusterIp { ready, .. } => Published::ClusterIp { ready },
                    });
                }
            }
        }
        (probed, published)
    }

    fn list(&mut self, ready: &[u8], not_ready: &[u8]) -> Did {
        self.handle(Event::Listed { ready: set(ready), not_ready: set(not_ready) })
    }

    fn probed(&mut self, n: u8, outcome: ProbeOutcome) -> Did {
        let attempt = self.attempts[&n];
        self.probed_as(n, attempt, outcome)
    }

    fn probed_as(&mut self, n: u8, attempt: Attempt, outcome: ProbeOutcome) -> Did {
        let destination = if n == 255 { cluster_ip() } else { at(n) };
        self.handle(Event::Probed { destination, attempt, outcome })
    }

    fn pass(&mut self, n: u8) -> Did {
        self.probed(n, ProbeOutcome::Passed(None))
    }

    /// Returns the time of the next call that the machine requests, in microseconds from the start.
    fn due_us(&self) -> Option<u128> {
        self.machine.due().map(|due| due.duration_since(self.epoch).as_micros())
    }

    /// Advances to the time that the machine requested.
    fn due(&mut self) -> Did {
        self.now = self.machine.due().expect("something is due");
        self.handle(Event::Due)
    }

    /// Ends each probe of `n` with this outcome as soon as it is sent, for this time or until a set is published.
    fn answers(&mut self, n: u8, outcome: ProbeOutcome, long: Duration) -> Option<Published> {
        let end = self.now + long;
        loop {
            let (_, published) = self.probed(n, outcome);
            if published.is_some() || self.machine.due().is_none_or(|due| due > end) {
                self.now = if published.is_some() { self.now } else { end };
                return published;
            }
            self.due();
        }
    }

    fn healthy(&self) -> Vec<u8> {
        self.machine.healthy().map(last_octet).collect()
    }
}

fn last_octet(at: &Destination) -> u8 {
    match at.address().ip() {
        std::net::IpAddr::V4(ip) => ip.octets()[3],
        std::net::IpAddr::V6(_) => panic!("not in these tests"),
    }
}

fn nothing() -> Did {
    (vec![], None)
}

fn publishes(pods: &[u8]) -> Did {
    (vec![], Some(Published::Pods(pods.to_vec())))
}

const FAIL: ProbeOutcome = ProbeOutcome::Unanswered;
const WRONG_RESPONSE: ProbeOutcome = ProbeOutcome::WrongResponse;
const PROBE_PORT_REFUSED: ProbeOutcome = ProbeOutcome::ProbePortRefused(Duration::from_micros(90));

#[test]
fn every_address_is_probed_as_soon_as_it_is_known_ready_or_not() {
    let mut watch = Watch::standalone();
    assert_eq!(watch.list(&[1], &[2]), (vec![1, 2], None));
    assert_eq!(watch.pass(2), publishes(&[2]), "unready in Kubernetes, proven by probe; 1 has not responded");
    assert_eq!(watch.handle(Event::Due), nothing(), "not probed twice");
    assert_eq!(watch.pass(1), publishes(&[1, 2]));
    assert_eq!(watch.list(&[1, 2], &[]), nothing(), "readiness of proven pods changes nothing");
    assert_eq!((watch.due_us(), watch.machine.pods.len()), (None, 2), "all proven: nothing to do");
}

/// Goal: the pause depends only on the time waited for this address.
#[test]
fn the_next_probe_comes_after_a_hundredth_of_the_time_waited() {
    let mut watch = Watch::standalone();
    watch.list(&[], &[1]);
    watch.probed(1, FAIL);
    assert_eq!(watch.due_us(), Some(1_000), "at least 1 ms");
    assert_eq!(watch.due(), (vec![1], None));
    watch.now = watch.epoch + Duration::from_secs(1); // The probe took that long.
    watch.probed(1, FAIL);
    assert_eq!(watch.due_us(), Some(1_009_000));
    watch.list(&[], &[1, 2]);
    assert_eq!(watch.probed(2, FAIL), nothing());
    assert_eq!(watch.due_us(), Some(1_001_000), "a new address has its own pause");
}

#[test]
fn eager_addresses_share_the_probe_budget() {
    let mut watch = Watch::standalone();
    watch.list(&[], &[1, 2, 3]);
    assert_eq!(watch.machine.eager(watch.now), 3);
    watch.machine.share_budget_among(50);
    watch.probed(1, FAIL);
    assert_eq!(watch.due_us(), Some(5_000), "100 µs for each of them");
    assert_eq!(watch.machine.eager(watch.now), 3, "in a probe or waiting for the next");
    watch.pass(2);
    assert_eq!(watch.machine.eager(watch.now), 2);
    assert_eq!(watch.machine.eager(watch.epoch + Duration::from_secs(6)), 0, "every 50 ms costs little");
    let mut unprobed = Watch::new(Proof::Ready, Fallback::Never);
    unprobed.list(&[1], &[]);
    unprobed.handle(Event::Failed(at(1)));
    assert_eq!(unprobed.machine.eager(unprobed.now), 0, "no probes are sent");
}

/// Goal: a refused connection measures the round trip, so a later probe without response times out soon after that.
#[test]
fn a_refusal_measures_the_round_trip() {
    let mut watch = Watch::standalone();
    let connect = |watch: &Watch| watch.machine.round_trip.timeouts(Duration::ZERO, Duration::ZERO).connect;
    watch.list(&[], &[1]);
    assert_eq!(watch.probed(1, FAIL), nothing());
    assert_eq!(connect(&watch), Duration::from_millis(100), "a missing response measures nothing");
    watch.due();
    assert_eq!(watch.probed(1, ProbeOutcome::Refused(Duration::from_micros(500))), nothing(), "it failed");
    assert_eq!(connect(&watch), Duration::from_millis(8));
    assert_eq!(watch.due(), (vec![1], None), "probed again");
}

#[test]
fn a_ready_event_probes_at_once_even_while_another_probe_hangs() {
    let mut watch = Watch::standalone();
    watch.list(&[], &[1]);
    let hanging = watch.attempts[&1];
    assert_eq!(watch.list(&[1], &[]), (vec![1], None));
    assert_eq!(watch.probed_as(1, hanging, FAIL), nothing(), "overtaken: its failure does not count");
    assert_eq!(watch.due_us(), None);
    assert_eq!(watch.pass(1), publishes(&[1]));
    // An address that waits for its next probe is probed at once, too.
    watch.list(&[1], &[2]);
    watch.probed(2, FAIL);
    assert_eq!(watch.list(&[1, 2], &[]), (vec![2], None));
}

#[test]
fn a_late_pass_still_counts() {
    let mut watch = Watch::standalone();
    watch.list(&[], &[1]);
    let early = watch.attempts[&1];
    watch.list(&[1], &[]);
    assert_eq!(watch.probed_as(1, early, ProbeOutcome::Passed(None)), publishes(&[1]));
    assert_eq!(watch.probed(1, FAIL), nothing(), "the failure of an overtaken probe does not count");
    assert_eq!(watch.healthy(), [1]);
}

#[test]
fn withdrawn_readiness_is_decided_by_one_probe() {
    let mut watch = Watch::standalone();
    watch.list(&[2, 3], &[]);
    watch.pass(2);
    watch.pass(3);
    assert_eq!(watch.list(&[2], &[3]), (vec![3], None), "in use until the probe decides");
    assert_eq!(watch.probed(3, FAIL), publishes(&[2]));
    assert_eq!(watch.due(), (vec![3], None));
    assert_eq!(watch.pass(3), publishes(&[2, 3]));
    // The probe may also pass at once, which changes nothing.
    watch.list(&[2, 3], &[]);
    assert_eq!(watch.list(&[2], &[3]), (vec![3], None));
    assert_eq!(watch.pass(3), nothing());
}

/// Goal: a pass is no permanent proof after Kubernetes has withdrawn readiness. The next probe decides, again and
/// again.
#[test]
fn a_pod_whose_readiness_was_withdrawn_is_probed_again_each_second() {
    let mut watch = Watch::standalone();
    watch.list(&[1], &[]);
    watch.pass(1);
    watch.list(&[], &[1]);
    assert_eq!(watch.pass(1), nothing(), "it stays");
    assert_eq!(watch.due_us(), Some(1_000_000));
    assert_eq!(watch.list(&[], &[1]), nothing(), "an equal listing changes nothing");
    let before = watch.attempts[&1];
    assert_eq!(watch.due(), (vec![1], None), "in use while it is probed");
    assert_eq!(watch.probed_as(1, before, ProbeOutcome::Passed(None)), nothing());
    assert_eq!(watch.due_us(), None, "a pass of an earlier probe does not count");
    assert_eq!(watch.pass(1), nothing());
    assert_eq!(watch.due_us(), Some(2_000_000));
    watch.due();
    assert_eq!(watch.probed(1, FAIL), publishes(&[]));
    assert_eq!(watch.due_us(), Some(2_001_000), "waited for since its probe");
    watch.due();
    assert_eq!(watch.pass(1), publishes(&[1]));
    assert_eq!(watch.due_us(), Some(3_001_000), "and probed again");
    assert_eq!(watch.list(&[1], &[]), nothing());
    assert_eq!(watch.due_us(), None, "Kubernetes reports it as ready");
}

/// Goal: only withdrawn readiness causes further probes. A pod that fails a request is probed at once, without waiting
/// for its next probe.
#[test]
fn a_pod_that_was_never_ready_is_not_probed_again_after_a_pass() {
    let mut watch = Watch::standalone();
    watch.list(&[], &[1]);
    watch.pass(1);
    assert_eq!((watch.list(&[], &[1]), watch.due_us()), (nothing(), None));
    watch.list(&[1], &[]);
    watch.list(&[], &[1]);
    watch.pass(1);
    assert_eq!(watch.handle(Event::Failed(at(1))), (vec![1], Some(Published::Pods(vec![]))));
}

/// Goal: pods of a former template, which cannot pass the probe of the current one, are used once Kubernetes reports
/// them as ready.
#[test]
fn a_ready_pod_whose_kernel_responds_to_failing_probes_is_used_after_a_second() {
    for failure in [WRONG_RESPONSE, PROBE_PORT_REFUSED] {
        let mut watch = Watch::new(Proof::ProbeThenReady, Fallback::Never);
        assert_eq!(watch.list(&[1], &[]), (vec![1], None), "probed first");
        assert_eq!(watch.answers(1, failure, Duration::from_millis(950)), None, "{failure:?}");
        assert_eq!(watch.answers(1, failure, Duration::from_millis(100)), Some(Published::Pods(vec![1])));
        assert_eq!(watch.due_us(), None, "{failure:?}: no further probe can remove it");
        let lost = watch.handle(Event::Failed(at(1)));
        assert_eq!(lost, (vec![1], Some(Published::Pods(vec![]))), "a failed request removes it");
        assert_eq!(watch.answers(1, FAIL, Duration::from_secs(5)), None, "without a response it stays out");
        assert_eq!(watch.answers(1, failure, Duration::from_millis(950)), None);
        assert_eq!(watch.list(&[], &[1]), nothing());
        assert_eq!(watch.answers(1, failure, Duration::from_secs(5)), None, "its readiness was withdrawn");
    }
}

/// Goal: readiness overrules failing probes only if the pod responds. A 503 may come from a draining pod, and a pod
/// that refuses connections on the request port would refuse requests, too. With proof by probe alone, readiness never
/// overrules.
#[test]
fn a_ready_pod_without_responses_is_not_used() {
    let long = Duration::from_secs(5);
    for silence in [FAIL, ProbeOutcome::Refused(Duration::from_micros(90))] {
        let mut watch = Watch::new(Proof::ProbeThenReady, Fallback::Never);
        watch.list(&[1], &[]);
        assert_eq!(watch.answers(1, silence, long), None, "{silence:?}");
        for _ in 0..5 {
            assert_eq!(watch.answers(1, WRONG_RESPONSE, Duration::from_millis(500)), None, "the time starts again");
            assert_eq!(watch.answers(1, silence, Duration::from_millis(100)), None);
        }
    }
    let mut not_yet = Watch::new(Proof::ProbeThenReady, Fallback::Never);
    not_yet.list(&[], &[1]);
    assert_eq!(not_yet.answers(1, WRONG_RESPONSE, long), None, "not ready");
    assert_eq!(not_yet.list(&[1], &[]), (vec![1], None));
    assert_eq!(not_yet.answers(1, WRONG_RESPONSE, Duration::from_millis(900)), None, "ready for less than a second");
    let mut probe_alone = Watch::new(Proof::Probe, Fallback::Never);
    probe_alone.list(&[1], &[]);
    assert_eq!(probe_alone.answers(1, WRONG_RESPONSE, long), None);
}

#[test]
fn each_change_of_pods_is_published_once() {
    let mut watch = Watch::standalone();
    watch.list(&[1, 2], &[]);
    watch.pass(1);
    watch.pass(2);
    assert_eq!(watch.list(&[2, 3], &[]), (vec![3], Some(Published::Pods(vec![2]))));
    assert_eq!(watch.pass(3), publishes(&[2, 3]));
    assert_eq!(watch.list(&[2], &[]), publishes(&[2]));
    assert_eq!(watch.list(&[2], &[]), nothing());
    assert_eq!(watch.list(&[], &[]), publishes(&[]));
    assert_eq!(watch.list(&[], &[]), nothing());
}

#[test]
fn an_address_that_comes_back_starts_anew() {
    let mut watch = Watch::standalone();
    watch.list(&[1], &[]);
    let before = watch.attempts[&1];
    watch.list(&[], &[]);
    assert_eq!(watch.list(&[1], &[]), (vec![1], None));
    assert_eq!(watch.probed_as(1, before, ProbeOutcome::Passed(None)), nothing(), "that was another pod");
    assert_eq!(watch.pass(1), publishes(&[1]));
}

#[test]
fn a_failed_request_takes_its_pod_out_and_probes_it_at_once() {
    let mut watch = Watch::standalone();
    watch.list(&[1, 2], &[]);
    let before = watch.attempts[&1];
    watch.pass(1);
    watch.pass(2);
    watch.now += Duration::from_secs(100);
    assert_eq!(watch.handle(Event::Failed(at(1))), (vec![1], Some(Published::Pods(vec![2]))));
    assert_eq!(watch.handle(Event::Failed(at(1))), nothing(), "a second failure changes nothing");
    assert_eq!(watch.probed_as(1, before, ProbeOutcome::Passed(None)), nothing(), "sent before the failure");
    watch.probed(1, FAIL);
    assert_eq!(watch.due_us(), Some(100_001_000), "waited for since the failure");
    watch.due();
    assert_eq!(watch.pass(1), publishes(&[1, 2]));
    assert_eq!(watch.handle(Event::Failed(at(9))), nothing(), "unknown");
}

#[test]
fn with_readiness_as_proof_no_probe_is_sent() {
    let mut watch = Watch::new(Proof::Ready, Fallback::Never);
    assert_eq!(watch.list(&[1], &[2]), publishes(&[1]));
    assert_eq!(watch.list(&[2], &[1]), publishes(&[2]));
    assert_eq!(watch.handle(Event::Failed(at(2))), publishes(&[]));
    assert_eq!(watch.due_us(), Some(1_000_000), "not used for a second");
    assert_eq!(watch.due(), publishes(&[2]));
    let mut trusted = Watch::new(Proof::ReadyOrProbe, Fallback::Never);
    trusted.list(&[1], &[]);
    assert_eq!(trusted.handle(Event::Failed(at(1))).0, [1], "after a failure it must pass a probe");
    let mut both = Watch::new(Proof::ProbeAndReady, Fallback::Never);
    both.list(&[1], &[]);
    both.pass(1);
    assert_eq!(both.list(&[], &[1]), publishes(&[]), "readiness that was withdrawn is missing");
}

// === cluster IP ===

#[test]
fn the_cluster_ip_is_used_if_every_failure_may_come_from_a_mesh() {
    let mut watch = Watch::auto();
    watch.list(&[1], &[2]);
    assert_eq!(watch.probed(1, FAIL), nothing(), "2 has not failed yet");
    assert_eq!(watch.probed(2, FAIL), (vec![255], None));
    assert_eq!(watch.probed(255, FAIL), nothing());
    assert_eq!(watch.due().0, [1, 2, 255], "pods and cluster IP are probed at the same pace");
    watch.probed(1, FAIL);
    watch.probed(2, FAIL);
    assert_eq!(watch.pass(255), (vec![], Some(Published::ClusterIp { ready: 1 })));
    assert_eq!(watch.list(&[1, 2], &[]).1, Some(Published::ClusterIp { ready: 2 }), "more ready pods, more capacity");
}

/// Goal: a pod that proves not to be behind a mesh ends the probing of the cluster IP, and a late pass of that probe is
/// ignored.
#[test]
fn a_response_that_no_mesh_returns_ends_the_probing_of_the_cluster_ip() {
    let mut watch = Watch::auto();
    watch.list(&[], &[1]);
    assert_eq!(watch.probed(1, FAIL), (vec![255], None));
    assert_eq!(watch.due(), (vec![1], None));
    assert_eq!(watch.probed(1, WRONG_RESPONSE), nothing());
    assert_eq!(watch.pass(255), nothing(), "the fallback is not wanted now");
    watch.due();
    assert_eq!(watch.probed(1, FAIL), (vec![255], None), "probed again, not used because of the earlier pass");
}

/// Creates a machine in mesh mode `auto` that sends to the cluster IP, with a ready pod.
fn fallen_back() -> Watch {
    let mut watch = Watch::auto();
    watch.list(&[1], &[]);
    watch.probed(1, FAIL);
    assert_eq!(watch.pass(255).1, Some(Published::ClusterIp { ready: 1 }));
    watch
}

#[test]
fn a_pod_that_passes_or_an_empty_list_ends_the_fallback() {
    let mut watch = fallen_back();
    assert_eq!(watch.due(), (vec![1], None));
    watch.probed(1, FAIL);
    assert_eq!(watch.due_us(), Some(1_001_000), "probed once a second while the fallback works");
    watch.due();
    assert_eq!(watch.pass(1), publishes(&[1]), "the fallback can end");
    let mut watch = fallen_back();
    assert_eq!(watch.list(&[], &[]), publishes(&[]));
    assert_eq!(watch.list(&[2], &[]), (vec![2], None), "health of the cluster IP is forgotten");
}

#[test]
fn without_a_cluster_ip_or_permission_there_is_no_fallback() {
    let mut watch = Watch::new(Proof::Probe, Fallback::WhenUnaddressable);
    watch.list(&[1], &[]);
    assert_eq!(watch.probed(1, FAIL), nothing());
    assert_eq!(watch.handle(Event::ClusterIp(Some(cluster_ip()))), (vec![255], None), "as soon as there is one");
    assert_eq!(watch.handle(Event::ClusterIp(None)), nothing());
    let mut watch = Watch::standalone();
    watch.handle(Event::ClusterIp(Some(cluster_ip())));
    watch.list(&[1], &[]);
    assert_eq!(watch.probed(1, FAIL), nothing());
}

/// Goal: a pod that a probe has proven stays in use unless the new proof requires readiness that it lacks.
#[test]
fn changed_rules_apply_to_listed_addresses() {
    for (proof, published, healthy, back) in [
        (Proof::Ready, publishes(&[1]), vec![1], (vec![2], None)),
        (Proof::ReadyOrProbe, nothing(), vec![1, 2], nothing()),
    ] {
        let mut watch = Watch::standalone();
        watch.list(&[1], &[2]);
        watch.pass(1);
        watch.pass(2);
        let rules = Rules { proof, ..Rules::default() };
        assert_eq!((watch.set_rules(rules), watch.healthy()), (published, healthy), "{proof:?}");
        assert_eq!(watch.set_rules(Rules::default()), back, "{proof:?}: 1 stays in use, 2 may pass again");
    }
}

#[test]
fn the_fallback_ends_only_if_the_rules_no_longer_permit_it() {
    let rules = |fallback| Rules { fallback, ..Rules::default() };
    let mut watch = fallen_back();
    let other_timeout = rules(Fallback::WhenUnaddressable);
    assert_eq!(watch.set_rules(other_timeout), nothing(), "another timeout alone changes nothing");
    assert_eq!(watch.set_rules(Rules::default()), publishes(&[]), "not permitted, and no pod passed");
    assert_eq!(fallen_back().set_rules(rules(Fallback::Always)), nothing(), "mesh mode `enabled` keeps it");
}

/// Creates a machine in mesh mode `enabled` that sends to the cluster IP, with a ready pod and an unready one. Only the
/// cluster IP is probed.
fn meshed() -> Watch {
    let mut watch = Watch::new(Proof::Probe, Fallback::Always);
    watch.handle(Event::ClusterIp(Some(cluster_ip())));
    assert_eq!(watch.list(&[1], &[2]), (vec![255], None), "not even a ready pod gets requests");
    watch.probed(255, FAIL);
    assert_eq!(watch.due_us(), Some(1_000), "at the pods' pace");
    assert_eq!(watch.due(), (vec![255], None));
    assert_eq!(watch.pass(255).1, Some(Published::ClusterIp { ready: 1 }));
    watch
}

/// Goal: when mesh mode `enabled` ends, all pods are probed, ready or not. Requests continue to go to the cluster IP
/// until a pod passes.
#[test]
fn the_end_of_mesh_mode_enabled_probes_every_pod_and_interrupts_nothing() {
    let mut watch = meshed();
    let auto = Rules { fallback: Fallback::WhenUnaddressable, ..Rules::default() };
    assert_eq!((watch.set_rules(auto), watch.healthy()), ((vec![1, 2], None), vec![]));
    assert_eq!(watch.probed(1, FAIL), nothing());
    assert_eq!(watch.probed(2, FAIL), nothing());
    assert_eq!(watch.due_us(), Some(1_001_000), "the cluster IP carries the requests");
    assert_eq!(watch.due(), (vec![1, 2], None));
    assert_eq!(watch.pass(2), publishes(&[2]));
    let enabled = Rules { fallback: Fallback::Always, ..Rules::default() };
    assert_eq!(watch.set_rules(enabled), (vec![255], Some(Published::Pods(vec![]))));
    let late = watch.attempts[&1];
    assert_eq!(watch.set_rules(auto), (vec![1, 2], None), "the earlier pass of 2 does not count");
    assert_eq!(watch.probed_as(1, late, ProbeOutcome::Passed(None)), nothing(), "nor does this earlier probe");
    assert_eq!(watch.pass(1), publishes(&[1]));
}

/// Goal: if the cluster IP may no longer be used, requests wait for the first pod that passes, or for readiness if that
/// is a proof.
#[test]
fn without_a_mesh_pods_that_were_never_probed_are_treated_as_new() {
    for (proof, probed, believed) in
        [(Proof::Probe, vec![1, 2], vec![]), (Proof::ReadyOrProbe, vec![2], vec![1]), (Proof::Ready, vec![], vec![1])]
    {
        let mut watch = meshed();
        let did = watch.set_rules(Rules { proof, ..Rules::default() });
        assert_eq!(did, (probed, Some(Published::Pods(believed))), "{proof:?}");
    }
}

// === every sequence of events ===

#[derive(Clone, Debug)]
enum Step {
    List(Vec<u8>, Vec<u8>),
    Probed(usize, ProbeOutcome),
    Failed(u8),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let addresses = || prop::collection::vec(0u8..4, 0..4);
    let passed = ProbeOutcome::Passed(Some(Duration::from_micros(90)));
    let outcome = prop::sample::select(vec![passed, WRONG_RESPONSE, PROBE_PORT_REFUSED, FAIL]);
    prop_oneof![
        2 => (addresses(), addresses()).prop_map(|(ready, not)| Step::List(ready, not)),
        6 => (0usize..8, outcome).prop_map(|(n, outcome)| Step::Probed(n, outcome)),
        1 => (0u8..4).prop_map(Step::Failed),
        3 => (0u64..100).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Goal: under every sequence of events, only listed addresses are used, and exactly the changes are published.
    /// Every unproven address has a pending probe or a next one within 50 ms. An address in use is probed again within
    /// a second, if at all.
    #[test]
    fn no_address_is_forgotten(
        proof in prop::sample::select(vec![Proof::Probe, Proof::ProbeThenReady]),
        steps in prop::collection::vec(any_step(), 1..100),
    ) {
        let mut watch = Watch::new(proof, Fallback::Never);
        let mut listed = BTreeSet::new();
        let mut outstanding: Vec<(u8, Attempt)> = Vec::new();
        let mut published: Vec<u8> = Vec::new();
        for step in steps {
            let (probed, news) = match step {
                Step::List(ready, not_ready) => {
                    listed = ready.iter().chain(&not_ready).copied().collect();
                    watch.list(&ready, &not_ready)
                }
                Step::Probed(n, outcome) => {
                    let Some(n) = n.checked_rem(outstanding.len()) else { continue };
                    let (n, attempt) = outstanding.remove(n);
                    watch.probed_as(n, attempt, outcome)
                }
                Step::Failed(n) => watch.handle(Event::Failed(at(n))),
                Step::Wait(ms) => {
                    watch.now += Duration::from_millis(ms);
                    watch.handle(Event::Due)
                }
            };
            outstanding.extend(probed.into_iter().map(|n| (n, watch.attempts[&n])));
            if let Some(news) = news {
                let Published::Pods(news) = news else { panic!("no cluster IP here") };
                prop_assert!(news != published || news.is_empty(), "published twice: {:?}", news);
                published = news;
            }
            prop_assert_eq!(&published, &watch.healthy());
            prop_assert!(published.iter().all(|n| listed.contains(n)));
            for n in &listed {
                let is_probed = outstanding.iter().any(|(other, _)| other == n);
                let due = watch.machine.pods[&at(*n)].due();
                prop_assert!(published.contains(n) || is_probed || due.is_some(), "{} is forgotten", n);
                let most = Duration::from_millis(if published.contains(n) { 1000 } else { 50 });
                prop_assert!(due.is_none_or(|due| due <= watch.now + most));
            }
        }
    }
}
