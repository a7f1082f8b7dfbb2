//! The controller's memory of one autoscaler, and its behavior, in the format of cases.

use hpa_core::memory::{Memory, Recommendation, ScaleEvent};
use hpa_core::quantity::{Format, Quantity};
use hpa_core::spec::{Behavior, Policy, ScalingRules};
use serde::Deserialize;

use super::hpa::{Time, nullable};
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

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BehaviorCase {
    #[serde(deserialize_with = "nullable")]
    scale_up: Option<RulesCase>,
    #[serde(deserialize_with = "nullable")]
    scale_down: Option<RulesCase>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesCase {
    #[serde(deserialize_with = "nullable")]
    stabilization_window_seconds: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    select_policy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    policies: Option<Vec<PolicyCase>>,
    #[serde(deserialize_with = "nullable")]
    tolerance: Option<i64>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyCase {
    r#type: String,
    value: i32,
    period_seconds: i32,
}

impl From<BehaviorCase> for Behavior {
    fn from(case: BehaviorCase) -> Self {
        Self { scale_up: case.scale_up.map(Into::into), scale_down: case.scale_down.map(Into::into) }
    }
}

impl From<RulesCase> for ScalingRules {
    fn from(case: RulesCase) -> Self {
        let policy = |p: PolicyCase| Policy { kind: p.r#type, value: p.value, period_seconds: p.period_seconds };
        Self {
            stabilization_window_seconds: case.stabilization_window_seconds,
            select_policy: case.select_policy,
            policies: case.policies.map(|list| list.into_iter().map(policy).collect()),
            tolerance: case.tolerance.map(|milli| Quantity::from_milli(milli, Format::Decimal)),
        }
    }
}

/// Fills in the defaults of a behavior like the API server, and compares the result.
pub(super) fn defaulted(
    behavior: Option<BehaviorCase>,
    wanted: Option<BehaviorCase>,
) -> Result<Option<Behavior>, Mismatch> {
    let mut behavior: Option<Behavior> = behavior.map(Into::into);
    if let Some(behavior) = &mut behavior {
        hpa_core::defaults::fill_behavior(behavior);
    }
    equal("behavior_defaulted", &wanted.map(Behavior::from), &behavior)?;
    Ok(behavior)
}
