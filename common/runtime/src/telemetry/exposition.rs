//! Prometheus (OpenMetrics) text of a plane's metrics, part by part.
//!
//! The text of ten thousand revisions has a hundred megabytes. So a few series at a time are written, as fast as they
//! are read, and no part is stored. A family contains the series that exist when its first part is written: a list of
//! pointers to them is made then. No lock is held between two parts, so a slow reader does not delay code that counts.

use super::instrument::Instrument;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::registry::Registry;
use std::fmt;
use std::iter;
use std::sync::Arc;

/// Series in one part.
const SERIES_AT_ONCE: usize = 8;

/// Writes the next series of a family and returns true, or returns false if there is none.
type Next = Box<dyn FnMut(&mut MetricEncoder<'_>) -> Result<bool, fmt::Error> + Send>;

/// Parts of a text. A reader stops at the first error.
pub(super) type Parts = Box<dyn Iterator<Item = Result<Part, fmt::Error>> + Send>;

/// Part of the text: some series of one family.
pub(super) struct Part {
    /// Instrument of the family; `None`: the description of the process.
    pub(super) instrument: Option<Instrument>,
    pub(super) text: String,
}

/// Family of series, each written in its turn. A family without series is omitted.
pub struct FamilyText {
    instrument: Instrument,
    next: Next,
}

impl FamilyText {
    /// Creates a family; `write` writes one series for each of `series`, with its labels.
    pub fn new<T>(
        instrument: Instrument,
        series: impl IntoIterator<Item = T, IntoIter: Send + 'static>,
        mut write: impl FnMut(T, &mut MetricEncoder<'_>) -> fmt::Result + Send + 'static,
    ) -> Self {
        let mut series = series.into_iter().fuse();
        let next = Box::new(move |encoder: &mut MetricEncoder<'_>| match series.next() {
            Some(one) => write(one, encoder).map(|()| true),
            None => Ok(false),
        });
        Self { instrument, next }
    }

    /// Returns the text. Only a collector gets the encoder that writes series, and the encoder also writes the family's
    /// head. So each part has a head at first, and only the first part keeps it.
    fn parts(self) -> impl Iterator<Item = Result<Part, fmt::Error>> + Send {
        let instrument = Some(self.instrument);
        let collector = Arc::new(FamilyCollector(Mutex::new((self, 0))));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(collector.clone()));
        let mut is_first = true;
        iter::from_fn(move || {
            let mut text = String::new();
            if let Err(error) = encode_registry(&mut text, &registry) {
                return Some(Err(error));
            }
            let (_, written) = *collector.0.lock();
            if !std::mem::take(&mut is_first) {
                let head = text.split_inclusive('\n').take_while(|line| line.starts_with('#'));
                let head: usize = head.map(str::len).sum();
                text.drain(..head);
            }
            (written > 0).then_some(Ok(Part { instrument, text }))
        })
    }
}

/// Source of text.
pub(super) enum Source {
    /// One metric with few series.
    Metric(Option<Instrument>, Box<Registry>),
    /// Families with many series.
    Families(Box<dyn Fn() -> Vec<FamilyText> + Send + Sync>),
}

impl Source {
    /// Returns the present text.
    pub(super) fn parts(&self) -> Parts {
        match self {
            Self::Metric(instrument, registry) => {
                let mut text = String::new();
                let written = encode_registry(&mut text, registry);
                Box::new(iter::once(written.map(|()| Part { instrument: *instrument, text })))
            }
            Self::Families(families) => Box::new(families().into_iter().flat_map(FamilyText::parts)),
        }
    }
}

/// Family of which the next series are written, and the number of those in the last part.
struct FamilyCollector(Mutex<(FamilyText, usize)>);

impl Collector for FamilyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (FamilyText { instrument, next }, written) = &mut *self.0.lock();
        let (name, help, unit) = (instrument.base(), format!("{}.", instrument.meaning), instrument.suffix());
        let mut encoder = encoder.encode_descriptor(&name, &help, unit.as_ref(), instrument.kind.into())?;
        *written = 0;
        while *written < SERIES_AT_ONCE && next(&mut encoder)? {
            *written += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for FamilyCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FamilyCollector").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::instrument::Kind;
    use crate::telemetry::{Family, Instrument, Metrics};
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

    const DEPTH: Instrument = Instrument::new(Kind::Gauge, "depth", "Depth");

    type Labels = Vec<(&'static str, String)>;

    fn labels(n: usize) -> Labels {
        vec![("k8s_namespace_name", "a-namespace".to_owned()), ("kn_revision_name", format!("a-revision-{n:05}"))]
    }

    /// Goal: for any number of series no part is large, and the parts make up the whole; series come, go and are
    /// counted while a part is read. Method: the histograms of 5 000 revisions.
    #[test]
    fn many_series_come_in_small_parts() {
        let metrics = Metrics::default();
        let new: fn() -> Histogram = || Histogram::new([0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        let family = metrics.family(
            Instrument { unit: "s", ..Instrument::new(Kind::Histogram, "took", "How long") },
            Family::<Labels, _>::with_constructor(new),
        );
        let counter: Counter = metrics.register(Instrument::new(Kind::Counter, "last", "Counter"), Counter::default());
        for n in 0..5_000 {
            family.get_or_create(&labels(n)).observe(0.3);
        }
        let (mut text, mut parts) = (String::new(), 0);
        for part in metrics.exposition() {
            let part = part.expect("text");
            assert!(part.len() < 64 * 1024, "a part of {} bytes", part.len());
            text.push_str(&part);
            parts += 1;
            // None of these operations blocks.
            assert!(family.remove(&labels(parts)));
            family.get_or_create(&labels(5_000 + parts)).observe(0.3);
            counter.inc();
        }
        assert!(parts > 100, "{} bytes in {parts} parts", text.len());
        assert_eq!(text.matches("# TYPE took_seconds histogram\n").count(), 1);
        assert_eq!(text.matches("took_seconds_count{").count(), 5_000, "as they were when the family began");
        // The end is a part of its own.
        assert!(text.ends_with(&format!("last_total {}\n# EOF\n", parts - 2)), "{}", &text[text.len() - 100..]);
    }

    /// Goal: the text equals that of `prometheus-client`'s own families, also if series fill parts exactly or were
    /// removed. Several series have no order.
    #[test]
    fn families_are_written_as_the_librarys_own() {
        let (ours, theirs) = (Metrics::default(), Metrics::default());
        let gauges = ours.family(DEPTH, Family::<Labels, Gauge>::default());
        let same: family::Family<Labels, Gauge> = theirs.register(DEPTH, family::Family::default());
        let lines = |metrics: &Metrics, is_sorted: bool| {
            let mut lines: Vec<String> = metrics.encode().expect("text").lines().map(str::to_owned).collect();
            if is_sorted {
                lines.sort_unstable();
            }
            lines
        };
        for count in [0, 1, 7, 8, 9, 16, 17, 0] {
            for n in 0..count {
                gauges.get_or_create(&labels(n)).set(7);
                same.get_or_create(&labels(n)).set(7);
            }
            for n in count..20 {
                gauges.remove(&labels(n));
                same.remove(&labels(n));
            }
            assert_eq!(lines(&ours, count > 1), lines(&theirs, count > 1), "{count}");
        }
    }
}
