//! The controller's memory of one autoscaler, in the format of cases.

use hpa_core::memory::{Memory, Recommendation, ScaleEvent};
use serde::Deserialize;

use super::hpa::Time;
use crate::Mismatch;
use crate::compare::equal;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateCase {
    recommendations: Vec<(i32, Time)>,
    #[serde(default)]
    scale_up_events: Vec<(i32, Time, bool)>,
    #[serde(default)]
    scale_down_events: Vec<(i32, Time, bool)>,
}

impl StateCase {
    pub(super) fn memory(&self) -> Memory {
        let events = |list: &[(i32, Time, bool)]| {
            list.iter().map(|&(change, at, outdated)| ScaleEvent { change, at: at.0, outdated }).collect()
        };
        let recommendations = self.recommendations.iter().map(|&(replicas, at)| Recommendation { replicas, at: at.0 });
        Memory {
            recommendations: recommendations.collect(),
            scale_ups: events(&self.scale_up_events),
            scale_downs: events(&self.scale_down_events),
        }
    }

    pub(super) fn compare(&self, at: &str, got: &Memory) -> Result<(), Mismatch> {
        let wanted = self.memory();
        equal(&format!("{at}.recommendations"), &wanted.recommendations, &got.recommendations)?;
        equal(&format!("{at}.scale_up_events"), &wanted.scale_ups, &got.scale_ups)?;
        equal(&format!("{at}.scale_down_events"), &wanted.scale_downs, &got.scale_downs)
    }
}
