//! Requests to the metrics APIs, and their responses.

use super::spec::{Source, group, selector_text};
use super::usage::{PodUsage, PodValue};
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, MetricSpec, MetricTarget};

/// Request for one metric of a spec. A selector is a text, empty if everything is selected.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Usage of all pods that the target's selector matches. One request serves all resources and containers.
    Usage {
        /// Selector of the target's pods.
        selector: String,
    },
    /// Custom metric of the pods that the target's selector matches.
    Pods {
        /// Name of the metric.
        metric: String,
        /// Selector of the target's pods.
        selector: String,
        /// Selector of the metric's series.
        metric_selector: String,
    },
    /// Custom metric of an object.
    Object {
        /// Described object; `None`: the autoscaler's own namespace.
        object: Option<CrossVersionObjectReference>,
        /// Name of the metric.
        metric: String,
        /// Selector of the metric's series.
        metric_selector: String,
    },
    /// External metric.
    External {
        /// Name of the metric.
        metric: String,
        /// Selector of the metric's series.
        metric_selector: String,
    },
}

/// Response to a [`Request`]. Values are in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// No request was sent.
    None,
    /// The request failed, with this error text.
    Failed(String),
    /// Response to [`Request::Usage`].
    Usage(Vec<PodUsage>),
    /// Response to [`Request::Pods`].
    Pods(Vec<PodValue>),
    /// Response to [`Request::Object`]; exactly one value is expected.
    Object(Vec<i64>),
    /// Response to [`Request::External`].
    External(Vec<i64>),
}

impl Reading {
    /// Keeps only measurements of pods for whose name `is_wanted` returns true.
    #[must_use]
    pub fn retain_pods(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        match &mut self {
            Self::Usage(usage) => usage.retain(|usage| is_wanted(&usage.pod)),
            Self::Pods(values) => values.retain(|value| is_wanted(&value.pod)),
            _ => {}
        }
        self
    }

    /// Returns the usage of at least one pod. Fails if the request failed, or the response is empty.
    pub fn usage(&self) -> Result<&[PodUsage], String> {
        if let Self::Usage(usage) = self { non_empty("resource", usage) } else { Err(self.failure("resource")) }
    }

    /// Returns at least one value of a pods metric. Fails if the request failed, or the response is empty.
    pub fn pods(&self) -> Result<&[PodValue], String> {
        if let Self::Pods(values) = self { non_empty("custom", values) } else { Err(self.failure("custom")) }
    }

    /// Returns at least one value of an external metric. Fails if the request failed, or the response is empty.
    pub fn external(&self) -> Result<&[i64], String> {
        if let Self::External(values) = self { non_empty("external", values) } else { Err(self.failure("external")) }
    }

    /// Returns the value of an object's metric. Fails if the request failed, or there is not exactly one value.
    pub fn object(&self) -> Result<i64, String> {
        let Self::Object(values) = self else { return Err(self.failure("custom")) };
        let [value] = values[..] else {
            let (count, why) = (values.len(), "results when we asked for exactly one");
            return Err(fetch_error("custom", &format!("the custom metrics API server returned {count} {why}")));
        };
        Ok(value)
    }

    /// Returns the error text of a response that is not of the expected kind.
    fn failure(&self, api: &str) -> String {
        fetch_error(api, if let Self::Failed(why) = self { why } else { "no request was sent" })
    }
}

fn fetch_error(api: &str, why: &str) -> String {
    format!("unable to fetch metrics from {api} metrics API: {why}")
}

fn non_empty<'a, T>(api: &str, values: &'a [T]) -> Result<&'a [T], String> {
    if values.is_empty() { Err(format!("no metrics returned from {api} metrics API")) } else { Ok(values) }
}

/// Returns the request for a metric, or `None` if the metric is malformed, so that it fails whatever the response.
pub fn request(metric: &MetricSpec, selector: &str) -> Option<Request> {
    let share = |target: &MetricTarget| target.average_value.is_some() || target.average_utilization.is_some();
    let total = |target: &MetricTarget| target.average_value.is_some() || target.value.is_some();
    let selector = selector.to_owned();
    match Source::from(metric) {
        Source::Resource(source) if share(&source.target) => Some(Request::Usage { selector }),
        Source::ContainerResource(source) if share(&source.target) => Some(Request::Usage { selector }),
        Source::Pods(source) => {
            let metric_selector = selector_text(&source.metric).ok()?;
            Some(Request::Pods { metric: source.metric.name.clone(), selector, metric_selector })
        }
        Source::Object(source) if total(&source.target) => Some(Request::Object {
            object: Some(&source.described_object).filter(|object| !is_namespace(object)).cloned(),
            metric: source.metric.name.clone(),
            metric_selector: selector_text(&source.metric).ok()?,
        }),
        Source::External(source) if total(&source.target) => {
            let metric_selector = selector_text(&source.metric).ok()?;
            Some(Request::External { metric: source.metric.name.clone(), metric_selector })
        }
        _ => None,
    }
}

/// Reports whether a metric describes a namespace. The name in it is ignored: the autoscaler's own namespace counts.
fn is_namespace(object: &CrossVersionObjectReference) -> bool {
    object.kind == "Namespace" && group(object) == Ok("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::scenario::metric;
    use k8s_openapi::serde_json::{Value, json};

    #[test]
    fn a_metric_of_a_namespace_describes_the_autoscalers_own_namespace() {
        let described = |api_version: &str, kind: &str| {
            let object = json!({"apiVersion": api_version, "kind": kind, "name": "elsewhere"});
            let source = json!({"describedObject": object, "target": {"value": "1"}});
            let request = request(&metric(json!({"type": "Object", "object": source})), "");
            let Some(Request::Object { object, .. }) = request else { panic!("no request") };
            object.map(|object| object.name)
        };
        assert_eq!(described("v1", "Namespace"), None);
        assert_eq!(described("example.com/v1", "Namespace").as_deref(), Some("elsewhere"));
        assert_eq!(described("v1", "Service").as_deref(), Some("elsewhere"));
    }

    /// Goal: each metric is requested from its own API, and only if it has a target of its kind.
    #[test]
    fn a_metric_is_requested_if_it_has_a_target_of_its_kind() {
        let (none, percent) = (&json!({}), &json!({"averageUtilization": 50}));
        let (value, average) = (&json!({"value": "1"}), &json!({"averageValue": "1"}));
        let of = |kind: &str, target: &Value| {
            let field = kind[..1].to_lowercase() + &kind[1..];
            let source = json!({"name": "cpu", "container": "app", "metric": {"name": "hits"}, "target": target});
            request(&metric(json!({"type": kind, field: source})), "app=web")
        };
        let (selector, metric, metric_selector) = (|| String::from("app=web"), || String::from("hits"), String::new);
        let usage = || Some(Request::Usage { selector: selector() });
        for kind in ["Resource", "ContainerResource"] {
            assert_eq!((of(kind, percent), of(kind, average)), (usage(), usage()), "{kind}");
            assert_eq!((of(kind, value), of(kind, none)), (None, None), "{kind}");
        }
        let pods = Request::Pods { metric: metric(), selector: selector(), metric_selector: metric_selector() };
        assert_eq!(of("Pods", average), Some(pods));
        for target in [value, average] {
            let object = Some(CrossVersionObjectReference::default());
            let object = Request::Object { object, metric: metric(), metric_selector: metric_selector() };
            assert_eq!(of("Object", target), Some(object));
            let external = Request::External { metric: metric(), metric_selector: metric_selector() };
            assert_eq!(of("External", target), Some(external));
        }
        for kind in ["Object", "External"] {
            assert_eq!((of(kind, percent), of(kind, none)), (None, None), "{kind}");
        }
        assert_eq!(of("Bogus", value), None);
    }

    #[test]
    fn a_response_without_the_expected_values_is_an_error() {
        assert_eq!(Reading::Usage(Vec::new()).usage(), Err("no metrics returned from resource metrics API".into()));
        let reading = Reading::Failed("busy".into());
        assert_eq!(reading.external(), Err("unable to fetch metrics from external metrics API: busy".into()));
        assert_eq!(Reading::Object(vec![7]).object(), Ok(7));
        assert!(Reading::Object(vec![1, 2]).object().is_err());
        assert!(Reading::None.pods().is_err());
    }
}
