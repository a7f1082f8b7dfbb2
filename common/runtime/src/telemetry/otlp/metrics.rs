//! Converts metrics to OTLP, with cumulative values.

use super::Sample;
use crate::telemetry::Metrics;
use crate::telemetry::exposition::Part;
use crate::telemetry::instrument::{Instrument, Kind};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use std::fmt;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// Start of counting and time of reading, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) now: u64,
}

/// Converts all of `metrics`, for the process that `resource` describes. Fails if a metric cannot be written.
pub(super) fn request(
    metrics: &Metrics,
    resource: Resource,
    scope: String,
    span: Span,
) -> Result<ExportMetricsServiceRequest, fmt::Error> {
    let mut converted: Vec<Metric> = Vec::new();
    for part in metrics.parts() {
        let Part { instrument: Some(instrument), text } = part? else { continue };
        let family = instrument.family();
        let samples: Vec<Sample<'_>> = text.lines().filter_map(|line| Sample::parse(line, &family)).collect();
        if samples.is_empty() {
            continue;
        }
        if converted.last().is_none_or(|last| last.name != instrument.name) {
            converted.push(metric_of(&instrument));
        }
        let numbers = samples.iter().filter_map(|sample| number(sample, &instrument, span));
        match converted.last_mut().and_then(|metric| metric.data.as_mut()) {
            Some(metric::Data::Sum(sum)) => sum.data_points.extend(numbers),
            Some(metric::Data::Gauge(gauge)) => gauge.data_points.extend(numbers),
            Some(metric::Data::Histogram(all)) => all.data_points.extend(histograms(&samples, &instrument, span)),
            _ => {}
        }
    }
    let scope = InstrumentationScope { name: scope, ..InstrumentationScope::default() };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics: converted, ..ScopeMetrics::default() }];
    let resource = ResourceMetrics { resource: Some(resource), scope_metrics, ..ResourceMetrics::default() };
    Ok(ExportMetricsServiceRequest { resource_metrics: vec![resource] })
}

/// Returns the metric of an instrument, without data points.
fn metric_of(instrument: &Instrument) -> Metric {
    let sum = |is_monotonic| Sum { data_points: Vec::new(), aggregation_temporality: CUMULATIVE, is_monotonic };
    let data = match instrument.kind {
        Kind::Counter => metric::Data::Sum(sum(true)),
        Kind::UpDownCounter => metric::Data::Sum(sum(false)),
        Kind::Gauge => metric::Data::Gauge(Gauge::default()),
        Kind::Histogram => {
            metric::Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality: CUMULATIVE })
        }
    };
    Metric {
        name: instrument.name.to_owned(),
        description: instrument.meaning.to_owned(),
        unit: instrument.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(sample: &Sample<'_>, instrument: &Instrument, span: Span) -> Option<NumberDataPoint> {
    let value = match sample.value.parse() {
        Ok(whole) => number_data_point::Value::AsInt(whole),
        Err(_) => number_data_point::Value::AsDouble(sample.value.parse().ok()?),
    };
    Some(NumberDataPoint {
        attributes: attributes(sample, instrument),
        start_time_unix_nano: span.start,
        time_unix_nano: span.now,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

/// Converts the lines of histograms. Lines of a series are adjacent. Prometheus's buckets are cumulative; the last has
/// no bound.
fn histograms(samples: &[Sample<'_>], instrument: &Instrument, span: Span) -> Vec<HistogramDataPoint> {
    let mut points: Vec<HistogramDataPoint> = Vec::new();
    let mut below = 0;
    for sample in samples {
        let attributes = attributes(sample, instrument);
        if points.last().is_none_or(|point| point.attributes != attributes) {
            below = 0;
            points.push(HistogramDataPoint {
                attributes,
                start_time_unix_nano: span.start,
                time_unix_nano: span.now,
                ..HistogramDataPoint::default()
            });
        }
        let Some(point) = points.last_mut() else { continue };
        match sample.suffix {
            "_sum" => point.sum = sample.value.parse().ok(),
            "_count" => point.count = sample.value.parse().unwrap_or(0),
            "_bucket" => {
                let upto: u64 = sample.value.parse().unwrap_or(below);
                point.bucket_counts.push(upto.saturating_sub(below));
                below = upto;
                let bound = sample.labels.iter().find(|(name, _)| *name == "le").map(|(_, value)| value.parse::<f64>());
                if let Some(Ok(bound)) = bound
                    && bound.is_finite()
                {
                    point.explicit_bounds.push(bound);
                }
            }
            _ => {}
        }
    }
    points
}

fn attributes(sample: &Sample<'_>, instrument: &Instrument) -> Vec<KeyValue> {
    let labels = sample.labels.iter().filter(|(label, _)| *label != "le");
    labels.map(|(label, value)| attribute(instrument.attribute(label), value)).collect()
}

pub(super) fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::catalog;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

    /// Goal: registered metrics are sent with upstream's names, their values and their kinds.
    #[test]
    fn registered_metrics_are_converted_with_names_values_and_kinds() {
        let metrics = Metrics::default();
        let labels = [("k8s_namespace_name", "ns"), ("kn_revision_name", "a \"b\"\\")];
        let queued: Family<[(&str, &str); 2], Gauge> = metrics.register(catalog::REQUEST_QUEUED, Family::default());
        queued.get_or_create(&labels).set(3);
        let errors: Counter = metrics.register(catalog::STATS_ERRORS, Counter::default());
        errors.inc_by(2);
        let duration = Family::<[(&str, &str); 2], Histogram>::new_with_constructor(|| Histogram::new([0.5, 1.0]));
        let duration = metrics.register(catalog::SERVER_DURATION, duration);
        for seconds in [0.1, 0.7, 9.0] {
            duration.get_or_create(&labels).observe(seconds);
        }
        let span = Span { start: 5, now: 9 };
        let resource = Resource { attributes: vec![attribute("service.name", "activator")], ..Resource::default() };
        let request = request(&metrics, resource, "scope".to_owned(), span).expect("text");
        let sent = &request.resource_metrics[0].scope_metrics[0].metrics;
        let find =
            |name: &str| sent.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}: {sent:?}"));
        let Some(metric::Data::Sum(queued)) = &find("kn.revision.request.queued").data else { panic!("{sent:?}") };
        assert!(!queued.is_monotonic);
        assert_eq!(queued.data_points[0].value, Some(number_data_point::Value::AsInt(3)));
        let expected = [attribute("k8s.namespace.name", "ns"), attribute("kn.revision.name", "a \"b\"\\")];
        assert_eq!(queued.data_points[0].attributes, expected);
        let Some(metric::Data::Sum(errors)) = &find("kn.activator.stats.conn.errors").data else { panic!("{sent:?}") };
        assert!(errors.is_monotonic);
        assert_eq!(errors.data_points[0].value, Some(number_data_point::Value::AsInt(2)));
        let took = find("http.server.request.duration");
        assert_eq!((took.unit.as_str(), took.description.as_str()), ("s", catalog::SERVER_DURATION.meaning));
        let Some(metric::Data::Histogram(took)) = &took.data else { panic!("{sent:?}") };
        let point = &took.data_points[0];
        assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[1, 1, 1][..], &[0.5, 1.0][..]));
        assert_eq!(point.count, 3);
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 9));
        assert_eq!(point.attributes, expected);
    }
}
