//! NetworkPolicies that keep the activators from a workload's pods.
//!
//! A namespace that is closed by a policy, as many are by default, must let the activators in, or its workloads wake and
//! nobody reaches them. From here that looks as if all were well: Kubernetes' own probes come from the node. So policies
//! are read, and one that certainly lets no activator through is named with the rule that is missing.
//!
//! Certainly means: a policy selects the pods, and no rule of any that may select them can be about the activators.
//! Addresses, ports, and labels that are not known here are given the benefit of the doubt. Whether the cluster's network
//! heeds policies at all is not known either, so this is a hint and no verdict.

use common_controller::changes::{self, Change};
use common_controller::key_of;
use common_runtime::namespaces::Namespaces;
use futures::StreamExt;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use kube::runtime::watcher;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Label that every namespace has: its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Label of the activators' pods.
const APP: (&str, &str) = ("app", "activator");

/// All of the cluster that are about what comes in.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    by_namespace: RwLock<HashMap<String, BTreeMap<String, Arc<NetworkPolicySpec>>>>,
}

impl Policies {
    /// What is missing for activators of namespace `system` to reach pods with these labels in `namespace`; none: nothing
    /// is known to be. No labels: they are not known.
    pub(crate) fn missing(
        &self,
        namespace: &str,
        pods: Option<&BTreeMap<String, String>>,
        system: &str,
    ) -> Option<String> {
        let all = self.by_namespace.read();
        let policies = all.get(namespace)?;
        let selecting = |spec: &NetworkPolicySpec| selects(spec.pod_selector.as_ref(), pods);
        let (closing, _) = policies.iter().find(|(_, spec)| selecting(spec) == Some(true))?;
        let may_select = policies.values().filter(|spec| selecting(spec) != Some(false));
        let mut rules = may_select.flat_map(|spec| spec.ingress.iter().flatten());
        let is_open = rules.any(|rule| match rule.from.as_deref() {
            None | Some([]) => true,
            Some(peers) => peers.iter().any(|peer| may_admit(peer, namespace, system)),
        });
        let (label, app) = APP;
        (!is_open).then(|| {
            format!(
                "NetworkPolicy {closing:?} lets no activator through to the pods: an ingress rule is missing from \
                 {{namespaceSelector: {{matchLabels: {{{NAMESPACE_NAME}: {system}}}}}, podSelector: {{matchLabels: \
                 {{{label}: {app}}}}}}}"
            )
        })
    }

    /// Takes in one as it is now; none: it is gone.
    pub(super) fn apply(&self, namespace: &str, name: &str, spec: Option<NetworkPolicySpec>) {
        let mut all = self.by_namespace.write();
        match spec.filter(is_about_ingress) {
            Some(spec) => {
                all.entry(namespace.to_owned()).or_default().insert(name.to_owned(), Arc::new(spec));
            }
            None => {
                if let Some(policies) = all.get_mut(namespace) {
                    policies.remove(name);
                    if policies.is_empty() {
                        all.remove(namespace);
                    }
                }
            }
        }
    }

    /// Follows them until `shutdown`, in a task of its own, and tells `concern` of each namespace where one has changed.
    pub(crate) fn follow(
        self: &Arc<Self>,
        client: &Client,
        namespaces: &Namespaces,
        shutdown: &CancellationToken,
        concern: impl Fn(&str) + Send + 'static,
    ) {
        let (policies, shutdown) = (self.clone(), shutdown.clone());
        let mut changes = changes::watch(namespaces.reach::<NetworkPolicy>(client), watcher::Config::default());
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    change = changes.next() => change,
                    () = shutdown.cancelled() => None,
                };
                let key = match change {
                    Some(Change::Applied(object)) => {
                        let key = key_of(&object);
                        policies.apply(key.namespace(), key.name(), object.spec);
                        key
                    }
                    Some(Change::Gone(key)) => {
                        policies.apply(key.namespace(), key.name(), None);
                        key
                    }
                    Some(Change::Listed) => continue,
                    None => return,
                };
                concern(key.namespace());
            }
        });
    }
}

/// Without a list of types every policy is.
fn is_about_ingress(spec: &NetworkPolicySpec) -> bool {
    spec.policy_types.as_deref().is_none_or(|types| types.is_empty() || types.iter().any(|kind| kind == "Ingress"))
}

/// Whether a selector takes in pods that have these labels among others; none: that depends on what is not known.
fn selects(selector: Option<&LabelSelector>, pods: Option<&BTreeMap<String, String>>) -> Option<bool> {
    let Some(selector) = selector else { return Some(true) };
    let wanted = selector.match_labels.clone().unwrap_or_default();
    let has = |label: &str| pods.and_then(|pods| pods.get(label));
    if wanted.iter().any(|(label, value)| has(label).is_some_and(|has| has != value)) {
        return Some(false);
    }
    let is_known = wanted.keys().all(|label| has(label).is_some());
    let has_expressions = selector.match_expressions.as_ref().is_some_and(|list| !list.is_empty());
    (is_known && !has_expressions).then_some(true)
}

/// Whether a rule's peer may be about the activators.
fn may_admit(peer: &NetworkPolicyPeer, namespace: &str, system: &str) -> bool {
    if peer.ip_block.is_some() {
        return true;
    }
    let labelled = |selector: Option<&LabelSelector>, label: &str, value: &str| {
        let known = BTreeMap::from([(label.to_owned(), value.to_owned())]);
        selects(selector, Some(&known)) != Some(false)
    };
    let from_there = match &peer.namespace_selector {
        None => namespace == system,
        selector => labelled(selector.as_ref(), NAMESPACE_NAME, system),
    };
    from_there && labelled(peer.pod_selector.as_ref(), APP.0, APP.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn missing(specs: &[Value], pods: Option<&[(&str, &str)]>) -> Option<String> {
        let policies = Policies::default();
        for (n, spec) in specs.iter().enumerate() {
            policies.apply("shop", &format!("p{n}"), Some(serde_json::from_value(spec.clone()).expect("a policy")));
        }
        let pods = pods.map(|pods| pods.iter().map(|(l, v)| ((*l).to_owned(), (*v).to_owned())).collect());
        policies.missing("shop", pods.as_ref(), "zeroscale-system")
    }

    /// Goal: what certainly keeps activators out is named, and nothing else is.
    #[test]
    fn only_what_certainly_keeps_activators_out_is_named() {
        let closed = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
        let from = |peer: Value| json!({"podSelector": {}, "ingress": [{"from": [peer]}]});
        let name = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        let ours = json!({"namespaceSelector": name("zeroscale-system"), "podSelector": {"matchLabels": {"app": "activator"}}});
        let shut = [
            vec![closed.clone()],
            vec![json!({"podSelector": {"matchLabels": {"app": "web"}}})],
            vec![from(json!({"podSelector": {}}))], // The policy's own namespace alone.
            vec![from(json!({"namespaceSelector": name("ingress")}))],
            vec![from(json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "nginx"}}}))],
            vec![closed.clone(), json!({"podSelector": {"matchLabels": {"app": "other"}}, "ingress": [{}]})],
        ];
        for specs in shut {
            let told = missing(&specs, Some(&[("app", "web")])).unwrap_or_else(|| panic!("{specs:?}"));
            assert!(told.contains("NetworkPolicy \"p0\"") && told.contains("zeroscale-system"), "{told}");
        }
        let open = [
            vec![],
            vec![json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": []})],
            vec![json!({"podSelector": {"matchLabels": {"app": "other"}}})],
            vec![json!({"podSelector": {"matchLabels": {"tier": "web"}}})], // Perhaps not its pods.
            vec![closed.clone(), from(ours)],
            vec![closed.clone(), json!({"podSelector": {"matchLabels": {"tier": "web"}}, "ingress": [{}]})],
            vec![from(json!({"ipBlock": {"cidr": "10.0.0.0/8"}}))],
            vec![from(json!({"namespaceSelector": {"matchLabels": {"trusted": "yes"}}}))],
            vec![json!({"podSelector": {}, "ingress": [{"ports": [{"port": 8080}]}]})],
        ];
        for specs in open {
            assert_eq!(missing(&specs, Some(&[("app", "web")])), None, "{specs:?}");
        }
        assert!(missing(std::slice::from_ref(&closed), None).is_some(), "it is about all pods");
        assert_eq!(missing(&[json!({"podSelector": {"matchLabels": {"app": "web"}}})], None), None);
    }

    #[test]
    fn a_policy_that_goes_is_forgotten() {
        let policies = Policies::default();
        policies.apply("shop", "p", Some(NetworkPolicySpec::default()));
        assert!(policies.missing("shop", None, "zeroscale-system").is_some());
        policies.apply("shop", "p", None);
        assert_eq!(policies.missing("shop", None, "zeroscale-system"), None);
        assert!(policies.by_namespace.read().is_empty());
    }
}
