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

enum Number {
    Whole(i32),
    Real(f64),
}

/// Instrument of a gauge, the metric by which a revision must be scaled to have it (none: any), and its value.
type Gauge = (Instrument, Option<ScalingMetric>, fn(&MetricState) -> Number);

const CONCURRENCY: Option<ScalingMetric> = Some(ScalingMetric::Concurrency);
const RPS: Option<ScalingMetric> = Some(ScalingMetric::Rps);

const GAUGES: [Gauge; 14] = [
    (catalog::PODS_DESIRED, None, |state| Number::Whole(state.decision.map_or(0, |decision| decision.desired))),
    (catalog::CAPACITY_EXCESS, None, |state| {
        Number::Real(state.decision.map_or(0.0, |decision| decision.excess_burst_capacity.into()))
    }),
    (catalog::PANIC_MODE, None, |state| Number::Whole(state.decision.is_some_and(|is| is.panicking).into())),
    (catalog::CONCURRENCY_STABLE, CONCURRENCY, |state| Number::Real(state.inputs().stable)),
    (catalog::CONCURRENCY_PANIC, CONCURRENCY, |state| Number::Real(state.inputs().panic)),
    (catalog::CONCURRENCY_TARGET, CONCURRENCY, |state| Number::Real(state.inputs().target)),
    (catalog::RPS_STABLE, RPS, |state| Number::Real(state.inputs().stable)),
    (catalog::RPS_PANIC, RPS, |state| Number::Real(state.inputs().panic)),
    (catalog::RPS_TARGET, RPS, |state| Number::Real(state.inputs().target)),
    (catalog::PODS_REQUESTED, None, |state| Number::Whole(state.requested)),
    (catalog::PODS_COUNT, None, |state| Number::Whole(state.counts.ready)),
    (catalog::PODS_NOT_READY, None, |state| Number::Whole(state.counts.not_ready)),
    (catalog::PODS_PENDING, None, |state| Number::Whole(state.counts.pending)),
    (catalog::PODS_TERMINATING, None, |state| Number::Whole(state.counts.terminating)),
];

impl MetricState {
    /// Returns the inputs of the last decision; zero before the first.
    fn inputs(&self) -> Inputs {
        self.decision.map(|decision| decision.inputs).unwrap_or_default()
    }
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

fn numbers((instrument, metric, number): Gauge, all: Revisions) -> FamilyText {
    let series = (0..all.len()).map(move |at| all[at].clone());
    let series = series.filter(move |(_, values)| metric.is_none_or(|metric| metric == values.metric));
    FamilyText::new(instrument, series, move |(key, values), encoder| {
        // As upstream renders its attributes.
        let labels = [
            ("k8s_namespace_name", key.namespace()),
            ("kn_service_name", &*values.labels.service),
            ("kn_configuration_name", &*values.labels.configuration),
            ("kn_revision_name", key.name()),
        ];
        let number = number(&values.state.lock());
        match number {
            Number::Whole(number) => encoder.encode_family(&labels)?.encode_gauge(&i64::from(number)),
            Number::Real(number) => encoder.encode_family(&labels)?.encode_gauge(&number),
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
