//! Logs and metrics: how they leave the process.
//!
//! Logs are structured, JSON lines on stderr in a cluster and readable text where a person looks on. Metrics live in
//! one [`Metrics`] registry for each plane (never a global: two planes may share a process), handles are registered
//! once and held by whoever counts.

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry, Unit};
use std::sync::Arc;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Sends logs to stderr. `RUST_LOG` overrides `default_level`. A second call in one process changes nothing.
pub fn init_logs(format: Format, default_level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default_level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // An error means that a subscriber is installed already, which is then the one to keep.
    let _ = match format {
        Format::Json => builder.json().flatten_event(true).try_init(),
        Format::Text => builder.compact().try_init(),
    };
}

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
