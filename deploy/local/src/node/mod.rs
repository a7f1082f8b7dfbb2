//! A node whose pods are processes. It does the work of kubelet and kube-proxy for any API server.
//!
//! The node gives each of its pods an address from a range, and runs each container's `command` as a process. The
//! process should listen on `$HOST:$PORT`. The image is not used. [`pod`] is the life cycle of a pod, [`container`]
//! that of a container. [`environment`] builds the environment, [`probe`] runs probes, [`listeners`] finds port
//! collisions, [`proxy`] forwards Services to pods, and [`usage`] measures containers.
//!
//! ```text
//! watch of pods ──► pods::run ──► pod::run (one task each) ──► container::supervise (one task each) ──► process
//!                              │  status patches, binding, deletion                │ probes, logs, restarts
//! ```
//!
//! # Selection of pods
//!
//! The node runs pods whose `spec.nodeName` is its name. It also runs pods without a node whose `spec.schedulerName` is
//! [`SCHEDULER_NAME`] or, if [`NodeOptions::default_scheduler`] is set, that of the default scheduler. It ignores
//! selectors, taints, affinities and resources. Pods beyond [`NodeOptions::pods_max`] wait.
//!
//! # Limits
//!
//! There are no images, volumes, init containers, cgroups, exec and port-forward. The header of each module lists its
//! own limits.

mod backoff;
mod container;
mod environment;
mod listeners;
mod options;
mod pod;
mod pods;
mod prepare;
mod probe;
mod process;
pub mod proxy;
mod register;
mod status;
mod usage;

pub(crate) use listeners::has_listener;
pub use options::{NodeArgs, NodeOptions};
pub(crate) use pod::SHUTDOWN_GRACE;
pub(crate) use probe::check::Handler;
pub(crate) use process::kill_all;

use crate::pool::Pool;
use crate::retry;
use anyhow::Context;
use common_controller::Recorder;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use listeners::RunningContainer;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use tokio_util::sync::CancellationToken;

/// Runs a node until `shutdown`, then stops its pods. Fails if the work directory cannot be created, if the ranges
/// overlap, if the API server rejects the pods' addresses (a real one rejects loopback), or if this machine does not
/// have them.
pub async fn run(options: NodeOptions, client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (pods, services) = (options.pod_cidr, options.service_cidr);
    anyhow::ensure!(
        !pods.contains(services.first()) && !services.contains(pods.first()),
        "the pod range {pods} and the Service range {services} overlap; choose ranges that do not"
    );
    std::fs::create_dir_all(&options.work_dir)
        .with_context(|| format!("the work directory {} cannot be created", options.work_dir.display()))?;
    let checked = retry::until_answered("the check of the pod range", || check_range(&options, &client));
    let Some(checked) = shutdown.run_until_cancelled(checked).await else { return Ok(()) };
    checked?;
    let pool = Pool::new(options.pod_cidr, options.reserved.iter().copied().chain([options.pod_cidr.nth(1)]));
    let options = NodeOptions { pods_max: options.pods_max.min(pool.free_count()), ..options };
    let node = Arc::new(Node {
        pool,
        events: Recorder::start(client.clone(), shutdown.clone()),
        exe_dir: std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned())),
        running: Mutex::default(),
        client: client.clone(),
        options,
    });
    let proxying = tokio::spawn(proxy::run(client.clone(), node.options.services.clone(), shutdown.clone()));
    let registered = tokio::spawn(register::run(node.clone(), shutdown.clone()));
    let (measured, meter) = (Arc::downgrade(&node), Mutex::new(usage::Meter::default()));
    node.options.usage.measure_by(move || {
        measured.upgrade().map(|node| usage::measure(&node.running(), &mut meter.lock())).unwrap_or_default()
    });
    pods::run(&node, client, &shutdown).await;
    let _ = tokio::join!(proxying, registered);
    Ok(())
}

/// Checks that pods can have addresses of the range: on this machine, and for the API server.
async fn check_range(options: &NodeOptions, client: &Client) -> anyhow::Result<()> {
    let range = options.pod_cidr;
    let sample = range.nth(2);
    std::net::TcpListener::bind((sample, 0)).with_context(|| {
        format!(
            "address {sample} of the pod range does not belong to this machine; run as root: ip route add local {range} dev lo"
        )
    })?;
    let slice = EndpointSlice {
        metadata: kube::api::ObjectMeta { generate_name: Some("range-check-".into()), ..Default::default() },
        address_type: "IPv4".into(),
        endpoints: Some(vec![Endpoint { addresses: vec![sample.to_string()], ..Endpoint::default() }]),
        ports: None,
    };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match Api::<EndpointSlice>::namespaced(client.clone(), "default").create(&dry_run, &slice).await {
        Err(kube::Error::Api(status)) if status.code == 422 => Err(anyhow::anyhow!(
            "the API server rejects {sample} as the address of a pod: {}. {}",
            status.message,
            if range.is_loopback() { "Choose a pod range that is not loopback" } else { "Choose another pod range" }
        )),
        Err(error) => Err(error).context("the pod range could not be checked with the API server"),
        Ok(_) => Ok(()),
    }
}

/// `spec.schedulerName` of pods for this kind of node.
pub const SCHEDULER_NAME: &str = "zeroscale-local";
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// State shared by all pods of a node.
struct Node {
    options: NodeOptions,
    client: Client,
    pool: Pool,
    events: Recorder,
    /// Folder of the running executable.
    exe_dir: Option<PathBuf>,
    /// Running containers. References to ended ones no longer upgrade.
    running: Mutex<Vec<Weak<RunningContainer>>>,
}

impl Node {
    /// Records a running container until `container` is dropped.
    fn add_running(&self, container: &Arc<RunningContainer>) {
        let mut running = self.running.lock();
        running.retain(|known| known.strong_count() > 0);
        running.push(Arc::downgrade(container));
    }

    fn running(&self) -> Vec<Arc<RunningContainer>> {
        self.running.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Reports a problem of a pod by an event, as a kubelet does.
    fn warn(&self, pod: &Pod, reason: &str, message: &str) {
        self.events.record_error("kubelet", pod, reason, message.to_owned());
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }

    /// Reports whether a pod belongs to this node.
    fn wants(&self, pod: &Pod) -> bool {
        let Some(spec) = pod.spec.as_ref() else { return false };
        if let Some(node) = spec.node_name.as_deref().filter(|n| !n.is_empty()) {
            return node == self.options.name;
        }
        let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        let scheduler = spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
        let is_ours = scheduler == SCHEDULER_NAME || (self.options.default_scheduler && scheduler == DEFAULT_SCHEDULER);
        is_ours && !is_gated && pod.metadata.deletion_timestamp.is_none()
    }
}
