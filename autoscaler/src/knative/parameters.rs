//! Parameters of one revision, from its annotations and the cluster's configuration.

use crate::engine::parameters::Parameters;
use autoscaler_core::bounds;
use autoscaler_core::scale_to_zero::ACTIVATION_TIMEOUT_BUFFER;
use common::annotations;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::scaling::BurstCapacity;
use common_api::PodAutoscaler;
use kube::ResourceExt;
use std::time::Duration;

/// Resolves all parameters. `initialized`: the initial scale has been reached once.
pub(super) fn parameters(
    object: &PodAutoscaler,
    config: &AutoscalerConfig,
    deployment: &DeploymentConfig,
    initialized: bool,
) -> Parameters {
    let (annotations, reachable) = (object.annotations(), object.is_reachable());
    let decider = annotations::decider_spec(annotations, config, object.spec.container_concurrency, reachable);
    let always = decider.target_burst_capacity == BurstCapacity::Always;
    let own = annotations::bounds(annotations, config, reachable);
    let retention = if reachable { annotations::pod_retention(annotations, config).to_std() } else { Duration::ZERO };
    let deadline = annotations::progress_deadline(annotations, deployment).to_std();
    Parameters {
        bounds: bounds::with_initial_scale(own, decider.initial_scale, initialized, reachable),
        min_ready: bounds::min_ready(own, decider.initial_scale, initialized),
        scale_to_zero: config.enable_scale_to_zero,
        activation_timeout: deadline + ACTIVATION_TIMEOUT_BUFFER,
        grace_period: config.scale_to_zero_grace_period,
        pod_retention: retention,
        probe_needed: !always,
        scraped: !always,
        decider,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolved(annotations: &[(&str, &str)]) -> Parameters {
        let annotations: std::collections::BTreeMap<_, _> =
            annotations.iter().map(|(name, value)| (format!("autoscaling.knative.dev/{name}"), *value)).collect();
        let object: PodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "hello", "namespace": "ns", "annotations": annotations},
            "spec": {"scaleTargetRef": {}, "protocolType": "http1"},
        }))
        .expect("a PodAutoscaler");
        parameters(&object, &AutoscalerConfig::default(), &DeploymentConfig::default(), false)
    }

    #[test]
    fn an_unlimited_burst_is_trusted_without_a_probe() {
        assert!(resolved(&[]).probe_needed);
        assert!(!resolved(&[("target-burst-capacity", "-1")]).probe_needed);
    }

    #[test]
    fn the_first_scale_is_the_initial_one() {
        for (annotations, expected) in [(&[][..], (0, 1)), (&[("initial-scale", "3")][..], (3, 3))] {
            let parameters = resolved(annotations);
            assert_eq!((parameters.bounds.min, parameters.min_ready), expected, "{annotations:?}");
        }
    }

    #[test]
    fn the_activation_timeout_is_the_progress_deadline_and_a_buffer() {
        assert_eq!(resolved(&[]).activation_timeout, Duration::from_secs(630));
    }
}
