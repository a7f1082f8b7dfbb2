//! Requests to the metrics APIs, and their responses.

use super::error::{Api, FetchError};
use super::spec::{Metric, MetricSpec, MetricTarget, ObjectReference, Source};
use super::usage::{PodUsage, PodValue};
use common::labels::LabelSelector;

/// Request for one metric of a spec. Selectors are texts, empty if nothing is required.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Usage of all pods that the target's selector matches. It is the same for every resource and container, so one
    /// request is enough.
    Usage {
        /// Selector of the target's pods.
        selector: String,
    },
    /// Custom metric of those pods.
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
        object: Option<ObjectReference>,
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

/// Response to a [`Request`], or the error text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// No request was sent.
    None,
    /// Response to [`Request::Usage`].
    Usage(Result<Vec<PodUsage>, String>),
    /// Response to [`Request::Pods`].
    Pods(Result<Vec<PodValue>, String>),
    /// Response to [`Request::Object`], in thousandths; exactly one value is expected.
    Object(Result<Vec<i64>, String>),
    /// Response to [`Request::External`], in thousandths.
    External(Result<Vec<i64>, String>),
}

impl Request {
    /// Returns the failed response for this request.
    pub fn failed(&self, why: String) -> Reading {
        match self {
            Self::Usage { .. } => Reading::Usage(Err(why)),
            Self::Pods { .. } => Reading::Pods(Err(why)),
            Self::Object { .. } => Reading::Object(Err(why)),
            Self::External { .. } => Reading::External(Err(why)),
        }
    }
}

impl Reading {
    /// Keeps only measurements of pods for whose name `is_wanted` returns true.
    #[must_use]
    pub fn of_pods(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        match &mut self {
            Self::Usage(Ok(usage)) => usage.retain(|usage| is_wanted(&usage.pod)),
            Self::Pods(Ok(values)) => values.retain(|value| is_wanted(&value.pod)),
            _ => {}
        }
        self
    }

    /// Returns the usage of at least one pod.
    ///
    /// # Errors
    /// Returns an error if the request failed, or the response is empty.
    pub fn usage(&self) -> Result<&[PodUsage], FetchError> {
        some(Api::Resource, if let Self::Usage(answer) = self { Some(answer) } else { None })
    }

    /// Returns at least one value of a pods metric.
    ///
    /// # Errors
    /// Returns an error if the request failed, or the response is empty.
    pub fn pods(&self) -> Result<&[PodValue], FetchError> {
        some(Api::Custom, if let Self::Pods(answer) = self { Some(answer) } else { None })
    }

    /// Returns at least one value of an external metric.
    ///
    /// # Errors
    /// Returns an error if the request failed, or the response is empty.
    pub fn external(&self) -> Result<&[i64], FetchError> {
        some(Api::External, if let Self::External(answer) = self { Some(answer) } else { None })
    }

    /// Returns the value of an object's metric.
    ///
    /// # Errors
    /// Returns an error if the request failed, or there is not exactly one value.
    pub fn object(&self) -> Result<i64, FetchError> {
        let values = all(Api::Custom, if let Self::Object(answer) = self { Some(answer) } else { None })?;
        match values {
            [value] => Ok(*value),
            _ => {
                let count = values.len();
                let why =
                    format!("the custom metrics API server returned {count} results when we asked for exactly one");
                Err(FetchError::Failed { api: Api::Custom, why })
            }
        }
    }
}

fn all<T>(api: Api, answer: Option<&Result<Vec<T>, String>>) -> Result<&[T], FetchError> {
    match answer {
        Some(Ok(values)) => Ok(values),
        Some(Err(why)) => Err(FetchError::Failed { api, why: why.clone() }),
        None => Err(FetchError::Failed { api, why: "it was not asked".into() }),
    }
}

fn some<T>(api: Api, answer: Option<&Result<Vec<T>, String>>) -> Result<&[T], FetchError> {
    let values = all(api, answer)?;
    if values.is_empty() { Err(FetchError::Empty(api)) } else { Ok(values) }
}

/// Returns the request for a metric. Returns `None` if the metric is malformed and fails whatever the response.
pub fn request(metric: &MetricSpec, selector: &str) -> Option<Request> {
    let text = |metric: &Metric| metric.selector.as_ref().map_or(Ok(String::new()), LabelSelector::text).ok();
    let share = |target: &MetricTarget| target.average_value.is_some() || target.average_utilization.is_some();
    let total = |target: &MetricTarget| target.average_value.is_some() || target.value.is_some();
    let selector = selector.to_owned();
    match metric.source() {
        Source::Resource(source) if share(&source.target) => Some(Request::Usage { selector }),
        Source::ContainerResource(source) if share(&source.target) => Some(Request::Usage { selector }),
        Source::Pods(source) => {
            Some(Request::Pods { metric: source.metric.name.clone(), selector, metric_selector: text(&source.metric)? })
        }
        Source::Object(source) if total(&source.target) => Some(Request::Object {
            object: Some(&source.described_object).filter(|object| !is_namespace(object)).cloned(),
            metric: source.metric.name.clone(),
            metric_selector: text(&source.metric)?,
        }),
        Source::External(source) if total(&source.target) => {
            Some(Request::External { metric: source.metric.name.clone(), metric_selector: text(&source.metric)? })
        }
        _ => None,
    }
}

/// Reports whether a metric describes a namespace. The named namespace is ignored: it is always the autoscaler's own.
fn is_namespace(object: &ObjectReference) -> bool {
    object.kind == "Namespace" && object.group() == Ok("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ContainerResourceSource, ExternalSource, ObjectSource, PodsSource, ResourceSource};

    #[test]
    fn a_metric_of_a_namespace_is_asked_of_the_own_one() {
        let metric = |api_version: &str, kind: &str| {
            let described_object =
                ObjectReference { api_version: api_version.into(), kind: kind.into(), name: "elsewhere".into() };
            let target = MetricTarget { value: "1".parse().ok(), ..MetricTarget::default() };
            let object = Some(ObjectSource { described_object, target, ..ObjectSource::default() });
            let metric = MetricSpec { kind: "Object".into(), object, ..MetricSpec::default() };
            let Some(Request::Object { object, .. }) = request(&metric, "") else { panic!("no request") };
            object.map(|object| object.name)
        };
        assert_eq!(metric("v1", "Namespace"), None);
        assert_eq!(metric("example.com/v1", "Namespace").as_deref(), Some("elsewhere"));
        assert_eq!(metric("v1", "Service").as_deref(), Some("elsewhere"));
    }

    #[test]
    fn what_fails_anyway_is_not_asked() {
        let resource = Some(ResourceSource { name: "cpu".into(), target: MetricTarget::default() });
        let metric = MetricSpec { kind: "Resource".into(), resource, ..MetricSpec::default() };
        assert_eq!(request(&metric, "app=web"), None);
        assert_eq!(request(&MetricSpec { kind: "Bogus".into(), ..metric }, "app=web"), None);
    }

    /// Goal: a metric is requested only if it has a target of its kind, each from its own API.
    #[test]
    fn a_metric_is_asked_for_if_it_has_a_target() {
        let one = || "1".parse().ok();
        let none = MetricTarget::default;
        let value = || MetricTarget { value: one(), ..none() };
        let average = || MetricTarget { average_value: one(), ..none() };
        let percent = || MetricTarget { average_utilization: Some(50), ..none() };
        let of = |kind: &str, target: MetricTarget| {
            let (name, container) = (String::from("cpu"), String::from("app"));
            let named = Metric { name: "hits".into(), selector: None };
            let mut metric = MetricSpec { kind: kind.into(), ..MetricSpec::default() };
            match kind {
                "Resource" => metric.resource = Some(ResourceSource { name, target }),
                "ContainerResource" => {
                    metric.container_resource = Some(ContainerResourceSource { name, container, target });
                }
                "Pods" => metric.pods = Some(PodsSource { metric: named, target }),
                "Object" => {
                    let described_object = ObjectReference::default();
                    metric.object = Some(ObjectSource { described_object, metric: named, target });
                }
                _ => metric.external = Some(ExternalSource { metric: named, target }),
            }
            request(&metric, "app=web")
        };
        let (selector, metric, metric_selector) = (|| String::from("app=web"), || String::from("hits"), String::new);
        let usage = || Some(Request::Usage { selector: selector() });
        for kind in ["Resource", "ContainerResource"] {
            assert_eq!(of(kind, percent()), usage(), "{kind}");
            assert_eq!(of(kind, average()), usage(), "{kind}");
            assert_eq!((of(kind, value()), of(kind, none())), (None, None), "{kind}");
        }
        let pods = Request::Pods { metric: metric(), selector: selector(), metric_selector: metric_selector() };
        assert_eq!(of("Pods", average()), Some(pods));
        for target in [value(), average()] {
            let object = Request::Object {
                object: Some(ObjectReference::default()),
                metric: metric(),
                metric_selector: metric_selector(),
            };
            assert_eq!(of("Object", target.clone()), Some(object));
            let external = Request::External { metric: metric(), metric_selector: metric_selector() };
            assert_eq!(of("External", target), Some(external));
        }
        for kind in ["Object", "External"] {
            assert_eq!((of(kind, percent()), of(kind, none())), (None, None), "{kind}");
        }
    }

    #[test]
    fn an_answer_without_values_is_an_error() {
        let text = |e: FetchError| e.to_string();
        assert_eq!(
            Reading::Usage(Ok(Vec::new())).usage().map_err(text),
            Err("no metrics returned from resource metrics API".into())
        );
        assert_eq!(
            Reading::External(Err("busy".into())).external().map_err(text),
            Err("unable to fetch metrics from external metrics API: busy".into())
        );
        assert_eq!(Reading::Object(Ok(vec![7])).object(), Ok(7));
        assert!(Reading::Object(Ok(vec![1, 2])).object().is_err());
        assert!(Reading::None.pods().is_err());
    }
}
