//! What one revision is scaled by, from its annotations, the cluster's configuration and what its pods are.

use autoscaler_core::bounds;
use autoscaler_core::scale_to_zero::ACTIVATION_TIMEOUT_BUFFER;
use common::annotations;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::scaling::{Bounds, BurstCapacity, DeciderSpec};
use common_api::PodAutoscaler;
use kube::ResourceExt;
use std::time::Duration;

/// Everything that the rules need to know of a revision, apart from its state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    /// What the decider is told.
    pub(crate) decider: DeciderSpec,
    /// Limits, a counting initial scale included.
    pub(crate) bounds: Bounds,
    /// Ready pods that make the revision active.
    pub(crate) min_ready: i32,
    /// Whether scale to zero is on.
    pub(crate) scale_to_zero: bool,
    /// How long a revision may take to become ready.
    pub(crate) activation_timeout: Duration,
    /// How long the last pod stays while the path moves.
    pub(crate) grace_period: Duration,
    /// How long the last pod stays on request.
    pub(crate) pod_retention: Duration,
    /// Whether the path is probed before the last pod goes.
    pub(crate) probe_needed: bool,
    /// Whether the private Service is scraped.
    pub(crate) scraped: bool,
    /// An annotation that has no effect, and why.
    pub(crate) ignored: Option<String>,
}

impl Parameters {
    /// Resolves everything. `initialized`: the first scale was reached once; `decider`: what [`decider`] says, perhaps
    /// changed by a front end.
    pub(crate) fn new(
        object: &PodAutoscaler,
        config: &AutoscalerConfig,
        deployment: &DeploymentConfig,
        initialized: bool,
        decider: DeciderSpec,
    ) -> Self {
        let annotations = object.annotations();
        let reachable = object.is_reachable();
        let always = decider.target_burst_capacity == BurstCapacity::Always;
        let own = annotations::bounds(annotations, config, reachable);
        let retention =
            if reachable { annotations::pod_retention(annotations, config).to_std() } else { Duration::ZERO };
        let deadline = annotations::progress_deadline(annotations, deployment).to_std();
        Self {
            bounds: bounds::with_initial_scale(own, decider.initial_scale, initialized, reachable),
            min_ready: bounds::min_ready(own, decider.initial_scale, initialized),
            scale_to_zero: config.enable_scale_to_zero,
            activation_timeout: deadline + ACTIVATION_TIMEOUT_BUFFER,
            grace_period: config.scale_to_zero_grace_period,
            pod_retention: retention,
            probe_needed: !always,
            scraped: !always,
            ignored: None,
            decider,
        }
    }
}

/// What the decider is told by annotations and configuration.
pub(crate) fn decider(object: &PodAutoscaler, config: &AutoscalerConfig) -> DeciderSpec {
    annotations::decider_spec(object.annotations(), config, object.spec.container_concurrency, object.is_reachable())
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
        let config = AutoscalerConfig::default();
        Parameters::new(&object, &config, &DeploymentConfig::default(), false, decider(&object, &config))
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
