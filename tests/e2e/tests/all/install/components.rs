//! Optional components besides `base`: permissions for other metrics, OpenShift's, and the controller of
//! HorizontalPodAutoscalers.

use crate::install::manifests::apply_all;
use crate::install::rights::{Record, ensure_all_used, rights};
use crate::install::site::{HPA, SYSTEM, Site};
use anyhow::ensure;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longest wait for periodic events: a lease is renewed every 10 s, metrics are read every 15 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reports whether the API server would permit `verb` on a resource, given as `GROUP/RESOURCE[/PART]`.
async fn is_allowed(client: &Client, account: &str, verb: &str, what: &str) -> anyhow::Result<bool> {
    let mut parts = what.split('/');
    let mut part = || parts.next().unwrap_or_default();
    let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
        "user": format!("system:serviceaccount:{SYSTEM}:{account}"),
        "resourceAttributes": {
            "verb": verb, "group": part(), "resource": part(), "subresource": part(), "namespace": "default",
        },
    }}))?;
    let reviewed = Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}

/// Goal: each kustomization grants its permissions to the accounts that need them and to no others.
#[tokio::test]
async fn each_component_grants_its_permissions() -> anyhow::Result<()> {
    let rows = [
        ("custom-metrics", "autoscaler", "get", "custom.metrics.k8s.io/pods/queue_length", true),
        ("custom-metrics", "autoscaler", "list", "external.metrics.k8s.io/queue_length", true),
        ("custom-metrics", "autoscaler-hpa", "get", "custom.metrics.k8s.io/services/queue_length", true),
        ("custom-metrics", "autoscaler-hpa", "list", "external.metrics.k8s.io/queue_length", true),
        ("custom-metrics", "activator", "get", "custom.metrics.k8s.io/pods/queue_length", false),
        ("argo-rollouts", "autoscaler", "watch", "argoproj.io/rollouts", true),
        ("argo-rollouts", "autoscaler", "patch", "argoproj.io/rollouts/scale", true),
        ("argo-rollouts", "activator", "watch", "argoproj.io/rollouts", false),
        ("openshift", "autoscaler", "update", "zeroscale.dev/zeroscalers/finalizers", true),
        ("openshift", "autoscaler", "create", "discovery.k8s.io/endpointslices/restricted", true),
        ("openshift", "activator", "create", "discovery.k8s.io/endpointslices/restricted", false),
    ];
    let site = Site::install().await?;
    for (_, account, verb, what, _) in rows {
        ensure!(!is_allowed(&site.client, account, verb, what).await?, "base allows {account} to {verb} {what}");
    }
    for kustomization in ["custom-metrics", "argo-rollouts", "openshift"] {
        apply_all(&site.client, kustomization).await?;
    }
    for (kustomization, account, verb, what, expected) in rows {
        let allowed = is_allowed(&site.client, account, verb, what).await?;
        ensure!(allowed == expected, "{kustomization}: {account}: {verb} {what}: {allowed}");
    }
    Ok(())
}

/// Goal: the controller's roles are exactly sufficient. Method: it scales an object with its account's permissions,
/// renews its lease, and meets a conflicting write to it.
#[tokio::test(flavor = "multi_thread")]
async fn the_roles_of_autoscaler_hpa_are_exactly_sufficient() -> anyhow::Result<()> {
    let record = Record::default();
    let site = Site::audited(Some(record.audit())).await?;
    let controller = site.start(HPA, site.address()?, false).await?;
    let leases: Api<Lease> = Api::namespaced(site.client.clone(), SYSTEM);
    let deadline = Instant::now() + PATIENCE;
    let mut turn = 0;
    loop {
        let requested = |verb, resource| record.has_request("autoscaler-hpa", verb, resource);
        let done = [
            ("scaled", controller.works(&site).await?),
            ("measured", record.any(|_, access, _| access.group == "metrics.k8s.io")),
            ("read its lease", requested("get", "leases")),
            ("reported an event", requested("create", "events")),
        ];
        if done.iter().all(|(_, done)| *done) {
            break;
        }
        ensure!(Instant::now() < deadline, "not everything was done: {done:?} {:#?}", controller.log.with(&[]));
        if requested("get", "leases") {
            sleep(Duration::from_millis(20)).await;
            continue;
        }
        // Frequent enough that the holder's version is outdated when it renews, but not for longer, or it would lose
        // the lease.
        for lease in leases.list(&ListParams::default()).await? {
            let patches = (0..16).map(|_| {
                turn += 1;
                let patch = json!({"metadata": {"annotations": {"test/turn": turn.to_string()}}});
                let (leases, name) = (leases.clone(), lease.name_any());
                async move { leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await }
            });
            futures::future::try_join_all(patches).await?;
        }
    }
    controller.process.terminate().await?;
    ensure!(record.denied().is_empty(), "missing rights: {:#?}", record.denied());
    ensure_all_used(&record, rights("native")?)
}
