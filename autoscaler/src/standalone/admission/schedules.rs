//! Schedules of ZeroScalers: parsing, bounds in force, and the time of the next check.

use autoscaler_core::schedules::{InForce, Schedule, ScheduleError, Written, in_force};
use common::config::AutoscalerConfig;
use common::field::FieldErrors;
use common::time::Timestamp;
use common_api::ZeroScalerSpec;
use common_api::zeroscaler;
use std::time::Duration;

/// Maximum time between two checks: a change of the system clock takes effect within it.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(600);

/// Returns the scale bounds of a ZeroScaler now, and the time of the next change.
pub(crate) fn bounds(spec: &ZeroScalerSpec, config: &AutoscalerConfig, now: Timestamp) -> InForce {
    // Invalid schedules have been rejected, but an older version in force may still contain one.
    let schedules: Vec<_> = spec.schedules.iter().filter_map(|written| read(written).ok()).collect();
    in_force(&schedules, spec.scale.bounds(config), now)
}

/// Returns the delay until the next check, or `None` if the bounds do not change by themselves.
pub(crate) fn until_next_check(found: &InForce, now: Timestamp) -> Option<Duration> {
    // If the delay were rounded down, the check would come a moment too early, and the next one would be far off.
    found.recheck_at.map(|at| (at.saturating_since(now) + Duration::from_millis(1)).min(CHECK_INTERVAL_MAX))
}

/// Checks each schedule. Fails with field, value and rule of every invalid one.
pub(crate) fn check(spec: &ZeroScalerSpec) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::new();
    for (index, written) in spec.schedules.iter().enumerate() {
        if let Err(error) = read(written) {
            let (field, value) = match error {
                ScheduleError::Cron(_) | ScheduleError::Never => ("cron", &written.cron),
                ScheduleError::TimeZone => ("timeZone", &written.time_zone),
            };
            errors.invalid_value(value, format!("spec.schedules[{index}].{field}"), error.to_string());
        }
    }
    errors.into_result()
}

fn read(written: &zeroscaler::Schedule) -> Result<Schedule, ScheduleError> {
    let zeroscaler::Schedule { cron, time_zone, min, max, .. } = written;
    let duration = written.duration.get().unwrap_or_default();
    let prewarm = written.prewarm.get().unwrap_or_default();
    Schedule::read(Written { cron, time_zone, duration, prewarm, min: *min, max: *max })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(yaml: &str) -> ZeroScalerSpec {
        serde_yaml_ng::from_str(&format!("{{target: {{name: a}}, scale: {{max: 9}}, schedules: {yaml}}}")).expect(yaml)
    }

    #[test]
    fn an_invalid_schedule_is_refused_with_its_field() {
        let wrong = spec(
            "[{cron: 0 0 30 2 *, duration: 1h, min: 1}, {cron: 0 25 * * *, duration: 1h, min: 1}, \
              {cron: 0 0 * * *, timeZone: Europe/Atlantis, duration: 1h, min: 1}]",
        );
        let errors = check(&wrong).expect_err("three").to_string();
        for part in [
            "spec.schedules[0].cron",
            "0 0 30 2 *",
            "there is no such time",
            "spec.schedules[1].cron",
            "spec.schedules[2].timeZone",
            "Europe/Atlantis",
        ] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
    }

    #[test]
    fn bounds_and_the_next_check_follow_the_clock() {
        let config = AutoscalerConfig::default();
        let spec_of = spec("[{cron: 0 8 * * *, timeZone: Etc/UTC, duration: 1h, min: 2, prewarm: 1m}]");
        let at = |seconds: i64| {
            let now = Timestamp::from_secs(86_400 * 20_000 + seconds);
            let found = bounds(&spec_of, &config, now);
            (found.bounds.min, found.bounds.max, until_next_check(&found, now))
        };
        let (before, begins) = (7 * 3600 + 58 * 60, 7 * 3600 + 59 * 60);
        let soon = Duration::from_millis(60_001);
        assert_eq!(at(before), (0, Some(9), Some(soon)));
        assert_eq!(at(begins), (2, Some(9), Some(CHECK_INTERVAL_MAX)));
        assert_eq!(at(9 * 3600), (0, Some(9), Some(CHECK_INTERVAL_MAX)));
        let none = bounds(&spec("[]"), &config, Timestamp::from_secs(0));
        assert_eq!((none.bounds.min, until_next_check(&none, Timestamp::from_secs(0))), (0, None));
    }
}
