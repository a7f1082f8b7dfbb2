//! Fewest and most pods by the clock.

use super::DurationText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Fewest and most pods from certain times on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// When it begins: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday), as crontab(5) has them,
    /// or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
    pub cron: String,
    /// In which time zone, by its IANA name such as Europe/Berlin. A time that a clock skips is the first minute after, one
    /// that it shows twice is the first.
    #[serde(default = "Schedule::default_time_zone")]
    pub time_zone: String,
    /// How long it is in force.
    pub duration: DurationText,
    /// Fewest pods meanwhile. Of schedules that are in force together the one with the largest counts. Default: as without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// Most pods meanwhile; 0: as many as the load asks for. Never fewer than the fewest. Default: as without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// How long before each time it is in force already, so that pods are ready by then.
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

    /// How long it is in force.
    pub fn duration(&self) -> Duration {
        self.duration.get().unwrap_or_default()
    }

    /// How long before each time that begins.
    pub fn prewarm(&self) -> Duration {
        self.prewarm.get().unwrap_or_default()
    }
}
