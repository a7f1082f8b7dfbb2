//! JSON responses of the metrics APIs, and their conversion for the rules.
//!
//! Each amount is rounded up to thousandths before anything is added. `window` of the resource metrics API is a
//! duration in Go's syntax. The custom metrics API has whole seconds, as `windowSeconds` in v1beta2 and `window` in
//! v1beta1.

use common::golang;
use hpa_core::quantity::Quantity;
use hpa_core::status::timestamp;
use hpa_core::usage::{PodUsage, PodValue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(super) struct List<T> {
    #[serde(default = "Vec::new", deserialize_with = "null_is_empty")]
    pub(super) items: Vec<T>,
}

/// `PodMetrics` of `metrics.k8s.io/v1beta1`.
#[derive(Deserialize)]
pub(super) struct PodMetrics {
    metadata: Named,
    timestamp: Option<Time>,
    #[serde(default, deserialize_with = "go_duration")]
    window: Duration,
    #[serde(default = "Vec::new", deserialize_with = "null_is_empty")]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    usage: BTreeMap<String, Milli>,
}

impl From<PodMetrics> for PodUsage {
    fn from(metrics: PodMetrics) -> Self {
        let container = |container: ContainerMetrics| {
            let usage = container.usage.into_iter().map(|(resource, amount)| (resource, amount.0));
            (container.name, usage.collect())
        };
        Self {
            pod: metrics.metadata.name,
            timestamp: metrics.timestamp.as_ref().map(timestamp).unwrap_or_default(),
            window: metrics.window,
            containers: metrics.containers.into_iter().map(container).collect(),
        }
    }
}

/// `MetricValue` of `custom.metrics.k8s.io`, in either version.
#[derive(Deserialize)]
pub(super) struct MetricValue {
    #[serde(rename = "describedObject")]
    described_object: Named,
    timestamp: Option<Time>,
    #[serde(rename = "windowSeconds", alias = "window")]
    window: Option<i64>,
    pub(super) value: Milli,
}

impl From<MetricValue> for PodValue {
    fn from(value: MetricValue) -> Self {
        Self {
            pod: value.described_object.name,
            timestamp: value.timestamp.as_ref().map(timestamp).unwrap_or_default(),
            window: value.window.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
            value: value.value.0,
        }
    }
}

/// `ExternalMetricValue` of `external.metrics.k8s.io/v1beta1`.
#[derive(Deserialize)]
pub(super) struct ExternalValue {
    pub(super) value: Milli,
}

/// Amount in thousandths. Accepts the forms of the API: a text, or a bare number.
pub(super) struct Milli(pub(super) i64);

impl<'de> Deserialize<'de> for Milli {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        text.parse().map(|quantity: Quantity| Self(quantity.milli())).map_err(D::Error::custom)
    }
}

/// Parses a duration in Go's syntax.
fn go_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    golang::parse_duration(&text).map(|duration| duration.to_std()).map_err(D::Error::custom)
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Timestamp;
    use serde_json::json;

    #[test]
    fn usage_is_rounded_up_for_each_container() {
        let list: List<PodMetrics> = serde_json::from_value(json!({
            "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {},
            "items": [{
                "metadata": {"name": "p", "namespace": "n", "labels": {}},
                "timestamp": "2023-11-14T22:13:20Z", "window": "1m30s",
                "containers": [{"name": "c", "usage": {"cpu": "12345678n", "memory": "20480Ki"}}],
            }],
        }))
        .expect("a list");
        let usages: Vec<PodUsage> = list.items.into_iter().map(Into::into).collect();
        let usage = &usages[0];
        assert_eq!((usage.pod.as_str(), usage.timestamp), ("p", Timestamp::from_secs(1_700_000_000)));
        assert_eq!(usage.window, Duration::from_secs(90));
        assert_eq!(usage.containers[0].1["cpu"], 13, "12.345678 milli");
        assert_eq!(usage.containers[0].1["memory"], 20_480 * 1024 * 1000);
    }

    #[test]
    fn both_versions_of_a_custom_metric_parse_to_the_same_value() {
        let read = |value: Value| -> PodValue { serde_json::from_value::<MetricValue>(value).expect("a value").into() };
        let object = json!({"kind": "Pod", "namespace": "n", "name": "p", "apiVersion": "/v1"});
        let time = "2023-11-14T22:13:20Z";
        let newer = read(json!({
            "describedObject": object, "metric": {"name": "qps", "selector": null}, "timestamp": time,
            "windowSeconds": 30, "value": "1500m",
        }));
        let older = read(json!({
            "describedObject": object, "metricName": "qps", "timestamp": time, "window": 30, "value": "1500m",
            "selector": null,
        }));
        assert_eq!(newer, older);
        assert_eq!((newer.value, newer.window), (1500, Some(Duration::from_secs(30))));
        let bare = read(json!({"describedObject": object, "timestamp": null, "value": 2}));
        assert_eq!((bare.value, bare.window), (2000, None));
    }

    #[test]
    fn absent_lists_are_empty_and_invalid_amounts_are_rejected() {
        for empty in [json!({}), json!({"items": null}), json!({"items": []})] {
            assert!(serde_json::from_value::<List<ExternalValue>>(empty).expect("a list").items.is_empty());
        }
        for usage in [json!(null), json!({})] {
            let idle = json!({"metadata": {"name": "p"}, "containers": [{"name": "c", "usage": usage}]});
            let idle: PodUsage = serde_json::from_value::<PodMetrics>(idle).expect("usage of a pod").into();
            assert!(idle.containers[0].1.is_empty());
        }
        assert!(serde_json::from_value::<ExternalValue>(json!({"value": "many"})).is_err());
        let invalid = json!({"metadata": {"name": "p"}, "window": "soon", "containers": []});
        assert!(serde_json::from_value::<PodMetrics>(invalid).is_err());
    }
}
