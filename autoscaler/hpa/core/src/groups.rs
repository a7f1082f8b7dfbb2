//! Groups pods for the calculation. The first matching row applies:
//!
//! | Pod | Group |
//! |---|---|
//! | being deleted, or failed | ignored |
//! | pending | unready |
//! | without a value | missing |
//! | measured in cpu, and unready by the rule below | unready |
//! | any other | ready |
//!
//! The cpu usage of a new pod says little about its load, so for `cpu` its readiness is checked:
//!
//! | Situation | Unready if |
//! |---|---|
//! | no Ready condition or no start time | always |
//! | started less than the initialization period ago | not ready, or the sample's window began before the condition changed |
//! | started longer ago | not ready, and the condition changed last within the readiness delay after the start |
//!
//! In the last case the pod was never ready. A condition of status Unknown does not count as "not ready". Values of
//! ignored and unready pods are dropped. Values of pods that the selector does not match are kept.

use std::collections::BTreeSet;

use super::measure::MetricInputs;
use super::pod::{Phase, Pod};
use super::usage::{Sample, Samples};

/// Pods by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups<'a> {
    /// Number of ready pods.
    pub ready: usize,
    /// Pods that have not started yet. They count as idle for a scale-up, and not at all for a scale-down.
    pub unready: BTreeSet<&'a str>,
    /// Started pods without a measurement. They count as idle for a scale-up, and as busy for a scale-down.
    pub missing: BTreeSet<&'a str>,
    /// Pods that do not count.
    pub ignored: BTreeSet<&'a str>,
}

/// Groups the pods. `cpu` is set if the measured resource is cpu.
pub fn group<'a>(inputs: &MetricInputs<'a>, cpu: bool, samples: &Samples<'_>) -> Groups<'a> {
    let mut groups = Groups::default();
    for pod in inputs.pods {
        let name = pod.name.as_str();
        if pod.deleting || pod.phase == Phase::Failed {
            groups.ignored.insert(name);
        } else if pod.phase == Phase::Pending {
            groups.unready.insert(name);
        } else if let Some(sample) = samples.get(name) {
            if cpu && is_unready(inputs, pod, sample) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}

fn is_unready(inputs: &MetricInputs<'_>, pod: &Pod, sample: &Sample) -> bool {
    let (Some(ready), Some(start)) = (pod.ready, pod.start_time) else { return true };
    let not_ready = ready.status == Some(false);
    if start + inputs.options.cpu_initialization_period > inputs.now {
        not_ready || sample.timestamp < ready.last_transition + sample.window
    } else {
        not_ready && start + inputs.options.initial_readiness_delay > ready.last_transition
    }
}
