//! Counts the ready pods of a revision, and the others by state.
//!
//! | pod | counted as |
//! |---|---|
//! | Pending, being deleted or not | pending and not ready |
//! | Running and being deleted, even if ready | terminating and not ready |
//! | Running and ready | ready |
//! | Running otherwise | not ready |
//! | Succeeded, Failed, Unknown, no phase | not counted |

/// Phase of a pod, reduced to the cases that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have started.
    Pending,
    /// All containers have started.
    Running,
    /// Succeeded, failed, unknown or missing.
    Other,
}

impl Phase {
    /// Parses `status.phase`.
    pub fn parse(phase: Option<&str>) -> Self {
        match phase {
            Some("Pending") => Self::Pending,
            Some("Running") => Self::Running,
            _ => Self::Other,
        }
    }
}

/// State of a pod that decides how it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedPod {
    /// Phase of the pod.
    pub phase: Phase,
    /// True if the pod has a deletion time stamp.
    pub deleting: bool,
    /// True if the condition `Ready` is `True`.
    pub ready: bool,
}

/// Number of pods by state. `pending` and `terminating` are part of `not_ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Running and ready.
    pub ready: i32,
    /// Pending, terminating, or running and not ready.
    pub not_ready: i32,
    /// Not started yet.
    pub pending: i32,
    /// Being deleted.
    pub terminating: i32,
}

impl FromIterator<CountedPod> for PodCounts {
    fn from_iter<I: IntoIterator<Item = CountedPod>>(pods: I) -> Self {
        let mut counts = Self::default();
        for CountedPod { phase, deleting, ready } in pods {
            let (is_pending, is_running) = (phase == Phase::Pending, phase == Phase::Running);
            let is_ready = is_running && ready && !deleting;
            counts.pending += i32::from(is_pending);
            counts.terminating += i32::from(is_running && deleting);
            counts.ready += i32::from(is_ready);
            counts.not_ready += i32::from(is_pending || (is_running && !is_ready));
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each pod is counted by phase, deletion and readiness, and several pods are added up. A pod without
    /// conditions is not ready.
    #[test]
    fn each_pod_is_counted_by_phase_deletion_and_readiness() {
        let pod = |phase, deleting, ready| CountedPod { phase, deleting, ready };
        let counts = |ready, not_ready, pending, terminating| PodCounts { ready, not_ready, pending, terminating };
        let rows = [
            (pod(Phase::Pending, false, false), counts(0, 1, 1, 0)),
            (pod(Phase::Pending, true, true), counts(0, 1, 1, 0)),
            (pod(Phase::Running, true, true), counts(0, 1, 0, 1)),
            (pod(Phase::Running, false, true), counts(1, 0, 0, 0)),
            (pod(Phase::Running, false, false), counts(0, 1, 0, 0)),
            (pod(Phase::Other, false, true), counts(0, 0, 0, 0)),
        ];
        for (pod, expected) in rows {
            assert_eq!([pod].into_iter().collect::<PodCounts>(), expected, "{pod:?}");
        }
        assert_eq!(rows.map(|(pod, _)| pod).into_iter().collect::<PodCounts>(), counts(1, 4, 2, 1));
    }

    #[test]
    fn phases_are_parsed_from_kubernetes_names() {
        assert_eq!(Phase::parse(Some("Running")), Phase::Running);
        assert_eq!(Phase::parse(Some("Pending")), Phase::Pending);
        for other in [Some("Succeeded"), Some("Failed"), Some("Unknown"), Some("running"), Some(""), None] {
            assert_eq!(Phase::parse(other), Phase::Other, "{other:?}");
        }
    }
}
