//! Converts Prometheus's text to OTLP metrics with cumulative values.

use super::super::catalog;
use super::super::instrument::Kind;
use super::text::{self, Family, Sample, Type};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// Start of counting and time of reading, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) now: u64,
}

/// Converts all of `text`, for the process that `resource` describes.
pub(super) fn request(text: &str, resource: &Resource, scope: &str, span: Span) -> ExportMetricsServiceRequest {
    let metrics = text::families(text).iter().filter_map(|family| metric_of(family, span)).collect();
    let scope = InstrumentationScope { name: scope.to_owned(), ..InstrumentationScope::default() };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics,
            ..ResourceMetrics::default()
        }],
    }
}

fn metric_of(family: &Family<'_>, span: Span) -> Option<Metric> {
    let known = catalog::by_family(family.name);
    let points = || family.samples.iter().filter_map(|sample| number(sample, span)).collect();
    let sum = |is_monotonic| Sum { data_points: points(), aggregation_temporality: CUMULATIVE, is_monotonic };
    let data = match family.kind {
        Type::Counter => metric::Data::Sum(sum(true)),
        Type::Gauge if known.is_some_and(|known| known.kind == Kind::UpDownCounter) => metric::Data::Sum(sum(false)),
        Type::Gauge => metric::Data::Gauge(Gauge { data_points: points() }),
        Type::Histogram => metric::Data::Histogram(Histogram {
            data_points: histograms(&family.samples, span),
            aggregation_temporality: CUMULATIVE,
        }),
        Type::Other => return None,
    };
    Some(Metric {
        name: known.map_or(family.name, |known| known.name).to_owned(),
        description: family.help.to_owned(),
        unit: known.map_or("", |known| known.unit).to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

fn number(sample: &Sample<'_>, span: Span) -> Option<NumberDataPoint> {
    let value = match sample.value.parse() {
        Ok(whole) => number_data_point::Value::AsInt(whole),
        Err(_) => number_data_point::Value::AsDouble(sample.value.parse().ok()?),
    };
    Some(NumberDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: span.start,
        time_unix_nano: span.now,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

/// Converts the lines of histograms. Lines of a series are adjacent. Prometheus's buckets are cumulative; the last has
/// no bound.
fn histograms(samples: &[Sample<'_>], span: Span) -> Vec<HistogramDataPoint> {
    let mut points: Vec<HistogramDataPoint> = Vec::new();
    let mut below = 0;
    for sample in samples {
        let attributes = attributes(sample);
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

fn attributes(sample: &Sample<'_>) -> Vec<KeyValue> {
    let labels = sample.labels.iter().filter(|(name, _)| *name != "le");
    labels.map(|(name, value)| attribute(catalog::attribute(name), value)).collect()
}

pub(super) fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

    /// Goal: registered metrics are sent with upstream's names, their values and their kinds.
    #[test]
    fn what_is_registered_is_sent() {
        let metrics = Metrics::default();
        let labels = vec![("k8s_namespace_name", "ns".to_owned()), ("kn_revision_name", "a \"b\"\\".to_owned())];
        let queued: Family<Vec<(&'static str, String)>, Gauge> =
            metrics.register(catalog::REQUEST_QUEUED, Family::default());
        queued.get_or_create(&labels).set(3);
        let errors: Counter = metrics.register(catalog::STATS_ERRORS, Counter::default());
        errors.inc_by(2);
        let duration =
            Family::<Vec<(&'static str, String)>, Histogram>::new_with_constructor(|| Histogram::new([0.5, 1.0]));
        let duration = metrics.register(catalog::SERVER_DURATION, duration);
        for seconds in [0.1, 0.7, 9.0] {
            duration.get_or_create(&labels).observe(seconds);
        }
        let span = Span { start: 5, now: 9 };
        let resource = Resource { attributes: vec![attribute("service.name", "activator")], ..Resource::default() };
        let request = request(&metrics.encode().expect("text"), &resource, "scope", span);
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
        assert_eq!(
            (point.count, &point.bucket_counts[..], &point.explicit_bounds[..]),
            (3, &[1, 1, 1][..], &[0.5, 1.0][..])
        );
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 9));
        assert_eq!(point.attributes, expected);
    }
}
