//! Check of workloads: not Ready, crashing pods, unserved metrics, HorizontalPodAutoscalers with the same target, and
//! adopted Services whose ZeroScaler no longer exists.

use super::{CheckContext, Finding, first_names};
use common_api::ZeroScaler;
use common_api::zeroscaler::Fault;
use common_api::zeroscaler::conditions::{ACTIVE, Condition, READY};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use std::collections::BTreeSet;

const WORKLOADS: &str = "workloads";
const METRICS: &str = "metrics";
const SERVICES: &str = "services";
/// Annotation of an adopted Service with the uid of the ZeroScaler that adopted it.
const ADOPTED_BY: &str = "zeroscale.dev/adopted-by";

/// Maximum number of workloads that are listed one by one.
const REPORTED_MAX: usize = 20;

/// Checks all workloads.
pub async fn check(context: &CheckContext<'_>) -> Result<Vec<Finding>, Finding> {
    // Without the right to list all namespaces, check the current one.
    let (scalers, namespace) = match context.cluster.list(None).await {
        Ok(scalers) => (scalers, None),
        Err(_) => {
            let namespace = context.cluster.namespace.as_str();
            let listed = context.cluster.list(Some(namespace)).await;
            (listed.map_err(|error| Finding::unknown(WORKLOADS, format!("{error:#}")))?, Some(namespace))
        }
    };
    let mut findings = [not_ready(&scalers), degraded(&scalers), faulty(&scalers)].concat();
    findings.extend(match context.cluster.client.list_api_groups().await {
        Ok(groups) => unserved(&scalers, &groups.groups.iter().map(|group| group.name.clone()).collect()),
        Err(error) => vec![Finding::denied(METRICS, "the API's groups", &error)],
    });
    let autoscalers = context.list::<HorizontalPodAutoscaler>(WORKLOADS, namespace).await;
    findings.extend(autoscalers.map_or_else(|end| vec![end], |all| conflicting_autoscalers(&scalers, &all)));
    let services = context.list::<Service>(SERVICES, namespace).await;
    findings.extend(services.map_or_else(|end| vec![end], |all| orphaned_services(&scalers, &all)));
    Ok(findings)
}

fn name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Finds workloads that are rejected or not served, with remedies.
fn not_ready(scalers: &[ZeroScaler]) -> Vec<Finding> {
    let wrong: Vec<(&ZeroScaler, &Condition)> = scalers
        .iter()
        .filter_map(|scaler| Some((scaler, scaler.condition(READY).filter(|ready| ready.status == "False")?)))
        .collect();
    if wrong.is_empty() {
        let paused = scalers.iter().filter(|scaler| scaler.spec.paused).count();
        let paused = if paused > 0 { format!(", {paused} paused") } else { String::new() };
        let message = format!("all workloads are Ready or starting ({} in total{paused})", scalers.len());
        return vec![Finding::good(WORKLOADS, message)];
    }
    // Faults are reported separately, with their own remedy.
    let is_faulty = |scaler: &ZeroScaler| scaler.status.as_ref().is_some_and(|status| status.fault.is_some());
    condition_findings(&wrong.into_iter().filter(|(scaler, _)| !is_faulty(scaler)).collect::<Vec<_>>(), "is not Ready")
}

/// Finds workloads whose condition Ready is not False, but another condition is, except Active.
fn degraded(scalers: &[ZeroScaler]) -> Vec<Finding> {
    let is_false = |condition: &&Condition| condition.status == "False";
    let wrong = |scaler| -> Option<(&ZeroScaler, &Condition)> {
        let scaler: &ZeroScaler = scaler;
        if scaler.condition(READY).as_ref().is_some_and(is_false) {
            return None; // Already reported.
        }
        let mut conditions = scaler.status.iter().flat_map(|status| &status.conditions);
        Some((scaler, conditions.find(|condition| condition.type_ != ACTIVE && is_false(condition))?))
    };
    condition_findings(&scalers.iter().filter_map(wrong).collect::<Vec<_>>(), "is not served as configured")
}

/// Reports conditions with remedies.
fn condition_findings(wrong: &[(&ZeroScaler, &Condition)], what: &str) -> Vec<Finding> {
    limited_findings(wrong, |scaler, condition| {
        let cause = if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
        let type_ = if condition.type_ == READY { String::new() } else { format!("{}: ", condition.type_) };
        let message = format!("{} {what}: {type_}{}{cause}", name(scaler), condition.reason);
        Finding::wrong(WORKLOADS, message, reason_remedy(scaler, &condition.reason))
    })
}

/// Reports workloads one by one up to a limit, and the rest in one finding.
fn limited_findings<T>(workloads: &[(&ZeroScaler, &T)], finding: impl Fn(&ZeroScaler, &T) -> Finding) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        workloads.iter().take(REPORTED_MAX).map(|&(scaler, problem)| finding(scaler, problem)).collect();
    let more: Vec<String> = workloads.iter().skip(REPORTED_MAX).map(|&(scaler, _)| name(scaler)).collect();
    if !more.is_empty() {
        let list = "kubectl get zeroscalers -A -o wide lists all with their reasons";
        findings.push(Finding::wrong(WORKLOADS, format!("{} more: {}", more.len(), first_names(&more)), list));
    }
    findings
}

/// Returns the remedy for the reason of a condition.
fn reason_remedy(scaler: &ZeroScaler, reason: &str) -> String {
    let (namespace, own) = (scaler.namespace().unwrap_or_default(), scaler.name_any());
    let (target, edit) = (&scaler.spec.target, format!("kubectl -n {namespace} edit zs {own}"));
    let kind = target.kind.to_lowercase();
    match reason {
        "TargetNotFound" => format!("create {} {}, or correct spec.target: {edit}", target.kind, target.name),
        "TargetUnreadable" => {
            format!("grant the autoscaler list and watch on {}, and patch on its scale subresource", target.kind)
        }
        "TargetTaken" => {
            format!("delete one of the ZeroScalers of {kind}/{}: kubectl -n {namespace} get zs", target.name)
        }
        "HorizontalPodAutoscaler" => {
            format!(
                "move its metrics to spec.metrics and delete it: kubectl -n {namespace} get hpa; kubectl zeroscale import"
            )
        }
        "ServiceNotFound" => format!("name a Service that exists, or set `create: true`: {edit}"),
        "ServiceNotOwned" => format!("name a Service with a cluster IP that no other controller manages: {edit}"),
        "HostConflict" | "HostRefused" => {
            format!("remove the host from spec.hosts of this ZeroScaler or of its other owner: {edit}")
        }
        "RangeExhausted" => "widen `range`, or `guarded`, of the ConfigMap config-ports".to_owned(),
        "FallbackNotFound" | "FallbackUnfit" | "FallbackCircle" => format!("correct spec.wake.fallback: {edit}"),
        "FailedUpdateScale" | "FailedCreate" => {
            format!(
                "remove the obstacle named in the message (a missing permission, a quota or a webhook): \
                 kubectl -n {namespace} get resourcequota,events"
            )
        }
        "TimedOut" => format!(
            "inspect its pods: kubectl -n {namespace} describe {kind} {0}; kubectl -n {namespace} logs {kind}/{0}",
            target.name
        ),
        "Invalid" => format!("correct the named field: {edit}"),
        _ => format!("kubectl -n {namespace} describe zs {own}"),
    }
}

/// Finds workloads whose pods cannot serve, with remedies.
fn faulty(scalers: &[ZeroScaler]) -> Vec<Finding> {
    let faults: Vec<(&ZeroScaler, &Fault)> =
        scalers.iter().filter_map(|scaler| Some((scaler, scaler.status.as_ref()?.fault.as_ref()?))).collect();
    limited_findings(&faults, |scaler, fault| {
        let message = format!("{} cannot serve: {}: {}", name(scaler), fault.reason, fault.message);
        Finding::wrong(WORKLOADS, message, fault.remedy.clone())
    })
}

/// Finds metrics API groups that workloads need, and reports which are not served.
fn unserved(scalers: &[ZeroScaler], served: &BTreeSet<String>) -> Vec<Finding> {
    let group = |kind: &str| match kind {
        "Resource" | "ContainerResource" => "metrics.k8s.io",
        "External" => "external.metrics.k8s.io",
        _ => "custom.metrics.k8s.io",
    };
    let needed: BTreeSet<&str> =
        scalers.iter().flat_map(|scaler| scaler.spec.metrics.iter().map(|metric| group(&metric.type_))).collect();
    let (there, missing): (Vec<&str>, Vec<&str>) = needed.into_iter().partition(|group| served.contains(*group));
    let mut findings: Vec<Finding> = Vec::new();
    if !there.is_empty() {
        findings.push(Finding::good(METRICS, format!("{} is served", there.join(", "))));
    }
    findings.extend(missing.into_iter().map(|missing| {
        let dependents: Vec<String> = scalers
            .iter()
            .filter(|scaler| scaler.spec.metrics.iter().any(|metric| group(&metric.type_) == missing))
            .map(name)
            .collect();
        let remedy = match missing {
            "metrics.k8s.io" => "install metrics-server",
            _ => "install an adapter that serves it, such as prometheus-adapter, and apply deploy/kubernetes/custom-metrics",
        };
        let message = format!("{missing} is not served, but required by {}", first_names(&dependents));
        Finding::wrong(METRICS, message, remedy)
    }));
    findings
}

/// Finds HorizontalPodAutoscalers with the same targets.
fn conflicting_autoscalers(scalers: &[ZeroScaler], autoscalers: &[HorizontalPodAutoscaler]) -> Vec<Finding> {
    let targets: BTreeSet<(String, &str, &str)> = scalers
        .iter()
        .map(|scaler| {
            let target = &scaler.spec.target;
            (scaler.namespace().unwrap_or_default(), target.kind.as_str(), target.name.as_str())
        })
        .collect();
    let clashes: Vec<String> = autoscalers
        .iter()
        .filter(|autoscaler| {
            let target = &autoscaler.spec.scale_target_ref;
            targets.contains(&(autoscaler.namespace().unwrap_or_default(), target.kind.as_str(), target.name.as_str()))
        })
        .map(name)
        .collect();
    if clashes.is_empty() {
        return Vec::new();
    }
    let message = format!("HorizontalPodAutoscalers scale the same targets as ZeroScalers: {}", first_names(&clashes));
    let remedy = "move their metrics to spec.metrics of the ZeroScaler (kubectl zeroscale import translates them), and \
                  delete them";
    vec![Finding::wrong(WORKLOADS, message, remedy)]
}

/// Finds adopted Services whose ZeroScaler no longer exists.
fn orphaned_services(scalers: &[ZeroScaler], services: &[Service]) -> Vec<Finding> {
    let known: BTreeSet<String> = scalers.iter().filter_map(ResourceExt::uid).collect();
    let is_orphaned =
        |service: &&Service| service.annotations().get(ADOPTED_BY).is_some_and(|uid| !known.contains(uid));
    let orphaned: Vec<&Service> = services.iter().filter(is_orphaned).collect();
    if orphaned.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = orphaned.iter().map(|service| name(*service)).collect();
    let names = first_names(&names);
    let message = format!("the ZeroScalers that adopted these Services no longer exist: {names}");
    let namespaces: BTreeSet<String> = orphaned.iter().filter_map(|service| service.namespace()).collect();
    let release = |namespace: &String| format!("kubectl zeroscale release --namespace {namespace}");
    let remedy = namespaces.iter().map(release).collect::<Vec<_>>().join("; ");
    vec![Finding::wrong(SERVICES, message, remedy)]
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;
    use serde_json::{Value, json};

    fn scaler(name: &str, spec: Value, status: Value) -> ZeroScaler {
        let mut all = json!({"target": {"name": name}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            all[field] = value.clone();
        }
        let object = json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")}, "spec": all, "status": status});
        serde_json::from_value(object).expect("a ZeroScaler")
    }

    #[test]
    fn workloads_that_are_not_ready_are_reported_with_reasons() {
        let status = |is: &str| json!({"conditions": [{"type": "Ready", "status": is, "reason": "TargetNotFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let good = scaler("a", json!({"paused": true}), status("True"));
        let message = "all workloads are Ready or starting (1 in total, 1 paused)";
        assert_eq!(not_ready(std::slice::from_ref(&good))[0].message, message);
        let found = not_ready(&[good, scaler("b", json!({}), status("False"))]);
        assert_eq!(found[0].message, "shop/b is not Ready: TargetNotFound");
        let remedy = "create Deployment b, or correct spec.target: kubectl -n shop edit zs b";
        assert_eq!((found.len(), found[0].remedy.as_str()), (1, remedy));
        let many: Vec<ZeroScaler> = (0..22).map(|n| scaler(&format!("w{n}"), json!({}), status("False"))).collect();
        let found = not_ready(&many);
        assert_eq!((found.len(), found[20].message.as_str()), (21, "2 more: shop/w20, shop/w21"));
    }

    #[test]
    fn degraded_workloads_are_reported() {
        let condition = |type_: &str, is: &str| json!({"type": type_, "status": is, "reason": "FallbackCircle", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let with = |conditions: &[Value]| scaler("a", json!({}), json!({"conditions": conditions}));
        let good =
            with(&[condition("Active", "False"), condition("Ready", "True"), condition("AnswersResolved", "True")]);
        let refused = with(&[condition("Ready", "False"), condition("Adopted", "False")]);
        assert_eq!((degraded(std::slice::from_ref(&good)), degraded(&[refused])), (vec![], vec![]));
        let found = degraded(&[good, with(&[condition("Ready", "True"), condition("AnswersResolved", "False")])]);
        assert_eq!(found[0].message, "shop/a is not served as configured: AnswersResolved: FallbackCircle");
        assert!(found[0].remedy.contains("spec.wake"), "{found:?}");
    }

    #[test]
    fn faults_are_reported_with_remedies() {
        let fault =
            json!({"reason": "CrashLoop", "message": "it ends", "remedy": "mend it", "since": "2026-01-01T00:00:00Z"});
        let bad = |name: &str| scaler(name, json!({}), json!({"fault": fault}));
        let [found] = &faulty(&[scaler("a", json!({}), json!({})), bad("b")])[..] else { panic!("one is named") };
        let text = (found.message.as_str(), found.remedy.as_str());
        assert_eq!(text, ("shop/b cannot serve: CrashLoop: it ends", "mend it"));
        let found = faulty(&(0..22).map(|n| bad(&format!("w{n}"))).collect::<Vec<_>>());
        assert_eq!((found.len(), found[20].message.as_str()), (21, "2 more: shop/w20, shop/w21"));
    }

    #[test]
    fn unserved_metrics_are_reported_by_group() {
        let with = |name: &str, metric: Value| scaler(name, json!({"metrics": [metric]}), json!({}));
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}});
        let queue = json!({"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value"}}});
        let served = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(unserved(&[], &served(&[])), []);
        let found = unserved(&[with("a", cpu), with("b", queue)], &served(&["metrics.k8s.io"]));
        let results: Vec<_> = found.iter().map(|finding| finding.result).collect();
        assert_eq!(results, [CheckResult::Good, CheckResult::Wrong]);
        assert_eq!(found[1].message, "external.metrics.k8s.io is not served, but required by shop/b");
    }

    #[test]
    fn conflicting_hpas_and_orphaned_services_are_found() {
        let scalers = [scaler("a", json!({}), json!({}))];
        let autoscaler = |target: &str| -> HorizontalPodAutoscaler {
            serde_json::from_value(json!({"metadata": {"name": "h", "namespace": "shop"}, "spec": {"maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}}}))
            .expect("a HorizontalPodAutoscaler")
        };
        assert_eq!(conflicting_autoscalers(&scalers, &[autoscaler("other")]), []);
        assert!(conflicting_autoscalers(&scalers, &[autoscaler("a")])[0].message.ends_with("shop/h"));
        let service = |namespace: &str, by: &str| -> Service {
            serde_json::from_value(
                json!({"metadata": {"name": "s", "namespace": namespace, "annotations": {ADOPTED_BY: by}}}),
            )
            .expect("a Service")
        };
        assert_eq!(orphaned_services(&scalers, &[service("shop", "uid-a")]), []);
        let orphaned = [service("shop", "uid-gone"), service("bank", "uid-gone"), service("shop", "uid-other")];
        let found = orphaned_services(&scalers, &orphaned);
        assert!(found[0].message.ends_with("exist: shop/s, bank/s, shop/s"), "{found:?}");
        let remedy = "kubectl zeroscale release --namespace bank; kubectl zeroscale release --namespace shop";
        assert_eq!((found.len(), found[0].remedy.as_str()), (1, remedy));
    }
}
