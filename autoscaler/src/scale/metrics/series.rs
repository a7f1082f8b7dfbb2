//! The text of all revisions' series: one family after the other, revisions in order of their keys.

use super::{COLD_START_BOUNDS, Durations, Table, Values};
use common::RevisionKey;
use common::scaling::ScalingMetric;
use common_runtime::telemetry::FamilyText;
use prometheus_client::encoding::{MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A number of one revision; none: it has no such series.
enum Number {
    Whole(i32),
    Real(f64),
    None,
}

/// Name without its prefix, help, and the number.
type Gauge = (&'static str, &'static str, fn(&Values) -> Number);

const GAUGES: [Gauge; 14] = [
    ("pods_desired", "Pods that the autoscaler wants, min and max scale aside.", |v| whole(v.desired.load(Relaxed))),
    ("capacity_excess", "Excess burst capacity; negative: activators are in the path.", |v| {
        Number::Real(f64::from(v.excess.load(Relaxed)))
    }),
    ("panic_mode", "1 while the autoscaler panics, else 0.", |v| whole(i32::from(v.panic_mode.load(Relaxed)))),
    ("concurrency_stable", "Requests in flight of the whole revision, averaged over the stable window.", |v| {
        of(v, ScalingMetric::Concurrency, v.stable.get())
    }),
    ("concurrency_panic", "Requests in flight of the whole revision, averaged over the panic window.", |v| {
        of(v, ScalingMetric::Concurrency, v.panic.get())
    }),
    ("concurrency_target", "Requests in flight that one pod should see.", |v| {
        of(v, ScalingMetric::Concurrency, v.target.get())
    }),
    ("rps_stable_per_second", "Requests a second of the whole revision, averaged over the stable window.", |v| {
        of(v, ScalingMetric::Rps, v.stable.get())
    }),
    ("rps_panic_per_second", "Requests a second of the whole revision, averaged over the panic window.", |v| {
        of(v, ScalingMetric::Rps, v.panic.get())
    }),
    ("rps_target_per_second", "Requests a second that one pod should see.", |v| {
        of(v, ScalingMetric::Rps, v.target.get())
    }),
    ("pods_requested", "Pods asked of the target, bounds and grace periods applied.", |v| {
        whole(v.requested.load(Relaxed))
    }),
    ("pods_count", "Ready pods.", |v| whole(v.ready.load(Relaxed))),
    ("pods_not_ready_count", "Pods that are not ready.", |v| whole(v.not_ready.load(Relaxed))),
    ("pods_pending_count", "Pods that have not started yet.", |v| whole(v.pending.load(Relaxed))),
    ("pods_terminating_count", "Pods on their way out.", |v| whole(v.terminating.load(Relaxed))),
];

fn whole(number: i32) -> Number {
    Number::Whole(number)
}

/// A number of revisions that are scaled by this metric.
fn of(values: &Values, metric: ScalingMetric, number: f64) -> Number {
    if values.metric == metric { Number::Real(number) } else { Number::None }
}

/// Every family of what `table` holds now.
pub(super) fn families(table: &Table) -> Vec<FamilyText> {
    let mut all: Vec<(RevisionKey, Arc<Values>)> =
        table.read().iter().map(|(key, values)| (key.clone(), values.clone())).collect();
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let all: Arc<[(RevisionKey, Arc<Values>)]> = all.into();
    GAUGES.map(|gauge| numbers(gauge, all.clone())).into_iter().chain([cold_starts(all)]).collect()
}

fn numbers((name, help, number): Gauge, all: Arc<[(RevisionKey, Arc<Values>)]>) -> FamilyText {
    let series = (0..all.len()).filter_map(move |at| {
        let (key, values) = &all[at];
        match number(values) {
            Number::None => None,
            number => Some((key.clone(), values.clone(), number)),
        }
    });
    let head = (format!("kn_revision_{name}"), help, None);
    FamilyText::new(head, MetricType::Gauge, series, |(key, values, number), encoder| {
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

fn cold_starts(all: Arc<[(RevisionKey, Arc<Values>)]>) -> FamilyText {
    let head = ("zeroscale_cold_start_phase", "Phases of cold starts.", Some(Unit::Seconds));
    let series = (0..all.len()).map(move |at| all[at].clone());
    FamilyText::new(head, MetricType::Histogram, series, |(key, values), encoder| {
        // As the activator's.
        let labels = [("k8s_namespace_name", key.namespace()), ("kn_revision_name", key.name()), ("phase", "scale")];
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
