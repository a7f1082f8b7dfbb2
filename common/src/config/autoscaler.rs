//! `config-autoscaler`: cluster-wide defaults and limits of scaling.

use super::{ConfigError, Reader, ensure};
use crate::golang::GoDuration;
use crate::scaling::ScalingMetric;
use std::collections::BTreeMap;
use std::time::Duration;

/// Utilization of the requests-per-second target; not configurable for the cluster.
pub const TARGET_UTILIZATION_RPS: f64 = 0.7;
/// Minimum target, in concurrent requests or requests per second.
pub const TARGET_MIN: f64 = 0.01;
/// Shortest stable window.
pub const WINDOW_MIN: GoDuration = GoDuration::from_secs(6);
/// Longest stable window.
pub const WINDOW_MAX: GoDuration = GoDuration::from_secs(3600);

/// Declares the settings, each with its meaning, name, type, default, reader and key.
macro_rules! settings {
    ($($(#[$meaning:meta])+ $field:ident: $type:ty = $default:expr, $read:ident $key:literal;)+) => {
        /// Content of `config-autoscaler`.
        #[derive(Clone, Debug, PartialEq)]
        pub struct AutoscalerConfig {
            $($(#[$meaning])+ pub $field: $type,)+
        }

        impl Default for AutoscalerConfig {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl AutoscalerConfig {
            /// All keys that are read.
            pub const KEYS: &[&str] = &[$($key),+];

            fn read(read: Reader<'_>) -> Result<Self, ConfigError> {
                Ok(Self { $($field: read.$read($key, $default)?,)+ })
            }
        }
    };
}

settings! {
    /// `enable-scale-to-zero`, default true.
    enable_scale_to_zero: bool = true, boolean "enable-scale-to-zero";
    /// `allow-zero-initial-scale`, default false.
    allow_zero_initial_scale: bool = false, boolean "allow-zero-initial-scale";
    /// `max-scale-up-rate`, more than 1, default 1000.
    max_scale_up_rate: f64 = 1000.0, float "max-scale-up-rate";
    /// `max-scale-down-rate`, more than 1, default 2.
    max_scale_down_rate: f64 = 2.0, float "max-scale-down-rate";
    /// `container-concurrency-target-percentage`, as a fraction in (0, 1], default 0.7. Values up to 1 are already
    /// fractions: `1` means 100 %.
    container_concurrency_target_fraction: f64 = 0.7, float "container-concurrency-target-percentage";
    /// `container-concurrency-target-default`: concurrent requests per pod without a hard limit, default 100.
    /// Multiplied by the fraction it is at least [`TARGET_MIN`].
    container_concurrency_target_default: f64 = 100.0, float "container-concurrency-target-default";
    /// `requests-per-second-target-default`, at least [`TARGET_MIN`], default 200.
    rps_target_default: f64 = 200.0, float "requests-per-second-target-default";
    /// `target-burst-capacity`: 0 or more, or -1 for unlimited; default 211.
    target_burst_capacity: f64 = 211.0, float "target-burst-capacity";
    /// `panic-window-percentage` of the stable window, from 1 to 100, default 10.
    panic_window_percentage: f64 = 10.0, float "panic-window-percentage";
    /// `activator-capacity`: concurrent requests that one activator can carry, at least 1, default 100.
    activator_capacity: f64 = 100.0, float "activator-capacity";
    /// `panic-threshold-percentage` of the ready pods' capacity, default 200; any number.
    panic_threshold_percentage: f64 = 200.0, float "panic-threshold-percentage";
    /// `initial-scale`, at least 1 (or 0 if `allow-zero-initial-scale`), default 1.
    initial_scale: i32 = 1, int32 "initial-scale";
    /// `min-scale`, at least 0, at most `max-scale` if that is set; default 0.
    min_scale: i32 = 0, int32 "min-scale";
    /// `max-scale`; 0: unlimited, the default.
    max_scale: i32 = 0, int32 "max-scale";
    /// `max-scale-limit`: largest permitted `max-scale`; 0: no limit, the default.
    max_scale_limit: i32 = 0, int32 "max-scale-limit";
    /// `stable-window`, whole seconds from 6 s to 1 h, default 60 s.
    stable_window: Duration = Duration::from_secs(60), time "stable-window";
    /// `scale-to-zero-grace-period`, more than 0, default 30 s.
    scale_to_zero_grace_period: Duration = Duration::from_secs(30), time "scale-to-zero-grace-period";
    /// `scale-to-zero-pod-retention-period`, default 0.
    scale_to_zero_pod_retention_period: Duration = Duration::ZERO, time "scale-to-zero-pod-retention-period";
    /// `scale-down-delay`, whole seconds, default 0.
    scale_down_delay: Duration = Duration::ZERO, time "scale-down-delay";
    /// `pod-autoscaler-class`: class of PodAutoscalers that name none, as admission assumes.
    pod_autoscaler_class: String = crate::names::CLASS_KPA.to_owned(), word "pod-autoscaler-class";
}

impl AutoscalerConfig {
    /// Reads and checks the map's data. Fails with the first value that cannot be parsed, else the first broken rule.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let mut config = Self::read(Reader(data))?;
        if config.container_concurrency_target_fraction > 1.0 {
            config.container_concurrency_target_fraction /= 100.0;
        }
        config.check_times()?;
        config.check_targets_and_rates()?;
        config.check_scales()?;
        Ok(config)
    }

    /// Returns the target value and the total value of one pod for a load. `utilization` is the percentage of the
    /// `requested` target to aim for, and `limit` the hard limit of one pod (0: none).
    ///
    /// Without a requested target, requests per second default to the cluster's target with utilization
    /// [`TARGET_UTILIZATION_RPS`]. Concurrency defaults to the hard limit, or without one to the cluster's default,
    /// with the cluster's fraction as utilization. The target value is at least [`TARGET_MIN`].
    pub fn targets(
        &self,
        load: ScalingMetric,
        requested: Option<f64>,
        utilization: Option<f64>,
        limit: i64,
    ) -> (f64, f64) {
        let (default, share) = match load {
            ScalingMetric::Rps => (self.rps_target_default, TARGET_UTILIZATION_RPS),
            ScalingMetric::Concurrency if limit == 0 => {
                (self.container_concurrency_target_default, self.container_concurrency_target_fraction)
            }
            ScalingMetric::Concurrency => (limit as f64, self.container_concurrency_target_fraction),
        };
        let total = requested.unwrap_or(default);
        let share = utilization.map_or(share, |percentage| percentage / 100.0);
        ((total * share).max(TARGET_MIN), total)
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let (grace, delay) =
            (GoDuration::from(self.scale_to_zero_grace_period), GoDuration::from(self.scale_down_delay));
        let window = GoDuration::from(self.stable_window);
        ensure(grace > GoDuration::ZERO, "scale-to-zero-grace-period", grace, "must be positive")?;
        ensure(delay.is_whole_seconds(), "scale-down-delay", delay, WHOLE_SECONDS)?;
        let rule = format!("must be in [{WINDOW_MIN}; {WINDOW_MAX}] range");
        ensure((WINDOW_MIN..=WINDOW_MAX).contains(&window), "stable-window", window, rule)?;
        ensure(window.is_whole_seconds(), "stable-window", window, WHOLE_SECONDS)?;
        let panic = self.panic_window_percentage;
        ensure((1.0..=100.0).contains(&panic), "panic-window-percentage", panic, "must be in [1, 100] interval")
    }

    fn check_targets_and_rates(&self) -> Result<(), ConfigError> {
        let burst = self.target_burst_capacity;
        let rule = "must be either non-negative or -1 (for unlimited)";
        ensure(burst >= 0.0 || burst == -1.0, "target-burst-capacity", burst, rule)?;
        let fraction = self.container_concurrency_target_fraction;
        let key = "container-concurrency-target-percentage";
        ensure(fraction > 0.0 && fraction <= 1.0, key, fraction, "is outside of the valid range of (0, 100]")?;
        let target = fraction * self.container_concurrency_target_default;
        let keys = "container-concurrency-target-percentage and container-concurrency-target-default";
        let rule = format!("the target concurrency they yield can't be less than {TARGET_MIN}");
        ensure(target >= TARGET_MIN, keys, target, rule)?;
        let rps = self.rps_target_default;
        let rule = format!("must be at least {TARGET_MIN}");
        ensure(rps >= TARGET_MIN, "requests-per-second-target-default", rps, rule)?;
        let capacity = self.activator_capacity;
        ensure(capacity >= 1.0, "activator-capacity", capacity, "must be at least 1")?;
        let (up, down) = (self.max_scale_up_rate, self.max_scale_down_rate);
        ensure(up > 1.0, "max-scale-up-rate", up, "must be greater than 1.0")?;
        ensure(down > 1.0, "max-scale-down-rate", down, "must be greater than 1.0")
    }

    fn check_scales(&self) -> Result<(), ConfigError> {
        let (initial, min, max, limit) = (self.initial_scale, self.min_scale, self.max_scale, self.max_scale_limit);
        let rule = "must be at least 0 (or at least 1 when allow-zero-initial-scale is false)";
        ensure(initial > 0 || (initial == 0 && self.allow_zero_initial_scale), "initial-scale", initial, rule)?;
        ensure(min >= 0, "min-scale", min, "must be at least 0")?;
        if limit > 0 {
            let rule = format!("must be in [1, max-scale-limit({limit})] range");
            ensure((1..=limit).contains(&max), "max-scale", max, rule)?;
        } else {
            ensure(max >= 0, "max-scale", max, "must be at least 0")?;
        }
        ensure(limit >= 0, "max-scale-limit", limit, "must be at least 0")?;
        ensure(max == 0 || min <= max, "min-scale", min, format!("must be at most max-scale ({max})"))
    }
}

const WHOLE_SECONDS: &str = "must be specified with at most second precision";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    fn failing_key(entries: &[(&str, &str)]) -> Option<String> {
        AutoscalerConfig::from_map(&map(entries)).err().map(|error| error.key)
    }

    #[test]
    fn an_empty_map_and_unknown_keys_mean_the_defaults() {
        let unknown = [("_example", "stable-window: x"), ("tick-interval", "x"), ("Stable-Window", "x")];
        for entries in [&[][..], &unknown] {
            assert_eq!(AutoscalerConfig::from_map(&map(entries)), Ok(AutoscalerConfig::default()), "{entries:?}");
        }
    }

    /// Goal: a refusal names the key. Recorded vectors (kind `config`) cover which values are refused, and the meaning
    /// of the others.
    #[test]
    fn a_refused_value_is_named_by_its_key() {
        let bad = [
            ("requests-per-second-target-default", "0.0099"),
            ("target-burst-capacity", "-0.5 -2"),
            ("stable-window", "5.999s 1h1s 6500ms x"),
            ("enable-scale-to-zero", "yes"),
            ("allow-zero-initial-scale", "x"),
            ("initial-scale", "x 0"),
            ("panic-window-percentage", "0.99 100.01"),
            ("max-scale-up-rate", "1"),
            ("max-scale-down-rate", "1.0"),
            ("activator-capacity", "0.99 NaN"),
            ("scale-to-zero-grace-period", "0"),
            ("scale-to-zero-pod-retention-period", "-1ns"),
            ("scale-down-delay", "1500ms"),
            ("min-scale", "-1"),
            ("max-scale", "-1"),
            ("max-scale-limit", "-1"),
            ("container-concurrency-target-percentage", "0 100.1"),
        ];
        for (key, values) in bad {
            for value in values.split(' ') {
                assert_eq!(failing_key(&[(key, value)]).as_deref(), Some(key), "{value}");
            }
        }
    }

    #[test]
    fn related_keys_are_checked_together_and_after_unreadable_values() {
        let error = AutoscalerConfig::from_map(&map(&[("min-scale", "-1"), ("scale-down-delay", "1d")]));
        let text = "scale-down-delay = 1d: it is a duration with the unknown unit \"d\" (ns, us, ms, s, m, h)";
        assert_eq!(error.expect_err("both are wrong").to_string(), text);
        let (percentage, default) = ("container-concurrency-target-percentage", "container-concurrency-target-default");
        let both = "container-concurrency-target-percentage and container-concurrency-target-default";
        for (entries, key) in [
            (&[("allow-zero-initial-scale", "true"), ("initial-scale", "0")][..], None),
            (&[("allow-zero-initial-scale", "true"), ("initial-scale", "-1")], Some("initial-scale")),
            (&[(percentage, "1"), (default, "0.01")], None), // Exactly the minimum target.
            (&[(percentage, "1"), (default, "0.0099")], Some(both)),
            (&[("min-scale", "5"), ("max-scale", "5")], None),
            (&[("max-scale-limit", "5")], Some("max-scale")),
            (&[("max-scale-limit", "5"), ("max-scale", "6")], Some("max-scale")),
            (&[("max-scale-limit", "5"), ("max-scale", "5")], None),
            (&[("min-scale", "5"), ("max-scale", "4")], Some("min-scale")),
            (&[("min-scale", "5")], None),
        ] {
            assert_eq!(failing_key(entries).as_deref(), key, "{entries:?}");
        }
    }
}
