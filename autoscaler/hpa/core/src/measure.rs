//! Evaluates one metric of a spec: from the response of its API to a proposal or a failure.
//!
//! Only `Object` metrics depend on the type of their target. Other metrics depend on the fields that are set,
//! `averageValue` first. A proposal carries the metric's name as used in conditions and events. The name "external
//! metric" for an object's average is upstream's.

use common::time::Timestamp;

use super::calculator::{self, Situation};
use super::error::{CalculationError, FetchError};
use super::groups::Judge;
use super::options::Options;
use super::pod::Pod;
use super::request::Reading;
use super::spec::{ExternalSource, Metric, MetricSpec, MetricTarget, ObjectSource, PodsSource, Source};
use super::status::{Current, MetricStatus};
use super::tolerance::Tolerances;
use super::{totals, usage};
use common::labels::LabelSelector;

/// Inputs shared by all metrics of a spec.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Current time.
    pub now: Timestamp,
    /// Options of the controller.
    pub options: &'a Options,
    /// Tolerances of the ratio.
    pub tolerances: Tolerances,
    /// Namespace of the autoscaler.
    pub namespace: &'a str,
    /// `spec.replicas` of the scale.
    pub spec_replicas: i32,
    /// `status.replicas` of the scale.
    pub status_replicas: i32,
    /// Pods that the scale's selector matches.
    pub pods: &'a [&'a Pod],
}

/// Proposal of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Proposed replicas; may be negative.
    pub replicas: i32,
    /// Name of the metric in texts.
    pub name: String,
    /// Measurement of the metric.
    pub status: MetricStatus,
}

/// Failure of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Reason of the condition and of the event.
    pub reason: &'static str,
    /// Text of condition and event.
    pub inner: String,
    /// Text with all prefixes that upstream adds.
    pub outer: String,
}

/// Returns the proposal of one metric.
///
/// # Errors
/// Returns a failure if the metric is malformed or its API failed.
pub fn measure(scene: &Scene<'_>, metric: &MetricSpec, reading: &Reading) -> Result<Proposal, Failure> {
    match metric.source() {
        Source::Resource(source) => {
            let (name, target) = (source.name.as_str(), &source.target);
            let outer = |inner: &str| format!("failed to get {name} resource metric value: {inner}");
            let (replicas, current, title) = scene
                .resource((None, name), target, reading)
                .map_err(|inner| Failure::new("FailedGetResourceMetric", inner, outer))?;
            let status = MetricStatus::Resource { name: name.to_owned(), current };
            Ok(Proposal { replicas, name: title, status })
        }
        Source::ContainerResource(source) => {
            let (name, container, target) = (source.name.as_str(), source.container.as_str(), &source.target);
            let outer = |inner: &str| format!("failed to get {container} container metric value: {inner}");
            let (replicas, current, title) = scene
                .resource((Some(container), name), target, reading)
                .map_err(|inner| Failure::new("FailedGetContainerResourceMetric", inner, outer))?;
            let (name, container) = (name.to_owned(), container.to_owned());
            Ok(Proposal { replicas, name: title, status: MetricStatus::ContainerResource { name, container, current } })
        }
        Source::Pods(source) => scene.pods(source, reading).map_err(|inner| {
            Failure::new("FailedGetPodsMetric", inner, |inner| format!("failed to get pods metric value: {inner}"))
        }),
        Source::Object(source) => scene.object(source, reading),
        Source::External(source) => scene.external(source, reading),
        Source::Unknown => {
            let inner = format!("unknown metric source type {:?}", metric.kind);
            Err(Failure { reason: "InvalidMetricSourceType", outer: inner.clone(), inner })
        }
    }
}

impl Failure {
    fn new(reason: &'static str, inner: String, outer: impl FnOnce(&str) -> String) -> Self {
        let outer = outer(&inner);
        Self { reason, inner, outer }
    }
}

impl Scene<'_> {
    fn situation(&self) -> Situation<'_> {
        Situation { current: self.spec_replicas, tolerances: self.tolerances, pods: self.pods }
    }

    fn judge(&self, cpu: bool) -> Judge<'_> {
        Judge { now: self.now, options: self.options, cpu }
    }

    fn resource(
        &self,
        (container, resource): (Option<&str>, &str),
        target: &MetricTarget,
        reading: &Reading,
    ) -> Result<(i32, Current, String), String> {
        let samples = || match reading.usage() {
            Ok(usages) => Ok(usage::of_resource(usages, container, resource)),
            Err(why) => Err(CalculationError::NoResourceMetrics { resource: resource.to_owned(), why }),
        };
        let (situation, judge) = (self.situation(), self.judge(resource == "cpu"));
        if let Some(target) = target.average_value {
            let answer = samples().and_then(|samples| calculator::average(&situation, &judge, samples, target.milli()));
            let answer = answer.map_err(|e| format!("failed to get {resource} usage: {e}"))?;
            return Ok((answer.replicas, Current::average(answer.value), format!("{resource} resource")));
        }
        let Some(percent) = target.average_utilization else {
            let why = "neither an average utilization target nor an average value (usage) target was set";
            return Err(format!("invalid resource metric source: {why}"));
        };
        let measured = (container, resource);
        let answer = samples()
            .and_then(|samples| calculator::utilization(&situation, &judge, samples, measured, percent))
            .map_err(|e| format!("failed to get {resource} utilization: {e}"))?;
        let kind = if container.is_some() { "container resource" } else { "resource" };
        let current = Current { average_utilization: Some(answer.percent), ..Current::average(answer.average) };
        Ok((answer.replicas, current, format!("{resource} {kind} utilization (percentage of request)")))
    }

    fn pods(&self, source: &PodsSource, reading: &Reading) -> Result<Proposal, String> {
        let metric = &source.metric;
        check(metric)?;
        // Validation requires this target; upstream panics without it.
        let target =
            source.target.average_value.ok_or("invalid pods metric source: no average value target was set")?;
        let fail = |why: FetchError| CalculationError::NoPodsMetric { metric: metric.name.clone(), why };
        let answer = match reading.pods() {
            Ok(values) => {
                calculator::average(&self.situation(), &self.judge(false), usage::of_pods(values), target.milli())
            }
            Err(why) => Err(fail(why)),
        };
        let answer = answer.map_err(|e| e.to_string())?;
        let status = MetricStatus::Pods { metric: metric.clone(), current: Current::average(answer.value) };
        Ok(Proposal { replicas: answer.replicas, name: format!("pods metric {}", metric.name), status })
    }

    fn object(&self, source: &ObjectSource, reading: &Reading) -> Result<Proposal, Failure> {
        let (metric, object, target) = (&source.metric, &source.described_object, &source.target);
        let fail = |inner: String, middle: &str| {
            Failure::new("FailedGetObjectMetric", inner, |inner| {
                format!("failed to get object metric value: {middle}{inner}")
            })
        };
        check(metric).map_err(|e| fail(e, ""))?;
        let value = || {
            reading.object().map_err(|why| CalculationError::NoObjectMetric {
                metric: metric.name.clone(),
                object: format!("{} on {} {}", object.kind, self.namespace, object.name),
                why,
            })
        };
        let (answer, current, name) = match (target.kind.as_str(), target.value, target.average_value) {
            ("Value", Some(target), _) => {
                let answer = value().and_then(|value| totals::value(&self.situation(), value, target.milli()));
                let answer = answer.map_err(|e| fail(e.to_string(), ""))?;
                (answer, Current::total(answer.value), format!("{} metric {}", object.kind, metric.name))
            }
            ("AverageValue", _, Some(target)) => {
                let value = value()
                    .map_err(|e| fail(e.to_string(), &format!("failed to get {} object metric: ", metric.name)))?;
                let answer = totals::average_value(self.tolerances, self.status_replicas, value, target.milli());
                (answer, Current::average(answer.value), external_name(metric))
            }
            _ => {
                let why = "invalid object metric source: neither a value target nor an average value target was set";
                return Err(fail(why.into(), ""));
            }
        };
        let status = MetricStatus::Object { metric: metric.clone(), described_object: object.clone(), current };
        Ok(Proposal { replicas: answer.replicas, name, status })
    }

    fn external(&self, source: &ExternalSource, reading: &Reading) -> Result<Proposal, Failure> {
        let (metric, target) = (&source.metric, &source.target);
        let name = metric.name.as_str();
        let fail = |inner: String, middle: &str| {
            Failure::new("FailedGetExternalMetric", inner, |inner| {
                format!("failed to get {name} external metric value: {middle}{inner}")
            })
        };
        let values = || {
            check(metric).map_err(CalculationError::Selector)?;
            reading.external().map_err(|why| CalculationError::NoExternalMetric {
                metric: format!("{}/{name}/{}", self.namespace, printed(metric)),
                why,
            })
        };
        let (answer, current) = if let Some(target) = target.average_value {
            let values =
                values().map_err(|e| fail(e.to_string(), &format!("failed to get {name} external metric: ")))?;
            let answer = totals::average_of(self.tolerances, self.status_replicas, values, target.milli());
            (answer, Current::average(answer.value))
        } else if let Some(target) = target.value {
            let answer = values()
                .and_then(|values| totals::value(&self.situation(), totals::sum(values), target.milli()))
                .map_err(|e| fail(e.to_string(), &format!("failed to get external metric {name}: ")))?;
            (answer, Current::total(answer.value))
        } else {
            let why = "invalid external metric source: neither a value target nor an average value target was set";
            return Err(fail(why.into(), ""));
        };
        let status = MetricStatus::External { metric: metric.clone(), current };
        Ok(Proposal { replicas: answer.replicas, name: external_name(metric), status })
    }
}

fn external_name(metric: &Metric) -> String {
    format!("external metric {}({})", metric.name, printed(metric))
}

fn printed(metric: &Metric) -> String {
    metric.selector.as_ref().map_or_else(|| "nil".to_owned(), ToString::to_string)
}

/// Checks that the metric's selector can be sent to the API.
fn check(metric: &Metric) -> Result<(), String> {
    metric.selector.as_ref().map_or(Ok(String::new()), LabelSelector::text).map(drop)
}

#[cfg(test)]
mod tests;
