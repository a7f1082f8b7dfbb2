//! What a target that was taken up is scaled by, where that differs from Knative's rules:
//!
//! - Pods without a reporter are never scraped and the activators never leave their path: the target burst capacity is
//!   unlimited whatever annotation or configuration says, and an annotation that says otherwise is named in the status.
//! - Without an initial-scale annotation the target is taken as it was found: found at zero, it need not start once to
//!   count as initialized; found running, one ready pod is enough.
//! - The path is probed before the last pod goes, even where the activators never leave it.

use crate::reconcile::kpa::parameters::{self, Parameters};
use autoscaler_core::bounds;
use autoscaler_core::scale_to_zero::ACTIVATION_TIMEOUT_BUFFER;
use common::annotations;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::scaling::BurstCapacity;
use common_api::{PodAutoscaler, ZeroScaler};
use kube::ResourceExt;

/// How a target was taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adoption {
    /// Replicas that the target was found with.
    pub(crate) replicas: i32,
    /// Its pods have no reporter.
    pub(crate) plain: bool,
}

impl Adoption {
    /// Resolves everything. `initialized`: the first scale was reached once.
    pub(crate) fn parameters(
        self,
        object: &PodAutoscaler,
        config: &AutoscalerConfig,
        deployment: &DeploymentConfig,
        initialized: bool,
    ) -> Parameters {
        let annotations = object.annotations();
        let mut decider = parameters::decider(object, config);
        if annotations::INITIAL_SCALE.int32(annotations).is_none() {
            decider.initial_scale = self.replicas.clamp(0, 1);
        }
        let mut ignored = None;
        if self.plain {
            let key = annotations::TARGET_BURST_CAPACITY.entry(annotations);
            ignored = key.filter(|_| decider.target_burst_capacity != BurstCapacity::Always).map(|(name, value)| {
                format!(
                    "{name}: {value:?} has no effect: without a queue-proxy in the pods the activators stay in the path"
                )
            });
            decider.target_burst_capacity = BurstCapacity::Always;
        }
        let parameters = Parameters::new(object, config, deployment, initialized, decider);
        Parameters { probe_needed: true, ignored, ..parameters }
    }

    /// The same of a ZeroScaler.
    pub(crate) fn parameters_of(
        self,
        object: &ZeroScaler,
        config: &AutoscalerConfig,
        deployment: &DeploymentConfig,
        initialized: bool,
    ) -> Parameters {
        let scale = &object.spec.scale;
        let mut decider = scale.decider_spec(config, object.spec.concurrency);
        if scale.initial().is_none() {
            decider.initial_scale = self.replicas.clamp(0, 1);
        }
        if self.plain {
            decider.target_burst_capacity = BurstCapacity::Always;
        }
        let own = scale.bounds(config);
        let deadline = annotations::progress_deadline(&annotations::Annotations::new(), deployment).to_std();
        Parameters {
            bounds: bounds::with_initial_scale(own, decider.initial_scale, initialized, true),
            min_ready: bounds::min_ready(own, decider.initial_scale, initialized),
            scale_to_zero: config.enable_scale_to_zero,
            activation_timeout: deadline + ACTIVATION_TIMEOUT_BUFFER,
            grace_period: scale.grace(config),
            pod_retention: scale.retention(config),
            probe_needed: true,
            scraped: decider.target_burst_capacity != BurstCapacity::Always,
            ignored: None,
            decider,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PLAIN: Adoption = Adoption { replicas: 0, plain: true };

    fn resolved(annotations: &[(&str, &str)], adoption: Adoption, initialized: bool) -> Parameters {
        let annotations: std::collections::BTreeMap<_, _> =
            annotations.iter().map(|(name, value)| (format!("autoscaling.knative.dev/{name}"), *value)).collect();
        let object: PodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "hello", "namespace": "ns", "annotations": annotations},
            "spec": {"scaleTargetRef": {}, "protocolType": "http1"},
        }))
        .expect("a PodAutoscaler");
        adoption.parameters(&object, &AutoscalerConfig::default(), &DeploymentConfig::default(), initialized)
    }

    #[test]
    fn plain_pods_keep_the_activators_in_the_path_and_say_what_they_ignore() {
        let none = resolved(&[], PLAIN, false);
        assert_eq!((none.decider.target_burst_capacity, none.ignored), (BurstCapacity::Always, None));
        assert!(none.probe_needed && !none.scraped);
        let asked = resolved(&[("target-burst-capacity", "200")], PLAIN, false);
        assert_eq!(asked.decider.target_burst_capacity, BurstCapacity::Always);
        assert!(asked.ignored.is_some_and(|text| text.contains("target-burst-capacity: \"200\"")));
        let always = resolved(&[("target-burst-capacity", "-1")], PLAIN, false);
        assert!(always.probe_needed && always.ignored.is_none(), "only Knative trusts it without a probe");
        let reporter = resolved(&[("target-burst-capacity", "200")], Adoption { plain: false, ..PLAIN }, false);
        assert_eq!((reporter.decider.target_burst_capacity, reporter.scraped), (BurstCapacity::Limited(200.0), true));
    }

    /// (initial-scale, found with, initialized) -> (least scale, ready pods to be active)
    #[test]
    fn a_target_is_adopted_as_found_unless_an_initial_scale_is_asked_for() {
        let rows = [
            ("", 0, false, (0, 0)),
            ("", 5, false, (0, 1)),
            ("", 0, true, (0, 1)),
            ("3", 0, false, (3, 3)),
            ("3", 0, true, (0, 1)),
        ];
        for (initial, replicas, initialized, expected) in rows {
            let annotations: &[(&str, &str)] = if initial.is_empty() { &[] } else { &[("initial-scale", initial)] };
            let parameters = resolved(annotations, Adoption { replicas, plain: true }, initialized);
            let row = format!("{initial:?} {replicas} {initialized}");
            assert_eq!((parameters.bounds.min, parameters.min_ready), expected, "{row}");
        }
    }
}
