//! Family of series that are created and removed with their subjects, such as revisions.
//!
//! `prometheus-client`'s own family is locked while all of it is written. This one lists its series and writes them one
//! by one ([`super::exposition`]).

use super::exposition::FamilyText;
use super::instrument::Instrument;
use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Metrics of one kind by their labels. Clones share the series.
pub struct Family<S, M> {
    series: Arc<RwLock<HashMap<Arc<S>, M>>>,
    new: fn() -> M,
}

impl<S, M: Default> Default for Family<S, M> {
    fn default() -> Self {
        Self::with_constructor(M::default)
    }
}

impl<S, M> Clone for Family<S, M> {
    fn clone(&self) -> Self {
        Self { series: self.series.clone(), new: self.new }
    }
}

impl<S, M> Family<S, M> {
    /// Creates a family of metrics that `new` creates.
    pub fn with_constructor(new: fn() -> M) -> Self {
        Self { series: Arc::default(), new }
    }
}

impl<S: Clone + Eq + Hash, M: Clone> Family<S, M> {
    /// Returns a handle of the series with these labels, which is exported from now on.
    pub fn get_or_create(&self, labels: &S) -> M {
        if let Some(metric) = self.series.read().get(labels) {
            return metric.clone();
        }
        let mut series = self.series.write();
        series.entry(Arc::new(labels.clone())).or_insert_with(self.new).clone()
    }

    /// Reports whether a series has these labels.
    pub fn contains(&self, labels: &S) -> bool {
        self.series.read().contains_key(labels)
    }

    /// Removes a series. Returns true if it existed.
    pub fn remove(&self, labels: &S) -> bool {
        self.series.write().remove(labels).is_some()
    }
}

impl<S: EncodeLabelSet + Send + Sync + 'static, M: EncodeMetric + TypedMetric + Clone + Send + 'static> Family<S, M> {
    /// Returns the family's current text.
    pub(super) fn text(&self, instrument: Instrument) -> FamilyText {
        let series: Vec<(Arc<S>, M)> =
            self.series.read().iter().map(|(labels, metric)| (labels.clone(), metric.clone())).collect();
        FamilyText::new(instrument, series, |(labels, metric), encoder| metric.encode(encoder.encode_family(&*labels)?))
    }
}
