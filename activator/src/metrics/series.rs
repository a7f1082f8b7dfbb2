//! Histograms that are observed together: several measures of one exchange, one lock.
//!
//! `prometheus-client`'s histogram has a lock of its own, so an exchange with five measures took five, each behind
//! another pointer. Here a [`Side`] has all series of one revision and one side of its exchanges, and an observation
//! finds its series and adds to its measures while it holds the one lock of them all: some 30 ns, and no allocation
//! but for the first exchange of each series.
//!
//! [`Sides`] are all of them. It shows each measure as a metric of its own to whoever asks, with the same labels.

use crate::metrics::{ExchangeKind, Labels};
use common_runtime::telemetry;
use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::Arc;

/// Most buckets of a measure, that of everything beyond the last bound included.
const BUCKETS_MAX: usize = 16;

#[derive(Clone)]
pub(crate) struct Measure {
    /// The metric, less its unit.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) unit: Unit,
    /// Upper bounds of its buckets, ascending, fewer than [`BUCKETS_MAX`].
    pub(crate) bounds: &'static [f64],
}

/// All series of `N` measures. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sides<const N: usize>(Arc<Shared<N>>);

struct Shared<const N: usize> {
    bounds: [&'static [f64]; N],
    shown: Mutex<Vec<Arc<Side<N>>>>,
}

/// The series of one revision, by kind and status.
pub(crate) struct Side<const N: usize> {
    bounds: [&'static [f64]; N],
    base: Labels,
    series: Mutex<Vec<Series<N>>>,
}

struct Series<const N: usize> {
    kind: ExchangeKind,
    status: StatusCode,
    histograms: [Histogram; N],
}

#[derive(Clone, Copy, Default)]
struct Histogram {
    sum: f64,
    /// Not cumulative.
    counts: [u64; BUCKETS_MAX],
}

/// One measure of all series.
#[derive(Clone)]
struct Shown<const N: usize> {
    sides: Sides<N>,
    measure: usize,
}

impl<const N: usize> Sides<N> {
    /// Shows `measures` from now on.
    pub(crate) fn register(registry: &telemetry::Metrics, measures: [Measure; N]) -> Self {
        let bounds = measures.each_ref().map(|measure| measure.bounds);
        let sides = Self(Arc::new(Shared { bounds, shown: Mutex::default() }));
        for (at, Measure { name, help, unit, .. }) in measures.into_iter().enumerate() {
            registry.register_with_unit(name, help, unit, Shown { sides: sides.clone(), measure: at });
        }
        sides
    }

    /// Those under the labels `base`.
    pub(crate) fn side(&self, base: Labels) -> Arc<Side<N>> {
        let side = Arc::new(Side { bounds: self.0.bounds, base, series: Mutex::default() });
        self.0.shown.lock().push(side.clone());
        side
    }

    /// Shows it no longer. What is observed yet is seen by nobody.
    pub(crate) fn remove(&self, side: &Arc<Side<N>>) {
        self.0.shown.lock().retain(|shown| !Arc::ptr_eq(shown, side));
    }
}

impl<const N: usize> Side<N> {
    /// Observes each value; what is no number was not measured.
    pub(crate) fn observe(&self, kind: &ExchangeKind, status: StatusCode, values: [f64; N]) {
        let mut all = self.series.lock();
        let at = match all.iter().position(|series| series.status == status && series.kind == *kind) {
            Some(at) => at,
            None => {
                all.push(Series { kind: kind.clone(), status, histograms: [Histogram::default(); N] });
                all.len() - 1
            }
        };
        for ((histogram, bounds), value) in all[at].histograms.iter_mut().zip(self.bounds).zip(values) {
            if !value.is_nan() {
                histogram.observe(bounds, value);
            }
        }
    }
}

impl Histogram {
    fn observe(&mut self, bounds: &[f64], value: f64) {
        // They are few: to compare with all takes no branch.
        let bucket = bounds.iter().filter(|bound| value > **bound).count();
        self.counts[bucket] += 1;
        self.sum += value;
    }
}

impl<const N: usize> EncodeMetric for Shown<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let (sides, at) = (self.sides.0.shown.lock().clone(), self.measure);
        for side in sides {
            // Not written under the lock that requests take.
            let all: Vec<(ExchangeKind, StatusCode, Histogram)> =
                side.series.lock().iter().map(|s| (s.kind.clone(), s.status, s.histograms[at])).collect();
            for (kind, status, Histogram { sum, counts }) in all {
                let count = counts.iter().sum();
                let labels = kind.labels(&side.base, status);
                let buckets: Vec<(f64, u64)> =
                    side.bounds[at].iter().copied().chain([f64::INFINITY]).zip(counts).collect();
                encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }

    fn is_empty(&self) -> bool {
        self.sides.0.shown.lock().iter().all(|side| side.series.lock().is_empty())
    }
}

impl<const N: usize> fmt::Debug for Shown<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("measure", &self.measure).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Version};

    fn measure(name: &'static str, bounds: &'static [f64]) -> Measure {
        Measure { name, help: "Help", unit: Unit::Seconds, bounds }
    }

    /// Goal: what is shown is what `prometheus-client` shows of its own histograms.
    #[test]
    fn series_are_shown_as_if_each_had_a_histogram() {
        use prometheus_client::metrics::{family::Family, histogram};
        static BOUNDS: [f64; 2] = [0.5, 1.0];
        let values = [0.25, 0.5, 0.75, 1.0, 1.5];
        let kind = ExchangeKind::new(&Method::GET, Version::HTTP_2, false);
        let base: Labels = vec![("name", "a".to_owned())];

        let ours = telemetry::Metrics::default();
        let sides = Sides::register(&ours, [measure("a", &BOUNDS), measure("b", &BOUNDS)]);
        let side = sides.side(base.clone());
        let theirs = telemetry::Metrics::default();
        let family = |name| {
            let new: fn() -> histogram::Histogram = || histogram::Histogram::new(BOUNDS);
            theirs.register_with_unit(name, "Help", Unit::Seconds, Family::new_with_constructor(new))
        };
        let labels = kind.labels(&base, StatusCode::OK);
        let [a, b] = ["a", "b"].map(|name| family(name).get_or_create_owned(&labels));
        for value in values {
            side.observe(&kind, StatusCode::OK, [value, f64::NAN]);
            a.observe(value);
        }
        side.observe(&kind, StatusCode::OK, [f64::NAN, 2.0]);
        b.observe(2.0);
        assert_eq!(ours.encode().expect("text"), theirs.encode().expect("text"));

        sides.remove(&side);
        side.observe(&kind, StatusCode::OK, [0.25, 0.25]);
        assert_eq!(ours.encode().expect("text"), "# EOF\n");
    }
}
