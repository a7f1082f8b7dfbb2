//! Cost of one decision, windows included.
//!
//! Many revisions take turns, as they do on the timer wheel, so their state comes from memory and not from a cache that
//! only a benchmark of a single revision would benefit from. Each turn is one tick: two stats are recorded (one per
//! second), the load is averaged, and the decision is made, recorded in the history, and compared with the previous
//! one. The rows exclude the recording of stats; a context figure shows its cost.
#![allow(clippy::disallowed_methods, reason = "tokio's clock costs more than what is measured")]

use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use autoscaler_core::decider::{Decider, Observation};
use autoscaler_core::history::History;
use autoscaler_core::metrics::{CollectSpec, Metrics};
use autoscaler_core::scale_status::ScaleStatus;
use common::annotations::{self, Annotations};
use common::config::AutoscalerConfig;
use common::scaling::DeciderSpec;
use common::stat::Stat;
use common::time::Timestamp;
use futures::FutureExt;
use std::hint::black_box;
use std::time::{Duration, Instant};

const REVISIONS: usize = 10_000;
const ROUNDS: i64 = 40;

const fn row(name: &'static str, what: &'static str) -> Row {
    Row::at_most(name, what, "ns", 1000.0, 300.0)
}

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        row("decision-load", "one decision, including its windows, under load"),
        row("decision-silent", "the same, without load for 50 s"),
    ],
    run: |settings| async { run(settings) }.boxed_local(),
};

fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let (load, stats) = series(settings, 0)?;
    let (silent, _) = series(settings, 50)?;
    figures.row("decision-load", load);
    figures.row("decision-silent", silent);
    figures.add_context("one stat recorded", stats);
    Ok(figures)
}

/// Returns the nanoseconds of a decision and of recording a stat, by repetition.
fn series(settings: &Settings, silent_secs: u64) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let all: anyhow::Result<Vec<_>> = (0..settings.repetitions).map(|_| measure(silent_secs)).collect();
    Ok(all?.into_iter().unzip())
}

struct Revision {
    metrics: Metrics,
    decider: Decider,
    status: ScaleStatus,
    history: History,
}

fn measure(silent_secs: u64) -> anyhow::Result<(f64, f64)> {
    // The spec of a revision without annotations.
    let spec = annotations::decider_spec(&Annotations::new(), &AutoscalerConfig::default(), 0, true);
    let start = Timestamp::from_secs(1_700_000_000);
    let mut revisions: Vec<Revision> = (0..REVISIONS).map(|_| Revision::new(&spec, start)).collect();
    let (mut recording, mut deciding) = (Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS {
        let now = start + Duration::from_secs(2 * round as u64);
        let begin = Instant::now();
        for (i, revision) in revisions.iter_mut().enumerate() {
            for second in 0..2 {
                let stat = stat(i as i64, 2 * round + second);
                revision.metrics.record(black_box(&stat), now + Duration::from_secs(second as u64))?;
            }
        }
        recording += begin.elapsed();
        let begin = Instant::now();
        let now = now + Duration::from_secs(1 + silent_secs);
        for revision in &mut revisions {
            let observation =
                Observation { now, ready: Ok(3), load: revision.metrics.load(spec.metric, now), attested: true };
            let decision = revision.decider.decide(black_box(&spec), &observation);
            revision.history.record(now, &decision);
            black_box(revision.status.apply(&decision, true));
            revision.metrics.release(now);
        }
        deciding += begin.elapsed();
    }
    let turns = REVISIONS as f64 * ROUNDS as f64;
    Ok((deciding.as_nanos() as f64 / turns, recording.as_nanos() as f64 / turns / 2.0))
}

impl Revision {
    fn new(spec: &DeciderSpec, now: Timestamp) -> Self {
        let metrics = CollectSpec {
            stable_window: spec.stable_window,
            panic_window: spec.panic_window,
            aggregation: spec.aggregation,
            scrape_target: Some(String::new()),
        };
        Self {
            metrics: Metrics::new(&metrics),
            decider: Decider::new(spec, 1, now),
            status: ScaleStatus::initial(spec),
            history: History::default(),
        }
    }
}

/// Returns a stat with a load that fluctuates, differently for each revision.
fn stat(revision: i64, second: i64) -> Stat {
    let load = 200.0 + ((revision * 31 + second * 7) % 40) as f64;
    Stat { average_concurrent_requests: load, request_count: load, ..Stat::default() }
}
