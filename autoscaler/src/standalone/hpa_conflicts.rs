//! HorizontalPodAutoscalers of other owners and their targets. Two autoscalers on one target undo each other's work.
//!
//! A target that already has a HorizontalPodAutoscaler is therefore not adopted, and the conflict is reported. If a
//! HorizontalPodAutoscaler appears later, scaling of the target continues: without wakes requests would be lost, and
//! nothing else can wake a target at zero.

use crate::cluster::target_key::TargetKey;
use common::RevisionKey as Key;
use common_api::ObjectReference;
use common_controller::changes::{self, Change};
use common_controller::{Store, key_of};
use common_runtime::namespaces::Namespaces;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Client;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Targets of all HorizontalPodAutoscalers of the cluster.
pub(crate) struct Horizontals {
    pub(crate) targets: Store<TargetKey>,
}

impl Default for Horizontals {
    fn default() -> Self {
        Self { targets: Store::new(|_, _, _| {}) }
    }
}

impl Horizontals {
    /// Returns the first HorizontalPodAutoscaler, by name, that scales a target.
    pub(crate) fn first_for_target(&self, target: &TargetKey) -> Option<Key> {
        let mut within = self.targets.keys_within(target.object.namespace()).into_iter();
        within.find(|key| self.targets.get(key).as_deref() == Some(target))
    }

    /// Records the target of a HorizontalPodAutoscaler; `None` if it has no readable target or is deleted. Returns the
    /// affected targets.
    pub(crate) fn apply(&self, key: &Key, target: Option<TargetKey>) -> Vec<TargetKey> {
        let before = self.targets.get(key).map(|before| TargetKey::clone(&before));
        self.targets.apply(key, "", target.clone());
        if before == target { Vec::new() } else { before.into_iter().chain(target).collect() }
    }

    /// Follows HorizontalPodAutoscalers until `shutdown` in a separate task. Calls `concern` for each target that gains
    /// or loses one.
    pub(crate) fn follow(
        self: &Arc<Self>,
        client: &Client,
        namespaces: &Namespaces,
        shutdown: &CancellationToken,
        concern: impl Fn(&TargetKey) + Send + 'static,
    ) {
        let horizontals = self.clone();
        changes::follow(namespaces.reach::<HorizontalPodAutoscaler>(client), shutdown, move |change| {
            let concerned = match change {
                Change::Applied(object) => horizontals.apply(&key_of(&object), target(&object)),
                Change::Gone(key) => horizontals.apply(&key, None),
                Change::Listed => {
                    horizontals.targets.listed();
                    Vec::new()
                }
            };
            concerned.iter().for_each(&concern);
        });
    }
}

/// Returns the target of a HorizontalPodAutoscaler if its reference is valid.
fn target(object: &HorizontalPodAutoscaler) -> Option<TargetKey> {
    let target = object.spec.scale_target_ref.clone();
    let (kind, name) = (Some(target.kind), Some(target.name));
    let reference = ObjectReference { api_version: target.api_version, kind, name };
    TargetKey::from_reference(key_of(object).namespace(), &reference).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn horizontal(name: &str, target: &str) -> HorizontalPodAutoscaler {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
        }))
        .expect("a HorizontalPodAutoscaler")
    }

    #[test]
    fn a_target_leads_to_the_first_hpa_that_scales_it() {
        let all = Horizontals::default();
        let apply = |name: &str, of: &str| all.apply(&Key::new("ns", name), target(&horizontal(name, of)));
        let (one, other) =
            (target(&horizontal("x", "one")).expect("a key"), target(&horizontal("x", "other")).expect("a key"));
        assert_eq!(apply("b", "one"), std::slice::from_ref(&one));
        assert_eq!(apply("b", "one"), [], "nothing has changed");
        apply("a", "one");
        assert_eq!(all.first_for_target(&one), Some(Key::new("ns", "a")));
        assert_eq!(apply("a", "other"), [one.clone(), other.clone()]);
        assert_eq!(all.first_for_target(&one), Some(Key::new("ns", "b")));
        assert_eq!(all.first_for_target(&other), Some(Key::new("ns", "a")));
        assert_eq!(all.apply(&Key::new("ns", "b"), None), std::slice::from_ref(&one));
        assert_eq!(all.first_for_target(&one), None);
    }
}
