//! What a PodAutoscaler's annotations ask the metrics for.
//!
//! | Annotation | Value | Default |
//! |---|---|---|
//! | `zeroscale.dev/metrics` | `metrics` of `autoscaling/v2`, as YAML | none |
//! | `zeroscale.dev/behavior` | `behavior` of `autoscaling/v2`, as YAML | see [`super::blend`] |
//! | `zeroscale.dev/period` | time between two looks at the metrics, at least 1 s | 15 s |
//!
//! # Class HPA
//!
//! The annotations `metric` and `target` mean what they mean to Knative: `cpu` in percent of the request, `memory` in
//! MiB for each pod, any other name a metric of the pods, fractions rounded up for `cpu` and dropped for the others.
//! Without a target it is `cpu` at 80 percent, unless `zeroscale.dev/metrics` says what to measure. `window` is the
//! stabilization window both ways, unless `zeroscale.dev/behavior` is there. `concurrency` and `rps` are no metrics of
//! pods here: they are what the load is measured in.
//!
//! # The load
//!
//! With `zeroscale.dev/metrics` the load counts like one more metric, whatever the class. A PodAutoscaler of class HPA
//! without it is scaled by its metric alone; of the load it matters whether there is any ([`LoadRole`]). Its target is
//! the metric's, so the load's is the cluster's default ([`load_annotations`]).

use std::borrow::Cow;
use std::time::Duration;

use common::annotations::{
    self, Annotations, BEHAVIOR, Key, METRIC, METRIC_CONCURRENCY, METRIC_CPU, METRIC_MEMORY, METRIC_RPS, METRICS,
    PERIOD, TARGET, TARGET_UTILIZATION, WINDOW,
};
use common::field::FieldErrors;
use common::golang;
use hpa_core::defaults;
use hpa_core::quantity::{Format, Quantity};
use hpa_core::spec::{Behavior, Metric, MetricSpec, MetricTarget, PodsSource, ResourceSource, ScalingRules, Spec};
use hpa_core::validate::{self, Rule, Violation};

/// Time between two looks, if nothing else is said; upstream's.
pub const PERIOD_DEFAULT: Duration = Duration::from_secs(15);
/// Shortest time between two looks.
pub const PERIOD_MIN: Duration = Duration::from_secs(1);
/// Longest time between two looks.
pub const PERIOD_MAX: Duration = Duration::from_secs(3600);

/// What to measure, how often, and how to behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is measured; empty if only a behavior was asked for.
    pub metrics: Vec<MetricSpec>,
    /// What was asked for, defaults filled in.
    pub behavior: Option<Behavior>,
    /// Time between two looks at the metrics.
    pub period: Duration,
    /// What the load is good for.
    pub load: LoadRole,
}

/// What the load of requests is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadRole {
    /// It asks for pods, as a metric does.
    Counts,
    /// It only tells whether pods are needed at all.
    Activity,
}

/// What stands in the two annotations that hold YAML, read by the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Of `zeroscale.dev/metrics`; none: it is absent, or could not be read.
    pub metrics: Option<Vec<MetricSpec>>,
    /// Of `zeroscale.dev/behavior`, likewise.
    pub behavior: Option<Behavior>,
}

/// What the annotations of a PodAutoscaler ask for. None: its load alone scales it, as ever. `errors`: what could not be
/// read of `written`.
///
/// # Errors
/// Those, and every violation, with the annotation and the path within it.
pub fn plan(annotations: &Annotations, written: Written, mut errors: FieldErrors) -> Result<Option<Plan>, FieldErrors> {
    let Written { metrics: written, mut behavior } = written;
    if let Some(metrics) = &written {
        refuse(METRICS, validate::metrics("", metrics), &mut errors);
    }
    if let Some(behavior) = &mut behavior {
        defaults::fill_behavior(behavior);
        refuse(BEHAVIOR, validate::behavior("", behavior), &mut errors);
    }
    let period = period(annotations, &mut errors);
    errors.into_result()?;
    if !annotations::is_hpa(annotations) {
        let asked = written.is_some() || behavior.is_some();
        let metrics = written.unwrap_or_default();
        return Ok(asked.then_some(Plan { metrics, behavior, period, load: LoadRole::Counts }));
    }
    let counts = written.is_some() || is_load(annotations);
    let mut metrics: Vec<_> = own_metric(annotations).into_iter().collect();
    metrics.extend(written.unwrap_or_default());
    if metrics.is_empty() && !is_load(annotations) {
        let mut spec = Spec::default();
        defaults::fill(&mut spec);
        metrics = spec.metrics;
    }
    let load = if counts { LoadRole::Counts } else { LoadRole::Activity };
    Ok(Some(Plan { metrics, behavior: behavior.or_else(|| window(annotations)), period, load }))
}

/// The annotations that the load's parameters are to be resolved from: without a target that is not the load's.
pub fn load_annotations(annotations: &Annotations) -> Cow<'_, Annotations> {
    if !annotations::is_hpa(annotations) || is_load(annotations) {
        return Cow::Borrowed(annotations);
    }
    let mut own = annotations.clone();
    for key in [TARGET, TARGET_UTILIZATION] {
        for name in [Some(key.name), key.alias].into_iter().flatten() {
            own.remove(name);
        }
    }
    Cow::Owned(own)
}

/// Whether the annotation `metric` means the load.
fn is_load(annotations: &Annotations) -> bool {
    METRIC.text(annotations).is_some_and(|metric| matches!(metric, METRIC_CONCURRENCY | METRIC_RPS))
}

/// The metric that Knative's own annotations name, for class HPA.
fn own_metric(annotations: &Annotations) -> Option<MetricSpec> {
    let target = TARGET.float(annotations).filter(|_| !is_load(annotations))?;
    let each = |milli: i64, format| MetricTarget {
        kind: "AverageValue".into(),
        average_value: Some(Quantity::from_milli(milli, format)),
        ..MetricTarget::default()
    };
    let resource = |name: &str, target| MetricSpec {
        kind: "Resource".into(),
        resource: Some(ResourceSource { name: name.into(), target }),
        ..MetricSpec::default()
    };
    let whole = target as i64; // Saturates.
    Some(match annotations::metric(annotations) {
        METRIC_CPU => resource(
            METRIC_CPU,
            MetricTarget {
                kind: "Utilization".into(),
                average_utilization: Some(target.ceil() as i32), // Saturates.
                ..MetricTarget::default()
            },
        ),
        METRIC_MEMORY => resource(METRIC_MEMORY, each(whole.saturating_mul(1024 * 1024 * 1000), Format::Binary)),
        name => MetricSpec {
            kind: "Pods".into(),
            pods: Some(PodsSource {
                metric: Metric { name: name.into(), selector: None },
                target: each(whole.saturating_mul(1000), Format::Decimal),
            }),
            ..MetricSpec::default()
        },
    })
}

/// The behavior that the annotation `window` stands for, for class HPA.
fn window(annotations: &Annotations) -> Option<Behavior> {
    let window = WINDOW.duration(annotations)?.to_std();
    let seconds = Some(i32::try_from(window.as_secs()).unwrap_or(i32::MAX));
    let rules = ScalingRules { stabilization_window_seconds: seconds, ..ScalingRules::default() };
    let mut behavior = Behavior { scale_up: Some(rules.clone()), scale_down: Some(rules) };
    defaults::fill_behavior(&mut behavior);
    Some(behavior)
}

fn period(annotations: &Annotations, errors: &mut FieldErrors) -> Duration {
    let Some(text) = PERIOD.text(annotations) else { return PERIOD_DEFAULT };
    let period = golang::parse_duration(text).ok().map(|period| period.to_std());
    period.filter(|period| (PERIOD_MIN..=PERIOD_MAX).contains(period)).unwrap_or_else(|| {
        errors.invalid_value(text, PERIOD.name, "a duration from 1s to 1h is expected");
        PERIOD_DEFAULT
    })
}

fn refuse(key: Key, violations: Vec<Violation>, errors: &mut FieldErrors) {
    for Violation { path, rule, detail } in violations {
        let message = match rule {
            Rule::Required => "required value".to_owned(),
            Rule::Forbidden => "forbidden".to_owned(),
            Rule::Invalid(value) => format!("invalid value: {value}"),
            Rule::Unsupported(value) => format!("unsupported value: {value}"),
        };
        errors.push(message, within(key, &path), detail);
    }
}

/// A field within an annotation: `zeroscale.dev/metrics[0].type`, `zeroscale.dev/behavior.scaleUp.policies`.
pub fn within(key: Key, path: &str) -> String {
    let path = path.trim_start_matches('.');
    let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
    format!("{}{dot}{path}", key.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::annotations::{CLASS, CLASS_HPA};
    use hpa_core::spec::Source;

    const CPU: &str = r#"[{"type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]"#;

    /// The annotations that hold structures have them as JSON here.
    fn of(pairs: &[(&str, &str)]) -> Result<Option<Plan>, FieldErrors> {
        let text = |key: Key| pairs.iter().find(|(name, _)| *name == key.name).map(|(_, text)| *text);
        let metrics = text(METRICS).map(|text| serde_json::from_str(text).expect(text));
        let behavior = text(BEHAVIOR).map(|text| serde_json::from_str(text).expect(text));
        plan(&map(pairs), Written { metrics, behavior }, FieldErrors::new())
    }

    fn map(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn sure(pairs: &[(&str, &str)]) -> Plan {
        of(pairs).expect("valid").expect("a plan")
    }

    #[test]
    fn class_kpa_has_a_plan_only_if_it_asks_for_one() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[(TARGET.name, "10"), (METRIC.name, "rps")]), Ok(None));
        let asked = sure(&[(METRICS.name, CPU), (PERIOD.name, "1s")]);
        assert_eq!((asked.metrics.len(), asked.behavior.as_ref(), asked.load), (1, None, LoadRole::Counts));
        assert_eq!(asked.period, PERIOD_MIN);
        let behaving = sure(&[(BEHAVIOR.name, r#"{"scaleDown": {"stabilizationWindowSeconds": 5}}"#)]);
        let behavior = behaving.behavior.expect("a behavior");
        assert_eq!(behaving.metrics, []);
        assert_eq!(behaving.period, PERIOD_DEFAULT);
        assert!(behavior.scale_up.is_some_and(|up| up.policies.is_some_and(|p| p.len() == 2)), "filled in");
    }

    /// Goal: what the HorizontalPodAutoscaler that Knative makes would say.
    #[test]
    fn class_hpa_maps_metric_and_target_as_knative_does() {
        let hpa = (CLASS.name, CLASS_HPA);
        for (target, metric, wanted) in [
            (Some("50"), None, "cpu 50%"),
            (Some("1982.4"), Some("cpu"), "cpu 1983%"),
            (Some("50"), Some("memory"), "memory 50Mi"),
            (Some("50.9"), Some("customMetric"), "pods customMetric 50"),
            (None, None, "cpu 80%"),
            (None, Some("memory"), "cpu 80%"),
            (Some("x"), Some("memory"), "cpu 80%"),
            (Some("50"), Some("concurrency"), ""),
        ] {
            let mut pairs = vec![hpa];
            pairs.extend(target.map(|target| (TARGET.name, target)));
            pairs.extend(metric.map(|metric| (METRIC.name, metric)));
            let plan = sure(&pairs);
            let said: Vec<_> = plan
                .metrics
                .iter()
                .map(|metric| match metric.source() {
                    Source::Resource(ResourceSource { name, target }) => match target.average_utilization {
                        Some(percent) => format!("{name} {percent}%"),
                        None => format!("{name} {}", target.average_value.expect("an average")),
                    },
                    Source::Pods(source) => {
                        format!("pods {} {}", source.metric.name, source.target.average_value.expect("an average"))
                    }
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(said.join(","), wanted, "{target:?} {metric:?}");
            let role = if metric == Some("concurrency") { LoadRole::Counts } else { LoadRole::Activity };
            assert_eq!(plan.load, role, "{metric:?}");
            assert_eq!(validate::metrics("", &plan.metrics), [], "Kubernetes would take it");
        }
    }

    #[test]
    fn class_hpa_takes_its_window_for_both_directions_and_adds_what_is_written() {
        let plan = sure(&[(CLASS.name, CLASS_HPA), (WINDOW.name, "60s"), (TARGET.name, "70"), (METRICS.name, CPU)]);
        assert_eq!((plan.metrics.len(), plan.load), (2, LoadRole::Counts));
        let behavior = plan.behavior.expect("of the window");
        let window = |rules: Option<ScalingRules>| rules.and_then(|rules| rules.stabilization_window_seconds);
        assert_eq!((window(behavior.scale_up), window(behavior.scale_down)), (Some(60), Some(60)));
    }

    #[test]
    fn a_target_that_is_not_the_loads_does_not_govern_the_load() {
        let of = |pairs: &[(&str, &str)]| TARGET.float(&load_annotations(&map(pairs)));
        assert_eq!(of(&[(TARGET.name, "80")]), Some(80.0));
        assert_eq!(of(&[(CLASS.name, CLASS_HPA), (TARGET.name, "80")]), None);
        assert_eq!(of(&[(CLASS.name, CLASS_HPA), (METRIC.name, "rps"), (TARGET.name, "80")]), Some(80.0));
    }

    #[test]
    fn violations_name_annotation_and_path() {
        for (key, text, wanted) in [
            (METRICS, r#"[{"type": "Resource"}]"#, "required value: zeroscale.dev/metrics[0].resource (must populate"),
            (METRICS, r#"[{"type": "Nope"}]"#, "unsupported value: \"Nope\": zeroscale.dev/metrics[0].type (supported"),
            (
                BEHAVIOR,
                r#"{"scaleUp": {"stabilizationWindowSeconds": 9999}}"#,
                "invalid value: 9999: zeroscale.dev/behavior.scaleUp.stabilizationWindowSeconds (must be less",
            ),
            (BEHAVIOR, r#"{"scaleUp": {"policies": []}}"#, "required value: zeroscale.dev/behavior.scaleUp.policies"),
            (PERIOD, "999ms", "invalid value: 999ms: zeroscale.dev/period (a duration from 1s to 1h"),
            (PERIOD, "soon", "invalid value: soon: zeroscale.dev/period"),
        ] {
            let errors = of(&[(key.name, text)]).expect_err(text).to_string();
            assert!(errors.contains(wanted), "{text}: {errors}");
        }
    }

    #[test]
    fn all_violations_are_found_at_once() {
        let mut unread = FieldErrors::new();
        unread.push("cannot be read", METRICS.name, "");
        let behavior = serde_json::from_str(r#"{"scaleUp": {"tolerance": -1}}"#).expect("a behavior");
        let written = Written { metrics: None, behavior: Some(behavior) };
        let errors = plan(&map(&[(PERIOD.name, "0s")]), written, unread).expect_err("wrong everywhere");
        for key in [METRICS, BEHAVIOR, PERIOD] {
            assert!(errors.iter().any(|error| error.path.starts_with(key.name)), "{errors}");
        }
    }
}
