//! Translates rules of NetworkPolicies about pods into rules about the activators' ports. Pure.
//!
//! Clients of a workload connect to activators, on the workload's own numbers. A rule that admits peers to a port of
//! the pods therefore admits the same peers to the numbers of that port.
//!
//! | policy of the workload | policy for the numbers |
//! |---|---|
//! | peer `podSelector` alone: pods of the workload's namespace | with a `namespaceSelector` for that namespace |
//! | peer `namespaceSelector`, with or without `podSelector` | the same |
//! | peer `ipBlock` | the same |
//! | no peers: every client | the same |
//! | no ports: all | all numbers of the workload |
//! | a port by number, range or name | numbers of the Service ports that lead there |
//! | UDP, SCTP, or a port to which no Service leads | nothing, because activators carry TCP only |
//! | several policies that select the pods | the union, as in Kubernetes |
//!
//! Activators and autoscalers are always peers: activators relay to each other, and autoscalers check on each number
//! that the activator listens there.
//!
//! # Not translated
//!
//! A peer or port of a form that an API server rejects, a port that only the pods define, and a result that is too long
//! for an object. No client is then admitted.

use crate::cluster::facts::Target;
use crate::standalone::services::service_ports::number_of;
use k8s_openapi::api::networking::v1::{
    NetworkPolicyIngressRule as Rule, NetworkPolicyPeer as Peer, NetworkPolicyPort as Port, NetworkPolicySpec as Spec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Label with the name of a namespace, which every namespace has.
pub(super) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Maximum size in bytes of the rules of one workload. An object has room for three times as many.
const BYTES_MAX: usize = 512 << 10;
const TCP: &str = "TCP";

/// Port of a workload.
#[derive(Clone, Debug)]
pub(crate) struct PodPort {
    /// Port of the pods to which it leads.
    pub(crate) target: IntOrString,
    /// Guarded numbers on the activators.
    pub(crate) numbers: Vec<u16>,
}

/// Translates the named policies that select the pods of `target` in `namespace`. Without policies every client is
/// admitted. Fails with the name of a policy that cannot be translated, and the reason.
pub(super) fn translate(
    policies: &[(&str, &Spec)],
    namespace: &str,
    target: &Target,
    ports: &[PodPort],
) -> Result<Vec<Rule>, String> {
    let mut all: Vec<u16> = ports.iter().flat_map(|port| port.numbers.iter().copied()).collect();
    all.sort_unstable();
    let mut rules = vec![Rule { from: Some(vec![planes()]), ports: Some(at(&all)) }];
    if policies.is_empty() {
        rules.push(Rule { from: None, ports: Some(at(&all)) });
    }
    for (name, spec) in policies {
        for rule in spec.ingress.iter().flatten() {
            let wrong = |why| format!("NetworkPolicy {name:?} cannot be followed: {why}");
            let (numbers, from) = translate_rule(rule, namespace, target, ports).map_err(wrong)?;
            if numbers.is_empty() {
                continue;
            }
            let numbers = Some(at(&numbers));
            // Rules about the same numbers become one, because each lists all numbers.
            match (rules[1..].iter_mut().find(|known| known.ports == numbers), from) {
                (Some(Rule { from: Some(known), .. }), Some(peers)) => known.extend(peers),
                (Some(known), _) => known.from = None,
                (None, from) => rules.push(Rule { from, ports: numbers }),
            }
        }
    }
    if all.is_empty() {
        return Ok(Vec::new());
    }
    match serde_json::to_vec(&rules) {
        Ok(text) if text.len() <= BYTES_MAX => Ok(rules),
        _ => {
            let rule = "their rules exceed 512 KiB in total. Shorten them";
            Err(format!("the NetworkPolicies that select its pods cannot be followed: {rule}"))
        }
    }
}

/// Returns the sorted numbers of a rule and the peers that it admits; `None`: every client.
fn translate_rule(
    rule: &Rule,
    namespace: &str,
    target: &Target,
    ports: &[PodPort],
) -> Result<(Vec<u16>, Option<Vec<Peer>>), String> {
    let peers = rule.from.as_ref().filter(|from| !from.is_empty());
    let peers = peers.map(|from| from.iter().map(|peer| translate_peer(peer, namespace)).collect::<Result<_, _>>());
    let mut numbers = Vec::new();
    for port in ports {
        if is_about(rule.ports.as_deref().unwrap_or_default(), port, target)? {
            numbers.extend(&port.numbers);
        }
    }
    numbers.sort_unstable();
    Ok((numbers, peers.transpose()?))
}

fn translate_peer(peer: &Peer, namespace: &str) -> Result<Peer, String> {
    match (&peer.ip_block, &peer.pod_selector, &peer.namespace_selector) {
        (Some(_), None, None) | (None, _, Some(_)) => Ok(peer.clone()),
        (None, Some(pods), None) => {
            let name = [(NAMESPACE_NAME.to_owned(), namespace.to_owned())];
            let own = LabelSelector { match_labels: Some(name.into()), ..LabelSelector::default() };
            Ok(Peer { pod_selector: Some(pods.clone()), namespace_selector: Some(own), ip_block: None })
        }
        (None, None, None) => Err("a peer must have podSelector, namespaceSelector or ipBlock".to_owned()),
        (Some(_), ..) => Err("a peer with ipBlock must have no selector".to_owned()),
    }
}

/// Reports whether a rule with these ports applies to a port of the pods. Without ports it applies to all.
fn is_about(ports: &[Port], port: &PodPort, target: &Target) -> Result<bool, String> {
    let number = |port: &IntOrString| number_of(port, Some(target));
    let unknown = |port: &IntOrString| {
        let port = match port {
            IntOrString::String(name) => name.clone(),
            IntOrString::Int(number) => number.to_string(),
        };
        format!("the pod template declares no port {port:?}. Use the port number in the Service and in the policy")
    };
    let mut is_about = ports.is_empty();
    for Port { protocol, port: admitted, end_port } in ports {
        if protocol.as_deref().is_some_and(|protocol| protocol != TCP) {
            continue;
        }
        is_about |= match (admitted, end_port) {
            (None, None) => true,
            (Some(IntOrString::Int(first)), last) => {
                let number = number(&port.target).ok_or_else(|| unknown(&port.target))?;
                (*first..=last.unwrap_or(*first)).contains(&number)
            }
            (Some(named), None) if *named == port.target => true,
            // A name that no container has is not a port of the pods.
            (Some(named), None) if !target.containers.is_empty() && number(named).is_none() => false,
            (Some(named), None) => {
                let known = number(named).ok_or_else(|| unknown(named))?;
                known == number(&port.target).ok_or_else(|| unknown(&port.target))?
            }
            (_, Some(_)) => return Err("endPort requires a port number in port".to_owned()),
        };
    }
    Ok(is_about)
}

/// Returns the peer of activators and autoscalers.
fn planes() -> Peer {
    let values = Some(vec![super::ACTIVATOR.to_owned(), "autoscaler".to_owned()]);
    let is_plane = LabelSelectorRequirement { key: super::APP.to_owned(), operator: "In".to_owned(), values };
    let pods = LabelSelector { match_expressions: Some(vec![is_plane]), match_labels: None };
    Peer { pod_selector: Some(pods), ..Peer::default() }
}

fn at(numbers: &[u16]) -> Vec<Port> {
    let port = |number: &u16| Port {
        protocol: Some(TCP.to_owned()),
        port: Some(IntOrString::Int(i32::from(*number))),
        end_port: None,
    };
    numbers.iter().map(port).collect()
}

#[cfg(test)]
#[path = "translation_tests.rs"]
mod tests;
