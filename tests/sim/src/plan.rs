//! Plan of a run, chosen by the seed: the size of the cluster, the properties of its revisions, and the faults.

use crate::metrics::Metric;
use common::scaling::{Aggregation, Bounds, BurstCapacity, DeciderSpec};
use common::write_rate::Rate;
use common::{RevisionKey, ownership};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use std::time::Duration;

/// Time within which faults begin and end.
const FAULTS_END: Duration = Duration::from_secs(150);
/// End of a run. The time after the last fault suffices for everything that is due.
pub(crate) const END: Duration = Duration::from_secs(200);

/// Maximum time in seconds for which one autoscaler is cut off: long enough that its view of leases becomes stale.
const CUT_OFF_MAX: u64 = 60;

/// Properties fixed before a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) autoscalers: usize,
    pub(crate) activators: usize,
    pub(crate) entries: usize,
    pub(crate) buckets: usize,
    /// Write rate of each autoscaler.
    pub(crate) rate: Rate,
    pub(crate) revisions: Vec<Revision>,
    pub(crate) faults: Vec<PlannedFault>,
}

#[derive(Debug)]
pub(crate) struct Revision {
    pub(crate) key: RevisionKey,
    pub(crate) bucket: usize,
    pub(crate) spec: DeciderSpec,
    pub(crate) bounds: Bounds,
    pub(crate) grace_period: Duration,
    pub(crate) pod_retention: Duration,
    /// Time from creation to readiness.
    pub(crate) start_up: Duration,
    /// Maximum number of requests that one pod runs at once; 0 means no limit.
    pub(crate) concurrency: u32,
    /// True if pods report stats. Otherwise the activators always stay in the path.
    pub(crate) scraped: bool,
    /// Replicas at the start.
    pub(crate) found: i32,
    /// Metric of the revision, if any.
    pub(crate) metric: Option<Metric>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedFault {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process is paused, and its events wait.
    PauseAutoscaler(usize),
    /// The process dies, and restarts at the end.
    CrashAutoscaler(usize),
    /// The process releases its leases before it exits, and restarts at the end.
    LeaveAutoscaler(usize),
    /// The process is paused.
    PauseActivator(usize),
    /// The process dies with every request it holds, and restarts at the end.
    CrashActivator(usize),
    /// An autoscaler and the API server cannot reach each other.
    CutApi(usize),
    /// An autoscaler's requests reach the API server, but it receives no responses and no changes.
    LoseAnswers(usize),
    /// The API server is unavailable to all processes.
    StopApi,
    /// Responses take up to a second and a half.
    SlowApi,
    /// Writes of objects take seconds (because admission is slow); writes of leases do not.
    SlowWrites,
    /// An activator's stats reach no autoscaler while its traffic continues.
    CutStats(usize),
    /// An activator's frames are lost, duplicated or delayed.
    SpoilStats(usize),
    /// Two autoscalers cannot forward to each other.
    CutPeers(usize, usize),
    /// An autoscaler's scrapes of pods fail.
    CutScrapes(usize),
    /// An autoscaler's requests to the metrics API fail.
    CutMetrics(usize),
    /// Another writer repeatedly sets a revision's replicas to this number.
    Rival(usize, i32),
    /// Entries learn of new endpoints only after this many seconds.
    SlowEntries(u64),
}

impl Plan {
    pub(crate) fn new(rng: &mut StdRng) -> Self {
        let (autoscalers, activators) = (rng.random_range(1..=3), rng.random_range(1..=3));
        let buckets = [1, 2, 4][rng.random_range(0..3)];
        let count = rng.random_range(1..=3);
        let names = ownership::bucket_names(buckets as u32);
        let revisions = (0..count).map(|index| Revision::new(index, &names, rng)).collect();
        let mut faults: Vec<_> = (0..rng.random_range(3..=9)).map(|_| fault(autoscalers, activators, rng)).collect();
        faults.extend((0..rng.random_range(0..=2)).map(|_| replica_fault(autoscalers, count, rng)));
        if autoscalers > 1 && rng.random_bool(0.5) {
            faults.extend(hand_over_during_writes(autoscalers, rng));
        }
        // From a rate that hardly suffices to Knative's.
        let rate = Rate { qps: f64::from(rng.random_range(4..=40)), burst: rng.random_range(1..=80) };
        Self { autoscalers, activators, entries: rng.random_range(1..=3), buckets, rate, revisions, faults }
    }
}

impl Revision {
    fn new(index: usize, buckets: &[String], rng: &mut StdRng) -> Self {
        let key = RevisionKey::new("default", format!("revision-{index}"));
        let owner = ownership::owner(buckets, &key.to_string()).unwrap_or_default();
        let scraped = rng.random_bool(0.5);
        let target_value = f64::from(rng.random_range(1..=4));
        let stable_window = seconds(20, 30, rng);
        let min = i32::from(rng.random_bool(0.15));
        let spec = DeciderSpec {
            max_scale_up_rate: f64::from(rng.random_range(2..=10)),
            target_value,
            total_value: target_value,
            target_burst_capacity: if scraped {
                BurstCapacity::Limited(f64::from(rng.random_range(0..=2)) + 0.5)
            } else {
                BurstCapacity::Always
            },
            stable_window,
            scale_down_delay: if rng.random_bool(0.2) { seconds(2, 10, rng) } else { Duration::ZERO },
            activation_scale: rng.random_range(1..=2),
            aggregation: if rng.random_bool(0.2) { Aggregation::WeightedExponential } else { Aggregation::Linear },
            ..DeciderSpec::default()
        };
        Self {
            bucket: buckets.iter().position(|name| name == owner).unwrap_or(0),
            key,
            spec,
            bounds: Bounds { min, max: rng.random_bool(0.5).then(|| rng.random_range(2..=5)) },
            grace_period: seconds(6, 12, rng),
            pod_retention: if rng.random_bool(0.2) { seconds(1, 15, rng) } else { Duration::ZERO },
            start_up: Duration::from_millis(rng.random_range(300..=6000)),
            concurrency: rng.random_range(0..=3),
            scraped,
            found: rng.random_range(min..=1),
            metric: rng.random_bool(0.4).then(|| Metric::new(rng)),
        }
    }
}

fn seconds(least: u64, most: u64, rng: &mut impl Rng) -> Duration {
    Duration::from_secs(rng.random_range(least..=most))
}

fn fault(autoscalers: usize, activators: usize, rng: &mut StdRng) -> PlannedFault {
    let autoscaler = rng.random_range(0..autoscalers);
    let activator = rng.random_range(0..activators);
    let (fault, longest) = match rng.random_range(0..22) {
        0 | 15..=17 => (Fault::PauseAutoscaler(autoscaler), 45),
        1 => (Fault::CrashAutoscaler(autoscaler), 25),
        2 | 18 => (Fault::LeaveAutoscaler(autoscaler), 10),
        3 => (Fault::PauseActivator(activator), 10),
        4 => (Fault::CrashActivator(activator), 10),
        5 => (Fault::CutApi(autoscaler), CUT_OFF_MAX),
        6 => (Fault::LoseAnswers(autoscaler), CUT_OFF_MAX),
        7 => (Fault::StopApi, 40),
        8 | 19..=21 => (Fault::SlowApi, 60),
        9 => (Fault::CutStats(activator), 60),
        10 => (Fault::SpoilStats(activator), 40),
        11 => (Fault::CutPeers(autoscaler, rng.random_range(0..autoscalers)), 40),
        12 => (Fault::CutScrapes(autoscaler), 40),
        _ => (Fault::SlowEntries(rng.random_range(10..=60)), 100),
    };
    planned(fault, longest, rng)
}

/// Plans a fault that affects the number of replicas.
fn replica_fault(autoscalers: usize, revisions: usize, rng: &mut StdRng) -> PlannedFault {
    if rng.random_bool(0.6) {
        return planned(Fault::CutMetrics(rng.random_range(0..autoscalers)), 90, rng);
    }
    planned(Fault::Rival(rng.random_range(0..revisions), rng.random_range(1..=6)), 100, rng)
}

/// Plans slow writes, and a hand-over of their leases meanwhile, by an autoscaler that exits and restarts.
fn hand_over_during_writes(autoscalers: usize, rng: &mut StdRng) -> [PlannedFault; 2] {
    let slow = planned(Fault::SlowWrites, 60, rng);
    let exit = Fault::LeaveAutoscaler(rng.random_range(0..autoscalers));
    let at = slow.at + slow.lasts.mul_f64(rng.random_range(0.2..0.8));
    [slow, PlannedFault { at, lasts: seconds(1, 10, rng), fault: exit }]
}

/// Plans a fault at a random time.
fn planned(fault: Fault, longest: u64, rng: &mut StdRng) -> PlannedFault {
    let lasts = seconds(1, longest, rng);
    let at = Duration::from_millis(rng.random_range(2_000..=(FAULTS_END - lasts).as_millis() as u64));
    PlannedFault { at, lasts, fault }
}
