//! Workloads that request metrics: their evaluation, and the blend of metrics and load.

use super::workload::Workload;
use crate::metric_engine::{Engine, Subject};
use autoscaler_core::engine::Answer;
use autoscaler_core::engine::blend::Input;
use common::RevisionKey as Key;
use common::annotations::{METRIC_CONCURRENCY, METRIC_RPS};
use common::scaling::ScalingMetric;
use common::time::Timestamp;
use std::sync::Arc;

/// Recommendations of the metrics, blended with the load.
pub(super) struct MetricBlend {
    pub(super) engine: Arc<Engine>,
}

impl MetricBlend {
    /// Returns the blend of load and metrics; none: the load alone decides.
    pub(super) fn blend(&self, key: &Key, workload: &Workload, now: Timestamp, load: Option<i32>) -> Option<Answer> {
        let asked = workload.metrics.as_ref().and_then(|plan| Some((plan, workload.selector()?)));
        let Some((plan, selector)) = asked else {
            self.engine.forget(key);
            return None;
        };
        let current = workload.target.current();
        self.engine.follow(key, Subject { plan: plan.clone(), selector }, current);
        let load_name = match workload.parameters.decider.metric {
            ScalingMetric::Concurrency => METRIC_CONCURRENCY,
            ScalingMetric::Rps => METRIC_RPS,
        };
        let input = Input {
            now,
            current,
            bounds: workload.parameters.bounds,
            load,
            load_name,
            measured: None,
            behavior: plan.behavior.as_ref(),
        };
        self.engine.answer(key, &input)
    }

    /// Records a change of replicas, which scaling policies count.
    pub(super) fn scaled(&self, key: &Key, workload: &Workload, from: i32, to: i32) {
        if let Some(plan) = &workload.metrics {
            self.engine.scaled(key, plan.behavior.as_ref(), from, to);
        }
    }

    /// Returns why a requested metric fails, if one does: a reason and a message for the status.
    pub(super) fn failure(&self, key: &Key, workload: &Workload) -> Option<(&'static str, String)> {
        workload.metrics.as_ref().and_then(|_| self.engine.failure(key))
    }

    pub(super) fn forget(&self, key: &Key) {
        self.engine.forget(key);
    }
}
