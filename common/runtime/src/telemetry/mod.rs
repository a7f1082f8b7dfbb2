//! Logs, metrics and traces: how they leave the process.
//!
//! Metrics live in one [`Metrics`] registry for each plane (never a global: two planes may share a process), handles
//! are registered once and held by whoever counts.

mod logs;
mod names;
pub mod otlp;
pub mod traces;

pub use logs::{Format, LogControl, init_logs};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use std::sync::Arc;

/// One plane's metrics. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Metrics {
    /// Registers a metric under `name`; the returned handle counts.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.registry.lock().register(name, help, metric.clone());
        metric
    }

    /// Registers a metric whose name gets the unit as a suffix.
    pub fn register_with_unit<M: Metric + Clone>(&self, name: &str, help: &str, unit: Unit, metric: M) -> M {
        self.registry.lock().register_with_unit(name, help, unit, metric.clone());
        metric
    }

    /// Has `collector` write metrics that it keeps itself, each time somebody asks.
    pub fn collect(&self, collector: impl Collector) {
        self.registry.lock().register_collector(Box::new(collector));
    }

    /// Shows what the process is, as `target_info`.
    pub fn describe(&self, target: Vec<(String, String)>) {
        self.registry.lock().register("target", "The process", Info::new(target));
    }

    /// The Prometheus (OpenMetrics) text of everything registered.
    ///
    /// # Errors
    /// A collector failed to write itself.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}
