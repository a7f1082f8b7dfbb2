//! What one revision is scaled by, from its annotations, the cluster's configuration and what its pods are.
//!
//! Standalone differs from Knative in three points:
//!
//! - Pods without a reporter are never scraped and the activators never leave their path: the target burst capacity is
//!   unlimited whatever annotation or configuration says, and an annotation that says otherwise is named in the status.
//! - Without an initial-scale annotation the target is taken as it was found: found at zero, it need not start once to
//!   count as initialized; found running, one ready pod is enough.
//! - The path is probed before the last pod goes, even where the activators never leave it.

use autoscaler_core::bounds;
use autoscaler_core::engine::plan;
use autoscaler_core::scale_to_zero::ACTIVATION_TIMEOUT_BUFFER;
use common::annotations::{self, Annotations};
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
    /// Names an annotation that asks for metrics where nobody looks at them.
    pub(crate) fn ignore_metrics(&mut self, annotations: &Annotations) {
        let asked = [annotations::METRICS, annotations::BEHAVIOR].into_iter().find_map(|key| key.entry(annotations));
        if let Some((name, _)) = asked {
            let why = "has no effect: ZEROSCALE_HPA is off, so nobody looks at metrics";
            self.ignored.get_or_insert_with(|| format!("{name} {why}"));
        }
    }
}

/// How standalone took up a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adoption {
    /// Replicas that the target was found with.
    pub(crate) replicas: i32,
    /// Its pods have no reporter.
    pub(crate) plain: bool,
}

/// Resolves everything. `adoption` is that of standalone, `initialized` whether the first scale was reached once.
pub(crate) fn resolve(
    object: &PodAutoscaler,
    config: &AutoscalerConfig,
    deployment: &DeploymentConfig,
    adoption: Option<Adoption>,
    initialized: bool,
) -> Parameters {
    let annotations = object.annotations();
    let reachable = object.is_reachable();
    // A target of class HPA is its metric's.
    let load = plan::load_annotations(annotations);
    let mut decider = annotations::decider_spec(&load, config, object.spec.container_concurrency, reachable);
    let mut ignored = None;
    if let Some(adoption) = adoption {
        if annotations::INITIAL_SCALE.int32(annotations).is_none() {
            decider.initial_scale = adoption.replicas.clamp(0, 1);
        }
        if adoption.plain {
            let key = annotations::TARGET_BURST_CAPACITY.entry(annotations);
            ignored = key.filter(|_| decider.target_burst_capacity != BurstCapacity::Always).map(|(name, value)| {
                format!(
                    "{name}: {value:?} has no effect: without a queue-proxy in the pods the activators stay in the path"
                )
            });
            decider.target_burst_capacity = BurstCapacity::Always;
        }
    }
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
        probe_needed: adoption.is_some() || !always,
        scraped: !always,
        ignored,
        decider,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolved(annotations: &[(&str, &str)], adoption: Option<Adoption>, initialized: bool) -> Parameters {
        let annotations: std::collections::BTreeMap<_, _> =
            annotations.iter().map(|(name, value)| (format!("autoscaling.knative.dev/{name}"), *value)).collect();
        let object: PodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "hello", "namespace": "ns", "annotations": annotations},
            "spec": {"scaleTargetRef": {}, "protocolType": "http1"},
        }))
        .expect("a PodAutoscaler");
        resolve(&object, &AutoscalerConfig::default(), &DeploymentConfig::default(), adoption, initialized)
    }

    const PLAIN: Adoption = Adoption { replicas: 0, plain: true };

    #[test]
    fn plain_pods_keep_the_activators_in_the_path_and_say_what_they_ignore() {
        let none = resolved(&[], Some(PLAIN), false);
        assert_eq!((none.decider.target_burst_capacity, none.ignored), (BurstCapacity::Always, None));
        assert!(none.probe_needed && !none.scraped);
        let asked = resolved(&[("target-burst-capacity", "200")], Some(PLAIN), false);
        assert_eq!(asked.decider.target_burst_capacity, BurstCapacity::Always);
        assert!(asked.ignored.is_some_and(|text| text.contains("target-burst-capacity: \"200\"")));
        assert_eq!(resolved(&[("target-burst-capacity", "-1")], Some(PLAIN), false).ignored, None);
        let reporter = resolved(&[("target-burst-capacity", "200")], Some(Adoption { plain: false, ..PLAIN }), false);
        assert_eq!((reporter.decider.target_burst_capacity, reporter.scraped), (BurstCapacity::Limited(200.0), true));
    }

    #[test]
    fn only_knative_trusts_an_unlimited_burst_without_a_probe() {
        assert!(resolved(&[], None, false).probe_needed);
        assert!(!resolved(&[("target-burst-capacity", "-1")], None, false).probe_needed);
        assert!(resolved(&[("target-burst-capacity", "-1")], Some(PLAIN), false).probe_needed);
    }

    /// (initial-scale, found with, initialized) -> (least scale, ready pods to be active)
    #[test]
    fn a_target_is_adopted_as_found_unless_an_initial_scale_is_asked_for() {
        let rows = [
            ("", Some(0), false, (0, 0)),
            ("", Some(5), false, (0, 1)),
            ("", Some(0), true, (0, 1)),
            ("3", Some(0), false, (3, 3)),
            ("3", Some(0), true, (0, 1)),
            ("", None, false, (0, 1)),
            ("3", None, false, (3, 3)),
        ];
        for (initial, found, initialized, expected) in rows {
            let annotations: &[(&str, &str)] = if initial.is_empty() { &[] } else { &[("initial-scale", initial)] };
            let adoption = found.map(|replicas| Adoption { replicas, plain: true });
            let parameters = resolved(annotations, adoption, initialized);
            let row = format!("{initial:?} {found:?} {initialized}");
            assert_eq!((parameters.bounds.min, parameters.min_ready), expected, "{row}");
        }
    }

    #[test]
    fn the_activation_timeout_is_the_progress_deadline_and_a_buffer() {
        assert_eq!(resolved(&[], None, false).activation_timeout, Duration::from_secs(630));
    }
}
