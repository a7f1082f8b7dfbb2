//! Small enforcer of NetworkPolicies in network namespaces, by nftables.
//!
//! A client is a network namespace with a cable to the cluster's namespace, and counts as a pod with its own labels.
//! The enforcer reads policies, namespaces and pods from the API server, as the network of a cluster does, and writes
//! rules for the packets that arrive by these cables. Traffic within the cluster's namespace is not filtered. Only TCP
//! ports by number, and addresses without exceptions, are supported.

use anyhow::{Context, bail, ensure};
use common::labels::LabelSelector;
use e2e::netns::{self, Namespace as Network};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::task::block_in_place;

const READ_EVERY: Duration = Duration::from_millis(200);
/// Maximum time of one exchange. A client that is not admitted is refused at once.
const PATIENCE: Duration = Duration::from_secs(10);

type Labels = BTreeMap<String, String>;

/// Address with the labels by which policies select it.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) address: IpAddr,
    pub(super) namespace: String,
    pub(super) labels: Labels,
}

/// Client in a network namespace.
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) endpoint: Endpoint,
    network: Network,
}

impl Peer {
    /// Creates a client with one label, and a route to the addresses of pods.
    pub(super) fn new(
        number: u8,
        name: &'static str,
        namespace: &str,
        (label, value): (&str, &str),
        pods: &str,
    ) -> anyhow::Result<Self> {
        let network = Network::start()?;
        let address = netns::cable(number, &network)?;
        let route = format!("route add {pods} via 10.77.{number}.1");
        network.within(move || netns::ip(&route))?;
        let labels = [(label.to_owned(), value.to_owned())].into();
        Ok(Self { name, endpoint: Endpoint { address, namespace: namespace.to_owned(), labels }, network })
    }

    /// Reports whether the client gets a 200 response; a refused connection or another status counts as none.
    pub(super) fn is_served(&self, at: SocketAddr, host: &str) -> anyhow::Result<bool> {
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let exchange = move || {
            let mut stream = match TcpStream::connect_timeout(&at, PATIENCE) {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(false),
                stream => stream.with_context(|| at.to_string())?,
            };
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request.as_bytes())?;
            let mut response = String::new();
            stream.read_to_string(&mut response)?;
            Ok(response.starts_with("HTTP/1.1 200"))
        };
        block_in_place(|| self.network.within(exchange)).with_context(|| self.name)
    }
}

/// Enforces the policies of the cluster. `others` are endpoints without a Pod object.
pub(super) async fn enforce(client: Client, others: Vec<Endpoint>) -> anyhow::Result<Infallible> {
    let mut written = String::new();
    loop {
        let all = ListParams::default();
        let policies = Api::<NetworkPolicy>::all(client.clone()).list(&all).await?.items;
        let namespaces = Api::<Namespace>::all(client.clone()).list(&all).await?.items;
        let namespaces = namespaces.into_iter().map(|one| (one.name_any(), one.labels().clone())).collect();
        let pods = Api::<Pod>::all(client.clone()).list(&all).await?.items;
        let endpoints: Vec<Endpoint> = pods.iter().filter_map(endpoint).chain(others.iter().cloned()).collect();
        let rules = rules(&policies, &namespaces, &endpoints)?;
        if rules != written {
            block_in_place(|| apply(&rules)).with_context(|| rules.clone())?;
            written = rules;
        }
        tokio::time::sleep(READ_EVERY).await;
    }
}

fn endpoint(pod: &Pod) -> Option<Endpoint> {
    let address = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    Some(Endpoint { address, namespace: pod.namespace()?, labels: pod.labels().clone() })
}

/// Returns the rules for each endpoint that a policy selects: what its policies admit, and the refusal of all else.
fn rules(
    policies: &[NetworkPolicy],
    namespaces: &BTreeMap<String, Labels>,
    endpoints: &[Endpoint],
) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for to in endpoints {
        let mut is_selected = false;
        for policy in policies.iter().filter(|policy| policy.namespace().as_ref() == Some(&to.namespace)) {
            let spec = policy.spec.clone().unwrap_or_default();
            let is_ingress = spec.policy_types.is_none_or(|types| types.iter().any(|one| one == "Ingress"));
            if !is_ingress || !selects(spec.pod_selector.as_ref(), &to.labels)? {
                continue;
            }
            is_selected = true;
            for rule in spec.ingress.iter().flatten() {
                let Some(from) = sources(rule, &to.namespace, namespaces, endpoints)? else { continue };
                let ports = ports(rule.ports.as_deref().unwrap_or_default())?;
                lines.push(format!("{from} ip daddr {} {ports} accept", to.address));
            }
        }
        if is_selected {
            lines.push(format!("ip daddr {} meta l4proto tcp reject with tcp reset", to.address));
        }
    }
    Ok(lines.join("\n"))
}

/// Returns the match of a rule's peers: empty if it admits every client, `None` if it admits none of the endpoints.
fn sources(
    rule: &NetworkPolicyIngressRule,
    namespace: &str,
    namespaces: &BTreeMap<String, Labels>,
    endpoints: &[Endpoint],
) -> anyhow::Result<Option<String>> {
    let Some(peers) = rule.from.as_ref().filter(|peers| !peers.is_empty()) else { return Ok(Some(String::new())) };
    let mut admitted = BTreeSet::new();
    for NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } in peers {
        if let Some(block) = ip_block {
            ensure!(block.except.is_none(), "exceptions are not enforced here");
            admitted.insert(block.cidr.clone());
            continue;
        }
        for endpoint in endpoints {
            let is_within = match namespace_selector {
                None => endpoint.namespace == namespace,
                Some(_) => match namespaces.get(&endpoint.namespace) {
                    Some(labels) => selects(namespace_selector.as_ref(), labels)?,
                    None => false,
                },
            };
            if is_within && selects(pod_selector.as_ref(), &endpoint.labels)? {
                admitted.insert(endpoint.address.to_string());
            }
        }
    }
    let list = || admitted.iter().cloned().collect::<Vec<_>>().join(", ");
    Ok((!admitted.is_empty()).then(|| format!("ip saddr {{ {} }}", list())))
}

fn ports(ports: &[NetworkPolicyPort]) -> anyhow::Result<String> {
    let mut ranges = BTreeSet::new();
    for port in ports.iter().filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")) {
        let Some(IntOrString::Int(first)) = port.port else { bail!("ports without a number are not enforced here") };
        ranges.insert(format!("{first}-{}", port.end_port.unwrap_or(first)));
    }
    let list = ranges.into_iter().collect::<Vec<_>>().join(", ");
    Ok(if list.is_empty() { String::new() } else { format!("tcp dport {{ {list} }}") })
}

/// Reports whether a selector matches; a missing one matches everything.
fn selects(selector: Option<&ApiSelector>, labels: &Labels) -> anyhow::Result<bool> {
    let selector: LabelSelector = serde_json::from_value(serde_json::to_value(selector.cloned().unwrap_or_default())?)?;
    Ok(selector.selector().map_err(anyhow::Error::msg)?.matches(labels))
}

/// Replaces all rules at once. Established connections stay.
fn apply(rules: &str) -> anyhow::Result<()> {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().context("nft is needed")?;
    let text = format!(
        "add table ip enforcer\ndelete table ip enforcer\ntable ip enforcer {{\nchain input {{\n\
         type filter hook input priority 0; policy accept;\nct state established,related accept\niifname \"lo\" accept\n\
         {rules}\n}}\n}}\n"
    );
    nft.stdin.take().context("stdin")?.write_all(text.as_bytes())?;
    ensure!(nft.wait()?.success(), "nft refuses the rules");
    Ok(())
}
