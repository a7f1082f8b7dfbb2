//! Registration of this node: a Node object, and a Lease that shows that the node is alive.
//!
//! On a real API server, the node controller declares a node lost when its Lease is 40 s old, so the node renews it
//! every [`RENEW`]. At shutdown the node deletes both objects, so that pods bound to it are removed without waiting.

use super::options::NodeOptions;
use crate::retry::Attempts;
use common_runtime::failure_log::FailureLog;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use procfs::Current;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Namespace of the nodes' Leases.
const NAMESPACE: &str = "kube-node-lease";
/// Field manager of the Lease.
const FIELD_MANAGER: &str = "zeroscale-node";
/// Interval of renewals (Kubernetes: 10 s).
const RENEW: Duration = Duration::from_secs(10);
/// Duration of a Lease in seconds (Kubernetes: 40 s).
const LEASE_SECONDS: i32 = 40;
/// Maximum duration of the removal at shutdown.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Registers the node and renews its Lease until `shutdown`, then removes both objects.
pub(super) async fn run(node: Arc<super::Node>, shutdown: CancellationToken) {
    let options = &node.options;
    let nodes: Api<Node> = Api::all(node.client.clone());
    let mut attempts = Attempts::new(format!("the registration of node {}", options.name));
    while let Err(error) = register(&nodes, options).await {
        if shutdown.run_until_cancelled(attempts.failed(&error)).await.is_none() {
            return;
        }
    }
    attempts.succeeded();
    let mut failures = FailureLog::for_operation(format!("the renewal of node {}'s lease", options.name));
    let leases: Api<Lease> = Api::namespaced(node.client.clone(), NAMESPACE);
    loop {
        match renew(&leases, &options.name).await {
            Ok(()) => failures.recovered(),
            Err(error) => failures.failed(&error),
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(RENEW)).await.is_none() {
            break;
        }
    }
    let removal = async {
        let params = DeleteParams::default();
        let (_, _) = tokio::join!(nodes.delete(&options.name, &params), leases.delete(&options.name, &params));
    };
    let _ = tokio::time::timeout(REMOVAL_TIMEOUT, removal).await; // Errors are ignored at shutdown.
}

async fn register(nodes: &Api<Node>, options: &NodeOptions) -> kube::Result<()> {
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": options.name,
            "labels": {"kubernetes.io/hostname": options.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": arch()},
        },
        "spec": {"podCIDR": options.pod_cidr.to_string()},
    }))
    .map_err(kube::Error::SerdeError)?;
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {} // From an earlier run.
        created => drop(created?),
    }
    let now = Time(Timestamp::now());
    let conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    .map(|(type_, status, reason)| {
        json!({"type": type_, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": now,
            "lastTransitionTime": now})
    });
    let memory = procfs::Meminfo::current().map_or(1 << 30, |info| info.mem_total) / 1024;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let capacity = json!({"cpu": cpus, "memory": format!("{memory}Ki"), "pods": options.pods_max.to_string()});
    let status = json!({"status": {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": options.host_ip.to_string()},
            {"type": "Hostname", "address": options.name},
        ],
        "nodeInfo": {
            "architecture": arch(), "operatingSystem": "linux", "osImage": "", "kernelVersion": "", "machineID": "",
            "systemUUID": "", "bootID": "", "containerRuntimeVersion": "process://1", "kubeProxyVersion": "",
            "kubeletVersion": concat!("v1.36.0-zeroscale-", env!("CARGO_PKG_VERSION")),
        },
    }});
    nodes.patch_status(&options.name, &PatchParams::default(), &Patch::Merge(status)).await.map(drop)
}

async fn renew(leases: &Api<Lease>, name: &str) -> kube::Result<()> {
    let mut lease = Lease::default();
    lease.metadata.name = Some(name.into());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(name.into()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    });
    leases.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(lease)).await.map(drop)
}

/// Returns the CPU architecture under its Kubernetes name.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
