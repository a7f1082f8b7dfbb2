//! Parameters of an adopted target, if they differ from Knative's rules:
//!
//! - Pods without a reporter are never scraped, and the activators never leave their path: the target burst capacity is
//!   unlimited whatever the configuration says.
//! - Without `scale.initial` the target is taken as found. If it was found at zero, it counts as initialized without a
//!   start; if it was found running, one ready pod is enough.
//! - The path is probed before the last pod goes, even if the activators never leave it.

use crate::engine::workload::Parameters;
use autoscaler_core::bounds;
use autoscaler_core::scale_to_zero::ACTIVATION_TIMEOUT_BUFFER;
use common::annotations;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::scaling::{Bounds, BurstCapacity};
use common_api::ZeroScaler;

/// Resolves all parameters. `replicas` is the number that the target was found with. `is_plain`: its pods have no
/// reporter. `own` are the current bounds. `initialized`: the initial scale was reached once. The workload counts as
/// awake with its minimum without a schedule: pods added by a schedule are not part of its start.
pub(super) fn parameters(
    object: &ZeroScaler,
    (replicas, is_plain): (i32, bool),
    config: &AutoscalerConfig,
    deployment: &DeploymentConfig,
    own: Bounds,
    initialized: bool,
) -> Parameters {
    let scale = &object.spec.scale;
    let mut decider = scale.decider_spec(config, object.spec.concurrency);
    if scale.initial().is_none() {
        decider.initial_scale = replicas.clamp(0, 1);
    }
    if is_plain {
        decider.target_burst_capacity = BurstCapacity::Always;
    }
    let least = Bounds { min: own.min.min(scale.bounds(config).min), ..own };
    let deadline = annotations::progress_deadline(&annotations::Annotations::new(), deployment).to_std();
    Parameters {
        bounds: bounds::with_initial_scale(own, decider.initial_scale, initialized, true),
        min_ready: bounds::min_ready(least, decider.initial_scale, initialized),
        scale_to_zero: config.enable_scale_to_zero,
        activation_timeout: deadline + ACTIVATION_TIMEOUT_BUFFER,
        grace_period: scale.grace(config),
        pod_retention: scale.retention(config),
        probe_needed: true,
        scraped: decider.target_burst_capacity != BurstCapacity::Always,
        decider,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const PLAIN: (i32, bool) = (0, true);

    /// Resolves the parameters of a ZeroScaler with this scale. `min`: its present minimum, set by a schedule.
    fn resolved(scale: Value, found: (i32, bool), initialized: bool, min: Option<i32>) -> Parameters {
        let object: ZeroScaler = serde_json::from_value(json!({
            "metadata": {"name": "hello", "namespace": "ns"},
            "spec": {"target": {"name": "hello"}, "scale": scale},
        }))
        .expect("a ZeroScaler");
        let (config, deployment) = (AutoscalerConfig::default(), DeploymentConfig::default());
        let scheduled = min.map(|min| Bounds { min, max: None });
        let own = scheduled.unwrap_or_else(|| object.spec.scale.bounds(&config));
        parameters(&object, found, &config, &deployment, own, initialized)
    }

    #[test]
    fn plain_pods_keep_the_activators_in_the_path() {
        let plain = resolved(json!({}), PLAIN, false, None);
        assert_eq!(plain.decider.target_burst_capacity, BurstCapacity::Always);
        assert!(plain.probe_needed && !plain.scraped);
        let reporter = resolved(json!({}), (0, false), false, None);
        assert_eq!((reporter.decider.target_burst_capacity, reporter.scraped), (BurstCapacity::Limited(211.0), true));
    }

    /// Rows: (scale.initial, replicas found, initialized) -> (least scale, ready pods to be active)
    #[test]
    fn a_target_is_adopted_as_found_unless_an_initial_scale_is_set() {
        let rows = [
            (None, 0, false, (0, 0)),
            (None, 5, false, (0, 1)),
            (None, 0, true, (0, 1)),
            (Some(3), 0, false, (3, 3)),
            (Some(3), 0, true, (0, 1)),
        ];
        for (initial, replicas, initialized, expected) in rows {
            let parameters = resolved(json!({"initial": initial}), (replicas, true), initialized, None);
            let row = format!("{initial:?} {replicas} {initialized}");
            assert_eq!((parameters.bounds.min, parameters.min_ready), expected, "{row}");
        }
    }

    /// Goal: a workload does not wait for pods that a schedule adds, nor for pods that a schedule removes.
    #[test]
    fn a_workload_is_awake_with_the_smaller_of_its_minimum_with_and_without_schedule() {
        for (own, scheduled, expected) in [(0, 5, 1), (3, 0, 1), (3, 5, 3), (3, 3, 3)] {
            let parameters = resolved(json!({"min": own}), PLAIN, true, Some(scheduled));
            assert_eq!((parameters.min_ready, parameters.bounds.min), (expected, scheduled), "{own}, {scheduled}");
        }
    }
}
