//! Current state of the workloads from watches: the activators in their slices, the number of their pods, and the owner
//! of each port number. Writes to slices are counted by the events of the watch, so this works on any API server.

use super::activators::Listeners;
use anyhow::Context;
use common::names;
use common::ports::ledger::{self, Block};
use common_api::ZeroScaler;
use common_api::zeroscaler::conditions::{ConditionStatus, READY, is};
use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Time without a write to a slice after which everything counts as reconciled.
const QUIET: Duration = Duration::from_secs(10);

/// Minimum time between two checks of a condition, because each may read the state of thousands of objects. Measured
/// times come from the events themselves.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Maximum time to wait for a state.
const REACHED_WITHIN: Duration = Duration::from_secs(2_400);

pub(super) struct ClusterWatch {
    state: Mutex<ClusterState>,
    changed: Notify,
    listeners: Arc<Listeners>,
}

#[derive(Default)]
pub(super) struct ClusterState {
    slices: HashMap<String, Slice>,
    scales: HashMap<String, Scale>,
    /// Workloads whose status reports that they are served.
    pub(super) served: HashSet<String>,
    /// Uid of the owner of each port number.
    numbers: BTreeMap<Block, BTreeMap<u16, Arc<str>>>,
    /// Number of writes to slices so far.
    pub(super) writes: u64,
    /// Time of the last write.
    last_write: Option<Instant>,
    /// Number of writes so far of slices with an activator that has not bound the workload's port number.
    pub(super) misrouted: u64,
}

struct Slice {
    workload: String,
    /// Ready activators, with the workload's port number there.
    routes: Vec<(IpAddr, u16)>,
}

/// State of a Deployment.
#[derive(Clone, Copy, Default)]
struct Scale {
    replicas: i32,
    ready: i32,
    /// Set if Kubernetes' controllers have observed the current generation.
    observed: bool,
    /// Time at which the Deployment last got its first pod.
    woken: Option<Instant>,
}

impl ClusterState {
    /// Returns the number of ready pods of workloads whose names begin with `prefix`.
    pub(super) fn ready_pods(&self, prefix: &str) -> usize {
        let scales = self.scales.iter().filter(|(name, _)| name.starts_with(prefix));
        scales.map(|(_, scale)| usize::try_from(scale.ready).unwrap_or(0)).sum()
    }

    /// Returns the number of Deployments whose current generation Kubernetes' controllers have observed.
    pub(super) fn observed_deployments(&self) -> usize {
        self.scales.values().filter(|scale| scale.observed).count()
    }

    /// Returns the time at which an awake workload was woken.
    pub(super) fn woken_at(&self, workload: &str) -> Option<Instant> {
        self.scales.get(workload).filter(|scale| scale.replicas > 0)?.woken
    }

    /// Returns the activators to which a workload is routed.
    pub(super) fn activators_of(&self, workload: &str) -> BTreeSet<IpAddr> {
        let slices = self.slices.values().filter(|slice| slice.workload == workload);
        slices.flat_map(|slice| &slice.routes).map(|(address, _)| *address).collect()
    }

    /// Returns the number of workloads that are routed to activators. Each has one slice.
    pub(super) fn routed_workloads(&self) -> usize {
        self.slices.values().filter(|slice| !slice.routes.is_empty()).count()
    }

    /// Returns the workloads that are routed to an activator.
    pub(super) fn workloads_of(&self, activator: IpAddr) -> impl Iterator<Item = &str> {
        let is_routed = move |slice: &&Slice| slice.routes.iter().any(|(address, _)| *address == activator);
        self.slices.values().filter(is_routed).map(|slice| slice.workload.as_str())
    }

    /// Returns all port numbers on which activators should listen, with their owners.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (u16, &Arc<str>)> {
        self.numbers.values().flatten().map(|(number, uid)| (*number, uid))
    }

    /// Returns the owner of a port number on which activators should listen.
    pub(super) fn owner(&self, number: u16) -> Option<&Arc<str>> {
        self.numbers.get(&Block::containing(number))?.get(&number)
    }
}

impl ClusterWatch {
    /// Starts the watches, which run until this process ends.
    pub(super) fn start(client: &Client, listeners: Arc<Listeners>) -> Arc<Self> {
        let cluster = Arc::new(Self { state: Mutex::default(), changed: Notify::new(), listeners });
        let ours = format!("endpointslice.kubernetes.io/managed-by={}", names::MANAGED_BY);
        let ledgers = format!("{}={}", names::LEDGER, names::LEDGER_OF_PORTS);
        let slices: Api<EndpointSlice> = Api::all(client.clone());
        let deployments: Api<Deployment> = Api::all(client.clone());
        let scalers: Api<ZeroScaler> = Api::all(client.clone());
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), e2e::bare::SYSTEM);
        let mut slices = watch(slices, Config::default().labels(&ours));
        let mut deployments = watch(deployments, Config::default());
        let mut scalers = watch(scalers, Config::default());
        let mut maps = watch(maps, Config::default().labels(&ledgers));
        let watching = cluster.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    Some(event) = slices.next() => watching.on_slice(event),
                    Some(event) = deployments.next() => watching.on_deployment(event),
                    Some(event) = scalers.next() => watching.on_scaler(event),
                    Some(event) = maps.next() => watching.on_config_map(event),
                }
                watching.changed.notify_waiters();
            }
        });
        cluster
    }

    /// Returns the current state.
    pub(super) fn state(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().expect("no panic")
    }

    /// Waits until `read` returns a value for the current state. Returns this value.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        mut read: impl FnMut(&ClusterState) -> Option<T>,
    ) -> anyhow::Result<T> {
        let reached = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(value) = read(&self.state()) {
                    return value;
                }
                changed.await;
                sleep(CHECK_EVERY).await;
            }
        };
        timeout(REACHED_WITHIN, reached).await.with_context(|| format!("waited {REACHED_WITHIN:?} for {what}"))
    }

    /// Waits until no slice has been written for `QUIET`, counted from `begin` if there was no write since. Returns
    /// the time of the last write.
    pub(super) async fn until_quiet(&self, begin: Instant) -> anyhow::Result<Instant> {
        let quiet = async {
            loop {
                let last = self.state().last_write.map_or(begin, |last| last.max(begin));
                if last.elapsed() >= QUIET {
                    return last;
                }
                sleep_until(last + QUIET).await;
            }
        };
        timeout(REACHED_WITHIN, quiet).await.context("slices are still written")
    }

    fn on_slice(&self, event: Event<EndpointSlice>) {
        let now = Instant::now();
        let is_write = matches!(event, Event::Apply(_) | Event::Delete(_));
        let mut state = self.state();
        match event {
            Event::Apply(slice) | Event::InitApply(slice) => {
                let read = Slice::from_endpoint_slice(&slice);
                let is_bound = read.routes.iter().all(|(at, number)| self.listeners.is_bound(*at, *number, now));
                state.misrouted += u64::from(is_write && !is_bound);
                state.slices.insert(slice.name_any(), read);
            }
            Event::Delete(slice) => drop(state.slices.remove(&slice.name_any())),
            Event::Init | Event::InitDone => {}
        }
        if is_write {
            state.writes += 1;
            state.last_write = Some(now);
        }
    }

    fn on_deployment(&self, event: Event<Deployment>) {
        let now = Instant::now();
        let (Event::Apply(deployment) | Event::InitApply(deployment)) = event else { return };
        let name = deployment.name_any();
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.as_ref();
        let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
        let observed = status.and_then(|status| status.observed_generation) == deployment.metadata.generation;
        let mut state = self.state();
        let scale = state.scales.entry(crate::fleet::revision_of(&name).to_owned()).or_default();
        if scale.replicas == 0 && replicas > 0 {
            scale.woken = Some(now);
        }
        (scale.replicas, scale.ready, scale.observed) = (replicas, ready, observed);
    }

    fn on_scaler(&self, event: Event<ZeroScaler>) {
        let (Event::Apply(scaler) | Event::InitApply(scaler)) = event else { return };
        if scaler.status.as_ref().is_some_and(|status| is(&status.conditions, READY, ConditionStatus::True)) {
            self.state().served.insert(scaler.name_any());
        }
    }

    fn on_config_map(&self, event: Event<ConfigMap>) {
        let (Event::Apply(map) | Event::InitApply(map)) = event else { return };
        let Some(block) = Block::of_map(&map.name_any()) else { return };
        let entries = ledger::read(block, map.data.as_ref()).entries.into_iter();
        let numbers = entries
            .filter(|(_, entry)| entry.state == ledger::NumberState::Held)
            .map(|(number, entry)| (number, entry.uid));
        self.state().numbers.insert(block, numbers.collect());
    }
}

impl Slice {
    fn from_endpoint_slice(slice: &EndpointSlice) -> Self {
        let label = |name: &str| slice.labels().get(name).cloned().unwrap_or_default();
        let to_activators = label(names::LEADS_TO) == names::LEADS_TO_ACTIVATORS;
        let ports = slice.ports.iter().flatten().filter_map(|port| u16::try_from(port.port?).ok());
        let numbers: Vec<u16> = ports.filter(|_| to_activators).collect();
        let ready =
            slice.endpoints.iter().flatten().filter(|endpoint| {
                endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
            });
        let addresses: Vec<IpAddr> =
            ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|at| at.parse().ok()).collect();
        let routes = addresses.iter().flat_map(|at| numbers.iter().map(|number| (*at, *number))).collect();
        Self { workload: label("kubernetes.io/service-name"), routes }
    }
}
