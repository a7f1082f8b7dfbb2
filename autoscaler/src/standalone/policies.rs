//! NetworkPolicies that keep the activators from a workload's pods.
//!
//! Many namespaces are closed by a policy by default. Such a namespace must let the activators in, or its workloads
//! wake but get no requests. The autoscaler alone cannot notice this, because the kubelet's probes come from the node.
//! Policies are therefore read, and a policy that certainly blocks all activators is reported together with the missing
//! rule.
//!
//! A policy certainly blocks them if it selects the pods, and no rule of any policy that may select the pods can admit
//! the activators. Addresses, ports and unknown labels get the benefit of the doubt. It is also unknown whether the
//! cluster's network enforces policies at all, so the report is only a hint.
//!
//! Only two parts of a policy are kept: the pods that it selects, and the namespaces whose activators it admits. If
//! even these parts are too long, or a namespace has too many policies, the policy is not judged and may admit
//! activators.

use common_controller::changes::{self, Change};
use common_controller::key_of;
use common_runtime::namespaces::Namespaces;
use futures::StreamExt;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use kube::runtime::watcher;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Label with the name of a namespace, which every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Label of the activator pods.
const APP: (&str, &str) = ("app", "activator");

/// Maximum size in bytes of the labels and namespace names that are kept of one policy.
const KEPT_BYTES_MAX: usize = 4096;
/// Maximum number of judged policies per namespace.
const JUDGED_MAX: usize = 1000;

/// All ingress policies of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    by_namespace: RwLock<HashMap<String, BTreeMap<String, Policy>>>,
}

/// Kept parts of a policy.
#[derive(Debug)]
struct Policy {
    pods: Selector,
    admits: Admitted,
}

/// Selector, as far as it is understood here.
#[derive(Debug, Default)]
struct Selector {
    labels: BTreeMap<String, String>,
    has_expressions: bool,
}

/// Namespaces whose pods with the activators' label are admitted.
#[derive(Debug, Default)]
struct Admitted {
    /// Set if activators of any namespace may be admitted.
    of_any: bool,
    /// Set if activators of the policy's own namespace are admitted.
    of_its_own: bool,
    /// Names of further namespaces whose activators are admitted.
    of: BTreeSet<String>,
}

impl Policies {
    /// Returns a description of the missing rule if activators of namespace `system` certainly cannot reach pods with
    /// these labels in `namespace`. Returns `None` if they may reach them. `pods` is `None` if the labels are unknown.
    pub(crate) fn missing(
        &self,
        namespace: &str,
        pods: Option<&BTreeMap<String, String>>,
        system: &str,
    ) -> Option<String> {
        let all = self.by_namespace.read();
        let policies = all.get(namespace)?;
        let (closing, _) = policies.iter().find(|(_, policy)| policy.pods.selects(pods) == Some(true))?;
        let mut may_select = policies.values().filter(|policy| policy.pods.selects(pods) != Some(false));
        let is_open = may_select.any(|policy| policy.admits.has(namespace, system));
        let (label, app) = APP;
        (!is_open).then(|| {
            format!(
                "NetworkPolicy {closing:?} lets no activator through to the pods: an ingress rule is missing from \
                 {{namespaceSelector: {{matchLabels: {{{NAMESPACE_NAME}: {system}}}}}, podSelector: {{matchLabels: \
                 {{{label}: {app}}}}}}}"
            )
        })
    }

    /// Records a policy, or its deletion if `spec` is `None`.
    pub(super) fn apply(&self, namespace: &str, name: &str, spec: Option<NetworkPolicySpec>) {
        let mut all = self.by_namespace.write();
        match spec.filter(is_about_ingress) {
            Some(spec) => {
                let policies = all.entry(namespace.to_owned()).or_default();
                let others = policies.len() - usize::from(policies.contains_key(name));
                let policy = if others < JUDGED_MAX { Policy::of(spec) } else { Policy::unjudged() };
                policies.insert(name.to_owned(), policy);
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

    /// Follows the policies until `shutdown` in a separate task. Calls `concern` for each namespace with a changed
    /// policy.
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

/// Reports whether a policy restricts ingress. A policy without a list of types does.
fn is_about_ingress(spec: &NetworkPolicySpec) -> bool {
    spec.policy_types.as_deref().is_none_or(|types| types.is_empty() || types.iter().any(|kind| kind == "Ingress"))
}

impl Policy {
    fn of(spec: NetworkPolicySpec) -> Self {
        let pods = Selector::of(spec.pod_selector.unwrap_or_default());
        let policy = Self { pods, admits: Admitted::by(&spec.ingress.unwrap_or_default()) };
        if policy.bytes() > KEPT_BYTES_MAX { Self::unjudged() } else { policy }
    }

    /// Returns a policy that may select any pods and may admit any source.
    fn unjudged() -> Self {
        let pods = Selector { labels: BTreeMap::new(), has_expressions: true };
        Self { pods, admits: Admitted { of_any: true, ..Admitted::default() } }
    }

    fn bytes(&self) -> usize {
        let labels = self.pods.labels.iter().map(|(label, value)| label.len() + value.len());
        labels.chain(self.admits.of.iter().map(String::len)).sum()
    }
}

impl Selector {
    fn of(selector: LabelSelector) -> Self {
        let has_expressions = selector.match_expressions.is_some_and(|list| !list.is_empty());
        Self { labels: selector.match_labels.unwrap_or_default(), has_expressions }
    }

    /// Reports whether the selector matches pods with these labels. Returns `None` if that depends on unknown labels.
    fn selects(&self, pods: Option<&BTreeMap<String, String>>) -> Option<bool> {
        let has = |label: &str| pods.and_then(|pods| pods.get(label));
        if self.labels.iter().any(|(label, value)| has(label).is_some_and(|has| has != value)) {
            return Some(false);
        }
        let is_known = self.labels.keys().all(|label| has(label).is_some());
        (is_known && !self.has_expressions).then_some(true)
    }
}

impl Admitted {
    fn by(rules: &[NetworkPolicyIngressRule]) -> Self {
        let mut admitted = Self::default();
        for rule in rules {
            match rule.from.as_deref() {
                None | Some([]) => admitted.of_any = true,
                Some(peers) => peers.iter().for_each(|peer| admitted.add(peer)),
            }
        }
        admitted
    }

    fn add(&mut self, peer: &NetworkPolicyPeer) {
        let asked = |selector: &Option<LabelSelector>, label: &str| {
            selector.as_ref().and_then(|selector| selector.match_labels.as_ref()?.get(label).cloned())
        };
        if peer.ip_block.is_some() {
            self.of_any = true;
        } else if asked(&peer.pod_selector, APP.0).is_none_or(|app| app == APP.1) {
            match asked(&peer.namespace_selector, NAMESPACE_NAME) {
                Some(name) => _ = self.of.insert(name),
                None if peer.namespace_selector.is_none() => self.of_its_own = true,
                None => self.of_any = true,
            }
        }
    }

    /// Reports whether a policy in `namespace` may admit the activators of namespace `system`.
    fn has(&self, namespace: &str, system: &str) -> bool {
        self.of_any || (self.of_its_own && namespace == system) || self.of.contains(system)
    }
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

    /// Goal: a policy that certainly blocks activators is reported, and no other policy is.
    #[test]
    fn only_what_certainly_keeps_activators_out_is_named() {
        let closed = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
        let from = |peer: Value| json!({"podSelector": {}, "ingress": [{"from": [peer]}]});
        let name = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        let ours = json!({"namespaceSelector": name("zeroscale-system"), "podSelector": {"matchLabels": {"app": "activator"}}});
        let shut = [
            vec![closed.clone()],
            vec![json!({"podSelector": {"matchLabels": {"app": "web"}}})],
            vec![from(json!({"podSelector": {}}))], // Only the policy's own namespace.
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
            vec![json!({"podSelector": {"matchLabels": {"tier": "web"}}})], // May not select the pods.
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

    /// Goal: only the parts that decide about activators are kept, whatever else a policy lists. A policy with too long
    /// parts is not judged, and neither is one beyond the maximum number.
    #[test]
    fn what_is_kept_of_policies_is_bounded() {
        let kept = |spec: Value| Policy::of(serde_json::from_value(spec).expect("a policy"));
        let peers = |count: usize, peer: &dyn Fn(usize) -> Value| (0..count).map(peer).collect::<Vec<_>>();
        let from = |peers: Vec<Value>| json!({"podSelector": {}, "ingress": [{"from": peers}]});
        let name = |name: String| json!({"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: name}}});
        let other =
            |n: usize| json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": format!("a{n}")}}});
        let many = json!({"podSelector": {}, "egress": [{"to": peers(9000, &other)}], "ingress": [
            {"from": peers(9000, &other), "ports": (1..9000).map(|port| json!({"port": port})).collect::<Vec<_>>()},
        ]});
        assert_eq!(kept(many.clone()).bytes(), 0);
        assert!(missing(&[many], None).is_some(), "no activator is among them");

        let few = from(peers(30, &|n| name(format!("{n:063}"))));
        assert_eq!(kept(few.clone()).bytes(), 30 * 63);
        assert!(missing(&[few], None).is_some());
        let long = from(peers(70, &|n| name(format!("{n:063}"))));
        assert_eq!(kept(long.clone()).bytes(), 0);
        assert_eq!(missing(&[json!({"podSelector": {}}), long], None), None, "it is not judged");

        let policies = Policies::default();
        let close = |n: usize| policies.apply("shop", &n.to_string(), Some(NetworkPolicySpec::default()));
        (0..JUDGED_MAX).for_each(close);
        assert!(policies.missing("shop", None, "zeroscale-system").is_some());
        close(JUDGED_MAX);
        close(JUDGED_MAX); // An edit of an existing policy.
        assert_eq!(policies.missing("shop", None, "zeroscale-system"), None, "one more");
        policies.apply("shop", &JUDGED_MAX.to_string(), None);
        assert!(policies.missing("shop", None, "zeroscale-system").is_some());
    }
}
