//! Tests with paused time; stats, pods and attestations are fed by hand.

use super::*;
use crate::ingest::attest::ReadyActivator;
use crate::scale::fixture;
use crate::scale::{CollectSpec, Collection, PodSet, Pods, SubjectLabels};
use autoscaler_core::bounds::Bounds;
use autoscaler_core::scale_to_zero::Reason;
use common::scaling::{DeciderSpec, ScalingMetric};
use common::stat::Stat;
use common::time::Timestamp;
use common_runtime::telemetry::{Metrics, catalog};
use std::time::Duration;

struct Fixture {
    sources: Sources,
    multiscaler: Arc<Multiscaler>,
    telemetry: Metrics,
    key: RevisionKey,
    shutdown: CancellationToken,
}

impl Fixture {
    /// Creates one collected revision with known pods and no loop; a task turns the wheel. The clock is at the
    /// beginning of a second.
    fn new() -> Self {
        Self::by_rules(true)
    }

    /// Creates the same fixture with our rules or upstream's.
    fn by_rules(has_own_rules: bool) -> Self {
        let telemetry = Metrics::default();
        let sources = fixture::sources(Clock::starting_at(Timestamp::from_secs(1_000_000)), &telemetry);
        let multiscaler = Arc::new(Multiscaler::new(sources.clone(), has_own_rules));
        let (shutdown, key) = (CancellationToken::new(), RevisionKey::new("ns", "hello"));
        let how = CollectSpec {
            stable_window: Duration::from_secs(6),
            panic_window: Duration::from_secs(1),
            ..fixture::collect_spec()
        };
        sources.collector.ensure(&key, how);
        sources.pods.track(&key, PodSet::Revision("hello".into()), None);
        sources.pods.end_list();
        let (turning, token) = (multiscaler.clone(), shutdown.clone());
        tokio::spawn(async move { turning.run(token).await });
        Self { sources, multiscaler, telemetry, key, shutdown }
    }

    /// Creates a fixture with one ready pod, whose decider knows nothing yet.
    fn with_pod() -> Self {
        let fixture = Self::new();
        fixture.pods(1);
        fixture.ensure(Initial::Unknown);
        fixture
    }

    /// Creates a fixture with three ready pods, and load for them.
    async fn busy() -> Self {
        let fixture = Self::new();
        fixture.pods(3);
        fixture.ensure(Initial::Adopted(3));
        for _ in 0..4 {
            secs(1).await;
            fixture.stat(21.0);
        }
        assert_eq!(fixture.desired(), Some(3));
        fixture
    }

    fn ensure(&self, initial: Initial) {
        self.multiscaler.ensure(&self.key, subject(), initial);
    }

    fn status(&self) -> ScaleStatus {
        self.multiscaler.status(&self.key).expect("a loop")
    }

    fn desired(&self) -> Option<i32> {
        self.status().desired
    }

    fn observe(&self, activators_in_path: bool, replicas: Option<i32>) {
        self.multiscaler.observe(&self.key, Surroundings { activators_in_path, replicas });
    }

    /// Lets seconds pass. In each, these activators attest, and a stat of this concurrency is recorded, if there is
    /// one.
    async fn pass(&self, seconds: u64, concurrency: Option<f64>, attesting: &[&str]) {
        for _ in 0..seconds {
            attesting.iter().for_each(|name| self.sources.attestations.record(name, Instant::now()));
            if let Some(concurrency) = concurrency {
                self.stat(concurrency);
            }
            secs(1).await;
        }
    }

    /// Records a stat of one activator, as after its decoding.
    fn stat(&self, concurrency: f64) {
        self.stat_of(concurrency, concurrency);
    }

    /// Records a stat of requests in flight and of arrivals.
    fn stat_of(&self, concurrency: f64, count: f64) {
        let stat = Stat { average_concurrent_requests: concurrency, request_count: count, ..Stat::default() };
        self.sources.collector.record(&self.key, &stat, self.sources.clock.now());
        self.multiscaler.stat_recorded(&self.key, concurrency, "");
    }

    fn pods(&self, ready: usize) {
        self.sources.pods.begin_list();
        for pod in 0..ready {
            let state = fixture::ready_pod(&[(common::names::REVISION, "hello")]);
            self.sources.pods.apply("ns", &pod.to_string(), state);
        }
        self.sources.pods.end_list();
    }

    fn has_request(&self) -> bool {
        self.sources.requests.try_next().is_some()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn subject() -> Subject {
    let spec = DeciderSpec {
        target_value: 7.0,
        total_value: 10.0,
        stable_window: Duration::from_secs(6),
        panic_window: Duration::from_secs(1),
        ..fixture::subject().spec
    };
    Subject { spec, labels: SubjectLabels { service: "".into(), configuration: "hello".into() } }
}

async fn secs(secs: u64) {
    tokio::time::sleep(Duration::from_secs(secs)).await;
}

/// Goal: nothing is known before a loop is created, nor decided after it is removed.
#[tokio::test(start_paused = true)]
async fn a_loop_decides_from_its_creation_to_its_removal() {
    let fixture = Fixture::new();
    assert_eq!(fixture.multiscaler.status(&fixture.key), None, "before");
    fixture.pods(1);
    fixture.ensure(Initial::Unknown);
    secs(3).await;
    assert!(fixture.has_request() && fixture.desired() == Some(0), "it ticks");
    fixture.multiscaler.remove(&fixture.key);
    fixture.pass(10, Some(70.0), &[]).await;
    assert_eq!(fixture.multiscaler.status(&fixture.key), None, "after");
    assert!(!fixture.has_request(), "neither ticks nor stats decide");
}

/// Goal: the first stat of a sleeping revision is decided on before the call that records it returns: no tick, no
/// task.
#[tokio::test(start_paused = true)]
async fn a_stat_wakes_a_sleeping_revision_at_once() {
    let fixture = Fixture::new();
    fixture.ensure(Initial::Adopted(0));
    assert_eq!(fixture.desired(), Some(0));
    assert!(!fixture.has_request());
    fixture.stat(1.0);
    assert_eq!(fixture.desired(), Some(1));
    assert!(fixture.has_request(), "the reconciler is notified at once");
    fixture.stat(20.0);
    assert_eq!(fixture.desired(), Some(1), "awake already: the next tick decides");
}

/// Goal: a poke also acts on an unknown desired scale, but only if the target has no replicas. It waits for no
/// attestation, because the stat itself proves the load.
#[tokio::test(start_paused = true)]
async fn an_unknown_scale_is_poked_only_without_replicas() {
    for (replicas, woken) in [(Some(0), true), (Some(1), false), (None, false)] {
        let fixture = Fixture::new();
        fixture.ensure(Initial::Unknown);
        fixture.observe(true, replicas);
        assert_eq!(fixture.desired(), None);
        fixture.stat(1.0);
        assert_eq!(fixture.desired().is_some(), woken, "{replicas:?}");
    }
}

/// Goal: ticks come every two seconds; a decision that changes nothing is not reported again.
#[tokio::test(start_paused = true)]
async fn ticks_report_only_changes() {
    let fixture = Fixture::with_pod();
    secs(3).await;
    assert_eq!(fixture.desired(), Some(0), "no reports, and no activators in the path");
    assert!(fixture.has_request());
    secs(20).await;
    assert!(!fixture.has_request(), "the same decision again");
    fixture.pass(6, Some(21.0), &[]).await;
    assert_eq!(fixture.desired(), Some(3));
    let history = fixture.multiscaler.explain(&fixture.key).expect("a loop").history;
    assert!((2..10).contains(&history.len()), "changes, not ticks: {history:?}");
}

/// Goal: with activators in the path, missing reports scale down only while all activators attest. Without
/// attestations they never count as zero, however long they last.
#[tokio::test(start_paused = true)]
async fn missing_reports_scale_down_only_while_attested() {
    let fixture = Fixture::with_pod();
    let activator = ReadyActivator { pod: Some("act-0".into()), address: "10.0.0.1".into() };
    fixture.sources.attestations.set_ready(vec![activator], Instant::now());
    fixture.observe(true, Some(1));
    fixture.pass(6, Some(7.0), &["act-0"]).await;
    assert_eq!(fixture.desired(), Some(1));
    secs(180).await; // The activator is cut off for three minutes.
    assert_eq!(fixture.desired(), Some(1), "unknown is not zero");
    fixture.pass(8, None, &["act-0"]).await;
    assert_eq!(fixture.desired(), Some(0), "it attests again, and reports no load");
    while fixture.has_request() {}
    let unattested = || fixture.status().unattested;
    secs(8).await; // It is cut off again, before the last pod is removed.
    assert!(unattested() && !fixture.has_request(), "whether the revision is still idle is unknown");
    fixture.pass(3, None, &["act-0"]).await;
    assert!(!unattested() && fixture.has_request(), "the last pod may be removed now");
}

/// Goal: while one activator is cut off, the load of the other one still adds pods, and nothing is scaled down before
/// a full window has been observed again.
#[tokio::test(start_paused = true)]
async fn a_disconnected_activator_does_not_prevent_scaling_up() {
    let fixture = Fixture::with_pod();
    let activator = |n: u8| ReadyActivator { pod: Some(format!("act-{n}")), address: format!("10.0.0.{n}") };
    fixture.sources.attestations.set_ready(vec![activator(1), activator(2)], Instant::now());
    fixture.observe(true, Some(1));
    fixture.pass(6, Some(7.0), &["act-1", "act-2"]).await;
    assert_eq!(fixture.desired(), Some(1));
    fixture.pass(16, Some(21.0), &["act-2"]).await;
    assert_eq!(fixture.desired(), Some(3), "the load of the other one needs three");
    assert!(fixture.status().unattested);
    fixture.pass(30, Some(7.0), &["act-2"]).await;
    assert_eq!(fixture.desired(), Some(3), "it may not be the whole load");
    fixture.pass(3, Some(7.0), &["act-1", "act-2"]).await;
    let status = fixture.status();
    assert!(!status.unattested && status.warm_up_left.is_some(), "the window has a gap: {status:?}");
    fixture.pass(10, Some(7.0), &["act-1", "act-2"]).await;
    assert_eq!((fixture.desired(), fixture.status().warm_up_left), (Some(1), None));
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_decided_on_at_once() {
    let fixture = Fixture::with_pod();
    fixture.pass(7, Some(14.0), &[]).await;
    assert_eq!(fixture.desired(), Some(2));
    let mut edited = subject();
    edited.spec.target_value = 2.0;
    fixture.multiscaler.ensure(&fixture.key, edited, Initial::Unknown);
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert_eq!(fixture.desired(), Some(7));
}

/// Goal: after a takeover the status contains the time for which nothing is scaled down, and the reconciler is notified
/// when it ends.
#[tokio::test(start_paused = true)]
async fn a_takeover_scales_nothing_down_for_a_stable_window() {
    let fixture = Fixture::new();
    fixture.pods(1);
    fixture.ensure(Initial::TakenOver);
    assert_eq!(fixture.status().warm_up_left, Some(Duration::from_secs(6)));
    secs(3).await;
    assert!(fixture.has_request());
    assert!(fixture.status().warm_up_left.is_some());
    secs(10).await;
    assert_eq!(fixture.status().warm_up_left, None);
    assert!(fixture.has_request(), "now it may be scaled down");
}

/// Goal: a revision's series exist from its creation to its removal, under upstream's names, with the last decision.
#[tokio::test(start_paused = true)]
async fn series_live_as_long_as_the_loop() {
    let fixture = Fixture::new();
    fixture.ensure(Initial::Adopted(0));
    fixture.pods(2);
    fixture.stat(1.0);
    fixture.multiscaler.requested(&fixture.key, 3);
    let text = fixture.telemetry.encode().expect("text");
    let labels = "{k8s_namespace_name=\"ns\",kn_service_name=\"\",kn_configuration_name=\"hello\",\
                  kn_revision_name=\"hello\"}";
    for line in [
        "kn_revision_pods_desired{L} 1",
        "kn_revision_pods_requested{L} 3",
        "kn_revision_concurrency_target{L} 7.0",
        "kn_revision_panic_mode{L} 0",
    ] {
        let line = line.replace("{L}", labels);
        assert!(text.contains(&line), "{line} in\n{text}");
    }
    let phase = "zeroscale_scale_from_zero_seconds_count{k8s_namespace_name=\"ns\",kn_revision_name=\"hello\"}";
    assert!(text.contains(&format!("{phase} 0")), "{text}");
    let bounds = Bounds { min: 0, max: None };
    let planned = Action::planned(Some(1), 0, bounds, Reason::Desired);
    for _ in 0..2 {
        fixture.multiscaler.record_action(&fixture.key, Action { patched: true, ..planned }); // Only one had a stat.
    }
    let text = fixture.telemetry.encode().expect("text");
    assert!(text.contains(&format!("{phase} 1")), "{text}");
    let all = phase.replace("count{", "bucket{le=\"+Inf\",");
    assert!(text.contains(&format!("{all} 1")), "{text}");
    for (line, value) in [
        ("zeroscale_wakes_total{k8s_namespace_name=\"ns\",kn_revision_name=\"hello\",outcome=\"ready\"}", 1),
        ("zeroscale_decisions_total{outcome=\"not-attested\"}", 0),
    ] {
        assert!(text.lines().any(|found| found == format!("{line} {value}")), "{line} in\n{text}");
    }
    assert_eq!(catalog::differences(&text), <[String; 0]>::default());
    assert!(!text.contains("kn_revision_rps_stable_per_second{"), "the series of one metric only");
    let mut edited = subject();
    edited.spec.metric = ScalingMetric::Rps;
    fixture.multiscaler.ensure(&fixture.key, edited, Initial::Unknown);
    let text = fixture.telemetry.encode().expect("text");
    for name in ["rps_stable_per_second", "rps_panic_per_second", "rps_target_per_second", "pods_desired"] {
        assert!(text.contains(&format!("kn_revision_{name}{labels} ")), "{name} in\n{text}");
    }
    assert!(!text.contains("kn_revision_concurrency_stable{"), "the series of the former metric have ended");
    fixture.multiscaler.remove(&fixture.key);
    assert!(!fixture.telemetry.encode().expect("text").contains("{k8s_namespace_name"));
    assert_eq!(fixture.multiscaler.status(&fixture.key), None);
    secs(10).await; // Ticks of a removed loop do nothing.
}

/// Goal: after the load is discarded, no pods are wanted at once; the next stat wakes the revision as usual.
#[tokio::test(start_paused = true)]
async fn a_discarded_load_needs_no_pods() {
    let fixture = Fixture::with_pod();
    for _ in 0..4 {
        secs(1).await;
        fixture.stat(7.0);
    }
    let serving = || fixture.multiscaler.is_serving(&fixture.key);
    assert_eq!((fixture.desired(), serving()), (Some(1), Some(true)));
    secs(3).await;
    assert_eq!((fixture.desired(), serving()), (Some(1), Some(false)), "no requests now, but some within the window");
    fixture.multiscaler.forget_load(&fixture.key);
    assert_eq!((fixture.desired(), serving()), (Some(0), Some(false)), "at once");
    secs(3).await;
    assert_eq!(fixture.desired(), Some(0), "after a tick");
    fixture.stat(1.0);
    assert_eq!((fixture.desired(), serving()), (Some(1), Some(true)));
}

/// Goal: an operator's request to sleep works with several pods, too. Neither their former load nor their presence
/// while they end makes the decider want pods again, even before the response to the patch.
#[tokio::test(start_paused = true)]
async fn several_pods_are_sent_to_sleep_at_once() {
    for is_answered in [true, false] {
        let fixture = Fixture::busy().await;
        secs(3).await;
        fixture.multiscaler.forget_load(&fixture.key);
        if is_answered {
            fixture.observe(false, Some(0));
        }
        for second in 0..8 {
            assert_eq!(fixture.desired(), Some(0), "{second} s later, answered: {is_answered}");
            secs(1).await;
        }
        fixture.pods(0);
        fixture.stat(1.0);
        assert_eq!(fixture.desired(), Some(1), "it wakes as usual");
    }
}

/// Goal: pods count again once a request arrives, or once new pods exist after the sleep, so that they are not all
/// removed at once.
#[tokio::test(start_paused = true)]
async fn pods_count_again_when_a_sleep_is_over() {
    for has_request in [true, false] {
        let fixture = Fixture::busy().await;
        secs(3).await;
        fixture.multiscaler.forget_load(&fixture.key);
        fixture.pods(5);
        if has_request {
            fixture.stat(1.0);
        } else {
            [0, 5].into_iter().for_each(|replicas| fixture.observe(false, Some(replicas)));
            secs(3).await;
        }
        assert_eq!(fixture.desired(), Some(2), "half of them, with a request: {has_request}");
    }
}

/// Goal: if the metric is requests per second, a request that began long ago wakes the workload while it is held, and
/// keeps its pod while it runs. Upstream's rule ignores it.
#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_load_if_the_metric_is_requests_per_second() {
    for (has_own_rules, expected) in [(true, 1), (false, 0)] {
        let fixture = Fixture::by_rules(has_own_rules);
        let mut by_rate = subject();
        by_rate.spec.metric = ScalingMetric::Rps;
        fixture.multiscaler.ensure(&fixture.key, by_rate, Initial::Adopted(0));
        fixture.stat_of(1.0, 0.0);
        assert_eq!(fixture.desired(), Some(expected), "held, our rules: {has_own_rules}");
        fixture.pods(1);
        for second in 0..10 {
            secs(1).await;
            fixture.stat_of(1.0, 0.0);
            assert_eq!(fixture.desired(), Some(expected), "running for {second} s, our rules: {has_own_rules}");
        }
        assert_eq!(fixture.multiscaler.is_serving(&fixture.key), Some(true));
        secs(8).await;
        let serving = fixture.multiscaler.is_serving(&fixture.key);
        assert_eq!((fixture.desired(), serving), (Some(0), Some(false)), "after its end");
    }
}

/// Goal: a workload that served requests in the previous second counts as serving, even before the first report of
/// this one.
#[tokio::test(start_paused = true)]
async fn a_workload_that_served_a_moment_ago_counts_as_serving() {
    let fixture = Fixture::with_pod();
    let serving = || fixture.multiscaler.is_serving(&fixture.key);
    assert_eq!(serving(), Some(false));
    tokio::time::sleep(Duration::from_millis(900)).await;
    fixture.stat(1.0);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(serving(), Some(true));
    secs(3).await;
    assert_eq!(serving(), Some(false));
}

/// Goal: after the wall clock is set, the windows are empty, and no pod is removed before they have filled again.
#[tokio::test(start_paused = true)]
async fn a_clock_change_removes_no_pods() {
    let fixture = Fixture::busy().await;
    fixture.multiscaler.clock_was_set();
    for second in 0..5 {
        secs(1).await;
        assert_eq!(fixture.desired(), Some(3), "{second} s later");
        assert!(fixture.status().warm_up_left.is_some(), "{second} s later");
    }
    secs(20).await;
    assert_eq!(fixture.desired(), Some(1), "without requests, one half of the pods is removed at a time");
}
