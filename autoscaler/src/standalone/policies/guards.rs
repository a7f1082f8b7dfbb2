//! NetworkPolicies in the system namespace that open guarded numbers, one for each workload that has such numbers.
//!
//! Without this policy a guarded number is closed, since the activators' general policy does not open it. The policy is
//! named [`PREFIX`] and the uid of the ZeroScaler, has the uid in the label [`GUARDS`] too, and the ZeroScaler's
//! namespace and name in an annotation. It is deleted when the ZeroScaler has no guarded number. If another writer
//! edits or deletes it, it is restored: each event of such an object queues its workload.

use super::{Guard, Policies};
use crate::cluster::error::Error;
use crate::cluster::writes::Writes;
use common::RevisionKey as Key;
use common::names::{GUARDS, WORKLOAD};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

/// Start of the names of these policies in the system namespace.
const PREFIX: &str = "guard-";

impl Policies {
    /// Returns the workloads that have a policy for guarded numbers. Some of them may be gone.
    pub(crate) fn guarded(&self) -> Vec<Key> {
        self.guards.within(&self.system).iter().filter_map(|policy| workload_of(policy)).collect()
    }

    /// Reports whether the workload with this uid has a policy.
    pub(super) fn has_guard(&self, uid: &str) -> bool {
        self.guards.get(&self.guard_key(uid)).is_some()
    }

    /// Writes or deletes the policy of a workload that this process leads, so that exactly the rules of its guard are
    /// in force. `guard` comes with the uid of the ZeroScaler; `None`: the ZeroScaler is gone. Without rules the
    /// workload has no guarded number.
    pub(crate) async fn enforce(
        &self,
        writes: &Writes,
        workload: &Key,
        guard: Option<(&str, &Guard)>,
    ) -> Result<(), Error> {
        let own = guard.filter(|(_, guard)| !guard.rules.is_empty());
        let own = own.map(|(uid, guard)| (self.guard_key(uid), self.guard_policy(workload, uid, &guard.rules)));
        let mut present = self.guards_of.read().get(workload).to_vec();
        // The index follows the watch, and may name a guard that was changed here.
        present.retain(|key| self.guards.get(key).as_deref().and_then(workload_of).as_ref() == Some(workload));
        for key in present {
            if own.as_ref().is_none_or(|(own, _)| *own != key) {
                writes.delete(workload, &self.guards, &key, "failed to delete NetworkPolicy").await?;
            }
        }
        let Some((key, own)) = own else { return Ok(()) };
        let Some(have) = self.guards.get(&key) else {
            writes.create(workload, &self.guards, &own, "failed to create NetworkPolicy").await?;
            return Ok(());
        };
        let mut next = NetworkPolicy { spec: own.spec, ..NetworkPolicy::clone(&have) };
        next.labels_mut().extend(own.metadata.labels.unwrap_or_default());
        next.annotations_mut().extend(own.metadata.annotations.unwrap_or_default());
        if next != *have {
            writes.replace(workload, &self.guards, &next, "failed to update NetworkPolicy").await?;
        }
        Ok(())
    }

    fn guard_key(&self, uid: &str) -> Key {
        Key::new(self.system.as_str(), format!("{PREFIX}{uid}"))
    }

    pub(super) fn guard_policy(&self, workload: &Key, uid: &str, rules: &[NetworkPolicyIngressRule]) -> NetworkPolicy {
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut policy = NetworkPolicy::default();
        policy.metadata.namespace = Some(self.system.clone());
        policy.metadata.name = Some(format!("{PREFIX}{uid}"));
        policy.metadata.labels = Some([text(GUARDS, uid), text("app.kubernetes.io/name", "zeroscale")].into());
        policy.metadata.annotations = Some([text(WORKLOAD, workload.as_str())].into());
        let activators = [text(super::APP, super::ACTIVATOR)].into();
        policy.spec = Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector { match_labels: Some(activators), match_expressions: None }),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(rules.to_vec()),
            egress: None,
        });
        policy
    }
}

/// Reports whether the policy with this key was written here.
pub(super) fn is_guard(system: &str, key: &Key) -> bool {
    key.namespace() == system && key.name().starts_with(PREFIX)
}

/// Returns the workload of such a policy.
pub(super) fn workload_of(policy: &NetworkPolicy) -> Option<Key> {
    let (namespace, name) = policy.annotations().get(WORKLOAD)?.split_once('/')?;
    Some(Key::new(namespace, name))
}
