//! Pods that metrics ask for: what is looked at, and one wish of load and metrics.

use super::parameters::Parameters;
use super::{METRICS_MEASURED, Pass};
use crate::engine::Subject;
use crate::scale::PodSet;
use crate::standalone::admission::Prepared;
use autoscaler_core::engine::Answer;
use autoscaler_core::engine::blend::Input;
use common::annotations::{METRIC_CONCURRENCY, METRIC_RPS};
use common::scaling::ScalingMetric;
use common_api::condition::FALSE;
use common_api::condition_set::HasConditions;

impl Pass<'_> {
    /// One wish of all answers, told to the history; none where the load alone decides.
    pub(super) fn blend(
        &self,
        prepared: &Prepared,
        parameters: &Parameters,
        current: i32,
        load: Option<i32>,
    ) -> Option<Answer> {
        let (cx, key) = (self.cx, self.key);
        let engine = cx.engine.as_ref()?;
        let (Some(plan), PodSet::Selector(labels)) = (&prepared.metrics, &prepared.pods) else {
            engine.forget(key);
            return None;
        };
        let terms: Vec<_> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
        engine.follow(key, Subject { plan: plan.clone(), selector: terms.join(",") }, current);
        let load_name = match parameters.decider.metric {
            ScalingMetric::Concurrency => METRIC_CONCURRENCY,
            ScalingMetric::Rps => METRIC_RPS,
        };
        let answer = engine.answer(
            key,
            &Input {
                now: self.now,
                current,
                bounds: parameters.bounds,
                load,
                load_name,
                role: plan.load,
                measured: None,
                behavior: plan.behavior.as_ref(),
            },
        )?;
        cx.ports.deciders.blended(key, &answer);
        Some(answer)
    }

    /// Replicas were changed: policies count it.
    pub(super) fn scaled(&self, prepared: &Prepared, from: i32, to: i32) {
        if let (Some(engine), Some(plan)) = (&self.cx.engine, &prepared.metrics) {
            engine.scaled(self.key, plan.behavior.as_ref(), from, to);
        }
    }

    /// Says which metric fails, if one does.
    pub(super) fn metrics_notice(&mut self, prepared: &Prepared) {
        let engine = self.cx.engine.as_ref().filter(|_| prepared.metrics.is_some());
        let failure = engine.and_then(|engine| engine.failure(self.key));
        let mut manager = self.status.manage(self.now);
        match failure {
            Some((reason, why)) => manager.set(METRICS_MEASURED, FALSE, reason, &why),
            None => manager.clear(METRICS_MEASURED),
        }
    }
}
