//! Tasks of the chart's hooks, run in a pod of the autoscaler's image: verify an install, and end it.
//!
//! To end an install, the autoscalers are stopped first, so that none adopts released workloads again
//! ([`crate::release`]).

use crate::release::{Scope, release};
use anyhow::{Context, Result, ensure};
use common_api::ZeroScaler;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const AUTOSCALER: &str = "autoscaler";
/// Longest wait for the autoscalers to end.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// Time between two polls of the autoscalers' pods.
const LOOK: Duration = Duration::from_secs(1);

/// Scales the autoscalers of namespace `system` to zero, then releases the workloads of `namespaces`, or all if it is
/// empty.
///
/// # Errors
/// An autoscaler does not end, or something could not be released.
pub async fn end(client: &Client, system: &str, namespaces: &[String], mut report: impl FnMut(String)) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), system);
    let to_zero = Patch::Merge(json!({"spec": {"replicas": 0}}));
    match deployments.patch_scale(AUTOSCALER, &PatchParams::default(), &to_zero).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        scaled => drop(scaled.with_context(|| format!("Deployment {system}/{AUTOSCALER} cannot be scaled to zero"))?),
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), system);
    let own = ListParams::default().labels("app=autoscaler");
    let until = Instant::now() + ENDS_WITHIN;
    while !pods.list(&own).await.context("pods cannot be listed")?.items.is_empty() {
        ensure!(
            Instant::now() < until,
            "pods of Deployment {system}/{AUTOSCALER} still exist after {ENDS_WITHIN:?}: see `kubectl -n {system} get pods`"
        );
        sleep(LOOK).await;
    }
    report(format!("the autoscalers of namespace {system} have ended"));
    if namespaces.is_empty() {
        return release(client, &Scope::All, report).await;
    }
    for namespace in namespaces {
        release(client, &Scope::Namespace(namespace.clone()), &mut report).await?;
    }
    Ok(())
}

/// Checks that the planes of namespace `system` are ready, that ZeroScalers are served, and that an autoscaler decides.
///
/// # Errors
/// The first check that fails.
pub async fn verify(client: &Client, system: &str, namespaces: &[String]) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), system);
    let found = deployments.list(&ListParams::default()).await.context("Deployments cannot be listed")?;
    for name in ["activator", AUTOSCALER] {
        let deployment = found.items.iter().find(|deployment| deployment.name_any() == name);
        let status = deployment.with_context(|| format!("Deployment {system}/{name} does not exist"))?.status.as_ref();
        let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
        ensure!(ready > 0, "Deployment {system}/{name} has no ready pod: see `kubectl -n {system} describe pods`");
    }
    let scalers: Api<ZeroScaler> = match namespaces.first() {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    scalers.list(&ListParams::default().limit(1)).await.context("ZeroScalers cannot be listed")?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), system);
    let now = Timestamp::now();
    let is_held = |lease: &Lease| {
        let Some(spec) = &lease.spec else { return false };
        let seconds = i64::from(spec.lease_duration_seconds.unwrap_or(0));
        spec.renew_time.as_ref().is_some_and(|at| now.duration_since(at.0).as_secs() < seconds)
    };
    let leases = leases.list(&ListParams::default()).await.context("Leases cannot be listed")?;
    let decides = leases.items.iter().any(|lease| lease.name_any().starts_with("autoscaler-bucket-") && is_held(lease));
    ensure!(
        decides,
        "no autoscaler holds a Lease autoscaler-bucket-… of namespace {system}: see `kubectl -n {system} logs deployment/{AUTOSCALER}`"
    );
    Ok(())
}
