//! NetworkPolicies about the pods of workloads: what they mean for the workloads' numbers on the activators, and whether they
//! keep the activators from the pods.
//!
//! # Who may connect to a workload
//!
//! A workload whose pods a policy for incoming connections selects is guarded: its numbers are of the range `guarded` of
//! `config-ports`, which only a policy of its own opens ([`guards`]), to the peers of the policies that select its pods
//! ([`translation`]). Labels of namespaces and of peers' pods are the network's business; those of the workload's own pods
//! are read here, from the pod template, since a workload that sleeps has no pods.
//!
//! A workload is barred if that cannot be done: if a policy cannot be translated, if a selector asks for labels that only
//! controllers give to pods, or if the activators' general policy is missing. Without the general one, ours would be the
//! only ones that select activators, and would close all of their other ports. NetworkPolicies add up, so a workload is also
//! barred if another policy of the system namespace opens guarded numbers.
//!
//! # Whether the activators reach the pods
//!
//! A namespace that is closed by a policy, as many are by default, must let the activators in, or its workloads wake and
//! nobody reaches them. From here that looks as if all were well: Kubernetes' own probes come from the node. So a policy that
//! certainly lets no activator through is named with the rule that is missing. Certainly means: it selects the pods, and no
//! rule of any that may select them can be about the activators. Addresses, ports, and labels that are not known here are
//! given the benefit of the doubt. Whether the cluster's network heeds policies at all is not known either, so this is a
//! hint and no verdict.
//!
//! # Bounds
//!
//! Of a policy the part about incoming connections is kept. One that is longer than [`KEPT_BYTES_MAX`] is not, nor are
//! those of a namespace beyond [`KEPT_MAX`]: they may let activators in, and workloads of the namespace are barred.

mod guards;
pub(crate) mod translation;

use super::service_ports::TcpPort;
use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use crate::cluster::writes::Writes;
use autoscaler_core::ports::Access;
use common::RevisionKey as Key;
use common::config::{PortRange, PortsConfig};
use common::names::GUARDS;
use common_controller::changes::{self, Change};
use common_controller::{key_of, trimmed};
use common_runtime::namespaces::Namespaces;
use futures::StreamExt;
use guards::{Guards, workload_of};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule as Rule, NetworkPolicyPeer as Peer, NetworkPolicyPort as Port,
    NetworkPolicySpec as Spec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use translation::{NAMESPACE_NAME, PodPort, translate};

/// Label of the planes' pods, and its value for activators.
const APP: &str = "app";
const ACTIVATOR: &str = "activator";
/// Labels that Kubernetes' controllers add to those of the pod template.
const ADDED: [&str; 5] = [
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// Most bytes of one policy that are kept, as JSON.
const KEPT_BYTES_MAX: usize = 16 << 10;
/// Most policies of a namespace that are kept.
const KEPT_MAX: usize = 1000;

type Labels = BTreeMap<String, String>;

/// All policies about incoming connections, and ours in front of the activators.
pub(crate) struct Policies {
    system: String,
    config: watch::Receiver<Arc<PortsConfig>>,
    by_namespace: RwLock<HashMap<String, BTreeMap<String, Policy>>>,
    guards: Guards,
    /// Set from the begin of the watch until all policies have been listed.
    is_awaited: AtomicBool,
}

/// The part of a NetworkPolicy about incoming connections; none: the policy is beyond the bounds, and is not kept.
type Policy = Option<Box<Spec>>;

/// Who may connect to a workload, and the rules of the NetworkPolicy that opens its guarded numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Guard {
    pub(crate) verdict: Verdict,
    rules: Vec<Rule>,
}

/// Finding about the policies that select a workload's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No policy selects the pods.
    Open,
    /// The policies of these names select the pods, and the activators follow them.
    Guarded(Vec<String>),
    /// Policies select the pods, or may, and cannot be followed, for this reason.
    Barred(String),
}

/// Workloads that a change concerns.
pub(crate) enum Concerned<'a> {
    /// All workloads.
    All,
    /// The workloads of a namespace.
    Namespace(&'a str),
    /// One workload.
    One(Key),
}

impl Guard {
    /// Returns the verdict in the terms of the plan of port numbers.
    pub(crate) fn access(&self) -> Access {
        match &self.verdict {
            Verdict::Open => Access::Open,
            Verdict::Guarded(_) => Access::Guarded,
            Verdict::Barred(why) => Access::Barred(why.as_str().into()),
        }
    }
}

impl Policies {
    /// Begins without any policy. `system`: namespace of the activators.
    pub(crate) fn new(system: &str, config: watch::Receiver<Arc<PortsConfig>>) -> Self {
        Self {
            system: system.to_owned(),
            config,
            by_namespace: RwLock::default(),
            guards: Guards::new(system),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Returns whether policies are to be followed and have not been listed yet.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire) && self.config.borrow().follows_policies
    }

    /// Returns whether ours would be the only policies that select activators, and would close all of their other ports.
    pub(crate) fn lacks_general(&self) -> bool {
        !self.is_awaited.load(Ordering::Acquire) && !self.has_general(&self.by_namespace.read())
    }

    fn has_general(&self, all: &HashMap<String, BTreeMap<String, Policy>>) -> bool {
        let policies = all.get(&self.system).into_iter().flat_map(BTreeMap::values);
        policies.flatten().any(|spec| selects_activators(spec) == Some(true))
    }

    /// Returns why guarded numbers are open to more than the peers of workloads' policies; none: they are not.
    fn opened(&self, all: &HashMap<String, BTreeMap<String, Policy>>) -> Option<String> {
        let (system, guarded) = (&self.system, self.config.borrow().guarded?);
        all.get(system)?.iter().find_map(|(name, policy)| match policy {
            None => Some(format!(
                "NetworkPolicy {name:?} of namespace {system} may open the guarded numbers {guarded}: it is longer than \
                 {KEPT_BYTES_MAX} bytes, or beyond the {KEPT_MAX} of its namespace that are read; shorten it"
            )),
            Some(spec) => (selects_activators(spec) != Some(false) && opens(spec, guarded)).then(|| {
                format!(
                    "NetworkPolicy {name:?} of namespace {system} may select activators, and opens guarded numbers \
                     ({guarded}): name ports in each of its ingress rules, outside of this range, or set another range \
                     guarded in config-ports"
                )
            }),
        })
    }

    /// Workloads that policies of ours guard, which may be gone.
    pub(crate) fn guarded(&self) -> Vec<Key> {
        self.guards.store.within(&self.system).iter().filter_map(|policy| workload_of(policy)).collect()
    }

    /// Finds who may connect to a workload of `namespace`.
    pub(crate) fn guard(&self, namespace: &str, target: &Target, ports: &[PodPort]) -> Guard {
        let barred = |why: String| Guard { verdict: Verdict::Barred(why), rules: Vec::new() };
        let all = self.by_namespace.read();
        let has_general = self.has_general(&all);
        let mut selecting = Vec::new();
        let policies = all.get(namespace).filter(|_| self.config.borrow().follows_policies);
        for (name, policy) in policies.into_iter().flatten() {
            let Some(spec) = policy else {
                return barred(format!(
                    "NetworkPolicy {name:?} cannot be followed: it is longer than {KEPT_BYTES_MAX} bytes, or beyond the \
                     {KEPT_MAX} of its namespace that are read; shorten it"
                ));
            };
            // Of what has no pod template only some labels are known.
            let is_whole = !target.containers.is_empty();
            let is_unknown = |label: &str| ADDED.contains(&label) || !(is_whole || target.labels.contains_key(label));
            match selects(spec, &target.labels, is_unknown) {
                Some(true) => selecting.push((name.as_str(), &**spec)),
                Some(false) => {}
                None => {
                    return barred(format!(
                        "NetworkPolicy {name:?} cannot be followed: its podSelector asks for labels that are not in the pod \
                         template; select by labels of the template"
                    ));
                }
            }
        }
        if !selecting.is_empty() && !has_general {
            return barred(format!(
                "NetworkPolicies select its pods, and the one that they are followed by is missing: NetworkPolicy \
                 \"activator\" of namespace {}. Install it (chart: policies: true), or set guarded: \"off\" in config-ports",
                self.system
            ));
        }
        if let Some(why) = self.opened(&all).filter(|_| !selecting.is_empty()) {
            return barred(why);
        }
        match translate(&selecting, namespace, target, ports) {
            Err(why) => barred(why),
            Ok(rules) => {
                let names = selecting.iter().map(|(name, _)| (*name).to_owned()).collect();
                let verdict = if selecting.is_empty() { Verdict::Open } else { Verdict::Guarded(names) };
                Guard { verdict, rules: if has_general { rules } else { Vec::new() } }
            }
        }
    }

    /// Returns the ports of a workload for [`Self::guard`], with their numbers of the range `guarded`. A workload that has a
    /// policy of ours keeps it for the numbers of a former range, which the general policy does not open either.
    pub(crate) fn pod_ports(
        &self,
        uid: &str,
        ports: &[TcpPort],
        numbers: impl Fn(&TcpPort) -> Vec<u16>,
    ) -> Vec<PodPort> {
        let (config, has_policy) = (**self.config.borrow(), self.guards.has(uid));
        let is_guarded = |number: &u16| config.is_guarded(*number) || (has_policy && !config.range.contains(*number));
        let guarded = |port| numbers(port).into_iter().filter(is_guarded).collect();
        ports.iter().map(|port| PodPort { target: port.target.clone(), numbers: guarded(port) }).collect()
    }

    /// Has the NetworkPolicy in force that opens a workload's guarded numbers. No guard: the workload is gone. See
    /// [`Guards::follow`].
    ///
    /// # Errors
    /// The API server's.
    pub(crate) async fn enforce(
        &self,
        writes: &Writes,
        workload: &Key,
        of: Option<(&str, &Guard)>,
    ) -> Result<(), Error> {
        let rules = of.map(|(_, guard)| &*guard.rules).unwrap_or_default();
        self.guards.follow(writes, workload, of.map(|(uid, _)| uid), rules).await
    }

    /// Returns the rule that is missing for activators to reach pods with these labels in `namespace`; none: nothing is
    /// known to be. Without labels those of the pods are not known.
    pub(crate) fn missing(&self, namespace: &str, pods: Option<&Labels>) -> Option<String> {
        let (all, none) = (self.by_namespace.read(), Labels::new());
        let (policies, pods) = (all.get(namespace)?, pods.unwrap_or(&none));
        let judge = |policy: &Policy| {
            let spec = policy.as_ref()?;
            selects(spec, pods, |label| !pods.contains_key(label))
        };
        let (closing, _) = policies.iter().find(|(_, policy)| judge(policy) == Some(true))?;
        let mut may_select = policies.values().filter(|policy| judge(policy) != Some(false));
        let system = &self.system;
        let is_open = may_select.any(|policy| policy.as_ref().is_none_or(|spec| admits(spec, namespace, system)));
        (!is_open).then(|| {
            format!(
                "NetworkPolicy {closing:?} lets no activator through to the pods: an ingress rule is missing from \
                 {{namespaceSelector: {{matchLabels: {{{NAMESPACE_NAME}: {system}}}}}, podSelector: {{matchLabels: \
                 {{{APP}: {ACTIVATOR}}}}}}}"
            )
        })
    }

    /// Takes in a policy as it is now; none: it is gone.
    pub(super) fn apply(&self, namespace: &str, name: &str, spec: Option<Spec>) {
        let mut all = self.by_namespace.write();
        match spec.filter(is_about_ingress) {
            Some(spec) => {
                let policies = all.entry(namespace.to_owned()).or_default();
                let others = policies.len() - usize::from(policies.contains_key(name));
                let spec = Spec { egress: None, ..spec };
                let is_short = serde_json::to_vec(&spec).is_ok_and(|text| text.len() <= KEPT_BYTES_MAX);
                let is_kept = others < KEPT_MAX && is_short;
                policies.insert(name.to_owned(), is_kept.then(|| Box::new(spec)));
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

    /// Follows NetworkPolicies until `shutdown`, in a task of its own, and tells `concern` which workloads a change concerns.
    pub(crate) fn follow(
        self: &Arc<Self>,
        client: &Client,
        namespaces: &Namespaces,
        shutdown: &CancellationToken,
        concern: impl Fn(Concerned<'_>) + Send + 'static,
    ) {
        self.is_awaited.store(true, Ordering::Release);
        let (policies, shutdown) = (self.clone(), shutdown.clone());
        let reach = namespaces.and(&self.system).reach::<NetworkPolicy>(client);
        let mut changes = changes::watch(reach, watcher::Config::default());
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    change = changes.next() => change,
                    () = shutdown.cancelled() => None,
                };
                match change {
                    Some(change) => policies.take(change, &concern),
                    None => return,
                }
            }
        });
    }

    fn take(&self, change: Change<NetworkPolicy>, concern: &impl Fn(Concerned<'_>)) {
        let (key, object) = match change {
            Change::Applied(object) => (key_of(&object), Some(object)),
            Change::Gone(key) => (key, None),
            Change::Listed => {
                self.guards.store.listed();
                self.is_awaited.store(false, Ordering::Release);
                return concern(Concerned::All);
            }
        };
        let former = self.guards.store.get(&key);
        let is_ours = |object: &NetworkPolicy| key.namespace() == self.system && object.labels().contains_key(GUARDS);
        match object {
            Some(object) if is_ours(&object) => {
                let workload = workload_of(&object);
                let version = object.resource_version().unwrap_or_default();
                self.guards.store.apply(&key, &version, Some(trimmed(object)));
                workload.into_iter().for_each(|key| concern(Concerned::One(key)));
            }
            None if former.is_some() => {
                self.guards.store.apply(&key, "", None);
                former.and_then(|former| workload_of(&former)).into_iter().for_each(|key| concern(Concerned::One(key)));
            }
            object => {
                self.apply(key.namespace(), key.name(), object.and_then(|object| object.spec));
                // The general policy is in front of all workloads.
                concern(if key.namespace() == self.system {
                    Concerned::All
                } else {
                    Concerned::Namespace(key.namespace())
                });
            }
        }
    }
}

/// Returns whether a policy is about incoming connections, as every policy without a list of types is.
fn is_about_ingress(spec: &Spec) -> bool {
    spec.policy_types.as_deref().is_none_or(|types| types.is_empty() || types.iter().any(|kind| kind == "Ingress"))
}

/// Returns whether a policy of the system namespace selects activators; none: that depends on labels of theirs that are not
/// known.
fn selects_activators(spec: &Spec) -> Option<bool> {
    let activator = Labels::from([(APP.to_owned(), ACTIVATOR.to_owned())]);
    selects(spec, &activator, |label| label != APP)
}

/// Returns whether a rule of a policy lets somebody in at a number of a range, or at all ports.
fn opens(spec: &Spec, range: PortRange) -> bool {
    let is_in_range = |port: &Port| match (&port.port, port.protocol.as_deref()) {
        (_, Some(protocol)) if protocol != "TCP" => false,
        (None, _) => true,
        // Names are those of the activators' own ports.
        (Some(IntOrString::String(_)), _) => false,
        (Some(IntOrString::Int(first)), _) => {
            *first <= i32::from(range.last) && port.end_port.unwrap_or(*first) >= i32::from(range.first)
        }
    };
    let is_open = |rule: &Rule| match rule.ports.as_deref() {
        None | Some([]) => true,
        Some(ports) => ports.iter().any(is_in_range),
    };
    spec.ingress.iter().flatten().any(is_open)
}

/// Returns whether a policy selects pods with these labels; none: that depends on labels that are not known.
fn selects(spec: &Spec, labels: &Labels, is_unknown: impl Fn(&str) -> bool) -> Option<bool> {
    let LabelSelector { match_labels, match_expressions } = spec.pod_selector.clone().unwrap_or_default();
    let equal = match_labels.into_iter().flatten().map(|(label, value)| {
        let holds = labels.get(&label) == Some(&value);
        (label, Some(holds))
    });
    let expressions = match_expressions.into_iter().flatten().map(|asked| {
        let holds = holds(&asked, labels.get(&asked.key));
        (asked.key, holds)
    });
    let each = equal.chain(expressions).map(|(label, holds)| if is_unknown(&label) { None } else { holds });
    each.fold(Some(true), |all, one| match (all, one) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    })
}

/// Returns whether an expression holds of a label; none: its operator is not known.
fn holds(asked: &LabelSelectorRequirement, value: Option<&String>) -> Option<bool> {
    let is_among = || value.is_some_and(|value| asked.values.iter().flatten().any(|one| one == value));
    match asked.operator.as_str() {
        "In" => Some(is_among()),
        "NotIn" => Some(!is_among()),
        "Exists" => Some(value.is_some()),
        "DoesNotExist" => Some(value.is_none()),
        _ => None,
    }
}

/// Returns whether activators of namespace `system` may be among those that a policy of `namespace` lets in.
fn admits(spec: &Spec, namespace: &str, system: &str) -> bool {
    let asked = |selector: &Option<LabelSelector>, label: &str| {
        selector.as_ref().and_then(|selector| selector.match_labels.as_ref()?.get(label).cloned())
    };
    let may_be_activators = |peer: &Peer| {
        let is_activator = asked(&peer.pod_selector, APP).is_none_or(|app| app == ACTIVATOR);
        let is_system = match &peer.namespace_selector {
            None => namespace == system,
            Some(_) => asked(&peer.namespace_selector, NAMESPACE_NAME).is_none_or(|name| name == system),
        };
        peer.ip_block.is_some() || (is_activator && is_system)
    };
    let admits = |rule: &Rule| match rule.from.as_deref() {
        None | Some([]) => true,
        Some(peers) => peers.iter().any(may_be_activators),
    };
    spec.ingress.iter().flatten().any(admits)
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
