//! `hpa_normalize` and `hpa_normalize_legacy`: stabilization and limits, over steps that share a memory.

use std::time::Duration;

use hpa_core::behavior::{self, Rules};
use hpa_core::decision::Demand;
use serde::Deserialize;
use serde_json::Value;

use super::hpa_spec::defaulted;
use super::hpa_status::StateCase;
use crate::Mismatch;
use crate::compare::{Time, equal, parse};

#[derive(Deserialize)]
struct Case {
    min_replicas: i32,
    max_replicas: i32,
    downscale_stabilization_seconds: u64,
    state: StateCase,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at: Time,
    current_replicas: i32,
    desired_replicas: i32,
    rescaled: bool,
    want: Want,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Want {
    replicas: i32,
    able_to_scale: Condition,
    scaling_limited: Condition,
    stabilized: i32,
    scale_up_limit: i32,
    scale_down_limit: Option<i32>,
    state: StateCase,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    status: String,
    reason: String,
    #[serde(rename = "message")]
    _message: Option<String>,
}

impl Condition {
    fn compare(&self, at: &str, status: bool, reason: &str) -> Result<(), Mismatch> {
        equal(&format!("{at}.status"), self.status.as_str(), if status { "True" } else { "False" })?;
        equal(&format!("{at}.reason"), self.reason.as_str(), reason)
    }
}

pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let behavior = defaulted(case["behavior"].clone(), case["behavior_defaulted"].clone())?;
    let behavior = behavior.ok_or_else(|| Mismatch::Broken("there is no behavior".into()))?;
    run(parse(case)?, |window| Some(Rules::from_behavior(&behavior, window)))
}

pub(super) fn check_legacy(case: &Value) -> Result<(), Mismatch> {
    run(parse(case)?, |_| None)
}

fn run(case: Case, rules: impl FnOnce(Duration) -> Option<Rules>) -> Result<(), Mismatch> {
    let window = Duration::from_secs(case.downscale_stabilization_seconds);
    let rules = rules(window);
    let mut memory = case.state.memory();
    for (i, step) in case.steps.into_iter().enumerate() {
        let (want, now, current) = (step.want, step.at.0, step.current_replicas);
        let demand =
            Demand { current, proposed: step.desired_replicas, min: case.min_replicas, max: case.max_replicas };
        let (limits, decision) = match &rules {
            Some(rules) => {
                let limits =
                    (rules.scale_up_limit(&memory, current, now), rules.scale_down_limit(&memory, current, now));
                ((limits.0, Some(limits.1)), rules.decide(&mut memory, &demand, now))
            }
            None => {
                let decision = behavior::decide_without_behavior(&mut memory, &demand, window, now);
                ((behavior::scale_up_limit_without_behavior(current), None), decision)
            }
        };
        if step.rescaled {
            behavior::record_change(&mut memory, rules.as_ref(), current, decision.replicas, now);
        }
        let at = |field: &str| format!("steps[{i}].want.{field}");
        equal(&at("scale_up_limit"), &want.scale_up_limit, &limits.0)?;
        equal(&at("scale_down_limit"), &want.scale_down_limit, &limits.1)?;
        equal(&at("stabilized"), &want.stabilized, &decision.stabilized)?;
        equal(&at("replicas"), &want.replicas, &decision.replicas)?;
        want.able_to_scale.compare(&at("able_to_scale"), true, decision.stabilization.reason_and_message().0)?;
        let limit_reason = decision.limit.reason_and_message().0;
        want.scaling_limited.compare(&at("scaling_limited"), decision.is_limited(), limit_reason)?;
        want.state.compare(&at("state"), &memory)?;
    }
    Ok(())
}
