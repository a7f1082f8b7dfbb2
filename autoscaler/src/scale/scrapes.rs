//! Durations of scrapes: one histogram for each configuration, as upstream. A series lives as long as any revision of
//! its configuration.

use super::SubjectLabels;
use common_runtime::telemetry::Family;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Upstream's bucket bounds, in seconds.
const BOUNDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Labels as upstream renders its attributes; the revision's own is not among them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    k8s_namespace_name: String,
    kn_service_name: String,
    kn_configuration_name: String,
}

pub(super) type Durations = Family<Labels, Histogram>;

/// Histograms of all configurations. Clones share them.
#[derive(Clone)]
pub(super) struct Scrapes {
    durations: Durations,
    shared: Arc<Mutex<HashMap<Labels, Weak<Series>>>>,
}

/// Histogram of one configuration. It ends with the last of its revisions.
pub(super) struct Series {
    labels: Labels,
    scrapes: Scrapes,
    histogram: Histogram,
}

impl Scrapes {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        Self { durations: Family::of(|| Histogram::new(BOUNDS)), shared: Arc::default() }
    }

    /// Returns the family to register.
    pub(super) fn family(&self) -> Durations {
        self.durations.clone()
    }

    /// Returns the histogram of a revision's configuration.
    pub(super) fn of(&self, namespace: &str, labels: &SubjectLabels) -> Arc<Series> {
        let labels = Labels {
            k8s_namespace_name: namespace.to_owned(),
            kn_service_name: labels.service.clone(),
            kn_configuration_name: labels.configuration.clone(),
        };
        let mut shared = self.shared.lock();
        if let Some(series) = shared.get(&labels).and_then(Weak::upgrade) {
            return series;
        }
        let histogram = self.durations.get_or_create(&labels);
        let series = Arc::new(Series { labels: labels.clone(), scrapes: self.clone(), histogram });
        shared.insert(labels, Arc::downgrade(&series));
        series
    }
}

impl Series {
    /// Returns the histogram to observe into.
    pub(super) fn histogram(&self) -> Histogram {
        self.histogram.clone()
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        let mut shared = self.scrapes.shared.lock();
        // After the last reference was released, another revision may have acquired the same labels. The series is
        // then its own.
        if shared.get(&self.labels).is_some_and(|series| series.strong_count() == 0) {
            shared.remove(&self.labels);
            self.scrapes.durations.remove(&self.labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: revisions of one configuration share a histogram, and it goes with the last of them.
    #[test]
    fn a_series_ends_with_the_last_revision() {
        let scrapes = Scrapes::new();
        let labels = SubjectLabels { service: "shop".into(), configuration: "web".into() };
        let exists = || scrapes.shared.lock().len();
        let (first, second) = (scrapes.of("ns", &labels), scrapes.of("ns", &labels));
        let other = scrapes.of("other", &labels);
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        drop(first);
        assert_eq!(exists(), 2);
        drop(second);
        assert_eq!(exists(), 1);
        let gone = Labels { k8s_namespace_name: "ns".into(), ..other.labels.clone() };
        assert!(!scrapes.durations.contains(&gone) && scrapes.durations.contains(&other.labels));
    }
}
