//! HorizontalPodAutoscalers against the server, with real pods.

use super::cluster::{Cluster, PATIENCE, container, deployment};
use common_api::{Mode, PodAutoscaler, ServerlessService};
use hpa::options::{ControllerOptions, HpaMode};
use hpa::run::{HpaOptions, run};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Goal: class HPA end to end, as with Knative: `autoscaler-hpa` creates both objects under its lease, the cluster's
/// controller evaluates them, and the PodAutoscaler's status has the result. At the end the lease is released.
#[tokio::test(flavor = "multi_thread")]
async fn class_hpa_is_delegated() {
    const LEASE: &str = "hpaautoscaler.knative.dev.serving.pkg.reconciler.autoscaling.hpa.reconciler.00-of-01";
    let cluster = Cluster::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    for definition in common_api::crds::shared() {
        definitions.create(&PostParams::default(), &definition).await.expect("defined");
    }
    let (stop, end) = (CancellationToken::new(), CancellationToken::new());
    let period = Duration::from_millis(200);
    let controller = tokio::spawn(local::controllers::run_horizontal(cluster.client.clone(), period, stop.clone()));
    let options = HpaOptions {
        mode: HpaMode::Delegate,
        system_namespace: "default".into(),
        identity: "host_uuid".into(),
        alone: false,
        workers: 2,
        controller: ControllerOptions::default(),
        probes: None,
        admin: None,
        process: Default::default(),
    };
    let process = tokio::spawn(run(options, cluster.client.clone(), end.clone()));
    cluster.until("the kind to be served", |_: &[PodAutoscaler]| true).await;
    cluster.create::<Deployment>(deployment(1, container("hello", json!({})))).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    let autoscaler = json!({
        "apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler",
        "metadata": {"name": "a", "annotations": {
            "autoscaling.knative.dev/class": "hpa.autoscaling.knative.dev",
            "autoscaling.knative.dev/min-scale": "2",
            "autoscaling.knative.dev/target": "70",
        }},
        "spec": {"scaleTargetRef": target, "protocolType": "http1"},
    });
    cluster.create::<PodAutoscaler>(autoscaler).await;
    cluster.until_pods_ready(2).await;
    let has_scales = |all: &[PodAutoscaler]| {
        let status = all.first().and_then(|autoscaler| autoscaler.status.as_ref());
        status.is_some_and(|status| {
            (status.desired_scale, status.actual_scale) == (Some(2), Some(2)) && status.is_active()
        })
    };
    cluster.until("a status with its scales", has_scales).await;
    let horizontals = cluster.list::<HorizontalPodAutoscaler>().await.items;
    let ObjectMeta { owner_references, .. } = &horizontals[0].metadata;
    let owner = owner_references.iter().flatten().next().expect("an owner");
    assert_eq!((owner.kind.as_str(), horizontals[0].spec.min_replicas), ("PodAutoscaler", Some(2)));
    let services = cluster.list::<ServerlessService>().await.items;
    assert_eq!(services[0].spec.mode, Some(Mode::Serve));

    let holder = |leases: &[Lease]| {
        let lease = leases.iter().find(|lease| lease.name_any() == LEASE)?;
        lease.spec.as_ref()?.holder_identity.clone()
    };
    assert_eq!(holder(&cluster.list::<Lease>().await.items).as_deref(), Some("host_uuid"));
    end.cancel();
    let ended = tokio::time::timeout(PATIENCE, process).await.expect("it stops");
    ended.expect("no panic").expect("no error");
    let left = holder(&cluster.list::<Lease>().await.items);
    assert_eq!(left.unwrap_or_default(), "", "the lease is released");
    stop.cancel();
    let ended = tokio::time::timeout(PATIENCE, controller).await.expect("it stops");
    ended.expect("no panic");
    cluster.stop().await;
}
