//! This node as the API server knows it: a Node object, and a Lease that says it is alive.
//!
//! On a real API server the node controller calls a node lost when its Lease is 40 s old, so it is renewed every
//! [`RENEW`]. When the node shuts down it takes both away, so that pods bound to it are cleared and not waited for.

use super::options::NodeOptions;
use common_runtime::failure_log::FailureLog;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use procfs::Current;
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Where nodes' Leases are.
const NAMESPACE: &str = "kube-node-lease";
/// Between renewals (Kubernetes: 10 s).
const RENEW: Duration = Duration::from_secs(10);
/// How long a Lease counts (Kubernetes: 40 s).
const LEASE_SECONDS: i32 = 40;
/// Pause before a registration that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Time to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// Registers the node and keeps it alive until `shutdown`, then takes it away.
pub(crate) async fn run(client: Client, options: &NodeOptions, shutdown: CancellationToken) {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut failures = FailureLog::of(format!("the registration of node {}", options.name));
    while let Err(error) = register(&nodes, options).await {
        failures.failed(&error);
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
    failures.recovered();
    let mut failures = FailureLog::of(format!("the renewal of node {}'s lease", options.name));
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    loop {
        match renew(&leases, &options.name).await {
            Ok(()) => failures.recovered(),
            Err(error) => failures.failed(&error),
        }
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(RENEW) => {}
        }
    }
    let goodbye = async {
        let params = DeleteParams::default();
        let (_, _) = tokio::join!(nodes.delete(&options.name, &params), leases.delete(&options.name, &params));
    };
    let _ = tokio::time::timeout(GOODBYE, goodbye).await; // Nobody is left to complain to.
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
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let capacity = json!({"cpu": cpus, "memory": memory(), "pods": options.pods_max.to_string()});
    let status = json!({"status": {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
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
    match leases.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": lease.spec}))).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            leases.create(&PostParams::default(), &lease).await.map(drop)
        }
        renewed => renewed.map(drop),
    }
}

/// As Kubernetes names it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The machine's memory as a quantity.
fn memory() -> String {
    let total = procfs::Meminfo::current().map_or(1 << 30, |info| info.mem_total);
    format!("{}Ki", total / 1024)
}
