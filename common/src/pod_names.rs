//! The names that Kubernetes gives pods, as far as they say which workload made them.
//!
//! A slice names the pods that it leads to, and says nothing else of them. Where Kubernetes' controllers write the slices of a
//! workload by its labels, activators believe names alone, so that nobody is led to the pods of another workload with the same
//! labels before the autoscaler has noticed these. It writes the slices itself where a pod of a workload is called otherwise:
//! that of a ReplicaSet which a Deployment has adopted.

use std::sync::Arc;

/// Characters of hashes and random ends of names.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
/// Length of random ends.
const END: usize = 5;
/// Longest name of a Deployment whose pods' names hold it as a whole: 58 characters, the hash and two hyphens aside.
const WHOLE_MAX: usize = 46;

/// Pattern of the names of a workload's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodNames {
    /// In ways that nobody knows.
    #[default]
    Any,
    /// Pods of the Deployment of this name: `NAME-HASH-RANDOM`.
    Deployment(Arc<str>),
    /// Pods of the StatefulSet of this name: `NAME-NUMBER`.
    StatefulSet(Arc<str>),
}

impl PodNames {
    /// Returns the pattern for a workload's pods.
    pub fn of(api_version: &str, kind: &str, name: Arc<str>) -> Self {
        match kind {
            _ if !api_version.starts_with("apps/") => Self::Any,
            "Deployment" if name.len() <= WHOLE_MAX => Self::Deployment(name),
            "StatefulSet" => Self::StatefulSet(name),
            _ => Self::Any,
        }
    }

    /// Returns whether a pod of the workload may have this name.
    pub fn fit(&self, pod: &str) -> bool {
        let rest = |name: &str| pod.strip_prefix(name)?.strip_prefix('-').map(str::to_owned);
        let is_random = |text: &str| !text.is_empty() && text.chars().all(|c| RANDOM.contains(c));
        match self {
            Self::Any => true,
            Self::Deployment(name) => rest(name).is_some_and(|rest| {
                rest.split_once('-').is_some_and(|(hash, end)| is_random(hash) && is_random(end) && end.len() == END)
            }),
            Self::StatefulSet(name) => {
                rest(name).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|c| c.is_ascii_digit()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_called_after_their_workload() {
        let of = |kind: &str, name: &str| PodNames::of("apps/v1", kind, name.into());
        let long = "n".repeat(WHOLE_MAX + 1);
        let rows = [
            (of("Deployment", "web"), "web-6c4d4cdbcf-vd82f", true),
            (of("Deployment", "web"), "web-canary-6c4d4cdbcf-vd82f", false),
            (of("Deployment", "web"), "webs-6c4d4cdbcf-vd82f", false),
            (of("Deployment", "web"), "other-6c4d4cdbcf-vd82f", false),
            (of("Deployment", "web"), "web-canary-vd82f", false),
            (of("Deployment", "web"), "web-0", false),
            (of("Deployment", "web"), "web", false),
            (of("Deployment", &long), "whatever", true),
            (of("StatefulSet", "db"), "db-12", true),
            (of("StatefulSet", "db"), "db-", false),
            (of("StatefulSet", "db"), "db-6c4d4cdbcf-vd82f", false),
            (PodNames::of("argoproj.io/v1alpha1", "Rollout", "web".into()), "whatever", true),
        ];
        for (names, pod, expected) in rows {
            assert_eq!(names.fit(pod), expected, "{names:?} {pod}");
        }
    }
}
