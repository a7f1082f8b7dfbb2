//! Kinds of the PodAutoscaler reconciler. `apply_scale`: the patch of the replicas for a desired scale, including zero.
//! `active_condition`: the conditions Active and ScaleTargetInitialized. `num_activators`: the number of activators in
//! a revision's path.

use std::time::Duration;

use autoscaler_core::active::{self, Active};
use autoscaler_core::bounds::{min_ready, with_initial_scale};
use autoscaler_core::num_activators::num_activators;
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::scale_to_zero::{ACTIVATION_TIMEOUT_BUFFER, Input, ProbeNeed, ProbeResult, decide};
use common::annotations::{
    bounds, initial_scale, pod_retention, progress_deadline, stable_window, target_burst_capacity,
};
use common::config::DeploymentConfig;
use common::scaling::BurstCapacity;
use serde::Deserialize;
use serde_json::Value;

use super::config::{Map, Reachability, valid_config};
use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Clone, Copy, Debug, Deserialize)]
enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    /// Returns the Active condition with this status, unchanged for this time.
    fn active(self, seconds: f64) -> Active {
        let age = Duration::from_secs_f64(seconds);
        match self {
            Self::True => Active::True(age),
            Self::False => Active::False(age),
            Self::Unknown => Active::Unknown(age),
        }
    }
}

#[derive(Deserialize)]
struct ScaleCase {
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

pub(super) fn check_scale(case: &Value) -> Result<(), Mismatch> {
    let case: ScaleCase = parse(case)?;
    let first = case.input()?;
    let unprobed = decide(&first);
    let probed = unprobed.probe != ProbeNeed::None;
    let probe = match case.activator_probe {
        Probe::Yes => ProbeResult::InPath,
        Probe::No | Probe::Error => ProbeResult::NotInPath,
    };
    let outcome = if probed { decide(&Input { probe, ..first }) } else { unprobed };

    equal("want", &case.want, &outcome.wanted_scale.unwrap_or(-1))?;
    equal("want_patch", &case.want_patch, &outcome.patch)?;
    let requeues: Vec<u64> = outcome.requeue.iter().map(|after| after.as_secs_f64().round() as u64).collect();
    equal("want_requeue_seconds", &case.want_requeue_seconds.unwrap_or_default(), &requeues)?;
    equal("want_probed", &case.want_probed, &probed)?;
    equal("want_async_probe", &case.want_async_probe, &(outcome.probe == ProbeNeed::Retry))
}

impl ScaleCase {
    fn input(&self) -> Result<Input, Mismatch> {
        let config = valid_config(&self.config)?;
        let reachable = self.reachability.is_reachable();
        let deployment = DeploymentConfig { progress_deadline: Duration::from_secs(self.progress_deadline_seconds) };
        let bounds = bounds(&self.annotations, &config, reachable);
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
}

#[derive(Deserialize)]
struct ActiveCase {
    annotations: Map,
    config: Map,
    reachability: Reachability,
    active: Status,
    active_for_seconds: f64,
    initialized: bool,
    ready: u32,
    /// −1 if unknown.
    scale: i32,
    service_name: String,
    want_active: String,
    want_reason: String,
    want_message: String,
    want_initialized: bool,
}

pub(super) fn check_active(case: &Value) -> Result<(), Mismatch> {
    let case: ActiveCase = parse(case)?;
    let config = valid_config(&case.config)?;
    let bounds = bounds(&case.annotations, &config, case.reachability.is_reachable());
    let outcome = active::decide(&active::Input {
        wanted_scale: (case.scale >= 0).then_some(case.scale),
        ready: case.ready,
        min_ready: min_ready(bounds, initial_scale(&case.annotations, &config), case.initialized),
        service_known: !case.service_name.is_empty(),
        active: case.active.active(case.active_for_seconds),
    });
    let stored = format!("{:?}", case.active);
    let (active, reason, message) = match outcome.active.map(|verdict| verdict.parts()) {
        Some((status, reason, message)) => (status_text(status), reason, message),
        None => (stored.as_str(), "", ""),
    };
    equal("want_active", case.want_active.as_str(), active)?;
    equal("want_reason", case.want_reason.as_str(), reason)?;
    equal("want_message", case.want_message.as_str(), message)?;
    equal("want_initialized", &case.want_initialized, &(case.initialized || outcome.initialized))
}

fn status_text(status: Option<bool>) -> &'static str {
    status.map_or("Unknown", |s| if s { "True" } else { "False" })
}

#[derive(Deserialize)]
struct ActivatorsCase {
    ready: u32,
    total_value: f64,
    target_burst_capacity: f64,
    activator_capacity: f64,
    want: i32,
}

pub(super) fn check_activators(case: &Value) -> Result<(), Mismatch> {
    let case: ActivatorsCase = parse(case)?;
    let burst = BurstCapacity::from_number(case.target_burst_capacity);
    equal("want", &case.want, &num_activators(case.ready, case.total_value, burst, case.activator_capacity))
}
