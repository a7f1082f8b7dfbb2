//! Evaluates one metric of a spec: turns the response of its API into a proposal or a failure.
//!
//! For an `Object` metric, the type of its target selects the calculation. For other metrics, the field of the target
//! that is set does, `averageValue` first. A proposal contains the metric's name for conditions and events. The name
//! "external metric" for an object's average is upstream's.

use common::time::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource,
    PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::calculator;
use super::options::Options;
use super::pod::Pod;
use super::request::Reading;
use super::spec::{Source, selector, selector_text};
use super::tolerance::Tolerances;
use super::{quantity, status, totals, usage};

/// Inputs shared by all metrics of a spec.
#[derive(Clone, Copy, Debug)]
pub struct MetricInputs<'a> {
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
#[derive(Clone, Debug, PartialEq)]
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

/// Returns the proposal of one metric. Fails if the metric is malformed or its API failed.
pub fn measure(inputs: &MetricInputs<'_>, metric: &MetricSpec, reading: &Reading) -> Result<Proposal, Failure> {
    let (replicas, name, status) = match Source::from(metric) {
        Source::Resource(source) => {
            let outer = format!("failed to get {} resource metric value: ", source.name);
            let (replicas, title, current) = inputs
                .resource((None, &source.name), &source.target, reading)
                .map_err(|inner| Failure::new("FailedGetResourceMetric", &outer, inner))?;
            let resource = Some(ResourceMetricStatus { name: source.name.clone(), current });
            (replicas, title, MetricStatus { resource, ..MetricStatus::default() })
        }
        Source::ContainerResource(source) => {
            let outer = format!("failed to get {} container metric value: ", source.container);
            let (replicas, title, current) = inputs
                .resource((Some(&source.container), &source.name), &source.target, reading)
                .map_err(|inner| Failure::new("FailedGetContainerResourceMetric", &outer, inner))?;
            let (name, container) = (source.name.clone(), source.container.clone());
            let container_resource = Some(ContainerResourceMetricStatus { name, container, current });
            (replicas, title, MetricStatus { container_resource, ..MetricStatus::default() })
        }
        Source::Pods(source) => inputs
            .pods(source, reading)
            .map_err(|inner| Failure::new("FailedGetPodsMetric", "failed to get pods metric value: ", inner))?,
        Source::Object(source) => inputs.object(source, reading)?,
        Source::External(source) => inputs.external(source, reading)?,
        Source::Unknown => {
            let inner = format!("unknown metric source type {:?}", metric.type_);
            return Err(Failure { reason: "InvalidMetricSourceType", outer: inner.clone(), inner });
        }
    };
    Ok(Proposal { replicas, name, status: MetricStatus { type_: metric.type_.clone(), ..status } })
}

/// Proposed replicas, name of the metric, and its measurement.
type Measured<T> = (i32, String, T);

impl Failure {
    fn new(reason: &'static str, prefix: &str, inner: String) -> Self {
        Self { reason, outer: format!("{prefix}{inner}"), inner }
    }
}

impl MetricInputs<'_> {
    fn resource(
        &self,
        (container, resource): (Option<&str>, &str),
        target: &MetricTarget,
        reading: &Reading,
    ) -> Result<Measured<MetricValueStatus>, String> {
        let samples = || match reading.usage() {
            Ok(usages) => Ok(usage::resource_samples(usages, container, resource)),
            Err(why) => Err(format!("unable to get metrics for resource {resource}: {why}")),
        };
        if let Some(target) = milli(&target.average_value)? {
            let answer = samples().and_then(|samples| calculator::average(self, resource == "cpu", samples, target));
            let answer = answer.map_err(|e| format!("failed to get {resource} usage: {e}"))?;
            let current = status::average(answer.value, Some(resource));
            return Ok((answer.replicas, format!("{resource} resource"), current));
        }
        let Some(percent) = target.average_utilization else {
            let why = "neither an average utilization target nor an average value (usage) target was set";
            return Err(format!("invalid resource metric source: {why}"));
        };
        let measured = (container, resource);
        let (replicas, utilization) = samples()
            .and_then(|samples| calculator::utilization(self, samples, measured, percent))
            .map_err(|e| format!("failed to get {resource} utilization: {e}"))?;
        let kind = if container.is_some() { "container resource" } else { "resource" };
        let average = status::average(utilization.average, Some(resource));
        let current = MetricValueStatus { average_utilization: Some(utilization.percent), ..average };
        Ok((replicas, format!("{resource} {kind} utilization (percentage of request)"), current))
    }

    fn pods(&self, source: &PodsMetricSource, reading: &Reading) -> Result<Measured<MetricStatus>, String> {
        let metric = &source.metric;
        selector_text(metric)?;
        // Validation requires this target; upstream panics without it.
        let target = milli(&source.target.average_value)?
            .ok_or("invalid pods metric source: no average value target was set")?;
        let values = reading.pods().map_err(|why| format!("unable to get metric {}: {why}", metric.name))?;
        let answer = calculator::average(self, false, usage::pod_samples(values), target)?;
        let pods = Some(PodsMetricStatus { metric: metric.clone(), current: status::average(answer.value, None) });
        let status = MetricStatus { pods, ..MetricStatus::default() };
        Ok((answer.replicas, format!("pods metric {}", metric.name), status))
    }

    fn object(&self, source: &ObjectMetricSource, reading: &Reading) -> Result<Measured<MetricStatus>, Failure> {
        let (metric, object, target) = (&source.metric, &source.described_object, &source.target);
        let fail = |inner: String, middle: &str| {
            Failure::new("FailedGetObjectMetric", &format!("failed to get object metric value: {middle}"), inner)
        };
        selector_text(metric).map_err(|e| fail(e, ""))?;
        let value = || {
            // Upstream prints object and error in this order.
            let described = format!("{} on {} {}", object.kind, self.namespace, object.name);
            reading.object().map_err(|why| format!("unable to get metric {}: {described}/{why}", metric.name))
        };
        let amount = |target| milli(target).map_err(|e| fail(e, ""));
        let targets = (amount(&target.value)?, amount(&target.average_value)?);
        let (answer, current, name) = match (target.type_.as_str(), targets) {
            ("Value", (Some(target), _)) => {
                let answer = value().and_then(|value| totals::value(self, value, target));
                let answer = answer.map_err(|e| fail(e, ""))?;
                (answer, status::total(answer.value), format!("{} metric {}", object.kind, metric.name))
            }
            ("AverageValue", (_, Some(target))) => {
                let value = value().map_err(|e| fail(e, &format!("failed to get {} object metric: ", metric.name)))?;
                let answer = totals::average_value(self, value, target);
                (answer, status::average(answer.value, None), external_name(metric))
            }
            _ => {
                let why = "invalid object metric source: neither a value target nor an average value target was set";
                return Err(fail(why.into(), ""));
            }
        };
        let object = ObjectMetricStatus { metric: metric.clone(), described_object: object.clone(), current };
        Ok((answer.replicas, name, MetricStatus { object: Some(object), ..MetricStatus::default() }))
    }

    fn external(&self, source: &ExternalMetricSource, reading: &Reading) -> Result<Measured<MetricStatus>, Failure> {
        let (metric, target) = (&source.metric, &source.target);
        let name = metric.name.as_str();
        let fail = |inner: String, middle: &str| {
            let prefix = format!("failed to get {name} external metric value: {middle}");
            Failure::new("FailedGetExternalMetric", &prefix, inner)
        };
        let values = || {
            selector_text(metric)?;
            let failed =
                |why| format!("unable to get external metric {}/{name}/{}: {why}", self.namespace, printed(metric));
            reading.external().map_err(failed)
        };
        let amount = |target| milli(target).map_err(|e| fail(e, ""));
        let (answer, current) = if let Some(target) = amount(&target.average_value)? {
            let values = values().map_err(|e| fail(e, &format!("failed to get {name} external metric: ")))?;
            let answer = totals::external_average_value(self, values, target);
            (answer, status::average(answer.value, None))
        } else if let Some(target) = amount(&target.value)? {
            let answer = values()
                .and_then(|values| totals::value(self, totals::sum(values), target))
                .map_err(|e| fail(e, &format!("failed to get external metric {name}: ")))?;
            (answer, status::total(answer.value))
        } else {
            let why = "invalid external metric source: neither a value target nor an average value target was set";
            return Err(fail(why.into(), ""));
        };
        let external = Some(ExternalMetricStatus { metric: metric.clone(), current });
        Ok((answer.replicas, external_name(metric), MetricStatus { external, ..MetricStatus::default() }))
    }
}

/// Returns a target in thousandths. The API server rejects targets that are not quantities.
fn milli(target: &Option<Quantity>) -> Result<Option<i64>, String> {
    target.as_ref().map(quantity::milli).transpose().map_err(|e| e.to_string())
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, printed(metric))
}

fn printed(metric: &MetricIdentifier) -> String {
    selector(metric).map_or_else(|| "nil".to_owned(), |selector| selector.to_string())
}

#[cfg(test)]
mod tests;
