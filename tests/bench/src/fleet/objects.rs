//! Objects of one revision.
//!
//! The revision is not new: its PodAutoscaler and ServerlessService have the status that Knative's controllers and an
//! earlier autoscaler have written, so nothing is scaled merely because it was just created. The objects are not
//! owned by Revisions: none exist here, and objects whose owner does not exist are garbage-collected.

use common_runtime::environment::Mode;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Pods of a revision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionKind {
    /// One pod, which is scraped for its stats.
    Scraped,
    /// One replica, whose pod is not known yet.
    Unscraped,
    /// No pod.
    Asleep,
}

pub(crate) const NAMESPACE: &str = "fleet";

/// Time long ago.
const SINCE: &str = "2026-01-01T00:00:00Z";

/// Suffix of a revision's scale target.
pub(super) const TARGET: &str = "-deployment";

/// Returns the name of a revision's scale target.
pub(super) fn target(revision: &str) -> String {
    format!("{revision}{TARGET}")
}

/// Creates all objects of a revision. In standalone, these are a Deployment and a ZeroScaler, but no Service.
pub(super) async fn create(
    client: &Client,
    namespace: &str,
    mode: Mode,
    kind: RevisionKind,
    name: &str,
    pod: Ipv4Addr,
) -> anyhow::Result<()> {
    let replicas = if kind == RevisionKind::Asleep { 0 } else { 1 };
    if mode == Mode::Standalone {
        create_object(client, namespace, plain_deployment(name, replicas)).await?;
        create_object(client, namespace, plain_scaler(name)).await?;
        return Ok(());
    }
    create_object(client, namespace, deployment(name, replicas)).await?;
    if kind == RevisionKind::Scraped {
        create_object(client, namespace, running_pod(name, pod)).await?;
    }
    let uid = create_object(client, namespace, pod_autoscaler(name, replicas)).await?;
    create_object(client, namespace, serverless_service(name, &uid)).await?;
    Ok(())
}

/// Creates the sleeping Deployment of a standalone workload, and nothing else.
pub(super) async fn create_target(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    create_object(client, namespace, plain_deployment(name, 0)).await?;
    Ok(())
}

/// Creates the Service of a standalone workload unless it exists. The more Services exist, the longer a real API server
/// takes for each, so tens of thousands of them may have been created in advance.
pub(super) async fn create_service(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    if services.get_opt(name).await?.is_some() {
        return Ok(());
    }
    match create_object(client, namespace, plain_service(name)).await {
        Err(error) if is_conflict(&error) => Ok(()), // Created in the meantime.
        created => created.map(drop),
    }
}

fn is_conflict(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 409)
}

/// Creates an object with its status. Returns its uid.
async fn create_object(client: &Client, namespace: &str, object: Value) -> anyhow::Result<String> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let api = e2e::bare::api_of(client, Some(namespace), &object)?;
    let created = api.create(&PostParams::default(), &object).await?;
    if let Some(status) = object.data.get("status") {
        let status = json!({"status": status});
        api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    Ok(created.uid().unwrap_or_default())
}

fn labels(name: &str) -> Value {
    json!({
        "app": name,
        "serving.knative.dev/service": format!("service-of-{name}"),
        "serving.knative.dev/configuration": format!("service-of-{name}"),
        "serving.knative.dev/configurationGeneration": "1",
        "serving.knative.dev/configurationUID": "5f3c1c1e-6c0e-4a57-8d5b-0d6f4f4c0f6a",
        "serving.knative.dev/serviceUID": "6f3c1c1e-6c0e-4a57-8d5b-0d6f4f4c0f6b",
        "serving.knative.dev/revision": name,
        "serving.knative.dev/revisionUID": uid_of(name),
    })
}

fn uid_of(name: &str) -> String {
    format!("7f3c1c1e-6c0e-4a57-8d5b-0d6f4f{:0>6}", name.rsplit('-').next().unwrap_or_default())
}

fn annotations() -> Value {
    json!({
        "autoscaling.knative.dev/class": "kpa.autoscaling.knative.dev",
        "autoscaling.knative.dev/metric": "concurrency",
        "serving.knative.dev/creator": "system:serviceaccount:default:deployer",
        "serving.knative.dev/routes": "a-route",
        "serving.knative.dev/routingStateModified": SINCE,
    })
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str) -> Value {
    let status = if holds { "True" } else { "False" };
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": SINCE});
    if !reason.is_empty() {
        condition["reason"] = json!(reason);
        condition["message"] = json!(message);
    }
    condition
}

fn pod_autoscaler(name: &str, replicas: i32) -> Value {
    let awake = replicas > 0;
    let (reason, message) = if awake { ("", "") } else { ("NoTraffic", "The target is not receiving traffic.") };
    json!({
        "apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler",
        "metadata": {
            "name": name, "labels": labels(name), "annotations": annotations(),
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target(name)},
            "reachability": "Reachable", "protocolType": "http1",
        },
        "status": {
            "observedGeneration": 1, "serviceName": name, "metricsServiceName": format!("{name}-private"),
            "desiredScale": replicas, "actualScale": replicas,
            "conditions": [
                condition("Active", awake, reason, message),
                condition("Ready", awake, reason, message),
                condition("SKSReady", true, "", ""),
                condition("ScaleTargetInitialized", true, "", ""),
            ],
        },
    })
}

fn serverless_service(name: &str, owner_uid: &str) -> Value {
    let mut annotations = annotations();
    if let Some(map) = annotations.as_object_mut() {
        map.remove("autoscaling.knative.dev/metric");
    }
    json!({
        "apiVersion": "networking.internal.knative.dev/v1alpha1", "kind": "ServerlessService",
        "metadata": {
            "name": name, "labels": labels(name), "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler", "name": name,
                "uid": owner_uid, "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "mode": "Proxy", "numActivators": 3, "protocolType": "http1",
            "objectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target(name)},
        },
        "status": {
            "observedGeneration": 1, "serviceName": name, "privateServiceName": format!("{name}-private"),
            "conditions": [
                condition("ActivatorEndpointsPopulated", true, "", ""),
                condition("EndpointsPopulated", true, "", ""),
                condition("Ready", true, "", ""),
            ],
        },
    })
}

/// Returns the Deployment that Knative's controller creates: two containers, and all settings of a queue-proxy.
fn deployment(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": target(name), "labels": labels(name), "annotations": annotations(),
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"serving.knative.dev/revisionUID": uid_of(name)}},
            "template": {"metadata": {"labels": labels(name), "annotations": annotations()}, "spec": pod_spec(name)},
        },
    })
}

/// Settings of a queue-proxy that are the same for all revisions.
const ENV: &str = r#"
    CONTAINER_CONCURRENCY=0 QUEUE_SERVING_PORT=8012 QUEUE_SERVING_TLS_PORT=8112 USER_PORT=8080
    REVISION_TIMEOUT_SECONDS=300 REVISION_RESPONSE_START_TIMEOUT_SECONDS=0 REVISION_IDLE_TIMEOUT_SECONDS=0
    ENABLE_HTTP_FULL_DUPLEX=false ENABLE_HTTP2_AUTO_DETECTION=false ENABLE_MULTI_CONTAINER_PROBES=false
    SERVING_READINESS_PROBE={"tcpSocket":{"port":8080,"host":"127.0.0.1"},"successThreshold":1}
    SERVING_LOGGING_CONFIG= SERVING_LOGGING_LEVEL= SERVING_NAMESPACE=fleet SERVING_CONFIGURATION=service-of-it
    SERVING_SERVICE=service-of-it ROOT_CA=
    OBSERVABILITY_CONFIG={"metrics":{"metrics-protocol":"prometheus"},"tracing":{"tracing-protocol":"none"}}"#;

fn pod_spec(name: &str) -> Value {
    let variable = |(name, value): (&str, &str)| json!({"name": name, "value": value});
    let mut env: Vec<_> = ENV.split_whitespace().filter_map(|pair| pair.split_once('=')).map(variable).collect();
    env.extend([("SERVING_REVISION", name), ("SYSTEM_NAMESPACE", e2e::bare::SYSTEM)].map(variable));
    let from = |field: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": field}});
    let fields = [("SERVING_POD", "metadata.name"), ("SERVING_POD_IP", "status.podIP"), ("HOST_IP", "status.hostIP")];
    env.extend(fields.map(|(name, field)| json!({"name": name, "valueFrom": from(field)})));
    let restricted = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    json!({
        "containers": [
            {
                "name": "user-container", "image": "registry.example.com/app@sha256:0123456789abcdef",
                "ports": [{"name": "user-port", "containerPort": 8080, "protocol": "TCP"}],
                "env": [{"name": "PORT", "value": "8080"}, {"name": "K_REVISION", "value": name},
                        {"name": "K_CONFIGURATION", "value": "service-of-it"}, {"name": "K_SERVICE", "value": "service-of-it"}],
                "lifecycle": {"preStop": {"httpGet": {"path": "/wait-for-drain", "port": 8022, "scheme": "HTTP"}}},
                "terminationMessagePolicy": "FallbackToLogsOnError", "resources": {},
            },
            {
                "name": "queue-proxy", "image": "registry.example.com/queue@sha256:fedcba9876543210",
                "ports": [
                    {"name": "http-queueadm", "containerPort": 8022, "protocol": "TCP"},
                    {"name": "http-autometric", "containerPort": 9090, "protocol": "TCP"},
                    {"name": "http-usermetric", "containerPort": 9091, "protocol": "TCP"},
                    {"name": "queue-port", "containerPort": 8012, "protocol": "TCP"},
                    {"name": "https-port", "containerPort": 8112, "protocol": "TCP"},
                ],
                "env": env, "resources": {"requests": {"cpu": "25m"}}, "securityContext": restricted,
                "readinessProbe": {"httpGet": {"port": 8012, "scheme": "HTTP",
                                               "httpHeaders": [{"name": "K-Network-Probe", "value": "queue"}]}},
            },
        ],
        "enableServiceLinks": false, "terminationGracePeriodSeconds": 300,
    })
}

fn running_pod(name: &str, address: Ipv4Addr) -> Value {
    let address = address.to_string();
    let conditions =
        ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(|kind| condition(kind, true, "", ""));
    let container = |name: &str| {
        json!({
            "name": name, "ready": true, "started": true, "restartCount": 0, "image": "i", "imageID": "i",
            "state": {"running": {"startedAt": SINCE}},
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{name}-deployment-5c6d7f8b9-x2x4z"), "labels": labels(name), "annotations": annotations()},
        "spec": pod_spec(name),
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": SINCE,
            "conditions": conditions,
            "containerStatuses": [container("user-container"), container("queue-proxy")],
        },
    })
}

/// Returns a Deployment with port 80 only, so a Service created for it has that one port, and each workload one number.
fn plain_deployment(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": target(name), "labels": {"app": name}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "app", "image": "registry.example.com/app:1",
                    "ports": [{"name": "http", "containerPort": 80}],
                    "env": [{"name": "GREETING", "value": "hello"}, {"name": "LEVEL", "value": "info"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 80}, "periodSeconds": 5},
                }]},
            },
        },
    })
}

fn plain_service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
        },
    })
}

/// Returns a ZeroScaler whose Service is created if there is none.
fn plain_scaler(name: &str) -> Value {
    let spec = json!({
        "target": {"kind": "Deployment", "name": target(name)},
        "services": [{"name": name, "create": true}],
        "scale": {"load": {"concurrency": 10}},
    });
    e2e::bare::zeroscaler(name, spec)
}
