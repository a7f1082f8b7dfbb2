//! Description of a metric: its names, unit, attributes and meaning.
//!
//! One description serves Prometheus's text, OTLP and the manual ([`super::manual`]). [`super::catalog`] lists all of
//! them, and only a described metric can be registered.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Metric in OpenTelemetry's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instrument {
    /// OpenTelemetry's name, with dots.
    pub name: &'static str,
    /// Prometheus's own name, without unit and `_total`, if it differs.
    pub prometheus_base: Option<&'static str>,
    /// Kind of the metric.
    pub kind: Kind,
    /// Unit in UCUM; empty if there is none.
    pub unit: &'static str,
    /// Attributes that a series may have.
    pub attributes: &'static [&'static str],
    /// Possible values of the last attribute, with their meanings; empty: any value.
    pub values: &'static [(&'static str, &'static str)],
    /// Meaning, in one sentence without its full stop.
    pub meaning: &'static str,
    /// Plane that exports the metric.
    pub plane: Plane,
    /// First version of Zeroscale with this metric.
    pub since: &'static str,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sum that never decreases.
    Counter,
    /// A sum that may decrease. Prometheus calls it a gauge.
    UpDownCounter,
    /// A current value.
    Gauge,
    /// Distribution of values in buckets.
    Histogram,
}

/// Plane of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Every process.
    All,
    /// The activator.
    Activator,
    /// The autoscaler.
    Autoscaler,
    /// The process that runs the HorizontalPodAutoscaler controller.
    Hpa,
}

impl Instrument {
    /// Creates an instrument of every process, without unit and attributes.
    pub const fn new(kind: Kind, name: &'static str, meaning: &'static str) -> Self {
        let (plane, since) = (Plane::All, "0.1.0");
        Self { name, prometheus_base: None, kind, unit: "", attributes: &[], values: &[], meaning, plane, since }
    }

    /// Returns the family's name in Prometheus's text by the rule of OpenTelemetry's exporter, without a counter's
    /// `_total`.
    pub fn family(&self) -> String {
        let suffix = self.suffix().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        format!("{}{suffix}", self.base())
    }

    /// Returns the name of the family's series, without the suffixes of a histogram.
    pub fn prometheus(&self) -> String {
        format!("{}{}", self.family(), if self.kind == Kind::Counter { "_total" } else { "" })
    }

    /// Returns the attribute of a label.
    pub(super) fn attribute<'a>(&self, name: &'a str) -> &'a str {
        self.attributes.iter().copied().find(|attribute| label(attribute) == name).unwrap_or(name)
    }

    /// Returns the family's name without its unit.
    pub(super) fn base(&self) -> String {
        self.prometheus_base.map_or_else(|| self.name.replace('.', "_"), str::to_owned)
    }

    /// Returns the suffix that Prometheus appends for the unit.
    pub(super) fn suffix(&self) -> Option<Unit> {
        match self.unit {
            "s" => Some(Unit::Seconds),
            "By" => Some(Unit::Bytes),
            "{request}/s" => Some(Unit::Other("per_second".to_owned())),
            _ => None,
        }
    }
}

/// Converts an attribute to Prometheus's form.
pub fn label(attribute: &str) -> String {
    attribute.replace('.', "_")
}

impl From<Kind> for MetricType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Self::Counter,
            Kind::UpDownCounter | Kind::Gauge => Self::Gauge,
            Kind::Histogram => Self::Histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_names_follow_from_opentelemetrys() {
        let of = |kind, name, unit| Instrument { unit, ..Instrument::new(kind, name, "") };
        let renamed = Instrument { prometheus_base: Some("a_cpu"), ..of(Kind::Counter, "a.cpu.time", "s") };
        let rows = [
            (of(Kind::Gauge, "kn.revision.panic.mode", ""), "kn_revision_panic_mode"),
            (of(Kind::Histogram, "a.took", "s"), "a_took_seconds"),
            (of(Kind::Histogram, "a.size", "By"), "a_size_bytes"),
            (of(Kind::Gauge, "a.rps", "{request}/s"), "a_rps_per_second"),
            (of(Kind::Counter, "a.cpu", "s"), "a_cpu_seconds_total"),
            (of(Kind::UpDownCounter, "a.held", "{request}"), "a_held"),
            (renamed, "a_cpu_seconds_total"),
        ];
        for (instrument, expected) in rows {
            assert_eq!(instrument.prometheus(), expected);
        }
        assert_eq!(label("k8s.namespace.name"), "k8s_namespace_name");
    }
}
