//! Current state of the workloads from watches: the targets of their slices, the number of their pods, and the owner of
//! each port number. It counts writes to slices by their events, so it works on any API server.

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

/// Time between two evaluations of the state, which covers thousands of objects. Measured times come from the events
/// themselves.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Maximum time to wait for a state.
const PATIENCE: Duration = Duration::from_secs(2_400);

/// Activators that a workload's slices list as ready.
pub(super) type Led = BTreeMap<String, BTreeSet<IpAddr>>;

pub(super) struct Watched {
    state: Mutex<ClusterState>,
    changed: Notify,
    listeners: Arc<Listeners>,
}

#[derive(Default)]
pub(super) struct ClusterState {
    slices: HashMap<String, Slice>,
    scales: HashMap<String, Scale>,
    /// Workloads whose status reports that they are served.
    served: HashSet<String>,
    /// Uid of the owner of each port number.
    numbers: BTreeMap<Block, BTreeMap<u16, Arc<str>>>,
    writes: u64,
    /// Time of the last write.
    written: Option<Instant>,
    /// Number of writes of slices that lead to an activator that does not listen.
    misled: u64,
}

struct Slice {
    workload: String,
    leads_to: Vec<(IpAddr, u16)>,
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
        let of = self.scales.iter().filter(|(name, _)| name.starts_with(prefix));
        of.map(|(_, scale)| usize::try_from(scale.ready).unwrap_or(0)).sum()
    }

    /// Returns the number of Deployments whose current generation Kubernetes' controllers have observed.
    pub(super) fn observed(&self) -> usize {
        self.scales.values().filter(|scale| scale.observed).count()
    }

    /// Returns the time at which an awake workload was woken.
    pub(super) fn woken(&self, workload: &str) -> Option<Instant> {
        self.scales.get(workload).filter(|scale| scale.replicas > 0)?.woken
    }

    /// Returns the activators to which a workload is routed.
    pub(super) fn led_of(&self, workload: &str) -> BTreeSet<IpAddr> {
        let of = self.slices.values().filter(|slice| slice.workload == workload);
        of.flat_map(|slice| &slice.leads_to).map(|(address, _)| *address).collect()
    }

    /// Returns the number of workloads whose status reports that they are served.
    pub(super) fn count_served(&self) -> usize {
        self.served.len()
    }

    /// Returns the number of workloads that are routed to activators. Each has one slice.
    pub(super) fn count_led(&self) -> usize {
        self.slices.values().filter(|slice| !slice.leads_to.is_empty()).count()
    }

    /// Returns the activators of all workloads.
    pub(super) fn workload_activators(&self) -> Led {
        let mut led = Led::new();
        for slice in self.slices.values().filter(|slice| !slice.leads_to.is_empty()) {
            led.entry(slice.workload.clone()).or_default().extend(slice.leads_to.iter().map(|(address, _)| *address));
        }
        led
    }

    /// Returns the workloads that are routed to an activator.
    pub(super) fn led_to(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        let leads = move |slice: &&Slice| slice.leads_to.iter().any(|(at, _)| *at == address);
        self.slices.values().filter(leads).map(|slice| slice.workload.as_str())
    }

    /// Returns all port numbers on which activators should listen, with their owners.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (u16, &Arc<str>)> {
        self.numbers.values().flatten().map(|(number, uid)| (*number, uid))
    }

    /// Returns the owner of a port number on which activators should listen.
    pub(super) fn owner(&self, number: u16) -> Option<&Arc<str>> {
        self.numbers.get(&Block::containing(number))?.get(&number)
    }

    /// Returns the number of writes to slices so far.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns the number of writes so far of slices that lead to an activator that does not listen.
    pub(super) fn misled(&self) -> u64 {
        self.misled
    }
}

impl Watched {
    /// Starts the watches, which run until this process ends.
    pub(super) fn start(client: &Client, listeners: Arc<Listeners>) -> Arc<Self> {
        let watched = Arc::new(Self { state: Mutex::default(), changed: Notify::new(), listeners });
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
        let watching = watched.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    Some(event) = slices.next() => watching.slice(event),
                    Some(event) = deployments.next() => watching.deployment(event),
                    Some(event) = scalers.next() => watching.scaler(event),
                    Some(event) = maps.next() => watching.map(event),
                }
                watching.changed.notify_waiters();
            }
        });
        watched
    }

    /// Returns the current state.
    pub(super) fn now(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().expect("no panic")
    }

    /// Waits until `read` returns a value for the state, and returns it.
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
                if let Some(value) = read(&self.now()) {
                    return value;
                }
                changed.await;
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(PATIENCE, reached).await.with_context(|| format!("waited {PATIENCE:?} for {what}"))
    }

    /// Waits until no slice has been written for `QUIET`, counted from `begin` if there was no write since. Returns
    /// the time of the last write.
    pub(super) async fn until_quiet(&self, begin: Instant) -> anyhow::Result<Instant> {
        let quiet = async {
            loop {
                let last = self.now().written.map_or(begin, |written| written.max(begin));
                if last.elapsed() >= QUIET {
                    return last;
                }
                sleep_until(last + QUIET).await;
            }
        };
        timeout(PATIENCE, quiet).await.context("slices are written for ever")
    }

    fn slice(&self, event: Event<EndpointSlice>) {
        let now = Instant::now();
        let is_write = matches!(event, Event::Apply(_) | Event::Delete(_));
        let mut state = self.now();
        match event {
            Event::Apply(slice) | Event::InitApply(slice) => {
                let read = Slice::from_endpoint_slice(&slice);
                let is_right = read.leads_to.iter().all(|(at, number)| self.listeners.is_bound(*at, *number, now));
                state.misled += u64::from(is_write && !is_right);
                state.slices.insert(slice.name_any(), read);
            }
            Event::Delete(slice) => drop(state.slices.remove(&slice.name_any())),
            Event::Init | Event::InitDone => {}
        }
        if is_write {
            state.writes += 1;
            state.written = Some(now);
        }
    }

    fn deployment(&self, event: Event<Deployment>) {
        let now = Instant::now();
        let (Event::Apply(deployment) | Event::InitApply(deployment)) = event else { return };
        let name = deployment.name_any();
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.as_ref();
        let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
        let observed = status.and_then(|status| status.observed_generation) == deployment.metadata.generation;
        let mut state = self.now();
        let scale = state.scales.entry(crate::fleet::revision_of(&name).to_owned()).or_default();
        if scale.replicas == 0 && replicas > 0 {
            scale.woken = Some(now);
        }
        (scale.replicas, scale.ready, scale.observed) = (replicas, ready, observed);
    }

    fn scaler(&self, event: Event<ZeroScaler>) {
        let (Event::Apply(scaler) | Event::InitApply(scaler)) = event else { return };
        if scaler.status.as_ref().is_some_and(|status| is(&status.conditions, READY, ConditionStatus::True)) {
            self.now().served.insert(scaler.name_any());
        }
    }

    fn map(&self, event: Event<ConfigMap>) {
        let (Event::Apply(map) | Event::InitApply(map)) = event else { return };
        let Some(block) = Block::of_map(&map.name_any()) else { return };
        let entries = ledger::read(block, map.data.as_ref()).entries.into_iter();
        let numbers = entries
            .filter(|(_, entry)| entry.state == ledger::NumberState::Held)
            .map(|(number, entry)| (number, entry.uid));
        self.now().numbers.insert(block, numbers.collect());
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
        let addresses: Vec<IpAddr> = ready.flat_map(|one| &one.addresses).filter_map(|at| at.parse().ok()).collect();
        let leads_to = addresses.iter().flat_map(|at| numbers.iter().map(|number| (*at, *number))).collect();
        Self { workload: label("kubernetes.io/service-name"), leads_to }
    }
}
