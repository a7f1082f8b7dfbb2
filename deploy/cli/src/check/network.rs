//! Check of port numbers on the activators, and of NetworkPolicies that block clients from them.

use super::{CheckContext, Finding, first_names};
use common::config::{self, PortRange, PortsConfig};
use common::names::{ACTIVATOR_HTTP1_PORT, GUARDS};
use common::ports::{Block, NumberState, ledger};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

const PORTS: &str = "ports";
const POLICIES: &str = "policies";
/// Share of used numbers from which the range counts as nearly used up.
const NEARLY_FULL: f64 = 0.9;

/// Checks port numbers and policies.
pub async fn check(context: &CheckContext<'_>) -> Result<Vec<Finding>, Finding> {
    let maps: Vec<ConfigMap> = context.list(PORTS, Some(context.system)).await?;
    let settings = maps.iter().find(|map| map.name_any() == config::PORTS).and_then(|map| map.data.clone());
    let settings = PortsConfig::from_map(&settings.unwrap_or_default()).map_err(|error| {
        let remedy = format!("kubectl -n {} edit configmap {}", context.system, config::PORTS);
        Finding::wrong(PORTS, format!("{} is invalid: {error}", config::PORTS), remedy)
    })?;
    let mut findings = vec![usage(&maps, settings.range, context.system)];
    if context.cluster.dashboard.is_none() {
        let policies = context.list::<NetworkPolicy>(POLICIES, Some(context.system)).await;
        findings.push(policies.map_or_else(|end| end, |policies| access(&policies, settings.range, context.system)));
    }
    Ok(findings)
}

/// Counts the used numbers of the range.
fn usage(maps: &[ConfigMap], range: PortRange, system: &str) -> Finding {
    let ledger = maps.iter().filter_map(|map| Some(ledger::read(Block::of_map(&map.name_any())?, map.data.as_ref())));
    let held = |page: ledger::Page| page.entries.into_iter().filter(|(_, entry)| entry.state == NumberState::Held);
    let (used, all) = (ledger.flat_map(held).filter(|(number, _)| range.contains(*number)).count(), range.len());
    let message = format!("{used} of {all} port numbers from {} to {} are used", range.first, range.last);
    if (used as f64) < NEARLY_FULL * all as f64 {
        return Finding::good(PORTS, message);
    }
    let edit = format!("kubectl -n {system} edit configmap {}", config::PORTS);
    let remedy = format!("widen `range` and the NetworkPolicies: {edit}");
    Finding::wrong(PORTS, message, remedy)
}

/// Checks that every client can reach activators at the shared HTTP port and at both ends of the range.
fn access(policies: &[NetworkPolicy], range: PortRange, system: &str) -> Finding {
    let PortRange { first, last } = range;
    // Policies of single workloads admit only their clients.
    let general = policies.iter().filter(|policy| !policy.labels().contains_key(GUARDS));
    let ours: Vec<&NetworkPolicy> = general.filter(|policy| restricts_activators(policy)).collect();
    if ours.is_empty() {
        return Finding::good(POLICIES, "no NetworkPolicy restricts the clients of the activators");
    }
    let rules: Vec<_> = ours
        .iter()
        .filter_map(|policy| policy.spec.as_ref())
        .flat_map(|spec| spec.ingress.iter().flatten())
        .filter(|rule| rule.from.as_ref().is_none_or(Vec::is_empty))
        .collect();
    let admits = |port: &NetworkPolicyPort, number: u16| match (&port.port, port.end_port) {
        (None, _) => true,
        (Some(IntOrString::Int(begin)), end) => (*begin..=end.unwrap_or(*begin)).contains(&i32::from(number)),
        (Some(IntOrString::String(_)), _) => false,
    };
    let open = |number: u16| {
        let mut ports = rules.iter().map(|rule| rule.ports.as_deref().unwrap_or_default());
        ports.any(|ports| ports.is_empty() || ports.iter().any(|port| admits(port, number)))
    };
    let ports = [ACTIVATOR_HTTP1_PORT, first, last].into_iter();
    let closed: Vec<String> = ports.filter(|n| !open(*n)).map(|n| n.to_string()).collect();
    let names: Vec<String> = ours.iter().map(|policy| policy.name_any()).collect();
    if closed.is_empty() {
        return Finding::good(POLICIES, format!("{} admit all clients to the activators", first_names(&names)));
    }
    let (names, closed) = (first_names(&names), closed.join(", "));
    let remedy = format!(
        "unless only some clients should be admitted: add a rule for TCP {ACTIVATOR_HTTP1_PORT} and {first} to {last} \
         in namespace {system}"
    );
    Finding::wrong(POLICIES, format!("{names} do not admit all clients to the activators' ports {closed}"), remedy)
}

/// Reports whether a policy restricts ingress of activators. Match expressions are assumed to match.
fn restricts_activators(policy: &NetworkPolicy) -> bool {
    let Some(spec) = &policy.spec else { return false };
    let ingress = spec.policy_types.as_ref().is_none_or(|types| types.iter().any(|kind| kind == "Ingress"));
    let wanted = spec.pod_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
    ingress && wanted.into_iter().flatten().all(|(name, value)| name == "app" && value == "activator")
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    #[test]
    fn a_range_that_is_nearly_used_up_is_a_problem() {
        let lines = |name: &str, numbers: std::ops::Range<u16>, state: &str| -> ConfigMap {
            let line = |number: u16| (number.to_string(), format!("{state} default/web u 80"));
            let data: BTreeMap<String, String> = numbers.map(line).collect();
            serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).expect("a ConfigMap")
        };
        let map = |name: &str, numbers| lines(name, numbers, "held");
        let rows = [
            (vec![], CheckResult::Good, "0 of 10"),
            (vec![lines("ports.20000", 20_000..20_010, "released:1")], CheckResult::Good, "0 of 10"),
            (vec![map("ports.20000", 20_000..20_008), map("config-x", 0..20)], CheckResult::Good, "8 of 10"),
            (vec![map("ports.20000", 20_000..20_009)], CheckResult::Wrong, "9 of 10"),
            (vec![map("ports.30000", 30_000..30_100)], CheckResult::Good, "0 of 10"), // From a former range.
            (vec![map("ports.20001", 20_000..20_009)], CheckResult::Good, "0 of 10"), // No block starts here.
        ];
        let range = PortRange { first: 20_000, last: 20_009 };
        for (maps, expected, message) in rows {
            let finding = usage(&maps, range, "zs");
            assert!(finding.result == expected && finding.message.starts_with(message), "{finding:?}");
        }
    }

    #[test]
    fn policies_must_admit_all_clients_to_the_range() {
        let policy = |name: &str, labels: Value, ingress: Value| -> NetworkPolicy {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": ingress}})).expect("a policy")
        };
        let ports = |end: i32| json!([{"ports": [{"port": 8012}, {"port": 20000, "endPort": end}]}]);
        let ours = |end: i32| policy("activator", json!({"app": "activator"}), ports(end));
        let closed = policy("deny", json!({}), json!([]));
        let other = policy("other", json!({"app": "web"}), json!([]));
        let some_only = policy("some", json!({"app": "activator"}), json!([{"from": [{"podSelector": {}}]}]));
        let rows = [
            (vec![], CheckResult::Good),
            (vec![other], CheckResult::Good),
            (vec![ours(29_999)], CheckResult::Good),
            (vec![ours(29_999), closed.clone()], CheckResult::Good), // Policies are additive.
            (vec![closed], CheckResult::Wrong),
            (vec![ours(25_000)], CheckResult::Wrong),
            (vec![some_only], CheckResult::Wrong),
        ];
        for (policies, expected) in rows {
            let names: Vec<String> = policies.iter().map(ResourceExt::name_any).collect();
            assert_eq!(access(&policies, PortRange::default(), "zs").result, expected, "{names:?}");
        }
    }
}
