//! NetworkPolicies about the pods of workloads. They decide who may connect to a workload's numbers on the activators, and
//! they may block the activators from the pods.
//!
//! # Access to a workload
//!
//! A workload is guarded if an ingress policy selects its pods. Its numbers are then in the range `guarded` of
//! `config-ports`. Only a policy written for this workload opens them ([`guards`]), to the peers of the policies that select
//! its pods ([`translation`]). The cluster's network evaluates labels of namespaces and of peers. The labels of the
//! workload's own pods are evaluated here: those of the pod template, since a sleeping workload has no pods, and those of
//! running pods, which may differ.
//!
//! If policies select some of these label sets and not others, an admitted client must be admitted to each pod. A label set
//! that no policy selects admits every client, so it does not matter. Of the other label sets, the one with the fewest
//! policies decides, if all others have the same policies and more.
//!
//! A workload is barred if its policies cannot be followed: a policy cannot be translated, a selector requires labels that
//! only controllers give to pods, pods have different policies, or the activators' general policy is missing. Without the
//! general one, the policies written here would be the only ones that select activators, and would close all of their other
//! ports. NetworkPolicies add up, so a workload is also barred if another policy of the system namespace opens guarded
//! numbers.
//!
//! # Blocked activators
//!
//! Many namespaces are closed by a policy by default. Such a namespace must let the activators in, or its workloads wake but
//! get no requests. The autoscaler alone cannot notice this, because the kubelet's probes come from the node. A policy that
//! certainly blocks all activators is therefore reported together with the missing rule.
//!
//! A policy certainly blocks them if it selects the pods, and no rule of any policy that may select the pods can admit the
//! activators. Addresses, ports and unknown labels get the benefit of the doubt. It is also unknown whether the cluster's
//! network enforces policies at all, so the report is only a hint.
//!
//! # Bounds
//!
//! Only the ingress part of a policy is kept. A policy longer than [`KEPT_BYTES_MAX`], or beyond [`KEPT_MAX`] in its
//! namespace, is not kept. Such a policy may admit activators, and bars the workloads of its namespace.

mod guards;
pub(crate) mod translation;

use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use crate::cluster::writes::Writes;
use crate::standalone::services::service_ports::TcpPort;
use autoscaler_core::ports::Access;
use common::RevisionKey as Key;
use common::config::{PortRange, PortsConfig};
use common::names::GUARDS;
use common_controller::changes::{self, Change};
use common_controller::{key_of, trimmed};
use common_runtime::namespaces::Namespaces;
use guards::{Guards, workload_of};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule as Rule, NetworkPolicyPeer as Peer, NetworkPolicyPort as Port,
    NetworkPolicySpec as Spec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Client, ResourceExt};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
/// Maximum number of kept policies of a namespace.
const KEPT_MAX: usize = 1000;

type Labels = BTreeMap<String, String>;

/// All ingress policies of the cluster, and those written here for guarded numbers.
pub(crate) struct Policies {
    system: String,
    config: watch::Receiver<Arc<PortsConfig>>,
    by_namespace: RwLock<HashMap<String, BTreeMap<String, Policy>>>,
    guards: Guards,
    /// Set from the start of the watch until all policies have been listed.
    is_awaited: AtomicBool,
}

/// Ingress part of a NetworkPolicy; `None` if the policy exceeds the bounds.
type Policy = Option<Box<Spec>>;

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
        Self {
            system: system.to_owned(),
            config,
            by_namespace: RwLock::default(),
            guards: Guards::new(system),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Reports whether policies are followed and have not been listed yet.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire) && self.config.borrow().follows_policies
    }

    /// Reports whether the activators' general policy is missing. Policies for guarded numbers would then be the only ones
    /// that select activators, and would close all of their other ports.
    pub(crate) fn lacks_general(&self) -> bool {
        !self.is_awaited.load(Ordering::Acquire) && !self.has_general(&self.by_namespace.read())
    }

    fn has_general(&self, all: &HashMap<String, BTreeMap<String, Policy>>) -> bool {
        let policies = all.get(&self.system).into_iter().flat_map(BTreeMap::values);
        policies.flatten().any(|spec| selects_activators(spec) == Some(true))
    }

    /// Returns the reason why guarded numbers are open to more clients than the peers of the workloads' policies, or `None`
    /// if they are not.
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

    /// Returns the workloads that have a policy for guarded numbers. Some of them may be gone.
    pub(crate) fn guarded(&self) -> Vec<Key> {
        self.guards.store.within(&self.system).iter().filter_map(|policy| workload_of(policy)).collect()
    }

    /// Determines who may connect to a workload of `namespace`. `pods` are the label sets of its running pods.
    /// Returns `None` if that is not known yet.
    pub(crate) fn guard(
        &self,
        namespace: &str,
        target: &Target,
        pods: impl FnOnce() -> Option<BTreeSet<Labels>>,
        ports: &[PodPort],
    ) -> Option<Guard> {
        if self.is_awaited() {
            return None;
        }
        let barred = |why: String| Some(Guard { verdict: Verdict::Barred(why), rules: Vec::new() });
        let all = self.by_namespace.read();
        let has_general = self.has_general(&all);
        let policies = all.get(namespace).filter(|_| self.config.borrow().follows_policies);
        let selecting = match policies.map(|policies| selecting(policies, target, pods)) {
            None => Vec::new(),
            Some(Ok(selecting)) => selecting?,
            Some(Err(why)) => return barred(why),
        };
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
                Some(Guard { verdict, rules: if has_general { rules } else { Vec::new() } })
            }
        }
    }

    /// Returns the ports of a workload for [`Self::guard`], with their numbers in the range `guarded`. A workload that has a
    /// policy keeps it for numbers of a former range, which the general policy does not open either.
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

    /// Writes the NetworkPolicy that opens a workload's guarded numbers. Without a guard the workload is gone. See
    /// [`Guards::follow`].
    ///
    /// # Errors
    /// Returns the error of the API server.
    pub(crate) async fn enforce(
        &self,
        writes: &Writes,
        workload: &Key,
        of: Option<(&str, &Guard)>,
    ) -> Result<(), Error> {
        let rules = of.map(|(_, guard)| &*guard.rules).unwrap_or_default();
        self.guards.follow(writes, workload, of.map(|(uid, _)| uid), rules).await
    }

    /// Returns a description of the missing rule if activators certainly cannot reach pods with these labels in `namespace`.
    /// Returns `None` if they may reach them. `pods` is `None` if the labels are unknown.
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

    /// Records a policy, or its deletion if `spec` is `None`.
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

    /// Follows the policies until `shutdown` in a separate task. Calls `concern` with the workloads that a change affects.
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
                // Policies of the system namespace may affect all workloads.
                concern(if key.namespace() == self.system {
                    Concerned::All
                } else {
                    Concerned::Namespace(key.namespace())
                });
            }
        }
    }
}

/// Returns the policies that decide about a workload, or `None` if that is not known yet.
///
/// # Errors
/// Returns the reason why they cannot be followed.
fn selecting<'a>(
    policies: &'a BTreeMap<String, Policy>,
    target: &Target,
    pods: impl FnOnce() -> Option<BTreeSet<Labels>>,
) -> Result<Option<Vec<(&'a str, &'a Spec)>>, String> {
    // If there is no pod template, only some labels are known.
    let is_whole = !target.containers.is_empty();
    let is_unknown = |label: &str| ADDED.contains(&label) || !(is_whole || target.labels.contains_key(label));
    let of_template = selecting_labels(policies, &target.labels, is_unknown)?;
    let Some(pods) = pods() else { return Ok(Some(of_template).filter(|policies| !policies.is_empty())) };
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
                "its pods differ in the NetworkPolicies that select them ({}; {}), so no client is certain to be let in by each \
                 pod: give the pods and the pod template the same labels, as far as podSelectors ask for them",
                names(&fewest),
                names(other)
            ))
        }
    }
}

/// Returns the policies that select pods with these labels.
fn selecting_labels<'a>(
    policies: &'a BTreeMap<String, Policy>,
    labels: &Labels,
    is_unknown: impl Fn(&str) -> bool,
) -> Result<Vec<(&'a str, &'a Spec)>, String> {
    let mut selecting = Vec::new();
    for (name, policy) in policies {
        let Some(spec) = policy else {
            return Err(format!(
                "NetworkPolicy {name:?} cannot be followed: it is longer than {KEPT_BYTES_MAX} bytes, or beyond the \
                 {KEPT_MAX} of its namespace that are read; shorten it"
            ));
        };
        match selects(spec, labels, &is_unknown) {
            Some(true) => selecting.push((name.as_str(), &**spec)),
            Some(false) => {}
            None => {
                return Err(format!(
                    "NetworkPolicy {name:?} cannot be followed: its podSelector asks for labels that are not in the pod \
                     template; select by labels of the template"
                ));
            }
        }
    }
    Ok(selecting)
}

/// Reports whether a policy restricts ingress. A policy without a list of types does.
fn is_about_ingress(spec: &Spec) -> bool {
    spec.policy_types.as_deref().is_none_or(|types| types.is_empty() || types.iter().any(|kind| kind == "Ingress"))
}

/// Reports whether a policy of the system namespace selects activators. Returns `None` if that depends on unknown labels.
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

/// Reports whether a policy selects pods with these labels. Returns `None` if that depends on unknown labels.
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
    let each: Vec<Option<bool>> = each.collect();
    match () {
        () if each.contains(&Some(false)) => Some(false),
        () if each.contains(&None) => None,
        () => Some(true),
    }
}

/// Reports whether an expression is true for a label. Returns `None` if its operator is unknown.
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

/// Reports whether a policy of `namespace` may admit activators of namespace `system`.
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
