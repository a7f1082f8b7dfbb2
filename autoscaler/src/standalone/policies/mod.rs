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
//! only ones that select activators, and would close all of their other ports.
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
use common::config::PortsConfig;
use common::names::GUARDS;
use common_controller::changes::{self, Change};
use common_controller::{key_of, trimmed};
use common_runtime::namespaces::Namespaces;
use futures::StreamExt;
use guards::{Guards, workload_of};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule as Rule, NetworkPolicyPeer as Peer, NetworkPolicySpec as Spec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
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
const ADDED: [&str; 4] = [
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "pod-template-hash",
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
    /// They are followed, and have not been listed yet.
    is_awaited: AtomicBool,
}

/// One of them; none: it is not kept.
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
    /// There are none.
    Open,
    /// These do, and are followed.
    Guarded(Vec<String>),
    /// They cannot be followed, for this reason.
    Barred(String),
}

/// Workloads that a change concerns.
pub(crate) enum Concerned<'a> {
    /// All.
    All,
    /// Those of a namespace.
    Namespace(&'a str),
    /// One.
    One(Key),
}

impl Guard {
    /// Returns the same as port numbers are planned by.
    pub(crate) fn access(&self) -> Access {
        match &self.verdict {
            Verdict::Open => Access::Open,
            Verdict::Guarded(_) => Access::Guarded,
            Verdict::Barred(why) => Access::Barred(why.as_str().into()),
        }
    }
}

impl Policies {
    /// None is known yet. `system`: namespace of the activators.
    pub(crate) fn new(system: &str, config: watch::Receiver<Arc<PortsConfig>>) -> Self {
        Self {
            system: system.to_owned(),
            config,
            by_namespace: RwLock::default(),
            guards: Guards::new(system),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Whether nobody knows yet which there are.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire)
    }

    /// Whether a number is one of those that only policies of ours open.
    pub(crate) fn is_guarded(&self, number: u16) -> bool {
        self.config.borrow().is_guarded(number)
    }

    /// Workloads that policies of ours guard, which may be gone.
    pub(crate) fn guarded(&self) -> Vec<Key> {
        self.guards.store.within(&self.system).iter().filter_map(|policy| workload_of(policy)).collect()
    }

    /// Finds who may connect to a workload of `namespace`.
    pub(crate) fn guard(&self, namespace: &str, target: &Target, ports: &[PodPort]) -> Guard {
        let barred = |why: String| Guard { verdict: Verdict::Barred(why), rules: Vec::new() };
        let all = self.by_namespace.read();
        let has_general = all.get(&self.system).is_some_and(|policies| {
            let activator = Labels::from([(APP.to_owned(), ACTIVATOR.to_owned())]);
            let selects = |spec: &Spec| selects(spec, &activator, |label| label != APP) == Some(true);
            policies.values().flatten().any(|spec| selects(spec))
        });
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
        match translate(&selecting, namespace, target, ports) {
            Err(why) => barred(why),
            Ok(rules) => {
                let names = selecting.iter().map(|(name, _)| (*name).to_owned()).collect();
                let verdict = if selecting.is_empty() { Verdict::Open } else { Verdict::Guarded(names) };
                Guard { verdict, rules: if has_general { rules } else { Vec::new() } }
            }
        }
    }

    /// The ports of a workload for [`Self::guard`]. `numbers`: those of each.
    pub(crate) fn pod_ports(&self, ports: &[TcpPort], numbers: impl Fn(&TcpPort) -> Vec<u16>) -> Vec<PodPort> {
        let guarded = |port| numbers(port).into_iter().filter(|number| self.is_guarded(*number)).collect();
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

    /// Takes in one as it is now; none: it is gone.
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

    /// Follows them until `shutdown`, in a task of its own, and tells `concern` of each change.
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
                // The general one is for all.
                concern(if key.namespace() == self.system {
                    Concerned::All
                } else {
                    Concerned::Namespace(key.namespace())
                });
            }
        }
    }
}

/// Without a list of types every policy is.
fn is_about_ingress(spec: &Spec) -> bool {
    spec.policy_types.as_deref().is_none_or(|types| types.is_empty() || types.iter().any(|kind| kind == "Ingress"))
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

/// Whether activators of namespace `system` may be among those whom a policy of `namespace` lets in.
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
