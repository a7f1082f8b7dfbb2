//! A node whose pods are processes: what the kubelet and kube-proxy do, for any API server.
//!
//! It takes pods that no node has yet (or all that name it), gives each an address of its own from a range, and runs
//! each container's `command` as a process that is told to listen on `$HOST:$PORT`. The image is not used. [`pod`]
//! tells the course of a pod's life, [`container`] that of a container, [`environment`] what a program is told,
//! [`probe`] how it is asked, [`listeners`] how programs that listen elsewhere are found out, [`proxy`] how Services
//! reach pods, [`usage`] what containers use.
//!
//! ```text
//! watch of pods ──► pods::run ──► pod::run (one task each) ──► container::supervise (one task each) ──► process
//!                              │  status patches, binding, deletion                │ probes, logs, restarts
//! ```
//!
//! # Which pods
//!
//! Pods whose `spec.nodeName` is this node's name, and pods without one whose `spec.schedulerName` is
//! [`SCHEDULER_NAME`] or, if [`NodeOptions::default_scheduler`] says so, the default scheduler's. Nothing else about
//! scheduling is looked at: no selectors, taints, affinities or resources. Pods beyond [`NodeOptions::pods_max`] wait.
//!
//! # Not here
//!
//! Images, volumes, init containers, cgroups, exec and port-forward. Each module's header lists what it leaves out of
//! its own job.

mod backoff;
mod capacity;
mod child;
mod cli;
mod container;
mod environment;
mod exec;
mod listeners;
pub mod logs;
mod options;
mod pod;
mod pods;
mod prepare;
mod probe;
mod process;
mod program;
pub mod proxy;
mod register;
mod service_links;
mod state;
mod status;
mod unsupported;
mod usage;

pub use backoff::Backoff;
pub(crate) use child::kill_all;
pub use cli::NodeArgs;
pub(crate) use listeners::anybody_at;
pub use options::NodeOptions;
pub use probe::PERIOD_ANNOTATION;
pub use state::SCHEDULER_NAME;

use crate::pool::Pool;
use crate::retry;
use anyhow::Context;
use common_controller::Recorder;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use state::Node;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs a node until `shutdown`, then stops its pods.
///
/// # Errors
/// The work directory cannot be made, the ranges overlap, or (where asked to check) the API server refuses the pods'
/// addresses or this machine does not have them.
pub async fn run(options: NodeOptions, client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (pods, services) = (options.pod_cidr, options.service_cidr);
    anyhow::ensure!(
        !pods.contains(services.first()) && !services.contains(pods.first()),
        "the pods' range {pods} and the Services' range {services} overlap"
    );
    std::fs::create_dir_all(&options.work_dir)
        .with_context(|| format!("cannot make the work directory {}", options.work_dir.display()))?;
    if options.check_range {
        tokio::select! {
            checked = retry::until_answered("the check of the pods' range", || check_range(&options, &client)) => {
                checked?;
            }
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    let pool = Pool::new(options.pod_cidr, options.reserved.iter().copied().chain([options.pod_cidr.nth(1)]));
    let options = NodeOptions { pods_max: options.pods_max.min(pool.free_count()), ..options };
    let node = Arc::new(Node {
        pool,
        events: Recorder::start(client.clone(), shutdown.clone()),
        beside: std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned())),
        occupants: Mutex::default(),
        client: client.clone(),
        options: options.clone(),
    });
    let proxying = tokio::spawn(proxy::run(client.clone(), options.services.clone(), shutdown.clone()));
    let registered = {
        let (client, shutdown) = (client.clone(), shutdown.clone());
        tokio::spawn(async move { register::run(client, &options, shutdown).await })
    };
    if let Some(table) = &node.options.usage {
        let (node, meter) = (Arc::downgrade(&node), Mutex::new(usage::Meter::default()));
        table.measure_by(move || {
            node.upgrade().map(|node| usage::measure(&node.occupants(), &mut meter.lock())).unwrap_or_default()
        });
    }
    pods::run(&node, client, &shutdown).await;
    let _ = tokio::join!(proxying, registered);
    Ok(())
}

/// Asks whether pods can have addresses of the range: here, and in the eyes of the API server.
async fn check_range(options: &NodeOptions, client: &Client) -> anyhow::Result<()> {
    let range = options.pod_cidr;
    let sample = range.nth(2);
    std::net::TcpListener::bind((sample, 0)).with_context(|| {
        format!(
            "{sample} of the pods' range is not an address of this machine; as root: ip route add local {range} dev lo"
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
            "the API server refuses {sample} as a pod's address: {}. {}",
            status.message,
            if range.is_loopback() {
                "Choose a pods' range that is not loopback"
            } else {
                "Choose another pods' range"
            }
        )),
        Err(error) => Err(error).context("the API server could not be asked about the pods' range"),
        Ok(_) => Ok(()),
    }
}
