//! Check of the installation: the ZeroScaler definition, the planes' Deployments and the dashboard.

use super::{AS_INSTALLED, CheckContext, Finding, first_names};
use crate::forward::is_ready;
use crate::text::count;
use common_api::zeroscaler::crd::{all_fields, crd};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::collections::BTreeSet;

const DEFINITION: &str = "definition";
const PLANES: &str = "planes";
const DASHBOARD: &str = "dashboard";
/// Deployments of the planes.
const NAMES: [&str; 2] = ["autoscaler", "activator"];
/// Advice if a plane is missing.
const INSTALL: &str =
    "select its namespace with --system-namespace, or install it as described in deploy/kubernetes/README.md";
/// Command that applies the definition.
const APPLY: &str = "kubectl apply --server-side -k deploy/kubernetes/crds";

/// Checks the definition, the planes and the dashboard.
pub async fn check(context: &CheckContext<'_>) -> Result<Vec<Finding>, Finding> {
    let mut findings = vec![definition(context).await];
    findings.extend(planes(context).await);
    findings.push(dashboard(context).await);
    Ok(findings)
}

async fn definition(context: &CheckContext<'_>) -> Finding {
    let ours = crd();
    let name = ours.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(context.cluster.client.clone());
    match api.get_opt(&name).await {
        Err(error) => Finding::denied(DEFINITION, &format!("definition {name}"), &error),
        Ok(None) => Finding::wrong(DEFINITION, format!("{name} is not installed"), APPLY),
        Ok(Some(installed)) => compare(&ours, &installed),
    }
}

/// Compares the fields of the installed definition with those of this program.
fn compare(ours: &CustomResourceDefinition, installed: &CustomResourceDefinition) -> Finding {
    let name = ours.name_any();
    let (ours, theirs) = (fields(ours), fields(installed));
    let lacking: Vec<String> = ours.difference(&theirs).cloned().collect();
    let more: Vec<String> = theirs.difference(&ours).cloned().collect();
    match (&lacking[..], &more[..]) {
        ([], []) => Finding::good(DEFINITION, format!("{name} has the fields that this program knows")),
        ([], more) => {
            Finding::note(DEFINITION, format!("{name} is newer than this program: it also has {}", first_names(more)))
        }
        (lacking, _) => {
            let message = format!("{name} is older than this program: it lacks {}", first_names(lacking));
            Finding::wrong(DEFINITION, message, APPLY)
        }
    }
}

/// Returns the paths of all fields in the served version `v1alpha1`.
fn fields(definition: &CustomResourceDefinition) -> BTreeSet<String> {
    let served = definition.spec.versions.iter().find(|version| version.name == "v1alpha1" && version.served);
    let root = served.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    root.into_iter().flat_map(|root| all_fields(root, "")).map(|(path, _)| path).collect()
}

async fn planes(context: &CheckContext<'_>) -> Vec<Finding> {
    if context.cluster.dashboard.is_some() {
        return vec![Finding::good(PLANES, "the planes run in the process of `local`")];
    }
    let deployments: Api<Deployment> = Api::namespaced(context.cluster.client.clone(), context.system);
    let pods: Api<Pod> = Api::namespaced(context.cluster.client.clone(), context.system);
    let mut findings = Vec::new();
    let mut images = Vec::new();
    for name in NAMES {
        let deployment = match deployments.get_opt(name).await {
            Err(error) => {
                findings.push(Finding::denied(PLANES, &format!("Deployment {name} of {}", context.system), &error));
                continue;
            }
            Ok(None) => {
                let message = format!("there is no Deployment {name} in namespace {}", context.system);
                findings.push(Finding::wrong(PLANES, message, INSTALL));
                continue;
            }
            Ok(Some(deployment)) => deployment,
        };
        let listed = pods.list(&ListParams::default().labels(&format!("app={name}"))).await;
        let listed = listed.map(|list| list.items).unwrap_or_default();
        images.extend(image(&deployment).map(|image| (name, image)));
        findings.push(readiness(name, context.system, &deployment, &listed));
    }
    findings.extend(versions(&images, env!("CARGO_PKG_VERSION")));
    findings
}

/// Compares ready with desired pods of a plane, and names the reasons of those that are not ready.
fn readiness(name: &str, system: &str, deployment: &Deployment, pods: &[Pod]) -> Finding {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let (ready, updated) = (status.ready_replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0));
    if wanted == 0 {
        let remedy = format!("kubectl -n {system} scale deployment {name} --replicas 2");
        return Finding::wrong(PLANES, format!("{name} is scaled to zero"), remedy);
    }
    let message = format!("{name}: {ready} of {wanted} pods are ready");
    if ready < wanted {
        let why: Vec<String> = pods.iter().filter(|pod| !is_ready(pod)).map(unready_reason).collect();
        let why = if why.is_empty() { String::new() } else { format!(": {}", first_names(&why)) };
        let remedy =
            format!("kubectl -n {system} describe pods -l app={name}; kubectl -n {system} logs deployment/{name}");
        return Finding::wrong(PLANES, message + &why, remedy);
    }
    if updated < wanted {
        return Finding::note(PLANES, format!("{message}, {updated} have the newest version"));
    }
    Finding::good(PLANES, message)
}

/// Returns the name of a pod that is not ready, and the reason.
fn unready_reason(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status.container_statuses.iter().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        waiting.reason.clone()
    });
    let reason = waiting.or(status.reason).or(status.phase).unwrap_or_else(|| "not ready".to_owned());
    format!("{} {reason}", pod.name_any())
}

fn image(deployment: &Deployment) -> Option<String> {
    deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone()
}

/// Checks that both planes have the same version as this program. The version is the image's tag.
fn versions(images: &[(&str, String)], ours: &str) -> Vec<Finding> {
    let tag = |image: &str| {
        let name = image.split_once('@').map_or(image, |(name, _)| name);
        name.rsplit('/').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag.to_owned())
    };
    let tags: Vec<(&str, String)> = images.iter().filter_map(|(name, image)| Some((*name, tag(image)?))).collect();
    let list = || tags.iter().map(|(name, tag)| format!("{name} {tag}")).collect::<Vec<_>>().join(", ");
    let differ = tags.iter().any(|(_, tag)| *tag != tags[0].1);
    match tags.first() {
        None => Vec::new(),
        Some(_) if differ => {
            let message = format!("the planes have different versions: {}", list());
            vec![Finding::wrong(PLANES, message, format!("finish the upgrade {AS_INSTALLED}"))]
        }
        Some((_, tag)) if tag.trim_start_matches('v') != ours => {
            vec![Finding::note(PLANES, format!("the planes have version {tag}, this program has version {ours}"))]
        }
        Some(_) => vec![Finding::good(PLANES, format!("the planes and this program have version {ours}"))],
    }
}

async fn dashboard(context: &CheckContext<'_>) -> Finding {
    let cluster = Ok(context.cluster.clone());
    let listing = match async { context.named.dashboard(&cluster).await?.list(None).await }.await {
        Ok(listing) => listing,
        Err(error) => return Finding::unknown(DASHBOARD, format!("{error:#}")),
    };
    let silent = listing.replicas.iter().filter(|replica| !replica.answered);
    let silent: Vec<String> = silent.map(|replica| replica.name.clone()).collect();
    if silent.is_empty() {
        let (replicas, workloads) = (listing.replicas.len(), listing.workloads.len());
        let message =
            format!("{} of the autoscaler reported {}", count(replicas, "replica"), count(workloads, "workload"));
        return Finding::good(DASHBOARD, message);
    }
    let message = format!("these replicas of the autoscaler do not respond to the others: {}", first_names(&silent));
    Finding::wrong(DASHBOARD, message, format!("kubectl -n {} logs {}", context.system, silent[0]))
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;
    use serde_json::json;

    #[test]
    fn an_installed_definition_is_compared_field_by_field() {
        let ours = crd();
        assert_eq!(compare(&ours, &ours).result, CheckResult::Good);
        let mut older = ours.clone();
        let root =
            older.spec.versions[0].schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()).expect("a schema");
        let spec = root.properties.as_mut().and_then(|fields| fields.get_mut("spec")).expect("a spec");
        spec.properties.as_mut().expect("fields").remove("paused");
        let finding = compare(&ours, &older);
        assert_eq!(finding.result, CheckResult::Wrong);
        assert!(finding.message.ends_with("it lacks spec.paused"), "{finding:?}");
        assert_eq!(compare(&older, &ours).result, CheckResult::Note);
        older.spec.versions[0].served = false;
        assert!(compare(&ours, &older).message.contains("more"), "nothing of it is served");
    }

    #[test]
    fn pods_that_are_not_ready_are_named_with_their_reason() {
        let deployment = |replicas: i32, ready: i32| -> Deployment {
            serde_json::from_value(json!({"spec": {"replicas": replicas, "selector": {}, "template": {}},
                "status": {"readyReplicas": ready, "updatedReplicas": ready}}))
            .expect("a Deployment")
        };
        let container = json!({"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff"}}});
        let status = json!({"phase": "Pending", "containerStatuses": [container]});
        let pulling = serde_json::from_value(json!({"metadata": {"name": "activator-x"}, "status": status}));
        let pulling: Pod = pulling.expect("a Pod");
        let finding = readiness("activator", "zs", &deployment(2, 1), &[pulling]);
        assert_eq!(finding.message, "activator: 1 of 2 pods are ready: activator-x ImagePullBackOff");
        assert!(finding.remedy.contains("kubectl -n zs describe"));
        assert_eq!(readiness("activator", "zs", &deployment(2, 2), &[]).result, CheckResult::Good);
        assert_eq!(readiness("activator", "zs", &deployment(0, 0), &[]).result, CheckResult::Wrong);
    }

    #[test]
    fn versions_are_read_from_the_images_tags() {
        let of = |autoscaler: &str, activator: &str| {
            let images = [("autoscaler", autoscaler.to_owned()), ("activator", activator.to_owned())];
            versions(&images, "0.1.0").into_iter().map(|finding| finding.result).collect::<Vec<_>>()
        };
        assert_eq!(of("zeroscale/autoscaler:0.1.0", "host:5000/activator:0.1.0"), [CheckResult::Good]);
        assert_eq!(of("a:0.2.0", "b:0.1.0"), [CheckResult::Wrong]);
        assert_eq!(of("a:v0.2.0", "b:v0.2.0"), [CheckResult::Note]);
        assert_eq!(of("host:5000/a@sha256:0", "b"), []);
    }
}
