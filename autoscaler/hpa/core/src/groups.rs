//! Groups pods by the way they count. The first matching row applies:
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
//! | started longer ago | not ready since less than the readiness delay after the start, so it never was ready |
//!
//! A condition of status Unknown does not count as "not ready". Values of ignored and unready pods are dropped; values
//! of unknown pods stay.

use std::collections::BTreeSet;

use super::measure::MetricInputs;
use super::pod::{Phase, Pod};
use super::usage::{Sample, Samples};

/// Pods by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups<'a> {
    /// Number of pods that count fully.
    pub ready: usize,
    /// Pods that have not started yet. They count as idle for a scale-up, and not at all for a scale-down.
    pub unready: BTreeSet<&'a str>,
    /// Started pods without a measurement. They count as idle for a scale-up, and as busy for a scale-down.
    pub missing: BTreeSet<&'a str>,
    /// Pods that do not count.
    pub ignored: BTreeSet<&'a str>,
}

/// Groups the pods by the way they count. `cpu` is set if the measured resource is cpu.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::Options;
    use crate::pod::Readiness;
    use crate::tests::inputs;
    use crate::tolerance::Tolerances;
    use common::time::Timestamp;

    const NOW: i64 = 1_700_000_000;

    /// Returns the time this many seconds ago.
    fn ago(seconds: i64) -> Timestamp {
        Timestamp::from_secs(NOW - seconds)
    }

    fn group(pod: &Pod, sample: Option<(i64, u64)>, cpu: bool) -> &'static str {
        let options = Options {
            cpu_initialization_period: Duration::from_secs(120),
            initial_readiness_delay: Duration::from_secs(10),
            ..Options::default()
        };
        let sample =
            sample.map(|(age, window)| Sample { value: 1, timestamp: ago(age), window: Duration::from_secs(window) });
        let samples = sample.map(|sample| (pod.name.as_str(), sample)).into_iter().collect();
        let (pods, tolerances) = ([pod], Tolerances { up: 0.1, down: 0.1 });
        let groups = super::group(&inputs(&options, 1, tolerances, &pods), cpu, &samples);
        match (groups.ready, groups.unready.len(), groups.missing.len(), groups.ignored.len()) {
            (1, 0, 0, 0) => "ready",
            (0, 1, 0, 0) => "unready",
            (0, 0, 1, 0) => "missing",
            (0, 0, 0, 1) => "ignored",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_state_of_a_pod_has_its_group() {
        let started = |age: i64, ready: Option<(bool, i64)>| Pod {
            name: "p".into(),
            phase: Phase::Running,
            start_time: Some(ago(age)),
            ready: ready.map(|(status, age)| Readiness { status: Some(status), last_transition: ago(age) }),
            ..Pod::default()
        };
        let phase = |phase| Pod { phase, ..started(0, None) };
        let present = Some((0, 60));
        for (pod, sample, cpu, wanted) in [
            (phase(Phase::Succeeded), present, false, "ready"),
            (started(0, None), present, true, "unready"),
            (Pod { start_time: None, ..started(0, Some((true, 0))) }, present, true, "unready"),
            (started(60, Some((true, 30))), Some((0, 30)), true, "ready"),
            (started(60, Some((true, 30))), Some((0, 60)), true, "unready"),
            (started(60, Some((false, 30))), Some((0, 30)), true, "unready"),
            (started(120, Some((true, 30))), Some((0, 60)), true, "ready"),
            (started(600, Some((false, 594))), present, true, "unready"),
            (started(600, Some((false, 590))), present, true, "ready"),
            (started(600, Some((false, 540))), present, true, "ready"),
            (started(600, Some((false, 594))), present, false, "ready"),
            (started(180, Some((true, 180))), Some((120, 60)), true, "ready"),
            (started(180, Some((true, 180))), None, true, "missing"),
            (phase(Phase::Pending), None, true, "unready"),
            (Pod { deleting: true, ..phase(Phase::Pending) }, present, true, "ignored"),
            (phase(Phase::Failed), present, true, "ignored"),
        ] {
            assert_eq!(group(&pod, sample, cpu), wanted, "{pod:?}");
        }
    }

    #[test]
    fn a_readiness_that_nobody_knows_is_not_unreadiness() {
        let ready = Some(Readiness { status: None, last_transition: ago(60) });
        let pod = Pod { phase: Phase::Running, start_time: Some(ago(60)), ready, ..Pod::default() };
        assert_eq!(group(&pod, Some((0, 60)), true), "ready");
    }
}
