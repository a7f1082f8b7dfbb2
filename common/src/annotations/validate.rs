//! The rules of upstream's admission webhook for annotations. Readers do not apply them: they use any value that
//! parses.
//!
//! The rules between minimum, maximum and activation scale use annotations alone. An absent bound counts as 0 there,
//! and the cluster's own bounds are not consulted. The limit on `max-scale` applies only if `max-scale` is present. An
//! aggregation algorithm is checked only if the class annotation is KPA.

use super::{
    ACTIVATION_SCALE, AGGREGATION, Annotations, CLASS, CLASS_HPA, CLASS_KPA, INITIAL_SCALE, Key, MAX_SCALE, METRIC,
    METRIC_CONCURRENCY, METRIC_RPS, MIN_SCALE, PANIC_THRESHOLD, PANIC_WINDOW, POD_RETENTION, SCALE_DOWN_DELAY, TARGET,
    TARGET_BURST_CAPACITY, TARGET_UTILIZATION, WINDOW,
};
use crate::config::{AutoscalerConfig, TARGET_MIN, WINDOW_MAX, WINDOW_MIN};
use crate::golang::{self, GoDuration};

/// Reports whether upstream's webhook accepts the annotations under `autoscaling.knative.dev/`.
pub fn is_valid(annotations: &Annotations, config: &AutoscalerConfig) -> bool {
    let text = |key: &Key, rule: &dyn Fn(&str) -> bool| key.text(annotations).is_none_or(rule);
    let number = |key: &Key, rule: &dyn Fn(f64) -> bool| {
        text(key, &|text| golang::parse_float(text).is_ok_and(rule)) // No rule accepts NaN.
    };
    let duration = |key: &Key, min: GoDuration, is_fine: fn(&GoDuration) -> bool| {
        let within = |time: GoDuration| (min..=WINDOW_MAX).contains(&time) && is_fine(&time);
        text(key, &|text| golang::parse_duration(text).is_ok_and(within))
    };
    // Upstream reads 32 bits later, so it accepts 3000000000 and then ignores it.
    let initial = |scale: i64| scale > 0 || (scale == 0 && config.allow_zero_initial_scale);
    let class = CLASS.text(annotations);
    let metric = |metric: &str| match class.unwrap_or(&config.pod_autoscaler_class) {
        CLASS_KPA => [METRIC_CONCURRENCY, METRIC_RPS].contains(&metric),
        CLASS_HPA => !metric.is_empty(),
        _ => true,
    };
    let algorithm = |name: &str| {
        class != Some(CLASS_KPA) || ["", "linear", "weighted-exponential", "weightedExponential"].contains(&name)
    };
    text(&CLASS, &|class| [CLASS_KPA, CLASS_HPA].contains(&class) || !class.ends_with(".knative.dev"))
        && scales_agree(annotations, config.max_scale_limit).unwrap_or(false)
        && text(&INITIAL_SCALE, &|text| golang::parse_integer(text).is_ok_and(initial))
        && number(&PANIC_WINDOW, &|percentage| (1.0..=100.0).contains(&percentage))
        && number(&PANIC_THRESHOLD, &|percentage| (110.0..=1000.0).contains(&percentage))
        && number(&TARGET_UTILIZATION, &|percentage| (1.0..=100.0).contains(&percentage))
        && number(&TARGET, &|target| target >= TARGET_MIN)
        && number(&TARGET_BURST_CAPACITY, &|capacity| capacity >= 0.0 || capacity == -1.0)
        && duration(&WINDOW, WINDOW_MIN, |time| time.is_whole_seconds())
        && duration(&SCALE_DOWN_DELAY, GoDuration::ZERO, |time| time.is_whole_seconds())
        && duration(&POD_RETENTION, GoDuration::ZERO, |_| true)
        && text(&METRIC, &metric)
        && text(&AGGREGATION, &algorithm)
}

/// Reports whether minimum, maximum and activation scale fit together, or returns `None` if one cannot be parsed.
fn scales_agree(annotations: &Annotations, limit: i32) -> Option<bool> {
    let scale = |key: &Key| key.text(annotations).map(golang::parse_integer::<i32>).transpose().ok();
    let (min, max, activation) = (scale(&MIN_SCALE)?, scale(&MAX_SCALE)?, scale(&ACTIVATION_SCALE)?);
    let (least, most) = (min.unwrap_or(0), max.unwrap_or(0));
    let is_below_most = |scale: i32| most == 0 || scale <= most;
    let is_limited = limit <= 0 || max.is_none_or(|max| (1..=limit).contains(&max));
    let activation_fits = activation.is_none_or(|scale| scale >= 2 && scale >= least && is_below_most(scale));
    Some(least >= 0 && most >= 0 && is_below_most(least) && is_limited && activation_fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    /// Recorded vectors (kind `annotations`) cover all other rules.
    #[test]
    fn a_target_that_is_not_a_number_is_refused() {
        assert!(!is_valid(&map(&[(TARGET.name, "NaN")]), &AutoscalerConfig::default()));
    }
}
