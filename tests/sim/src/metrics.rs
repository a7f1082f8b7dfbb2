//! Metrics in addition to the load: measurements that succeed or fail, and the combined desired scale.
//!
//! The number of pods that a metric asks for is random, from zero to more than the bounds allow, and independent of the
//! load. The rules that combine metric and load are the real ones.

use crate::events::{Local, ProcessId};
use crate::plan::Fault;
use crate::reconcile::Controller;
use crate::simulation::Simulation;
use crate::summary::Without;
use autoscaler_core::engine::blend::{Blend, Input};
use autoscaler_core::engine::{BlendedScale, Measured};
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior as Behavior};
use rand::{Rng, RngExt};
use std::time::Duration;

/// Metric of a revision.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    /// Time between two measurements.
    pub(crate) period: Duration,
    behavior: Option<Behavior>,
    /// Maximum number of pods that the metric asks for.
    most: i32,
}

/// State of one revision's metric in a process.
#[derive(Debug, Default)]
pub(crate) struct MetricState {
    blend: Blend,
    measured: Option<Measured>,
    /// Number of the current series of measurements; `None` while there are no replicas.
    series: Option<u32>,
    series_count: u32,
}

impl Metric {
    pub(crate) fn new(rng: &mut impl Rng) -> Self {
        let down = HPAScalingRules {
            stabilization_window_seconds: Some(rng.random_range(0..=10)),
            ..HPAScalingRules::default()
        };
        Self {
            period: Duration::from_secs(rng.random_range(1..=8)),
            behavior: rng.random_bool(0.7).then_some(Behavior { scale_up: None, scale_down: Some(down) }),
            most: rng.random_range(0..=4),
        }
    }
}

impl Simulation {
    /// Combines load and metric into a desired scale. Returns `None` for a revision without a metric.
    pub(crate) fn blend(&mut self, index: usize, revision: usize, current: i32) -> Option<BlendedScale> {
        let metric = self.plan.revisions[revision].metric.clone()?;
        let (now, bounds) = (self.timestamp(), self.plan.revisions[revision].bounds);
        let state = self.autoscalers[index].deciders.get_mut(&revision)?;
        let (metric_state, load) = (&mut state.metric_state, state.status.desired);
        let mut started = None;
        if current <= 0 {
            metric_state.series = None;
            metric_state.measured = None;
        } else if metric_state.series.is_none() {
            metric_state.series_count += 1;
            metric_state.series = Some(metric_state.series_count);
            started = metric_state.series;
        }
        let blended = metric_state.blend.combine(&Input {
            now,
            current,
            bounds,
            load,
            load_name: "concurrency",
            measured: metric_state.measured.as_ref(),
            behavior: metric.behavior.as_ref(),
        });
        if let Some(series) = started {
            self.schedule(ProcessId::Autoscaler(index), Duration::from_millis(20), Local::Measure { revision, series });
        }
        Some(blended)
    }

    /// Measures a revision's metric, if `series` still is the current series.
    pub(crate) fn measure(&mut self, index: usize, revision: usize, series: u32) {
        let Some(metric) = self.plan.revisions[revision].metric.clone() else { return };
        let failed = self.links.is_active(Fault::CutMetrics(index));
        let pods = self.rng.random_range(0..=metric.most);
        let counts_failures = self.without != Some(Without::Doubt);
        let Some(state) = self.autoscalers[index].deciders.get_mut(&revision) else { return };
        if state.metric_state.series != Some(series) {
            return;
        }
        state.metric_state.measured = Some(match failed {
            true => Measured { proposal: None, failed: u16::from(counts_failures), first_failure: None },
            false => Measured { proposal: Some((pods, "a metric".into())), failed: 0, first_failure: None },
        });
        self.summary.failed_measurements += u64::from(failed);
        self.enqueue(index, (Controller::Autoscaler, revision));
        self.schedule(ProcessId::Autoscaler(index), metric.period, Local::Measure { revision, series });
    }

    /// Records a change of replicas for the scaling behavior.
    pub(crate) fn remember_scale(&mut self, index: usize, revision: usize, from: i32, to: i32) {
        let Some(metric) = self.plan.revisions[revision].metric.clone() else { return };
        let now = self.timestamp();
        if let Some(state) = self.autoscalers[index].deciders.get_mut(&revision) {
            state.metric_state.blend.scaled(metric.behavior.as_ref(), from, to, now);
        }
    }
}
