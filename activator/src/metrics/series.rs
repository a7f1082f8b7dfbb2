//! Histograms that are observed together: several measures of one exchange under one lock.
//!
//! `prometheus-client`'s histogram has its own lock, so an exchange with five measures took five locks, each behind
//! another pointer. Here a [`Side`] has all series of one revision and one side of its exchanges. An observation finds
//! its series and updates all measures under one lock: some 30 ns, and no allocation except for the first exchange of
//! each series.
//!
//! [`Sides`] holds all sides and exports each measure as a metric of its own, with the same labels.

use crate::metrics::ending::Ending;
use crate::metrics::{ExchangeKind, Labels};
use common_runtime::environment::Mode;
use common_runtime::telemetry::{self, FamilyText, Instrument};
use parking_lot::Mutex;
use prometheus_client::encoding::NoLabelSet;
use std::sync::Arc;

/// Maximum number of buckets of a measure, including the one beyond the last bound.
const BUCKETS_MAX: usize = 16;

#[derive(Clone)]
pub(crate) struct Measure {
    pub(crate) instrument: Instrument,
    /// Upper bounds of the buckets, ascending, fewer than [`BUCKETS_MAX`].
    pub(crate) bounds: &'static [f64],
}

/// All series of `N` measures. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sides<const N: usize>(Arc<SeriesSetShared<N>>);

struct SeriesSetShared<const N: usize> {
    bounds: [&'static [f64]; N],
    mode: Mode,
    /// First status that is an error on this side.
    errors_from: u16,
    exported: Mutex<Vec<Arc<Side<N>>>>,
}

/// Series of one revision, by kind and status.
pub(crate) struct Side<const N: usize> {
    bounds: [&'static [f64]; N],
    mode: Mode,
    base: Labels,
    series: Mutex<Vec<Series<N>>>,
}

struct Series<const N: usize> {
    kind: ExchangeKind,
    ending: Ending,
    histograms: [Histogram; N],
}

#[derive(Clone, Copy, Default)]
struct Histogram {
    sum: f64,
    /// Counts per bucket, not cumulative.
    counts: [u64; BUCKETS_MAX],
}

impl<const N: usize> Sides<N> {
    /// Registers `measures` for export. `errors_from`: first status that is an error on this side.
    pub(crate) fn register(
        registry: &telemetry::Metrics,
        mode: Mode,
        errors_from: u16,
        measures: [Measure; N],
    ) -> Self {
        let bounds = measures.each_ref().map(|measure| measure.bounds);
        let sides = Self(Arc::new(SeriesSetShared { bounds, mode, errors_from, exported: Mutex::default() }));
        for (at, measure) in measures.into_iter().enumerate() {
            let sides = sides.clone();
            registry.collect(move || vec![sides.text(&measure, at)]);
        }
        sides
    }

    /// Returns the measure with this index, for all current series.
    fn text(&self, measure: &Measure, at: usize) -> FamilyText {
        let (sides, mode, errors_from) = (self.0.exported.lock().clone(), self.0.mode, self.0.errors_from);
        // The series of a revision are copied together and encoded outside the lock that requests take.
        let series = sides.into_iter().flat_map(move |side| {
            let all: Vec<(ExchangeKind, Ending, Histogram)> =
                side.series.lock().iter().map(|s| (s.kind.clone(), s.ending, s.histograms[at])).collect();
            all.into_iter().map(move |series| (side.clone(), series))
        });
        FamilyText::new(measure.instrument, series, move |(side, (kind, ending, histogram)), encoder| {
            let Histogram { sum, counts } = histogram;
            let labels = kind.labels(&side.base, ending, mode, errors_from);
            let buckets: Vec<(f64, u64)> = side.bounds[at].iter().copied().chain([f64::INFINITY]).zip(counts).collect();
            let count = counts.iter().sum();
            encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        })
    }

    /// Creates the series of one revision, with the labels `base`.
    pub(crate) fn side(&self, base: Labels) -> Arc<Side<N>> {
        let SeriesSetShared { bounds, mode, .. } = *self.0;
        let side = Arc::new(Side { bounds, mode, base, series: Mutex::default() });
        self.0.exported.lock().push(side.clone());
        side
    }

    /// Stops the export of a side. Later observations are not visible.
    pub(crate) fn remove(&self, side: &Arc<Side<N>>) {
        self.0.exported.lock().retain(|exported| !Arc::ptr_eq(exported, side));
    }
}

impl<const N: usize> Side<N> {
    /// Observes each value; NaN means not measured.
    pub(crate) fn observe(&self, kind: &ExchangeKind, ending: Ending, values: [f64; N]) {
        let Some(ending) = ending.reported_by(self.mode) else { return };
        let mut all = self.series.lock();
        let at = match all.iter().position(|series| series.ending == ending && series.kind == *kind) {
            Some(at) => at,
            None => {
                all.push(Series { kind: kind.clone(), ending, histograms: [Histogram::default(); N] });
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
        // There are few bounds, so comparing with all of them avoids branches.
        let bucket = bounds.iter().filter(|bound| value > **bound).count();
        self.counts[bucket] += 1;
        self.sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;
    use activator_net::ProxyError;
    use common_runtime::telemetry::instrument::Kind;
    use http::{Method, StatusCode, Version};

    fn instrument(name: &'static str) -> Instrument {
        Instrument { unit: "s", ..Instrument::new(Kind::Histogram, name, "Help") }
    }

    fn measure(name: &'static str, bounds: &'static [f64]) -> Measure {
        Measure { instrument: instrument(name), bounds }
    }

    /// Observes each ending of an HTTP/1.1 GET once. Returns the number of series and the exported text.
    fn exported(mode: Mode, errors_from: u16, endings: impl IntoIterator<Item = Ending>) -> (usize, String) {
        let metrics = telemetry::Metrics::default();
        let sides = Sides::register(&metrics, mode, errors_from, [measure("a", &[1.0])]);
        let side = sides.side(Vec::new());
        let kind = ExchangeKind::new(&Method::GET, Version::HTTP_11, false);
        endings.into_iter().for_each(|ending| side.observe(&kind, ending, [0.5]));
        let series = side.series.lock().len();
        (series, metrics.encode().expect("text"))
    }

    #[test]
    fn the_export_equals_that_of_prometheus_clients_histograms() {
        use prometheus_client::metrics::{family::Family, histogram};
        static BOUNDS: [f64; 2] = [0.5, 1.0];
        let values = [0.25, 0.5, 0.75, 1.0, 1.5];
        let kind = ExchangeKind::new(&Method::GET, Version::HTTP_2, false);
        let base: Labels = vec![("name", "a".to_owned())];

        let ours = telemetry::Metrics::default();
        let sides = Sides::register(&ours, Mode::Standalone, 500, [measure("a", &BOUNDS), measure("b", &BOUNDS)]);
        let side = sides.side(base.clone());
        let theirs = telemetry::Metrics::default();
        let family = |name| {
            let new: fn() -> histogram::Histogram = || histogram::Histogram::new(BOUNDS);
            theirs.register(instrument(name), Family::new_with_constructor(new))
        };
        let ok = Ending::answered(StatusCode::OK);
        let labels = kind.labels(&base, ok, Mode::Standalone, 500);
        let [a, b] = ["a", "b"].map(|name| family(name).get_or_create_owned(&labels));
        for value in values {
            side.observe(&kind, ok, [value, f64::NAN]);
            a.observe(value);
        }
        side.observe(&kind, ok, [f64::NAN, 2.0]);
        b.observe(2.0);
        assert_eq!(ours.encode().expect("text"), theirs.encode().expect("text"));

        sides.remove(&side);
        side.observe(&kind, ok, [0.25, 0.25]);
        assert_eq!(ours.encode().expect("text"), "# EOF\n");
    }

    /// Goal: errors have a type in standalone mode, and only a status in knative mode, whose series match
    /// Knative's. Method: each ending once, on both sides.
    #[test]
    fn errors_are_typed_by_mode() {
        let pod = ProxyError::Pod { dest: ([10, 0, 0, 1], 80).into(), cause: "reset".to_owned() };
        let endings = [
            Ending::answered(StatusCode::OK),
            Ending::answered(StatusCode::NOT_FOUND),
            Ending::answered(StatusCode::BAD_GATEWAY),
            Ending::from(&Refusal::from(pod)),
            Ending::from(&Refusal::NoRevision { name: "app".to_owned() }),
            Ending::from(&Refusal::ClientGone),
            Ending::unanswered("connection"),
        ];
        let series = |mode, errors_from: u16| {
            let (_, text) = exported(mode, errors_from, endings);
            let label = |line: &str, name: &str| {
                line.split_once(&format!("{name}=\"")).and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()))
            };
            let counts = text.lines().filter(|line| line.starts_with("a_seconds_count{"));
            let series = counts.map(|line| {
                let both = ["status_code", "error_type"].map(|name| label(line, name).unwrap_or_default()).join(" ");
                format!("{both} {}", line.rsplit(' ').next().unwrap_or_default())
            });
            series.collect::<Vec<String>>()
        };
        let server = ["200  1", "404  2", "502 502 1", "502 pod 1", " client-gone 1", " connection 1"];
        assert_eq!(series(Mode::Standalone, 500), server);
        let client = ["200  1", "404 404 2", "502 502 1", "502 pod 1", " client-gone 1", " connection 1"];
        assert_eq!(series(Mode::Standalone, 400), client);
        assert_eq!(series(Mode::Knative, 500), ["200  1", "404  2", "502  2", "400  1"]);
    }

    /// Goal: a pod that sends every possible status creates one series per status that HTTP names, and one per class.
    #[test]
    fn statuses_without_a_name_are_counted_by_class() {
        let every = (200..=999).map(|status| StatusCode::from_u16(status).expect("three digits"));
        let (series, text) = exported(Mode::Standalone, 500, every.map(Ending::answered));
        let named = (200..=599).filter(|s| StatusCode::from_u16(*s).is_ok_and(|s| s.canonical_reason().is_some()));
        assert_eq!(series, named.count() + 8);
        for (status, count) in [("200", 1), ("404", 1), ("503", 1), ("2xx", 90), ("7xx", 100), ("9xx", 100)] {
            let error = if status < "5" { String::new() } else { format!(",error_type=\"{status}\"") };
            let count = format!(
                "http_response_status_code=\"{status}\",network_protocol_name=\"http\",\
                network_protocol_version=\"1.1\",url_scheme=\"http\"{error}}} {count}\n"
            );
            assert!(text.contains(&format!("a_seconds_count{{http_request_method=\"GET\",{count}")), "{count} {text}");
        }
        assert!(!text.contains("\"299\"") && !text.contains("\"777\""));
    }
}
