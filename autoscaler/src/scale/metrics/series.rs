//! Text of all revisions' series: family by family, revisions in order of their keys.

use super::wake_stats::{POD_TIMES, WAKES, WakeStats};
use super::{COLD_START_BOUNDS, MetricState, Table, Values};
use autoscaler_core::decider::Inputs;
use common::RevisionKey;
use common::scaling::ScalingMetric;
use common_runtime::telemetry::{FamilyText, Instrument, catalog};
use prometheus_client::encoding::{EncodeCounterValue, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::histogram::Histogram;
use std::sync::Arc;

/// Value of one revision; none: it has no such series.
enum Number {
    Whole(i32),
    Real(f64),
    None,
}

/// Instrument of a gauge, and the function that reads its value.
type Gauge = (Instrument, fn(ScalingMetric, &MetricState) -> Number);

const GAUGES: [Gauge; 14] = [
    (catalog::PODS_DESIRED, |_, state| whole(state.decision.map_or(0, |decision| decision.desired))),
    (catalog::CAPACITY_EXCESS, |_, state| {
        Number::Real(state.decision.map_or(0.0, |decision| decision.excess_burst_capacity.into()))
    }),
    (catalog::PANIC_MODE, |_, state| whole(state.decision.is_some_and(|decision| decision.panicking).into())),
    (catalog::CONCURRENCY_STABLE, |metric, state| concurrency(metric, state, |inputs| inputs.stable)),
    (catalog::CONCURRENCY_PANIC, |metric, state| concurrency(metric, state, |inputs| inputs.panic)),
    (catalog::CONCURRENCY_TARGET, |metric, state| concurrency(metric, state, |inputs| inputs.target)),
    (catalog::RPS_STABLE, |metric, state| rps(metric, state, |inputs| inputs.stable)),
    (catalog::RPS_PANIC, |metric, state| rps(metric, state, |inputs| inputs.panic)),
    (catalog::RPS_TARGET, |metric, state| rps(metric, state, |inputs| inputs.target)),
    (catalog::PODS_REQUESTED, |_, state| whole(state.requested)),
    (catalog::PODS_COUNT, |_, state| whole(state.counts.ready)),
    (catalog::PODS_NOT_READY, |_, state| whole(state.counts.not_ready)),
    (catalog::PODS_PENDING, |_, state| whole(state.counts.pending)),
    (catalog::PODS_TERMINATING, |_, state| whole(state.counts.terminating)),
];

fn whole(number: i32) -> Number {
    Number::Whole(number)
}

/// Returns an input of the last decision, if the revision is scaled by concurrency.
fn concurrency(metric: ScalingMetric, state: &MetricState, input: fn(&Inputs) -> f64) -> Number {
    if metric == ScalingMetric::Concurrency { real(state, input) } else { Number::None }
}

/// Returns an input of the last decision, if the revision is scaled by requests per second.
fn rps(metric: ScalingMetric, state: &MetricState, input: fn(&Inputs) -> f64) -> Number {
    if metric == ScalingMetric::Rps { real(state, input) } else { Number::None }
}

fn real(state: &MetricState, input: fn(&Inputs) -> f64) -> Number {
    Number::Real(state.decision.map_or(0.0, |decision| input(&decision.inputs)))
}

/// Revisions in order, with their values.
type Revisions = Arc<[(RevisionKey, Arc<Values>)]>;

/// Returns every family with the current contents of `table`.
pub(super) fn families(table: &Table) -> Vec<FamilyText> {
    let mut all: Vec<(RevisionKey, Arc<Values>)> =
        table.read().iter().map(|(key, values)| (key.clone(), values.clone())).collect();
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let all: Revisions = all.into();
    let others = [
        counters((catalog::WAKES, "outcome", WAKES), all.clone(), |wake_stats| wake_stats.wakes),
        counters((catalog::POD_TIME, "state", POD_TIMES), all.clone(), |wake_stats| {
            wake_stats.times.map(|time| time.as_secs_f64())
        }),
        scaled_from_zero(all.clone()),
    ];
    GAUGES.map(|gauge| numbers(gauge, all.clone())).into_iter().chain(others).collect()
}

/// Returns a family with a counter for each revision and each of these values of a label.
fn counters<N: EncodeCounterValue + Send + 'static, const K: usize>(
    (instrument, label, names): (Instrument, &'static str, [&'static str; K]),
    all: Revisions,
    counts: fn(&WakeStats) -> [N; K],
) -> FamilyText {
    let series = (0..all.len()).flat_map(move |at| {
        let (key, values) = all[at].clone();
        let counts = counts(&values.state.lock().wake_stats);
        names.into_iter().zip(counts).map(move |(name, count)| (key.clone(), name, count))
    });
    FamilyText::new(instrument, series, move |(key, name, count), encoder| {
        let labels = [("k8s_namespace_name", key.namespace()), ("kn_revision_name", key.name()), (label, name)];
        encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, N, f64>(&count, None)
    })
}

fn numbers((instrument, number): Gauge, all: Revisions) -> FamilyText {
    let series = (0..all.len()).filter_map(move |at| {
        let (key, values) = &all[at];
        match number(values.metric, &values.state.lock()) {
            Number::None => None,
            number => Some((key.clone(), values.clone(), number)),
        }
    });
    FamilyText::new(instrument, series, |(key, values, number), encoder| {
        // As upstream renders its attributes.
        let labels = [
            ("k8s_namespace_name", key.namespace()),
            ("kn_service_name", &*values.labels.service),
            ("kn_configuration_name", &*values.labels.configuration),
            ("kn_revision_name", key.name()),
        ];
        match number {
            Number::Whole(number) => encoder.encode_family(&labels)?.encode_gauge(&i64::from(number)),
            Number::Real(number) => encoder.encode_family(&labels)?.encode_gauge(&number),
            Number::None => Ok(()),
        }
    })
}

fn scaled_from_zero(all: Revisions) -> FamilyText {
    let series = (0..all.len()).map(move |at| all[at].clone());
    FamilyText::new(catalog::SCALE_FROM_ZERO, series, |(key, values), encoder| {
        let labels = [("k8s_namespace_name", key.namespace()), ("kn_revision_name", key.name())];
        let durations = values.state.lock().scale_phase.clone();
        let durations = durations.unwrap_or_else(|| Histogram::new(COLD_START_BOUNDS));
        durations.encode(encoder.encode_family(&labels)?)
    })
}
