//! The Metric controller: passes the spec of a Metric to the collector, and the collection's health to its status.
//!
//! A Metric has the labels and annotations of its PodAutoscaler, so the averaging algorithm is read from here, as
//! upstream does.

use super::store::Objects;
use crate::cluster::error::Error;
use crate::engine::parts::Parts;
use crate::scale::CollectSpec;
use common::RevisionKey as Key;
use common::annotations;
use common::config::AutoscalerConfig;
use common::names;
use common_api::metric_status::CollectionError;
use common_api::{Metric, MetricStatus};
use common_controller::{Passed, Passes, Written};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Controller {
    pub(crate) parts: Parts,
    pub(crate) objects: Arc<Objects>,
}

impl Controller {
    /// Reconciles one Metric.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let (writes, collection) = (&self.parts.writes, &self.parts.ports.collection);
        let Some(metric) = self.objects.metrics.get(key).filter(|_| writes.leadership.owns(key)) else {
            collection.remove(key);
            return Ok(());
        };
        if metric.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let run = async |mut status: MetricStatus, now| {
            status.mark(self.collect(key, &metric).as_ref().copied(), now);
            Passed { outcome: Ok(()), object: metric.clone(), status }
        };
        let (writer, recorder) = (writes.writer(), &writes.recorder);
        let statuses = Written { writer, store: &self.objects.metrics, recorder, component: "metric-controller" };
        Passes { statuses: &statuses, clock: &writes.clock }.over(&metric, run).await
    }

    /// Starts or updates the collection, and returns its health.
    fn collect(&self, key: &Key, metric: &Metric) -> Result<(), CollectionError> {
        let collection = &self.parts.ports.collection;
        collection.ensure(key, collect_spec(metric, &self.parts.configs.autoscaler.borrow())?);
        collection.health(key).unwrap_or(Ok(()))
    }
}

/// Returns the parameters of the collection that a Metric requests.
fn collect_spec(metric: &Metric, config: &AutoscalerConfig) -> Result<CollectSpec, CollectionError> {
    let scrape_target = Some(metric.spec.scrape_target.clone()).filter(|target| !target.is_empty());
    if scrape_target.is_some() && metric.labels().get(names::REVISION).is_none_or(String::is_empty) {
        let (label, name) = (names::REVISION, metric.name_any());
        return Err(CollectionError::Other(format!("label {label:?} not found or empty in Metric {name}")));
    }
    metric.validate().map_err(|errors| CollectionError::Other(errors.to_string()))?;
    let nanos = |n: i64| Duration::from_nanos(u64::try_from(n).unwrap_or(0));
    let (stable_window, panic_window) = (nanos(metric.spec.stable_window), nanos(metric.spec.panic_window));
    let aggregation = annotations::decider_spec(metric.annotations(), config, 0, true).aggregation;
    Ok(CollectSpec { stable_window, panic_window, aggregation, scrape_target })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::scaling::Aggregation;
    use serde_json::{Value, json};

    fn spec(labels: Value, scrape_target: &str, stable: i64) -> Result<CollectSpec, CollectionError> {
        let metric: Metric = serde_json::from_value(json!({
            "metadata": {"name": "hello", "namespace": "ns", "labels": labels, "annotations": {
                "autoscaling.knative.dev/metric-aggregation-algorithm": "weighted-exponential",
            }},
            "spec": {"stableWindow": stable, "panicWindow": 6_000_000_000_i64, "scrapeTarget": scrape_target},
        }))
        .expect("a Metric");
        collect_spec(&metric, &AutoscalerConfig::default())
    }

    #[test]
    fn a_metric_is_translated_or_rejected() {
        let revision = json!({"serving.knative.dev/revision": "hello"});
        let collected = spec(revision.clone(), "hello-private", 60_000_000_000).expect("sound");
        assert_eq!(collected.stable_window, Duration::from_secs(60));
        assert_eq!(collected.aggregation, Aggregation::WeightedExponential);
        assert_eq!(collected.scrape_target.as_deref(), Some("hello-private"));
        assert_eq!(spec(json!({}), "", 60_000_000_000).expect("nothing is scraped").scrape_target, None);
        for (labels, window) in [(json!({}), 60_000_000_000), (revision, 0)] {
            assert!(matches!(spec(labels, "hello-private", window), Err(CollectionError::Other(_))));
        }
    }
}
