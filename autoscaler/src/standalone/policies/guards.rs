//! NetworkPolicies in the system namespace that open guarded numbers, one for each workload that has such numbers.
//!
//! Without this policy a guarded number is closed, since the activators' general policy does not open it. The policy has the
//! label [`GUARDS`] with the uid of the ZeroScaler, and an annotation with its namespace and name. It is deleted when the
//! ZeroScaler has no guarded number. If another writer edits or deletes it, it is restored: each event of such an object
//! queues its workload.

use crate::cluster::error::Error;
use crate::cluster::writes::Writes;
use common::RevisionKey as Key;
use common::names::{GUARDS, WORKLOAD};
use common_controller::{Store, key_of};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

/// Policies for guarded numbers.
pub(super) struct Guards {
    system: String,
    pub(super) store: Store<NetworkPolicy>,
}

impl Guards {
    pub(super) fn new(system: &str) -> Self {
        Self { system: system.to_owned(), store: Store::new(|_, _, _| {}) }
    }

    /// Reports whether the workload with this uid has a policy.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.store.get(&Key::new(&self.system, format!("guard-{uid}").as_str())).is_some()
    }

    /// Writes or deletes the policy of a workload that this process leads, so that exactly these rules are in force. `uid` is
    /// the uid of its ZeroScaler, or `None` if the ZeroScaler is gone. Without rules the workload has no guarded number.
    pub(super) async fn follow(
        &self,
        writes: &Writes,
        workload: &Key,
        uid: Option<&str>,
        rules: &[NetworkPolicyIngressRule],
    ) -> Result<(), Error> {
        let own = uid.filter(|_| !rules.is_empty()).map(|uid| self.policy(workload, uid, rules));
        let mut is_there = false;
        for have in self.store.within(&self.system).iter().filter(|have| workload_of(have).as_ref() == Some(workload)) {
            match &own {
                Some(own) if own.metadata.name == have.metadata.name => {
                    is_there = true;
                    if have.spec != own.spec {
                        let next = NetworkPolicy { spec: own.spec.clone(), ..NetworkPolicy::clone(have) };
                        writes.replace(workload, &self.store, &next, "failed to update NetworkPolicy").await?;
                    }
                }
                _ => writes.delete(workload, &self.store, &key_of(&**have), "failed to delete NetworkPolicy").await?,
            }
        }
        if let Some(own) = own.filter(|_| !is_there) {
            writes.create(workload, &self.store, &own, "failed to create NetworkPolicy").await?;
        }
        Ok(())
    }

    pub(super) fn policy(&self, workload: &Key, uid: &str, rules: &[NetworkPolicyIngressRule]) -> NetworkPolicy {
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut policy = NetworkPolicy::default();
        policy.metadata.namespace = Some(self.system.clone());
        policy.metadata.name = Some(format!("guard-{uid}"));
        policy.metadata.labels = Some([text(GUARDS, uid), text("app.kubernetes.io/name", "zeroscale")].into());
        policy.metadata.annotations = Some([text(WORKLOAD, workload.as_str())].into());
        policy.spec = Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some([text(super::APP, super::ACTIVATOR)].into()),
                match_expressions: None,
            }),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(rules.to_vec()),
            egress: None,
        });
        policy
    }
}

/// Returns the workload of such a policy.
pub(super) fn workload_of(policy: &NetworkPolicy) -> Option<Key> {
    let (namespace, name) = policy.annotations().get(WORKLOAD)?.split_once('/')?;
    Some(Key::new(namespace, name))
}
