//! Prometheus (OpenMetrics) text of a plane's metrics, part by part.
//!
//! The text of ten thousand revisions has a hundred megabytes. So it is written as fast as it is read, a few series at
//! a time, and no part of it is kept. A family contains the series that exist when its turn comes; for that they are
//! listed, a pointer each. No lock is held between two parts: a slow reader delays no code that counts.

use super::instrument::Instrument;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::vec;

/// Size in bytes after which a part is complete.
const PART: usize = 16 * 1024;

/// Series that are added to a part at a time.
const SERIES_AT_ONCE: usize = 8;

/// Writes the next series of a family and returns true, or returns false if there is none.
type Next = Box<dyn FnMut(&mut MetricEncoder<'_>) -> Result<bool, fmt::Error> + Send>;

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
        let mut series = series.into_iter();
        let next = Box::new(move |encoder: &mut MetricEncoder<'_>| match series.next() {
            Some(one) => write(one, encoder).map(|()| true),
            None => Ok(false),
        });
        Self { instrument, next }
    }
}

/// Source of text.
pub(super) enum Source {
    /// One metric with few series.
    Metric(Registry),
    /// Families with many series.
    Families(Box<dyn Fn() -> Vec<FamilyText> + Send + Sync>),
}

/// The whole text, in parts of some ten kilobytes.
pub struct Exposition {
    sources: vec::IntoIter<Arc<Source>>,
    families: vec::IntoIter<FamilyText>,
    current: Option<Pages>,
    ended: bool,
}

impl Exposition {
    pub(super) fn new(sources: Vec<Arc<Source>>) -> Self {
        Self { sources: sources.into_iter(), families: Vec::new().into_iter(), current: None, ended: false }
    }

    /// Appends the next piece to `part`. Returns false if there is none.
    fn add(&mut self, part: &mut String) -> Result<bool, fmt::Error> {
        if let Some(pages) = &mut self.current {
            if !pages.add(part)? {
                self.current = None;
            }
            return Ok(true);
        }
        if let Some(family) = self.families.next() {
            self.current = Some(Pages::new(family));
            return Ok(true);
        }
        match self.sources.next().as_deref() {
            Some(Source::Metric(registry)) => encode_registry(part, registry)?,
            Some(Source::Families(families)) => self.families = families().into_iter(),
            None => return Ok(false),
        }
        Ok(true)
    }
}

impl Iterator for Exposition {
    type Item = Result<String, fmt::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let mut part = String::with_capacity(2 * PART);
        while part.len() < PART {
            match self.add(&mut part) {
                Ok(true) => {}
                last => {
                    self.ended = true;
                    return Some(last.and_then(|_| encode_eof(&mut part)).map(|()| part));
                }
            }
        }
        Some(Ok(part))
    }
}

/// A family, some series at a time. Only a collector gets the encoder that writes them, and the encoder also writes the
/// family's head. So each page has a head, and only the first one is kept.
struct Pages {
    page: Arc<Page>,
    registry: Registry,
    is_first: bool,
}

struct Page(Mutex<(FamilyText, usize)>);

impl Pages {
    fn new(family: FamilyText) -> Self {
        let page = Arc::new(Page(Mutex::new((family, 0))));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(page.clone()));
        Self { page, registry, is_first: true }
    }

    /// Appends the next series. Returns true if there may be more.
    fn add(&mut self, part: &mut String) -> Result<bool, fmt::Error> {
        let start = part.len();
        encode_registry(part, &self.registry)?;
        let (_, written) = *self.page.0.lock();
        if written == 0 {
            part.truncate(start);
        } else if !std::mem::take(&mut self.is_first) {
            let head = part[start..].split_inclusive('\n').take_while(|line| line.starts_with('#'));
            let head: usize = head.map(str::len).sum();
            part.replace_range(start..start + head, "");
        }
        Ok(written == SERIES_AT_ONCE)
    }
}

impl Collector for Page {
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

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
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
            Instrument::new(Kind::Histogram, "took", "How long").in_unit("s"),
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
        assert_eq!(text.matches("took_seconds_count{").count(), 5_000, "as it stood when its turn came");
        assert!(text.ends_with(&format!("last_total {}\n# EOF\n", parts - 1)), "{}", &text[text.len() - 100..]);
    }

    /// Goal: the text equals that of `prometheus-client`'s own families, with series and without.
    #[test]
    fn families_are_shown_as_the_librarys_own() {
        let (ours, theirs) = (Metrics::default(), Metrics::default());
        let gauges = ours.family(DEPTH, Family::<Labels, Gauge>::default());
        let same: family::Family<Labels, Gauge> = theirs.register(DEPTH, family::Family::default());
        assert_eq!(ours.encode().expect("text"), theirs.encode().expect("text"));
        gauges.get_or_create(&labels(1)).set(7);
        same.get_or_create(&labels(1)).set(7);
        assert_eq!(ours.encode().expect("text"), theirs.encode().expect("text"));
        gauges.remove(&labels(1));
        same.remove(&labels(1));
        assert_eq!(ours.encode().expect("text"), theirs.encode().expect("text"));
    }

    /// Goal: a family whose series fill pages exactly is complete.
    #[test]
    fn no_series_is_lost_between_pages() {
        for count in [0, 1, 7, 8, 9, 16, 17] {
            let metrics = Metrics::default();
            let gauges = metrics.family(DEPTH, Family::<Labels, Gauge>::default());
            for n in 0..count {
                gauges.get_or_create(&labels(n)).set(1);
            }
            let text = metrics.encode().expect("text");
            assert_eq!(text.matches("depth{").count(), count);
            assert_eq!(text.matches('#').count(), if count == 0 { 1 } else { 3 }, "{text}");
        }
    }
}
