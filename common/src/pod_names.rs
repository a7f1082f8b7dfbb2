//! Recognizes a workload's pods by the names that Kubernetes gives them.
//!
//! An EndpointSlice names its pods but says nothing else about them. If Kubernetes' controllers write a workload's
//! slices by its labels, activators check only the names. A pod of another workload with the same labels then gets no
//! requests, even before the autoscaler has noticed it. If a workload has a pod with another name, such as a pod of a
//! ReplicaSet that a Deployment adopted, the autoscaler writes the slices itself.

use std::sync::Arc;

/// Characters of generated hashes and suffixes in names.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
/// Length of generated suffixes.
const SUFFIX_LENGTH: usize = 5;
/// Longest Deployment name that its pods' names contain in full: 58 characters minus the hash and two hyphens.
const WHOLE_MAX: usize = 46;

/// Pattern of the names of a workload's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodNames {
    /// Any name: the naming scheme is unknown.
    #[default]
    Any,
    /// Pods of the named Deployment: `NAME-HASH-RANDOM`.
    Deployment(Arc<str>),
    /// Pods of the named StatefulSet: `NAME-NUMBER`.
    StatefulSet(Arc<str>),
}

impl PodNames {
    /// Returns the name pattern for a workload's pods.
    pub fn for_workload(api_version: &str, kind: &str, name: Arc<str>) -> Self {
        match kind {
            _ if !api_version.starts_with("apps/") => Self::Any,
            "Deployment" if name.len() <= WHOLE_MAX => Self::Deployment(name),
            "StatefulSet" => Self::StatefulSet(name),
            _ => Self::Any,
        }
    }

    /// Reports whether a pod with this name may belong to the workload.
    pub fn matches(&self, pod: &str) -> bool {
        let rest = |name: &str| pod.strip_prefix(name)?.strip_prefix('-').map(str::to_owned);
        let is_random = |text: &str| !text.is_empty() && text.chars().all(|c| RANDOM.contains(c));
        match self {
            Self::Any => true,
            Self::Deployment(name) => rest(name).is_some_and(|rest| {
                let is_suffix = |text: &str| is_random(text) && text.len() == SUFFIX_LENGTH;
                rest.split_once('-').is_some_and(|(hash, suffix)| is_random(hash) && is_suffix(suffix))
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
    fn pod_names_follow_the_name_of_their_workload() {
        let of = |kind: &str, name: &str| PodNames::for_workload("apps/v1", kind, name.into());
        let foreign = PodNames::for_workload("argoproj.io/v1alpha1", "Rollout", "web".into());
        let others_of_web = "web-canary-6c4d4cdbcf-vd82f webs-6c4d4cdbcf-vd82f other-6c4d4cdbcf-vd82f web-canary-vd82f \
            web-0 web";
        let rows = [
            (of("Deployment", "web"), "web-6c4d4cdbcf-vd82f", others_of_web),
            (of("Deployment", &"n".repeat(WHOLE_MAX + 1)), "whatever", ""),
            (of("StatefulSet", "db"), "db-12", "db- db-6c4d4cdbcf-vd82f"),
            (foreign, "whatever", ""),
        ];
        for (names, own, others) in rows {
            assert!(names.matches(own), "{names:?} {own}");
            let wrong = others.split_whitespace().find(|pod| names.matches(pod));
            assert_eq!(wrong, None, "{names:?}");
        }
    }
}
