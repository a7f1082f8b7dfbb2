//! Metrics in addition to the load: measurements that succeed or fail, and the combined desired scale.
//!
//! The values of a metric are random, from nothing to more than the bounds allow, and independent of the load, like
//! those of a processor or a queue. The rules that combine them are the real ones.

use crate::events::Local;
use crate::process::Who;
use crate::reconcile::Controller;
use crate::simulation::Simulation;
use crate::summary::Without;
use autoscaler_core::engine::blend::{Blend, Input};
use autoscaler_core::engine::{Answer, Measured};
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior as Behavior};
use rand::Rng;
use rand::RngExt;
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
    row: Option<u32>,
    rows: u32,
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
    pub(crate) fn blend(&mut self, index: usize, revision: usize, current: i32) -> Option<Answer> {
        let metric = self.plan.revisions[revision].metric.clone()?;
        let (now, bounds) = (self.timestamp(), self.plan.revisions[revision].bounds);
        let state = self.autoscalers[index].loops.get_mut(&revision)?;
        let (looks, load) = (&mut state.looks, state.status.desired);
        let mut begun = None;
        if current <= 0 {
            looks.row = None;
            looks.measured = None;
        } else if looks.row.is_none() {
            looks.rows += 1;
            looks.row = Some(looks.rows);
            begun = looks.row;
        }
        let answer = looks.blend.answer(&Input {
            now,
            current,
            bounds,
            load,
            load_name: "concurrency",
            measured: looks.measured.as_ref(),
            behavior: metric.behavior.as_ref(),
        });
        if let Some(row) = begun {
            self.tell(Who::Autoscaler(index), Duration::from_millis(20), Local::Measure(revision, row));
        }
        Some(answer)
    }

    /// Measures a revision's metric.
    pub(crate) fn measure(&mut self, index: usize, revision: usize, row: u32) {
        let Some(metric) = self.plan.revisions[revision].metric.clone() else { return };
        let failed = self.links.metrics_cut(index);
        let pods = self.rng.random_range(0..=metric.most);
        let doubt = self.without != Some(Without::Doubt);
        let Some(state) = self.autoscalers[index].loops.get_mut(&revision) else { return };
        if state.looks.row != Some(row) {
            return;
        }
        state.looks.measured = Some(match failed {
            true => Measured { wish: None, failed: u16::from(doubt), why: None },
            false => Measured { wish: Some((pods, "a metric".into())), failed: 0, why: None },
        });
        self.summary.looks += 1;
        self.summary.failed_looks += u64::from(failed);
        self.ask(index, (Controller::Autoscaler, revision));
        self.tell(Who::Autoscaler(index), metric.period, Local::Measure(revision, row));
    }

    /// Records a change of replicas in the memory of the behavior.
    pub(crate) fn remember_scale(&mut self, index: usize, revision: usize, from: i32, to: i32) {
        let Some(metric) = self.plan.revisions[revision].metric.clone() else { return };
        let now = self.timestamp();
        if let Some(state) = self.autoscalers[index].loops.get_mut(&revision) {
            state.looks.blend.scaled(metric.behavior.as_ref(), from, to, now);
        }
    }
}
