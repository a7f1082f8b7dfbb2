//! NetworkPolicies about the pods of workloads. They decide who may connect to a workload's numbers on the activators,
//! and they may block the activators from the pods.
//!
//! # Access to a workload
//!
//! A workload is guarded if an ingress policy selects its pods. Its numbers are then in the range `guarded` of
//! `config-ports`. Only a policy written for this workload opens them ([`guards`]), to the peers of the policies that
//! select its pods ([`translation`]). The cluster's network evaluates labels of namespaces and of peers. The labels of
//! the workload's own pods are evaluated here: those of the pod template, since a sleeping workload has no pods, and
//! those of running pods, which may differ.
//!
//! If policies select some of these label sets and not others, an admitted client must be admitted to each pod. A label
//! set that no policy selects admits every client, so it does not matter. Of the other label sets, the one with the
//! fewest policies decides, if all others have the same policies and more.
//!
//! While no pod runs, labels that only pods have are unknown. If no policy selects the pod template either, a workload
//! that has a policy for its numbers keeps it until a pod runs or its namespace has no ingress policy left.
//!
//! A workload is barred if its policies cannot be followed: a policy cannot be translated, a selector requires labels
//! that only controllers give to pods, pods have different policies, or the activators' general policy is missing.
//! Without the general policy, those written here would be the only ones that select activators, and would close all of
//! their other ports. NetworkPolicies add up, so a workload is also barred if another policy of the system namespace
//! opens guarded numbers.
//!
//! # Blocked activators
//!
//! Many namespaces are closed by a policy by default. Such a namespace must let the activators in, or its workloads
//! wake but get no requests. The autoscaler alone cannot notice this, because the kubelet's probes come from the node
//! and pass. A policy that certainly blocks all activators is therefore reported together with the missing rule.
//!
//! A policy certainly blocks them if it selects the pods, and no rule of any policy that may select the pods can admit
//! the activators. Addresses, ports and unknown labels are assumed to admit them. It is also unknown whether the
//! cluster's network enforces policies at all, so the report is only a hint.
//!
//! # Bounds
//!
//! Only the ingress part of a policy is kept. A policy longer than [`KEPT_BYTES_MAX`] is not kept: it may admit
//! activators, and bars the workloads of its namespace. So do more than [`FOLLOWED_MAX`] policies in one namespace.

mod guards;
pub(crate) mod translation;

use crate::cluster::facts::Target;
use crate::cluster::multi_map::MultiMap;
use crate::standalone::services::service_ports::TcpPort;
use autoscaler_core::ports::Access;
use common::RevisionKey as Key;
use common::config::{PortRange, PortsConfig};
use common_controller::changes::{self, Change};
use common_controller::{Store, key_of, trimmed};
use common_runtime::namespaces::Namespaces;
use guards::{is_guard, workload_of};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule as Rule, NetworkPolicyPeer as Peer, NetworkPolicyPort as Port,
    NetworkPolicySpec as Spec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt};
use kube::{Client, ResourceExt};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use translation::{NAMESPACE_NAME, PodPort, translate};

/// Label of the pods of activators and autoscalers, and its value for activators.
const APP: &str = "app";
const ACTIVATOR: &str = "activator";
/// Labels that controllers add to those of the pod template.
const ADDED: [&str; 5] = [
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// Maximum size in bytes of a kept policy, as JSON.
const KEPT_BYTES_MAX: usize = 16 << 10;
/// Maximum number of policies of a namespace that are followed.
const FOLLOWED_MAX: usize = 1000;

type Labels = BTreeMap<String, String>;

/// All NetworkPolicies of the cluster, and those written here for guarded numbers.
pub(crate) struct Policies {
    system: String,
    config: watch::Receiver<Arc<PortsConfig>>,
    /// Ingress policies of other writers; `spec` is `None` if a policy exceeds [`KEPT_BYTES_MAX`].
    others: Store<NetworkPolicy>,
    /// Policies written here.
    guards: Store<NetworkPolicy>,
    /// Keys of the policies written here for each workload.
    guards_of: RwLock<MultiMap<Key, Key>>,
    /// Set from the start of the watch until all policies have been listed.
    is_awaited: AtomicBool,
}

/// Access to a workload, and the rules of the NetworkPolicy that opens its guarded numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Guard {
    pub(crate) verdict: Verdict,
    rules: Vec<Rule>,
}

/// Effect of the policies that select a workload's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No policy selects the pods.
    Open,
    /// The policies of these names select the pods, and the activators follow them.
    Guarded(Vec<String>),
    /// Policies select or may select the pods and cannot be followed, for this reason.
    Barred(String),
}

/// Workloads that a change affects.
pub(crate) enum Concerned<'a> {
    /// All workloads.
    All,
    /// The workloads of a namespace.
    Namespace(&'a str),
    /// One workload.
    One(Key),
}

impl Guard {
    /// Returns the verdict as input for the plan of port numbers.
    pub(crate) fn access(&self) -> Access {
        match &self.verdict {
            Verdict::Open => Access::Open,
            Verdict::Guarded(_) => Access::Guarded,
            Verdict::Barred(why) => Access::Barred(why.as_str().into()),
        }
    }
}

impl Policies {
    /// Creates an index without policies. `system` is the namespace of the activators.
    pub(crate) fn new(system: &str, config: watch::Receiver<Arc<PortsConfig>>) -> Self {
        let store = || Store::new(|_, _, _| {});
        let (system, guards_of, is_awaited) = (system.to_owned(), RwLock::default(), AtomicBool::new(false));
        Self { system, config, others: store(), guards: store(), guards_of, is_awaited }
    }

    /// Reports whether policies are followed and have not been listed yet.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire) && self.config.borrow().follows_policies
    }

    /// Reports whether the activators' general policy is missing. Policies for guarded numbers would then be the only
    /// ones that select activators, and would close all of their other ports.
    pub(crate) fn lacks_general(&self) -> bool {
        !self.is_awaited.load(Ordering::Acquire) && !has_general(&self.others.within(&self.system))
    }

    /// Returns the policies of a namespace that the activators must follow.
    pub(crate) fn followed(&self, namespace: &str) -> Vec<Arc<NetworkPolicy>> {
        if self.config.borrow().follows_policies { self.others.within(namespace) } else { Vec::new() }
    }

    /// Returns the reason why guarded numbers are open to more clients than the peers of the workloads' policies, or
    /// `None` if they are not. `policies` are those of the system namespace.
    fn opened(&self, policies: &[Arc<NetworkPolicy>]) -> Option<String> {
        let (system, guarded) = (&self.system, self.config.borrow().guarded?);
        policies.iter().find_map(|policy| match (name_of(policy), &policy.spec) {
            (name, None) => Some(format!(
                "NetworkPolicy {name:?} of namespace {system} is longer than {KEPT_BYTES_MAX} bytes, so it is not read and may \
                 open guarded port numbers ({guarded}). Shorten it"
            )),
            (name, Some(spec)) => (selects_activators(spec) != Some(false) && opens(spec, guarded)).then(|| {
                format!(
                    "NetworkPolicy {name:?} of namespace {system} may select activators, and opens guarded port numbers \
                     ({guarded}) to other clients. Name ports outside of this range in each of its ingress rules, or set \
                     another range in guarded of config-ports"
                )
            }),
        })
    }

    /// Determines who may connect to the workload with this uid in `namespace`. `pods` are the label sets of its
    /// running pods. Returns `None` if that is not known yet, so that the present access stays.
    pub(crate) fn guard(
        &self,
        (namespace, uid): (&str, &str),
        target: &Target,
        pods: impl FnOnce() -> Option<BTreeSet<Labels>>,
        ports: &[PodPort],
    ) -> Option<Guard> {
        if self.is_awaited() {
            return None;
        }
        let barred = |why: String| Some(Guard { verdict: Verdict::Barred(why), rules: Vec::new() });
        let (policies, of_system) = (self.followed(namespace), self.others.within(&self.system));
        let has_general = has_general(&of_system);
        let selecting = match selecting(&policies, target, pods, self.has_guard(uid)) {
            Ok(selecting) => selecting?,
            Err(why) => return barred(why),
        };
        if !selecting.is_empty() && !has_general {
            return barred(format!(
                "NetworkPolicies select the pods. The activators cannot follow them, because NetworkPolicy \"activator\" of \
                 namespace {} is missing. Install it (chart: policies: true), or set guarded: \"off\" in config-ports",
                self.system
            ));
        }
        if let Some(why) = self.opened(&of_system).filter(|_| !selecting.is_empty()) {
            return barred(why);
        }
        match translate(&selecting, namespace, target, ports) {
            Err(why) => barred(why),
            Ok(rules) => {
                let names = selecting.iter().map(|(name, _)| (*name).to_owned()).collect();
                let verdict = if selecting.is_empty() { Verdict::Open } else { Verdict::Guarded(names) };
                Some(Guard { verdict, rules: if has_general { rules } else { Vec::new() } })
            }
        }
    }

    /// Returns the ports of a workload for [`Self::guard`], with their numbers in the range `guarded`. A workload that
    /// has a policy keeps it for numbers of a former range, which the general policy does not open either.
    pub(crate) fn pod_ports(
        &self,
        uid: &str,
        ports: &[TcpPort],
        numbers: impl Fn(&TcpPort) -> Vec<u16>,
    ) -> Vec<PodPort> {
        let (config, has_policy) = (**self.config.borrow(), self.has_guard(uid));
        let is_guarded = |number: &u16| config.is_guarded(*number) || (has_policy && !config.range.contains(*number));
        let guarded = |port| numbers(port).into_iter().filter(is_guarded).collect();
        ports.iter().map(|port| PodPort { target: port.target.clone(), numbers: guarded(port) }).collect()
    }

    /// Returns a description of the missing rule if activators certainly cannot reach pods with these labels in
    /// `namespace`. Returns `None` if they may reach them. `pods` is `None` if the labels are unknown.
    pub(crate) fn missing_rule(&self, namespace: &str, pods: Option<&Labels>) -> Option<String> {
        let (policies, none) = (self.others.within(namespace), Labels::new());
        let pods = pods.unwrap_or(&none);
        if policies.len() > FOLLOWED_MAX {
            return None;
        }
        let judge = |policy: &NetworkPolicy| selects(policy.spec.as_ref()?, pods, |label| !pods.contains_key(label));
        let closing = name_of(policies.iter().find(|policy| judge(policy) == Some(true))?);
        let mut may_select = policies.iter().filter(|policy| judge(policy) != Some(false));
        let system = &self.system;
        let is_open = may_select.any(|policy| policy.spec.as_ref().is_none_or(|spec| admits(spec, namespace, system)));
        (!is_open).then(|| {
            format!(
                "NetworkPolicy {closing:?} keeps the activators from the pods. Add an ingress rule from \
                 {{namespaceSelector: {{matchLabels: {{{NAMESPACE_NAME}: {system}}}}}, podSelector: {{matchLabels: \
                 {{{APP}: {ACTIVATOR}}}}}}}"
            )
        })
    }

    /// Follows the policies until `shutdown` in a separate task. Calls `concern` with the workloads that a change
    /// affects.
    pub(crate) fn follow(
        self: &Arc<Self>,
        client: &Client,
        namespaces: &Namespaces,
        shutdown: &CancellationToken,
        concern: impl Fn(Concerned<'_>) + Send + 'static,
    ) {
        self.is_awaited.store(true, Ordering::Release);
        let (policies, reach) = (self.clone(), namespaces.and(&self.system).reach::<NetworkPolicy>(client));
        changes::follow(reach, shutdown, move |change| policies.take(change, &concern));
    }

    pub(super) fn take(&self, change: Change<NetworkPolicy>, concern: &impl Fn(Concerned<'_>)) {
        let (key, policy) = match change {
            Change::Applied(policy) => (key_of(&policy), Some(policy)),
            Change::Gone(key) => (key, None),
            Change::Listed => {
                self.is_awaited.store(false, Ordering::Release);
                return concern(Concerned::All);
            }
        };
        let version = policy.as_ref().and_then(ResourceExt::resource_version).unwrap_or_default();
        if is_guard(&self.system, &key) {
            let before = self.guards.get(&key).as_deref().and_then(workload_of);
            let after = policy.as_ref().and_then(workload_of);
            self.guards.apply(&key, &version, policy.map(trimmed));
            let mut guards_of = self.guards_of.write();
            before.iter().for_each(|workload| guards_of.remove(workload, &key));
            after.iter().for_each(|workload| guards_of.insert(workload.clone(), key.clone()));
            drop(guards_of);
            let workloads: BTreeSet<Key> = before.into_iter().chain(after).collect();
            workloads.into_iter().for_each(|workload| concern(Concerned::One(workload)));
        } else {
            self.others.apply(&key, &version, policy.and_then(ingress_part));
            let is_system = key.namespace() == self.system; // Its policies may affect all workloads.
            concern(if is_system { Concerned::All } else { Concerned::Namespace(key.namespace()) });
        }
    }
}

/// Returns the ingress part of a policy, without a `spec` if it is longer than [`KEPT_BYTES_MAX`]. Returns `None` if
/// the policy does not restrict ingress. A policy without a list of types does.
fn ingress_part(policy: NetworkPolicy) -> Option<NetworkPolicy> {
    let ObjectMeta { namespace, name, .. } = policy.metadata;
    let spec = Spec { egress: None, ..policy.spec.unwrap_or_default() };
    let types = spec.policy_types.as_deref().unwrap_or_default();
    if !types.is_empty() && types.iter().all(|kind| kind != "Ingress") {
        return None;
    }
    let is_short = serde_json::to_vec(&spec).is_ok_and(|text| text.len() <= KEPT_BYTES_MAX);
    let metadata = ObjectMeta { namespace, name, ..ObjectMeta::default() };
    Some(NetworkPolicy { metadata, spec: Some(spec).filter(|_| is_short) })
}

fn name_of(policy: &NetworkPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or_default()
}

/// Reports whether the activators' general policy is among the policies of the system namespace.
fn has_general(policies: &[Arc<NetworkPolicy>]) -> bool {
    policies.iter().filter_map(|policy| policy.spec.as_ref()).any(|spec| selects_activators(spec) == Some(true))
}

/// Returns the policies that decide about a workload, or `None` if that is not known now. Fails with the reason why they
/// cannot be followed. `has_guard`: the workload has a policy for its numbers.
fn selecting<'a>(
    policies: &'a [Arc<NetworkPolicy>],
    target: &Target,
    pods: impl FnOnce() -> Option<BTreeSet<Labels>>,
    has_guard: bool,
) -> Result<Option<Vec<(&'a str, &'a Spec)>>, String> {
    if policies.is_empty() {
        return Ok(Some(Vec::new()));
    }
    if policies.len() > FOLLOWED_MAX {
        return Err(format!(
            "the namespace has {} NetworkPolicies for ingress, and at most {FOLLOWED_MAX} can be followed. Delete some of them",
            policies.len()
        ));
    }
    // If there is no pod template, only some labels are known.
    let is_whole = !target.containers.is_empty();
    let is_unknown = |label: &str| ADDED.contains(&label) || !(is_whole || target.labels.contains_key(label));
    let of_template = selecting_labels(policies, &target.labels, is_unknown)?;
    let Some(pods) = pods() else { return Ok(Some(of_template).filter(|policies| !policies.is_empty())) };
    if has_guard && pods.is_empty() && of_template.is_empty() {
        return Ok(None);
    }
    let of_pods = pods.iter().map(|labels| selecting_labels(policies, labels, |_| false));
    let mut sets = of_pods.collect::<Result<Vec<_>, _>>()?;
    sets.push(of_template);
    sets.retain(|set| !set.is_empty());
    let Some(fewest) = sets.iter().min_by_key(|set| set.len()).cloned() else { return Ok(Some(Vec::new())) };
    match sets.iter().find(|set| !fewest.iter().all(|one| set.contains(one))) {
        None => Ok(Some(fewest)),
        Some(other) => {
            let names = |set: &[(&str, &Spec)]| set.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            Err(format!(
                "different NetworkPolicies select its pods ({}; {}), so one pod may reject a client that another admits. Give \
                 the pods and the pod template the same values for all labels that the podSelectors require",
                names(&fewest),
                names(other)
            ))
        }
    }
}

/// Returns the policies that select pods with these labels.
fn selecting_labels<'a>(
    policies: &'a [Arc<NetworkPolicy>],
    labels: &Labels,
    is_unknown: impl Fn(&str) -> bool,
) -> Result<Vec<(&'a str, &'a Spec)>, String> {
    let mut selecting = Vec::new();
    for policy in policies {
        let name = name_of(policy);
        let Some(spec) = &policy.spec else {
            return Err(format!(
                "NetworkPolicy {name:?} cannot be followed: it is longer than {KEPT_BYTES_MAX} bytes. Shorten it"
            ));
        };
        match selects(spec, labels, &is_unknown) {
            Some(true) => selecting.push((name, spec)),
            Some(false) => {}
            None => {
                return Err(format!(
                    "NetworkPolicy {name:?} cannot be followed: its podSelector requires labels that the pod template \
                     does not have. Select by labels of the pod template"
                ));
            }
        }
    }
    Ok(selecting)
}

/// Reports whether a policy of the system namespace selects activators. Returns `None` if that depends on unknown
/// labels.
fn selects_activators(spec: &Spec) -> Option<bool> {
    let activator = Labels::from([(APP.to_owned(), ACTIVATOR.to_owned())]);
    selects(spec, &activator, |label| label != APP)
}

/// Reports whether a rule of a policy admits any client to a number of a range.
fn opens(spec: &Spec, range: PortRange) -> bool {
    let is_in_range = |port: &Port| match (&port.port, port.protocol.as_deref()) {
        (_, Some(protocol)) if protocol != "TCP" => false,
        (None, _) => true,
        // Names belong to the activators' own ports.
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

/// Reports whether a policy selects pods with these labels. Returns `None` if that depends on unknown labels, or an
/// operator is unknown.
fn selects(spec: &Spec, labels: &Labels, is_unknown: impl Fn(&str) -> bool) -> Option<bool> {
    let LabelSelector { mut match_labels, mut match_expressions } = spec.pod_selector.clone().unwrap_or_default();
    let mut depends = false;
    let mut is_known = |label: &str| {
        depends |= is_unknown(label);
        !is_unknown(label)
    };
    match_labels.iter_mut().for_each(|labels| labels.retain(|label, _| is_known(label)));
    match_expressions.iter_mut().for_each(|all| all.retain(|expression| is_known(&expression.key)));
    let known = Selector::try_from(LabelSelector { match_labels, match_expressions }).ok()?;
    if known.matches(labels) { (!depends).then_some(true) } else { Some(false) }
}

/// Reports whether a policy of `namespace` may admit activators of namespace `system`.
fn admits(spec: &Spec, namespace: &str, system: &str) -> bool {
    let required = |selector: &Option<LabelSelector>, label: &str| {
        selector.as_ref().and_then(|selector| selector.match_labels.as_ref()?.get(label).cloned())
    };
    let may_be_activators = |peer: &Peer| {
        let is_activator = required(&peer.pod_selector, APP).is_none_or(|app| app == ACTIVATOR);
        let is_system = match &peer.namespace_selector {
            None => namespace == system,
            Some(_) => required(&peer.namespace_selector, NAMESPACE_NAME).is_none_or(|name| name == system),
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
