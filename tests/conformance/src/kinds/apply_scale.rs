//! `apply_scale`: the patch of the replicas for a desired scale, including zero.

use std::time::Duration;

use autoscaler_core::bounds::with_initial_scale;
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::scale_to_zero::{ACTIVATION_TIMEOUT_BUFFER, Input, ProbeNeed, ProbeResult, decide};
use common::annotations::{initial_scale, pod_retention, progress_deadline, stable_window, target_burst_capacity};
use common::config::DeploymentConfig;
use serde::Deserialize;
use serde_json::Value;

use super::reconcile::{Map, Reachability, Status, bounds, config};
use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    annotations: Map,
    config: Map,
    progress_deadline_seconds: u64,
    reachability: Reachability,
    active: Status,
    active_for_seconds: f64,
    initialized: bool,
    /// −1 if unknown.
    desired: i32,
    current_replicas: i32,
    sks_mode: Mode,
    proxy_for_seconds: Option<f64>,
    activator_probe: Probe,
    want: i32,
    want_patch: Option<i32>,
    want_requeue_seconds: Option<Vec<u64>>,
    want_probed: bool,
    want_async_probe: bool,
}

#[derive(Clone, Copy, Deserialize)]
enum Mode {
    Proxy,
    Serve,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Probe {
    Yes,
    No,
    Error,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let first = case.input()?;
    let unprobed = decide(&first);
    let probed = unprobed.probe != ProbeNeed::None;
    let outcome = if probed { decide(&Input { probe: case.verdict(), ..first }) } else { unprobed };

    equal("want", &case.want, &outcome.wanted_scale.unwrap_or(-1))?;
    equal("want_patch", &case.want_patch, &outcome.patch)?;
    let requeues: Vec<u64> = outcome.requeue.iter().map(|after| after.as_secs_f64().round() as u64).collect();
    equal("want_requeue_seconds", &case.want_requeue_seconds.unwrap_or_default(), &requeues)?;
    equal("want_probed", &case.want_probed, &probed)?;
    equal("want_async_probe", &case.want_async_probe, &(outcome.probe == ProbeNeed::Retry))
}

impl Case {
    fn input(&self) -> Result<Input, Mismatch> {
        let config = config(&self.config)?;
        let reachable = self.reachability.is_reachable();
        let deployment = DeploymentConfig { progress_deadline: Duration::from_secs(self.progress_deadline_seconds) };
        let bounds = bounds(&self.annotations, &config, self.reachability);
        let initial = initial_scale(&self.annotations, &config);
        let retention = pod_retention(&self.annotations, &config).to_std();
        Ok(Input {
            desired: (self.desired >= 0).then_some(self.desired),
            current_replicas: self.current_replicas,
            bounds: with_initial_scale(bounds, initial, self.initialized, reachable),
            scale_to_zero: config.enable_scale_to_zero,
            active: self.active.active(self.active_for_seconds),
            stable_window: stable_window(&self.annotations, &config).to_std(),
            activation_timeout: progress_deadline(&self.annotations, &deployment).to_std() + ACTIVATION_TIMEOUT_BUFFER,
            grace_period: config.scale_to_zero_grace_period,
            pod_retention: if reachable { retention } else { Duration::ZERO },
            path: match self.sks_mode {
                Mode::Proxy => PathMode::Proxy,
                Mode::Serve => PathMode::Serve,
            },
            proxy_for: Duration::from_secs_f64(self.proxy_for_seconds.unwrap_or_default()),
            // Only the number −1: other negative numbers keep the activators in the path too, but are probed.
            probe_needed: target_burst_capacity(&self.annotations, &config) != -1.0,
            probe: ProbeResult::NotProbed,
            warm_up_left: None,
            unattested: false,
        })
    }

    fn verdict(&self) -> ProbeResult {
        match self.activator_probe {
            Probe::Yes => ProbeResult::InPath,
            Probe::No | Probe::Error => ProbeResult::NotInPath,
        }
    }
}
