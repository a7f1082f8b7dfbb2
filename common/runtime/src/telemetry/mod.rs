//! Logs, metrics and traces, and their export.
//!
//! Each plane has one [`Metrics`] registry, never a global one: two planes may share a process. Handles are registered
//! once and held by the code that counts. [`catalog`] lists all metrics that can be registered.

pub mod catalog;
mod exposition;
mod family;
mod formats;
pub mod instrument;
mod logs;
pub mod manual;
pub mod otlp;
pub(crate) mod own;
pub mod traces;
pub mod values;

pub use exposition::FamilyText;
pub use family::Family;
pub use formats::TextFormat;
pub use instrument::Instrument;
pub use logs::{Format, LogControl, init_logs};

use exposition::{Part, Source};
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode_eof;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use std::fmt;
use std::iter;
use std::sync::Arc;

/// Metrics of one plane. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    sources: Arc<Mutex<Vec<Arc<Source>>>>,
}

impl Metrics {
    /// Registers a metric with few series; the returned handle counts.
    pub fn register<M: Metric + Clone>(&self, instrument: Instrument, metric: M) -> M {
        let mut registry = Registry::default();
        match instrument.suffix() {
            Some(unit) => registry.register_with_unit(instrument.base(), instrument.meaning, unit, metric.clone()),
            None => registry.register(instrument.base(), instrument.meaning, metric.clone()),
        }
        self.add(Source::Metric(Some(instrument), Box::new(registry)));
        metric
    }

    /// Registers a family of many series.
    pub fn family<S, M>(&self, instrument: Instrument, family: Family<S, M>) -> Family<S, M>
    where
        S: EncodeLabelSet + Send + Sync + 'static,
        M: EncodeMetric + TypedMetric + Clone + Send + Sync + 'static,
    {
        let exported = family.clone();
        self.collect(move || vec![exported.text(instrument)]);
        family
    }

    /// Registers `collect`, which lists its own families at each scrape.
    pub fn collect(&self, collect: impl Fn() -> Vec<FamilyText> + Send + Sync + 'static) {
        self.add(Source::Families(Box::new(collect)));
    }

    /// Adds the description of the process as `target_info`.
    pub fn describe(&self, target: Vec<(String, String)>) {
        let mut registry = Registry::default();
        registry.register("target", "The process", Info::new(target));
        self.add(Source::Metric(None, Box::new(registry)));
    }

    /// Returns the Prometheus (OpenMetrics) text of everything registered, part by part.
    pub fn exposition(&self) -> impl Iterator<Item = Result<String, fmt::Error>> + Send + use<> {
        let end = iter::once_with(|| {
            let mut end = String::new();
            encode_eof(&mut end).map(|()| end)
        });
        self.parts().map(|part| part.map(|part| part.text)).chain(end)
    }

    /// Returns the whole text in one piece, which may be large. Fails if a metric cannot be written.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        self.exposition().collect()
    }

    fn parts(&self) -> impl Iterator<Item = Result<Part, fmt::Error>> + Send + use<> {
        let sources = self.sources.lock().clone();
        sources.into_iter().flat_map(|source| source.parts())
    }

    fn add(&self, source: Source) {
        self.sources.lock().push(Arc::new(source));
    }
}
