//! What one decision costs, windows included: `cargo run --release -p autoscaler-core --example decision`.
//!
//! Many revisions take turns, as they do on the wheel, so that their state comes from memory and not from a cache that
//! only a benchmark of a single revision would enjoy. Each turn is one tick: two stats recorded (one a second), the
//! load averaged, the decision made, explained in the history and compared with the last one.

use std::hint::black_box;
use std::time::{Duration, Instant};

use autoscaler_core::decider::{Decider, Observation};
use autoscaler_core::history::History;
use autoscaler_core::inform::Status;
use autoscaler_core::metrics::{Metrics, MetricsSpec};
use common::scaling::{Aggregation, BurstCapacity, DeciderSpec, ScalingMetric};
use common::stat::Stat;
use common::time::Timestamp;

const REVISIONS: usize = 10_000;
const ROUNDS: i64 = 200;

struct Revision {
    metrics: Metrics,
    decider: Decider,
    status: Status,
    history: History,
}

fn main() {
    println!("{} bytes for each revision, beside the rings of its windows and its history", size_of::<Revision>());
    for aggregation in [Aggregation::Linear, Aggregation::WeightedExponential] {
        for (name, silent_secs) in [("under load", 0), ("silent for 50 s", 50)] {
            measure(aggregation, name, silent_secs);
        }
    }
}

fn measure(aggregation: Aggregation, name: &str, silent_secs: u64) {
    let spec = spec(aggregation);
    let start = Timestamp::from_secs(1_700_000_000);
    let mut revisions: Vec<Revision> = (0..REVISIONS).map(|_| Revision::new(&spec, start)).collect();
    let (mut recording, mut deciding, mut informed) = (Duration::ZERO, Duration::ZERO, 0_u64);
    for round in 0..ROUNDS {
        let now = start + Duration::from_secs(2 * round as u64);
        let begin = clock();
        for (i, revision) in revisions.iter_mut().enumerate() {
            for second in 0..2 {
                let stat = stat(i as i64, 2 * round + second);
                revision
                    .metrics
                    .record(black_box(&stat), now + Duration::from_secs(second as u64))
                    .expect("a sane stat");
            }
        }
        recording += begin.elapsed();
        let begin = clock();
        let now = now + Duration::from_secs(1 + silent_secs);
        for revision in &mut revisions {
            let observation = Observation { now, ready: Ok(3), load: revision.metrics.load(spec.metric, now, true) };
            let decision = revision.decider.decide(black_box(&spec), &observation);
            revision.history.record(now, &decision);
            informed += u64::from(revision.status.apply(&decision));
            revision.metrics.release(now);
        }
        deciding += begin.elapsed();
    }
    let turns = (REVISIONS as f64) * ROUNDS as f64;
    let ns = |total: Duration, each: f64| total.as_nanos() as f64 / each;
    println!(
        "{aggregation:?}, {name}: {:.0} ns for each decision, {:.0} ns for each stat ({informed} changes)",
        ns(deciding, turns),
        ns(recording, 2.0 * turns),
    );
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn clock() -> Instant {
    Instant::now()
}

impl Revision {
    fn new(spec: &DeciderSpec, now: Timestamp) -> Self {
        let metrics = MetricsSpec {
            stable_window: spec.stable_window,
            panic_window: spec.panic_window,
            aggregation: spec.aggregation,
            scraped: true,
        };
        Self {
            metrics: Metrics::new(&metrics),
            decider: Decider::new(spec, 1, now),
            status: Status::initial(spec),
            history: History::new(),
        }
    }
}

/// A load that wavers, differently for each revision.
fn stat(revision: i64, second: i64) -> Stat {
    let load = 200.0 + ((revision * 31 + second * 7) % 40) as f64;
    Stat { average_concurrent_requests: load, request_count: load, ..Stat::default() }
}

fn spec(aggregation: Aggregation) -> DeciderSpec {
    DeciderSpec {
        max_scale_up_rate: 1000.0,
        max_scale_down_rate: 2.0,
        metric: ScalingMetric::Concurrency,
        target_value: 70.0,
        total_value: 100.0,
        target_burst_capacity: BurstCapacity::Limited(211.0),
        activator_capacity: 100.0,
        panic_threshold: 2.0,
        stable_window: Duration::from_secs(60),
        panic_window: Duration::from_secs(6),
        scale_down_delay: Duration::ZERO,
        initial_scale: 1,
        activation_scale: 0,
        reachable: true,
        aggregation,
    }
}
