//! What a metric is: its names, its unit, its attributes and its meaning.
//!
//! One description serves Prometheus's text, OTLP and the manual ([`super::manual`]); all there are stand in
//! [`super::catalog`], and only what has one can be registered.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// A metric, as OpenTelemetry describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instrument {
    /// OpenTelemetry's name, with dots.
    pub name: &'static str,
    /// Prometheus's name, less unit and `_total`, where it has one of its own.
    pub shown: Option<&'static str>,
    /// What it counts or measures.
    pub kind: Kind,
    /// In UCUM; empty if it has none.
    pub unit: &'static str,
    /// The attributes that a series may have.
    pub attributes: &'static [&'static str],
    /// What the last attribute may say, and what that means; empty: anything.
    pub values: &'static [(&'static str, &'static str)],
    /// One sentence without its full stop.
    pub meaning: &'static str,
    /// Who shows it.
    pub plane: Plane,
    /// The first version of Zeroscale that has it.
    pub since: &'static str,
}

/// What a metric counts or measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sum that never falls.
    Counter,
    /// A sum that may fall. Prometheus calls it a gauge.
    UpDownCounter,
    /// A value as it is now.
    Gauge,
    /// Values in buckets.
    Histogram,
}

/// Whose a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Each process has it.
    All,
    /// The activator.
    Activator,
    /// The autoscaler.
    Autoscaler,
    /// Whoever runs the HorizontalPodAutoscaler controller.
    Hpa,
}

impl Instrument {
    /// One without unit and attributes, that every process has.
    pub const fn new(kind: Kind, name: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            shown: None,
            kind,
            unit: "",
            attributes: &[],
            values: &[],
            meaning,
            plane: Plane::All,
            since: "0.1.0",
        }
    }

    /// With this unit.
    pub const fn in_unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// With these attributes.
    pub const fn by(self, attributes: &'static [&'static str]) -> Self {
        Self { attributes, ..self }
    }

    /// Whose last attribute says one of these.
    pub const fn saying(self, values: &'static [(&'static str, &'static str)]) -> Self {
        Self { values, ..self }
    }

    /// Under this name in Prometheus's text, less unit and `_total`.
    pub const fn shown_as(self, name: &'static str) -> Self {
        Self { shown: Some(name), ..self }
    }

    /// Of this plane alone.
    pub const fn of(self, plane: Plane) -> Self {
        Self { plane, ..self }
    }

    /// The family's name in Prometheus's text, by the rule of OpenTelemetry's exporter, less a counter's `_total`.
    pub fn family(&self) -> String {
        let suffix = self.suffix().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        format!("{}{suffix}", self.base())
    }

    /// The same as its series have it, less what a histogram's end in.
    pub fn prometheus(&self) -> String {
        format!("{}{}", self.family(), if self.kind == Kind::Counter { "_total" } else { "" })
    }

    /// The family's name less its unit.
    pub(super) fn base(&self) -> String {
        self.shown.map_or_else(|| self.name.replace('.', "_"), str::to_owned)
    }

    /// What Prometheus appends for the unit.
    pub(super) fn suffix(&self) -> Option<Unit> {
        match self.unit {
            "s" => Some(Unit::Seconds),
            "By" => Some(Unit::Bytes),
            "{request}/s" => Some(Unit::Other("per_second".to_owned())),
            _ => None,
        }
    }
}

impl Kind {
    /// As Prometheus says it.
    pub fn prometheus(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::UpDownCounter | Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// An attribute as Prometheus has it.
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

    /// Goal: both names of an instrument belong together, by the exporter's rule.
    #[test]
    fn prometheus_names_follow_from_the_others() {
        let rows = [
            (Instrument::new(Kind::Gauge, "kn.revision.panic.mode", ""), "kn_revision_panic_mode"),
            (Instrument::new(Kind::Histogram, "a.took", "").in_unit("s"), "a_took_seconds"),
            (Instrument::new(Kind::Histogram, "a.size", "").in_unit("By"), "a_size_bytes"),
            (Instrument::new(Kind::Gauge, "a.rps", "").in_unit("{request}/s"), "a_rps_per_second"),
            (Instrument::new(Kind::Counter, "a.cpu", "").in_unit("s"), "a_cpu_seconds_total"),
            (Instrument::new(Kind::UpDownCounter, "a.held", "").in_unit("{request}"), "a_held"),
            (Instrument::new(Kind::Counter, "a.cpu.time", "").in_unit("s").shown_as("a_cpu"), "a_cpu_seconds_total"),
        ];
        for (instrument, expected) in rows {
            assert_eq!(instrument.prometheus(), expected);
        }
        assert_eq!(label("k8s.namespace.name"), "k8s_namespace_name");
    }
}
