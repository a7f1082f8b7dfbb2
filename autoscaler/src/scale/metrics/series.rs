//! Text of all revisions' series: family by family, revisions in order of their keys.

use super::lived::{POD_TIMES, WAKES};
use super::{COLD_START_BOUNDS, Durations, Table, Values};
use common::RevisionKey;
use common::scaling::ScalingMetric;
use common_runtime::telemetry::{FamilyText, Instrument, catalog};
use prometheus_client::encoding::{MetricEncoder, NoLabelSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Value of one revision; none: it has no such series.
enum Number {
    Whole(i32),
    Real(f64),
    None,
}

/// Instrument of a gauge, and the function that reads its value.
type Gauge = (Instrument, fn(&Values) -> Number);

const GAUGES: [Gauge; 14] = [
    (catalog::PODS_DESIRED, |v| whole(v.desired.load(Relaxed))),
    (catalog::CAPACITY_EXCESS, |v| Number::Real(f64::from(v.excess.load(Relaxed)))),
    (catalog::PANIC_MODE, |v| whole(i32::from(v.panic_mode.load(Relaxed)))),
    (catalog::CONCURRENCY_STABLE, |v| of(v, ScalingMetric::Concurrency, v.stable.get())),
    (catalog::CONCURRENCY_PANIC, |v| of(v, ScalingMetric::Concurrency, v.panic.get())),
    (catalog::CONCURRENCY_TARGET, |v| of(v, ScalingMetric::Concurrency, v.target.get())),
    (catalog::RPS_STABLE, |v| of(v, ScalingMetric::Rps, v.stable.get())),
    (catalog::RPS_PANIC, |v| of(v, ScalingMetric::Rps, v.panic.get())),
    (catalog::RPS_TARGET, |v| of(v, ScalingMetric::Rps, v.target.get())),
    (catalog::PODS_REQUESTED, |v| whole(v.requested.load(Relaxed))),
    (catalog::PODS_COUNT, |v| whole(v.ready.load(Relaxed))),
    (catalog::PODS_NOT_READY, |v| whole(v.not_ready.load(Relaxed))),
    (catalog::PODS_PENDING, |v| whole(v.pending.load(Relaxed))),
    (catalog::PODS_TERMINATING, |v| whole(v.terminating.load(Relaxed))),
];

fn whole(number: i32) -> Number {
    Number::Whole(number)
}

/// Returns the value only for revisions that are scaled by this metric.
fn of(values: &Values, metric: ScalingMetric, number: f64) -> Number {
    if values.metric == metric { Number::Real(number) } else { Number::None }
}

/// Returns every family with the current contents of `table`.
pub(super) fn families(table: &Table) -> Vec<FamilyText> {
    let mut all: Vec<(RevisionKey, Arc<Values>)> =
        table.read().iter().map(|(key, values)| (key.clone(), values.clone())).collect();
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let all: Arc<[(RevisionKey, Arc<Values>)]> = all.into();
    let others = [wakes(all.clone()), pod_time(all.clone()), scaled_from_zero(all.clone())];
    GAUGES.map(|gauge| numbers(gauge, all.clone())).into_iter().chain(others).collect()
}

fn wakes(all: Arc<[(RevisionKey, Arc<Values>)]>) -> FamilyText {
    let series = (0..all.len()).flat_map(move |at| {
        let (key, values) = all[at].clone();
        let counts = values.lived.lock().wakes;
        WAKES.into_iter().zip(counts).map(move |(outcome, count)| (key.clone(), outcome, count))
    });
    FamilyText::new(catalog::WAKES, series, |(key, outcome, count), encoder| {
        let labels = [("k8s_namespace_name", key.namespace()), ("kn_revision_name", key.name()), ("outcome", outcome)];
        encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&count, None)
    })
}

fn pod_time(all: Arc<[(RevisionKey, Arc<Values>)]>) -> FamilyText {
    let series = (0..all.len()).flat_map(move |at| {
        let (key, values) = all[at].clone();
        let times = values.lived.lock().times;
        POD_TIMES.into_iter().zip(times).map(move |(state, time)| (key.clone(), state, time.as_secs_f64()))
    });
    FamilyText::new(catalog::POD_TIME, series, |(key, state, seconds), encoder| {
        let labels = [("k8s_namespace_name", key.namespace()), ("kn_revision_name", key.name()), ("state", state)];
        encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&seconds, None)
    })
}

fn numbers((instrument, number): Gauge, all: Arc<[(RevisionKey, Arc<Values>)]>) -> FamilyText {
    let series = (0..all.len()).filter_map(move |at| {
        let (key, values) = &all[at];
        match number(values) {
            Number::None => None,
            number => Some((key.clone(), values.clone(), number)),
        }
    });
    FamilyText::new(instrument, series, |(key, values, number), encoder| {
        // As upstream renders its attributes.
        let labels = [
            ("k8s_namespace_name", key.namespace()),
            ("kn_service_name", &*values.service),
            ("kn_configuration_name", &*values.configuration),
            ("kn_revision_name", key.name()),
        ];
        match number {
            Number::Whole(number) => encoder.encode_family(&labels)?.encode_gauge(&i64::from(number)),
            Number::Real(number) => encoder.encode_family(&labels)?.encode_gauge(&number),
            Number::None => Ok(()),
        }
    })
}

fn scaled_from_zero(all: Arc<[(RevisionKey, Arc<Values>)]>) -> FamilyText {
    let series = (0..all.len()).map(move |at| all[at].clone());
    FamilyText::new(catalog::SCALE_FROM_ZERO, series, |(key, values), encoder| {
        let labels = [("k8s_namespace_name", key.namespace()), ("kn_revision_name", key.name())];
        let durations = values.scale_phase.lock().as_deref().copied().unwrap_or_default();
        histogram(&durations, encoder.encode_family(&labels)?)
    })
}

fn histogram(durations: &Durations, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let bounds = COLD_START_BOUNDS.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(durations.counts).collect();
    let count = durations.counts.iter().sum();
    encoder.encode_histogram::<NoLabelSet>(durations.sum_seconds, count, &buckets, None)
}
