//! A node whose pods are processes: what the kubelet and kube-proxy do, for any API server.
//!
//! It takes pods that no node has yet (or all that name it), gives each an address of its own from a range, and runs
//! each container's `command` as a process that is told to listen on `$HOST:$PORT`. The image is not used. [`pod`]
//! tells the course of a pod's life, [`container`] that of a container, [`environment`] what a program is told,
//! [`probe`] how it is asked, [`listeners`] how programs that listen elsewhere are found out, [`proxy`] how Services
//! reach pods, [`usage`] what containers use.
//!
//! ```text
//! watch of pods ──► run ──► pod::run (one task each) ──► container::supervise (one task each) ──► process
//!                              │  status patches, binding, deletion                │ probes, logs, restarts
//! ```
//!
//! # Which pods
//!
//! Pods whose `spec.nodeName` is this node's name, and pods without one whose `spec.schedulerName` is
//! [`SCHEDULER_NAME`] or, if [`NodeOptions::default_scheduler`] says so, the default scheduler's. Nothing else about
//! scheduling is looked at: no selectors, taints, affinities or resources.
//!
//! # Not here
//!
//! Images, volumes, init containers, cgroups, exec and port-forward. Each module's header lists what it leaves out of
//! its own job.

mod addresses;
mod backoff;
mod cli;
mod container;
mod environment;
mod events;
mod exec;
mod listeners;
pub mod logs;
mod pod;
mod prepare;
mod probe;
mod process;
mod program;
pub mod proxy;
mod refusal;
mod register;
mod status;
mod usage;

pub use backoff::Backoff;
pub use cli::NodeArgs;
pub use probe::PERIOD_ANNOTATION;

use crate::Range;
use crate::usage::UsageTable;
use addresses::Pool;
use anyhow::Context;
use common_runtime::watching::watch as watch_objects;
use events::Events;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use listeners::Occupant;
use parking_lot::Mutex;
use pod::Seen;
use proxy::ServiceTable;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// `spec.schedulerName` of pods that want a node like this one.
pub const SCHEDULER_NAME: &str = "zeroscale-local";
/// The default scheduler's name.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What a node is and may do.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name of the Node object.
    pub name: String,
    /// Address of the machine, as pods see it.
    pub host_ip: IpAddr,
    /// Where pods' addresses come from. Every address in it must be usable on this machine.
    pub pod_cidr: Range,
    /// Addresses in `pod_cidr` that no pod gets.
    pub reserved: Vec<Ipv4Addr>,
    /// Where the API server takes ClusterIPs from; it must not overlap `pod_cidr`.
    pub service_cidr: Range,
    /// Where logs go; created if it does not exist.
    pub work_dir: PathBuf,
    /// Also take pods of the default scheduler. Only where no scheduler runs.
    pub default_scheduler: bool,
    /// Ask the API server first whether it takes addresses of `pod_cidr` (a real one refuses loopback).
    pub check_range: bool,
    /// Delays between restarts of a container.
    pub restart_backoff: Backoff,
    /// Filled in with where Services can be reached.
    pub services: ServiceTable,
    /// Filled in with what containers use; none: nobody asks, so nothing is measured.
    pub usage: Option<UsageTable>,
}

impl NodeOptions {
    /// Options of a node in the embedded cluster.
    pub fn new(name: impl Into<String>, pod_cidr: Range, service_cidr: Range, work_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            pod_cidr,
            reserved: Vec::new(),
            service_cidr,
            work_dir: work_dir.into(),
            default_scheduler: true,
            check_range: false,
            restart_backoff: Backoff::default(),
            services: ServiceTable::default(),
            usage: None,
        }
    }
}

/// What all pods of a node share.
struct Node {
    options: NodeOptions,
    client: Client,
    pool: Pool,
    events: Events,
    /// Folder of the running executable.
    beside: Option<PathBuf>,
    /// Running containers by process group.
    occupants: Mutex<HashMap<i32, Occupant>>,
}

impl Node {
    /// Notes a running container until the guard is dropped.
    fn occupy(self: &Arc<Self>, occupant: Occupant) -> Occupying {
        let group = occupant.group;
        self.occupants.lock().insert(group, occupant);
        Occupying { node: self.clone(), group }
    }

    fn occupants(&self) -> Vec<Occupant> {
        self.occupants.lock().values().cloned().collect()
    }

    /// Whether a pod is for this node.
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

/// A running container's entry among the occupants.
struct Occupying {
    node: Arc<Node>,
    group: i32,
}

impl Drop for Occupying {
    fn drop(&mut self) {
        self.node.occupants.lock().remove(&self.group);
    }
}

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
        check_range(&options, &client).await?;
    }
    let node = Arc::new(Node {
        pool: Pool::new(options.pod_cidr, &options.reserved),
        events: Events::start(client.clone()),
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
    let measured = {
        let (node, table, shutdown) = (node.clone(), node.options.usage.clone(), shutdown.clone());
        tokio::spawn(async move {
            if let Some(table) = table {
                usage::run(node, table, shutdown).await;
            }
        })
    };
    watch_pods(&node, client, &shutdown).await;
    let _ = tokio::join!(proxying, registered, measured);
    Ok(())
}

/// Starts a task for each pod of this node and tells it what the watch says, until `shutdown`; then waits for all.
async fn watch_pods(node: &Arc<Node>, client: Client, shutdown: &CancellationToken) {
    let mut events = watch_objects(Api::<Pod>::all(client), watcher::Config::default());
    let mut pods = Pods {
        node: node.clone(),
        shutdown: shutdown.clone(),
        tasks: JoinSet::new(),
        seen: HashMap::new(),
        listed: None,
    };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = pods.tasks.join_next(), if !pods.tasks.is_empty() => match ended {
                Ok(uid) => drop(pods.seen.remove(&uid)),
                Err(error) => tracing::error!(%error, "a bug: a pod's task did not come to its end"),
            },
            Some(event) = events.next() => pods.apply(event),
        }
    }
    while pods.tasks.join_next().await.is_some() {}
}

/// The pods of this node.
struct Pods {
    node: Arc<Node>,
    shutdown: CancellationToken,
    /// Each ends with its pod's uid.
    tasks: JoinSet<String>,
    /// By uid.
    seen: HashMap<String, watch::Sender<Seen>>,
    /// Uids met since a listing began.
    listed: Option<HashSet<String>>,
}

impl Pods {
    fn apply(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Init => self.listed = Some(HashSet::new()),
            watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(pod.uid().unwrap_or_default());
                }
                self.present(pod);
            }
            watcher::Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                for (_, seen) in self.seen.iter().filter(|(uid, _)| !listed.contains(*uid)) {
                    seen.send_replace(Seen::Gone);
                }
            }
            watcher::Event::Delete(pod) => {
                if let Some(seen) = self.seen.get(&pod.uid().unwrap_or_default()) {
                    seen.send_replace(Seen::Gone);
                }
            }
        }
    }

    fn present(&mut self, mut pod: Pod) {
        pod.metadata.managed_fields = None;
        let (uid, pod) = (pod.uid().unwrap_or_default(), Arc::new(pod));
        if let Some(seen) = self.seen.get(&uid) {
            let is_elsewhere =
                pod.spec.as_ref().and_then(|s| s.node_name.as_ref()).is_some_and(|n| *n != self.node.options.name);
            seen.send_replace(if is_elsewhere { Seen::Gone } else { Seen::Present(pod) });
            return;
        }
        if !self.node.wants(&pod) {
            return;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            // Nothing of it runs here: an earlier process of this node had it. Kept as seen, so that it is removed
            // once.
            self.seen.insert(uid.clone(), watch::channel(Seen::Gone).0);
            let api = Api::namespaced(self.node.client.clone(), &pod.namespace().unwrap_or_default());
            let shutdown = self.shutdown.clone();
            self.tasks.spawn(async move {
                pod::remove(&api, &pod, &shutdown).await;
                uid
            });
            return;
        }
        if matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed")) {
            return;
        }
        let (sender, receiver) = watch::channel(Seen::Present(pod.clone()));
        self.seen.insert(uid.clone(), sender);
        let running = pod::run(self.node.clone(), pod, receiver, self.shutdown.clone());
        self.tasks.spawn(async move {
            running.await;
            uid
        });
    }
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
