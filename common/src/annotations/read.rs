//! Readers of single annotations.

use super::{CLASS, CLASS_HPA, CLASS_KPA, METRIC, METRIC_CONCURRENCY, METRIC_CPU};
use crate::golang::{self, GoDuration};
use std::collections::BTreeMap;

/// Annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// Name of an annotation, with an optional older spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Preferred spelling.
    pub name: &'static str,
    /// Spelling that counts if the preferred one is absent.
    pub alias: Option<&'static str>,
}

impl Key {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, alias: None }
    }

    pub(super) const fn with_alias(name: &'static str, alias: &'static str) -> Self {
        Self { name, alias: Some(alias) }
    }

    /// Returns the value as text.
    pub fn text<'a>(&self, annotations: &'a Annotations) -> Option<&'a str> {
        [Some(self.name), self.alias].into_iter().flatten().find_map(|name| annotations.get(name)).map(String::as_str)
    }

    /// Returns the value as a 32-bit integer, or `None` if malformed.
    pub fn int32(&self, annotations: &Annotations) -> Option<i32> {
        golang::parse_integer(self.text(annotations)?).ok()
    }

    /// Returns the value as a float, or `None` if malformed or NaN.
    pub fn float(&self, annotations: &Annotations) -> Option<f64> {
        golang::parse_float(self.text(annotations)?).ok().filter(|value| !value.is_nan())
    }

    /// Returns the value as a duration, which may be negative, or `None` if malformed.
    pub fn duration(&self, annotations: &Annotations) -> Option<GoDuration> {
        golang::parse_duration(self.text(annotations)?).ok()
    }
}

/// Returns the class: the annotation, else KPA, whatever the cluster's default is.
pub fn class(annotations: &Annotations) -> &str {
    CLASS.text(annotations).unwrap_or(CLASS_KPA)
}

/// Reports whether the class is KPA.
pub fn is_kpa(annotations: &Annotations) -> bool {
    class(annotations) == CLASS_KPA
}

/// Returns the metric: the annotation, else the default of the class, which is empty for a foreign class.
pub fn metric(annotations: &Annotations) -> &str {
    METRIC.text(annotations).unwrap_or_else(|| match class(annotations) {
        CLASS_KPA => METRIC_CONCURRENCY,
        CLASS_HPA => METRIC_CPU,
        _ => "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::{MIN_SCALE, TARGET, WINDOW};
    use crate::config::map;

    #[test]
    fn an_alias_counts_only_where_the_key_is_absent_and_values_only_if_they_parse() {
        let (kebab, camel) = ("autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/minScale");
        assert_eq!(MIN_SCALE.int32(&map(&[(camel, "3")])), Some(3));
        assert_eq!(MIN_SCALE.int32(&map(&[(camel, "3"), (kebab, "2")])), Some(2));
        assert_eq!(MIN_SCALE.int32(&map(&[(camel, "3"), (kebab, "x")])), None, "malformed, so the alias is ignored");
        assert_eq!(MIN_SCALE.int32(&map(&[])), None);
        assert_eq!(TARGET.float(&map(&[(TARGET.name, "0")])), Some(0.0), "out of range");
        assert_eq!(TARGET.float(&map(&[(TARGET.name, "NaN")])), None);
        assert_eq!(WINDOW.duration(&map(&[(WINDOW.name, "-1s")])), Some(GoDuration::from_secs(-1)), "out of range");
        assert_eq!(metric(&map(&[(METRIC.name, "")])), "");
    }
}
