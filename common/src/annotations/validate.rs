//! Checks annotations like upstream's admission webhook. All violations are reported, not only the first.
//!
//! The checks between minimum, maximum and activation scale use annotations alone. An absent, malformed or negative
//! bound counts as 0 there, and the cluster's own bounds are not consulted. The limit on `max-scale` is checked only if
//! `max-scale` is present. An aggregation algorithm is checked only if the class annotation is KPA.

use super::{
    ACTIVATION_SCALE, AGGREGATION, Annotations, CLASS, CLASS_HPA, CLASS_KPA, INITIAL_SCALE, Key, MAX_SCALE, METRIC,
    METRIC_CONCURRENCY, METRIC_RPS, MIN_SCALE, PANIC_THRESHOLD, PANIC_WINDOW, POD_RETENTION, PROGRESS_DEADLINE,
    SCALE_DOWN_DELAY, TARGET, TARGET_BURST_CAPACITY, TARGET_UTILIZATION, WINDOW,
};
use crate::config::{AutoscalerConfig, TARGET_MIN, WINDOW_MAX, WINDOW_MIN};
use crate::field::FieldErrors;
use crate::golang::{self, GoDuration};

const WHOLE_SECONDS: &str = "must be specified with at most second precision";
const NUMBER: &str = "a number is expected";
const INTEGER: &str = "a whole number of 32 bits is expected";
const DURATION: &str = "a duration such as 1m30s is expected";

/// Checks the annotations under `autoscaling.knative.dev/`.
///
/// # Errors
/// Returns every violation; its path is the spelling of the key that is present.
pub fn validate(annotations: &Annotations, config: &AutoscalerConfig) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::new();
    class(annotations, &mut errors);
    scales(annotations, config.max_scale_limit, &mut errors);
    initial_scale(annotations, config.allow_zero_initial_scale, &mut errors);
    float_within(&PANIC_WINDOW, 1.0, 100.0, annotations, &mut errors);
    float_within(&PANIC_THRESHOLD, 110.0, 1000.0, annotations, &mut errors);
    float_within(&TARGET_UTILIZATION, 1.0, 100.0, annotations, &mut errors);
    target(annotations, &mut errors);
    burst_capacity(annotations, &mut errors);
    duration_within(&WINDOW, WINDOW_MIN, true, annotations, &mut errors);
    duration_within(&SCALE_DOWN_DELAY, GoDuration::ZERO, true, annotations, &mut errors);
    duration_within(&POD_RETENTION, GoDuration::ZERO, false, annotations, &mut errors);
    metric(annotations, &config.pod_autoscaler_class, &mut errors);
    aggregation(annotations, &mut errors);
    errors.into_result()
}

/// Checks `serving.knative.dev/progress-deadline`: not negative, whole seconds.
///
/// # Errors
/// Returns the violation, if any.
pub fn validate_progress_deadline(annotations: &Annotations) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::new();
    if let Some((path, value)) = PROGRESS_DEADLINE.entry(annotations) {
        match golang::parse_duration(value) {
            Err(_) => errors.invalid_value(value, path, DURATION),
            Ok(deadline) if deadline < GoDuration::ZERO => errors.invalid_value(value, path, "must not be negative"),
            Ok(deadline) if !deadline.is_whole_seconds() => errors.invalid_value(value, path, WHOLE_SECONDS),
            Ok(_) => {}
        }
    }
    errors.into_result()
}

fn class(annotations: &Annotations, errors: &mut FieldErrors) {
    let Some((path, value)) = CLASS.entry(annotations) else { return };
    if value.ends_with(".knative.dev") && value != CLASS_KPA && value != CLASS_HPA {
        errors.invalid_value(value, path, format!("{CLASS_KPA} or {CLASS_HPA} is expected, or a foreign class"));
    }
}

/// Parses a scale of at least 0. An absent or invalid scale counts as 0 in later checks.
fn scale_or_zero(key: &Key, annotations: &Annotations, errors: &mut FieldErrors) -> i32 {
    let Some((path, value)) = key.entry(annotations) else { return 0 };
    match golang::parse_i32(value) {
        Ok(scale) if scale >= 0 => return scale,
        Err(error) if !error.is_out_of_range() => errors.invalid_value(value, path, INTEGER),
        _ => errors.push(format!("expected 0 <= {value} <= {}", i32::MAX), path, ""),
    }
    0
}

fn scales(annotations: &Annotations, limit: i32, errors: &mut FieldErrors) {
    let path = |key: &Key| key.entry(annotations).map_or(key.name, |(path, _)| path);
    let min = scale_or_zero(&MIN_SCALE, annotations, errors);
    let max = scale_or_zero(&MAX_SCALE, annotations, errors);
    if max != 0 && max < min {
        let message = format!("max-scale={max} is less than min-scale={min}");
        errors.push(message.clone(), path(&MAX_SCALE), "");
        errors.push(message, path(&MIN_SCALE), "");
    }
    if limit > 0 && MAX_SCALE.entry(annotations).is_some() {
        if max == 0 {
            errors.push(format!("max-scale=0 (unlimited), must be less than {limit}"), path(&MAX_SCALE), "");
        } else if max > limit {
            errors.push(format!("expected 1 <= {max} <= {limit}"), path(&MAX_SCALE), "");
        }
    }
    let Some((path, value)) = ACTIVATION_SCALE.entry(annotations) else { return };
    match golang::parse_i32(value) {
        Err(_) => errors.invalid_value(value, path, INTEGER),
        Ok(scale) if min > scale => {
            errors.push(format!("min-scale={min} is greater than activation-scale={scale}"), path, "");
        }
        Ok(scale) if max != 0 && max < scale => {
            errors.push(format!("max-scale={max} is less than activation-scale={scale}"), path, "");
        }
        Ok(scale) if scale < 2 => {
            errors.push(format!("activation-scale={scale} must be greater than 1"), path, "");
        }
        Ok(_) => {}
    }
}

/// Checks the value as 64 bits although it is read as 32 bits, as upstream does: 3000000000 is admitted and then
/// ignored.
fn initial_scale(annotations: &Annotations, allow_zero: bool, errors: &mut FieldErrors) {
    let Some((path, value)) = INITIAL_SCALE.entry(annotations) else { return };
    match golang::parse_i64(value) {
        Err(_) => errors.invalid_value(value, path, INTEGER),
        Ok(scale) if scale < 0 => errors.invalid_value(value, path, "must not be negative"),
        Ok(0) if !allow_zero => errors.invalid_value(value, path, "0 is not allowed by the cluster"),
        Ok(_) => {}
    }
}

fn float_within(key: &Key, min: f64, max: f64, annotations: &Annotations, errors: &mut FieldErrors) {
    let Some((path, value)) = key.entry(annotations) else { return };
    match golang::parse_float(value) {
        Err(_) => errors.invalid_value(value, path, NUMBER),
        Ok(number) if !(min..=max).contains(&number) => {
            errors.push(format!("expected {min} <= {value} <= {max}"), path, "");
        }
        Ok(_) => {}
    }
}

fn target(annotations: &Annotations, errors: &mut FieldErrors) {
    let Some((path, value)) = TARGET.entry(annotations) else { return };
    match golang::parse_float(value) {
        Err(_) => errors.invalid_value(value, path, NUMBER),
        Ok(number) if number >= TARGET_MIN => {}
        Ok(_) => errors.push(format!("target {value} should be at least {TARGET_MIN}"), path, ""),
    }
}

fn burst_capacity(annotations: &Annotations, errors: &mut FieldErrors) {
    let Some((path, value)) = TARGET_BURST_CAPACITY.entry(annotations) else { return };
    if !golang::parse_float(value).is_ok_and(|number| number >= 0.0 || number == -1.0) {
        errors.invalid_value(value, path, "a number of at least 0 is expected, or -1 for unlimited");
    }
}

fn duration_within(
    key: &Key,
    min: GoDuration,
    whole_seconds: bool,
    annotations: &Annotations,
    errors: &mut FieldErrors,
) {
    let Some((path, value)) = key.entry(annotations) else { return };
    match golang::parse_duration(value) {
        Err(_) => errors.invalid_value(value, path, DURATION),
        Ok(duration) if !(min..=WINDOW_MAX).contains(&duration) => {
            errors.push(format!("expected {min} <= {value} <= {WINDOW_MAX}"), path, "");
        }
        Ok(duration) if whole_seconds && !duration.is_whole_seconds() => errors.push(WHOLE_SECONDS, path, ""),
        Ok(_) => {}
    }
}

/// Checks the metric for the annotation's class, else the cluster's default class.
fn metric(annotations: &Annotations, default_class: &str, errors: &mut FieldErrors) {
    let Some((path, value)) = METRIC.entry(annotations) else { return };
    match CLASS.text(annotations).unwrap_or(default_class) {
        CLASS_KPA if value != METRIC_CONCURRENCY && value != METRIC_RPS => {
            errors.invalid_value(value, path, format!("{METRIC_CONCURRENCY} or {METRIC_RPS} is expected"));
        }
        CLASS_HPA if value.is_empty() => errors.invalid_value(value, path, "the name of a metric is expected"),
        _ => {}
    }
}

fn aggregation(annotations: &Annotations, errors: &mut FieldErrors) {
    let Some((path, value)) = AGGREGATION.entry(annotations) else { return };
    let known = matches!(value, "" | "linear" | "weighted-exponential" | "weightedExponential");
    if CLASS.text(annotations) == Some(CLASS_KPA) && !known {
        errors.invalid_value(value, path, "linear or weighted-exponential is expected");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    /// Returns the first line of the error without the rule in parentheses, and keys without their prefix. Empty: no
    /// error.
    fn check(entries: &[(&str, &str)], config: &AutoscalerConfig) -> String {
        let full: Vec<(String, &str)> =
            entries.iter().map(|(key, value)| (format!("autoscaling.knative.dev/{key}"), *value)).collect();
        let entries: Vec<(&str, &str)> = full.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let text = validate(&map(&entries), config).err().map(|errors| errors.to_string()).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default().replace("autoscaling.knative.dev/", "");
        // Only the rule follows the path in parentheses.
        line.rsplit_once(" (").filter(|(_, rule)| rule.ends_with(')')).map_or(line.clone(), |(head, _)| head.into())
    }

    /// Goal: results equal upstream's, apart from the rule in parentheses.
    #[test]
    fn single_annotations_are_checked() {
        let kpa = "class";
        let rows: &[(&[(&str, &str)], &str)] = &[
            (&[(kpa, "unsupported.knative.dev")], "invalid value: unsupported.knative.dev: class"),
            (&[(kpa, "some.other.domain")], ""),
            (&[("min-scale", "-1")], "expected 0 <= -1 <= 2147483647: min-scale"),
            (&[("max-scale", "2147483648")], "expected 0 <= 2147483648 <= 2147483647: max-scale"),
            (&[("min-scale", "bar"), ("max-scale", "bar")], "invalid value: bar: max-scale, min-scale"),
            (&[("min-scale", "5"), ("max-scale", "2")], "max-scale=2 is less than min-scale=5: max-scale, min-scale"),
            (&[("min-scale", "1"), ("activation-scale", "2"), ("max-scale", "3")], ""),
            (
                &[("min-scale", "3"), ("activation-scale", "2")],
                "min-scale=3 is greater than activation-scale=2: activation-scale",
            ),
            (
                &[("max-scale", "1"), ("activation-scale", "2")],
                "max-scale=1 is less than activation-scale=2: activation-scale",
            ),
            (&[("activation-scale", "1")], "activation-scale=1 must be greater than 1: activation-scale"),
            (
                &[(kpa, CLASS_KPA), ("metric-aggregation-algorithm", "random-selection")],
                "invalid value: random-selection: metric-aggregation-algorithm",
            ),
            (&[(kpa, "of-keys"), ("metric-aggregation-algorithm", "random-selection")], ""),
            (&[("panicWindowPercentage", "-1")], "expected 1 <= -1 <= 100: panicWindowPercentage"),
            (&[("panic-window-percentage", "202")], "expected 1 <= 202 <= 100: panic-window-percentage"),
            (&[("panic-window-percentage", "fifty")], "invalid value: fifty: panic-window-percentage"),
            (&[("panic-threshold-percentage", "109")], "expected 110 <= 109 <= 1000: panic-threshold-percentage"),
            (&[("panic-threshold-percentage", "10009")], "expected 110 <= 10009 <= 1000: panic-threshold-percentage"),
            (&[("panic-threshold-percentage", "210")], ""),
            (&[("target", "-11")], "target -11 should be at least 0.01: target"),
            (&[("target", "0")], "target 0 should be at least 0.01: target"),
            (&[("target", "NaN")], "target NaN should be at least 0.01: target"),
            (&[("target", "100}")], "invalid value: 100}: target"),
            (&[("target", "11")], ""),
            (&[("target-burst-capacity", "-11")], "invalid value: -11: target-burst-capacity"),
            (&[("target-burst-capacity", "-1")], ""),
            (&[("target-burst-capacity", "0")], ""),
            (&[("target-burst-capacity", "19870709")], ""),
            (&[("target-burst-capacity", "-0.5")], "invalid value: -0.5: target-burst-capacity"),
            (&[("target-burst-capacity", "qarashen")], "invalid value: qarashen: target-burst-capacity"),
            (&[("target-utilization-percentage", "0")], "expected 1 <= 0 <= 100: target-utilization-percentage"),
            (&[("target-utilization-percentage", "101")], "expected 1 <= 101 <= 100: target-utilization-percentage"),
            (&[("target-utilization-percentage", "half")], "invalid value: half: target-utilization-percentage"),
            (&[("window", "1s")], "expected 6s <= 1s <= 1h0m0s: window"),
            (&[("window", "365h")], "expected 6s <= 365h <= 1h0m0s: window"),
            (&[("window", "1m9s82ms")], "must be specified with at most second precision: window"),
            (&[("window", "7s")], ""),
            (&[("scale-to-zero-pod-retention-period", "0")], ""),
            (&[("scale-to-zero-pod-retention-period", "21m31s")], ""),
            (
                &[("scale-to-zero-pod-retention-period", "311m")],
                "expected 0s <= 311m <= 1h0m0s: scale-to-zero-pod-retention-period",
            ),
            (
                &[("scale-to-zero-pod-retention-period", "-42s")],
                "expected 0s <= -42s <= 1h0m0s: scale-to-zero-pod-retention-period",
            ),
            (&[("scale-down-delay", "0")], ""),
            (&[("scale-down-delay", "21m31s")], ""),
            (&[("scale-down-delay", "42.5s")], "must be specified with at most second precision: scale-down-delay"),
            (&[("scale-down-delay", "311m")], "expected 0s <= 311m <= 1h0m0s: scale-down-delay"),
            (&[("metric", "cpu")], "invalid value: cpu: metric"),
            (&[("metric", ""), (kpa, CLASS_HPA)], "invalid value: : metric"),
            (&[("initial-scale", "0")], "invalid value: 0: initial-scale"),
            (&[("initial-scale", "2")], ""),
            (&[("initial-scale", "3000000000")], ""),
            (&[("initial-scale", "-1")], "invalid value: -1: initial-scale"),
            (&[("initial-scale", "invalid")], "invalid value: invalid: initial-scale"),
        ];
        for (entries, expected) in rows {
            assert_eq!(check(entries, &AutoscalerConfig::default()), *expected, "{entries:?}");
        }
    }

    #[test]
    fn the_cluster_sets_limits() {
        let limited = AutoscalerConfig { max_scale_limit: 10, max_scale: 5, ..AutoscalerConfig::default() };
        assert_eq!(check(&[("max-scale", "11")], &limited), "expected 1 <= 11 <= 10: max-scale");
        let unlimited = "max-scale=0 (unlimited), must be less than 10: max-scale";
        assert_eq!(check(&[("max-scale", "20")], &limited), "expected 1 <= 20 <= 10: max-scale");
        assert_eq!(check(&[("max-scale", "0")], &limited), unlimited);
        assert_eq!(check(&[("max-scale", "9")], &limited), "");
        assert_eq!(check(&[], &limited), "");
        let hpa = AutoscalerConfig { pod_autoscaler_class: CLASS_HPA.into(), ..AutoscalerConfig::default() };
        assert_eq!(check(&[("metric", "cpu")], &hpa), "");
        let zero = AutoscalerConfig { allow_zero_initial_scale: true, ..AutoscalerConfig::default() };
        assert_eq!(check(&[("initial-scale", "0")], &zero), "");
    }

    /// Goal: several violations are reported one per line, sorted.
    #[test]
    fn all_violations_are_reported() {
        let annotations = map(&[(TARGET.name, "abc"), (MIN_SCALE.name, "-1"), (WINDOW.name, "x")]);
        let errors = validate(&annotations, &AutoscalerConfig::default()).expect_err("three violations");
        assert_eq!(errors.iter().count(), 3);
        let text = errors.to_string();
        assert!(text.lines().count() == 3 && text.lines().is_sorted(), "{text}");
    }

    #[test]
    fn the_progress_deadline_is_checked_apart() {
        let check = |value: &str| validate_progress_deadline(&map(&[(PROGRESS_DEADLINE.name, value)])).is_ok();
        assert!(check("0s") && check("10m"));
        assert!(!check("-1s") && !check("1500ms") && !check("x"));
    }
}
