//! The text of all revisions' series: one family after the other, revisions in order of their keys.

use super::{COLD_START_BOUNDS, Durations, Table, Values};
use common::RevisionKey;
use common::scaling::ScalingMetric;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Writes what the table holds.
pub(super) struct Series(pub(super) Table);

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Series").finish_non_exhaustive()
    }
}

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

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut all: Vec<(RevisionKey, Arc<Values>)> =
            self.0.read().iter().map(|(key, values)| (key.clone(), values.clone())).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (name, help, number) in GAUGES {
            let name = format!("kn_revision_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (key, values) in &all {
                // As upstream renders its attributes.
                let labels = [
                    ("k8s_namespace_name", key.namespace()),
                    ("kn_service_name", &*values.service),
                    ("kn_configuration_name", &*values.configuration),
                    ("kn_revision_name", key.name()),
                ];
                match number(values) {
                    Number::Whole(number) => family.encode_family(&labels)?.encode_gauge(&i64::from(number))?,
                    Number::Real(number) => family.encode_family(&labels)?.encode_gauge(&number)?,
                    Number::None => {}
                }
            }
        }
        cold_starts(&all, &mut encoder)
    }
}

fn cold_starts(all: &[(RevisionKey, Arc<Values>)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (name, help) = ("zeroscale_cold_start_phase", "Phases of cold starts.");
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (key, values) in all {
        // As the activator's.
        let labels = [("k8s_namespace_name", key.namespace()), ("kn_revision_name", key.name()), ("phase", "scale")];
        let durations = values.scale_phase.lock().as_deref().copied().unwrap_or_default();
        histogram(&durations, family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn histogram(durations: &Durations, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let bounds = COLD_START_BOUNDS.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(durations.counts).collect();
    let count = durations.counts.iter().sum();
    encoder.encode_histogram::<NoLabelSet>(durations.sum_seconds, count, &buckets, None)
}
