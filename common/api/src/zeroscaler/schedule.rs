//! Minimum and maximum number of pods by time of day.

use super::DurationText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Minimum and maximum number of pods during recurring times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Start times: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday), as in crontab(5), or
    /// `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
    pub cron: String,
    /// Time zone by its IANA name, such as Europe/Berlin. A time that a clock change skips means the first minute after
    /// it; a time that occurs twice means the first.
    #[serde(default = "Schedule::default_time_zone")]
    pub time_zone: String,
    /// Duration of each period.
    pub duration: DurationText,
    /// Minimum number of pods during a period. If several schedules apply, the largest minimum counts. Default:
    /// unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// Maximum number of pods during a period; 0: unlimited. Never below the minimum. Default: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// Time by which each period begins earlier, so that pods are ready at the start time.
    #[serde(default = "Schedule::default_prewarm")]
    pub prewarm: DurationText,
}

impl Schedule {
    fn default_time_zone() -> String {
        "UTC".to_owned()
    }

    fn default_prewarm() -> DurationText {
        DurationText::new("0s")
    }
}
