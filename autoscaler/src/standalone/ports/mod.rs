//! Port numbers on the activators: carries out the decisions of [`autoscaler_core::ports`].
//!
//! ```text
//! ZeroScalers, Services ─▶ wants ─┐                        ┌─▶ status.ports, EndpointSlices
//! ledger, slices, activators ─────┴─▶ pass (plan, writes) ─┴─▶ ledger
//!                                       ▲ responses
//!                                       └───── queries ◀─── activators that reconciles must query
//! ```
//!
//! The queue has a single key. A pass plans for all workloads that this process leads, and writes one ConfigMap for
//! each changed block ([`pass`]). The passes of workloads do three things here: they record the ports that a workload
//! needs, read the numbers and addresses it was given, and leave queries for activators ([`questions`]).
//!
//! # Guarantees for the rules
//!
//! - A map is written with the version that the plan was made from, or created. A process that loses the conflict plans
//!   again.
//! - Nothing is planned before everything has been listed: an object that is not known yet is not deleted. A known
//!   workload whose ports are not recorded yet keeps its numbers.
//! - The number of an unknown workload is released only after the API server confirms that the workload does not exist
//!   ([`super::unlisted`]).
//! - The known activators follow the EndpointSlices of their Service event by event, so no stale response of a removed
//!   activator is used.
//!
//! # Not here
//!
//! The reconcile of a workload's Service writes the slices ([`super::traffic`]).

mod pass;
mod questions;
mod state;

pub(crate) use pass::Controller;
pub(crate) use state::AllocatedPorts;

use autoscaler_core::ports::carriers::endpoints_among;
use autoscaler_core::ports::slices::{Endpoints, Listed, Port, reached};
use autoscaler_core::ports::{Access, NumberResponse, PortOutcome, Serving, Verdict, Wanted, Workload};
use autoscaler_core::scale_to_zero::ProbeResult;
use common::RevisionKey as Key;
use common::names;
use common::ports::ledger::{Block, NumberState, PortId};
use common_controller::{Priority, Store, WorkQueue, trimmed};
use common_runtime::clock::Clock;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use state::{PendingQuery, PortState};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval within which events are merged into one plan.
const MERGED_WITHIN: Duration = Duration::from_millis(20);
/// Pause between the end of a plan and the next, as a multiple of the planning time. It limits planning to a tenth of a
/// core. `PAUSE_MAX` bounds the pause.
const PAUSE_PLANS: u32 = 9;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Allocated numbers, and the responses of activators.
pub(crate) struct PortAllocator {
    pub(crate) ledger: Store<ConfigMap>,
    system_namespace: String,
    state: Mutex<PortState>,
    /// Queue of reconciles of the ledger.
    pub(crate) queue: WorkQueue<Key>,
    /// Queue of workloads whose Services and slices need reconciling.
    pub(crate) paths: WorkQueue<Key>,
    /// Queue of workloads whose status needs reconciling.
    pub(crate) statuses: WorkQueue<Key>,
    /// Queue of workloads whose scale needs reconciling.
    decisions: WorkQueue<Key>,
    /// Wakes the task that sends queries.
    query_signal: Notify,
    /// Earliest time of the next plan.
    plan_from: Mutex<Instant>,
    /// Wall clock: the ledger records release times.
    clock: Clock,
}

impl PortAllocator {
    /// Builds a value without known numbers. `decisions` is the queue of workloads whose path proof is complete.
    /// `clock` must follow the wall clock.
    pub(crate) fn new(system_namespace: &str, decisions: WorkQueue<Key>, clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            Self {
                ledger: Store::new(move |_, _, _| this.upgrade().iter().for_each(|this| this.queue_plan())),
                system_namespace: system_namespace.to_owned(),
                state: Mutex::default(),
                queue: WorkQueue::new(),
                paths: WorkQueue::new(),
                statuses: WorkQueue::new(),
                decisions,
                query_signal: Notify::new(),
                plan_from: Mutex::new(Instant::now()),
                clock,
            }
        })
    }

    /// Follows the ledger and queries activators until `shutdown`, in separate tasks.
    pub(crate) fn follow(self: &Arc<Self>, client: &Client, shutdown: &CancellationToken) {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &self.system_namespace);
        let labelled = watcher::Config::default().labels(&format!("{}={}", names::LEDGER, names::LEDGER_OF_PORTS));
        let (port_allocator, shutdown) = (self.clone(), shutdown.clone());
        tokio::spawn(async move {
            let listed = async {
                port_allocator.ledger.synced().await;
                port_allocator.queue_plan();
                std::future::pending().await
            };
            tokio::select! {
                () = port_allocator.ledger.follow(maps, labelled, trimmed) => {}
                () = questions::send_queries(&port_allocator) => {}
                () = listed => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    pub(crate) fn queue_plan(&self) {
        // There is only one ledger, so one constant key is enough.
        let from = *self.plan_from.lock();
        let after = from.saturating_duration_since(Instant::now()).max(MERGED_WITHIN);
        self.queue.add_after(Key::new(self.system_namespace.as_str(), names::LEDGER_OF_PORTS), after);
    }

    fn map_key(&self, block: Block) -> Key {
        Key::new(self.system_namespace.as_str(), block.map_name())
    }

    /// Schedules the earliest next plan after a plan that took `time`.
    fn planned_within(&self, time: Duration) {
        *self.plan_from.lock() = Instant::now() + time.saturating_mul(PAUSE_PLANS).min(PAUSE_MAX);
    }

    /// Records that a ZeroScaler exists with this uid, or no longer exists.
    pub(crate) fn exists(&self, key: &Key, uid: Option<&str>) {
        if self.state.lock().exists(key, uid) {
            self.queue_plan();
        }
    }

    /// Records the ports that a ZeroScaler needs from now on, and who may connect.
    pub(crate) fn set_wanted(&self, key: &Key, uid: &str, ports: Vec<Wanted>, access: Access) {
        let PortState { objects, wants, .. } = &mut *self.state.lock();
        // Keys and uids are shared, so each is stored once.
        let known = objects.get_key_value(key).filter(|(_, known)| ***known == *uid);
        let (key, uid) = known.map_or_else(|| (key.clone(), uid.into()), |(key, uid)| (key.clone(), uid.clone()));
        let workload = Workload { key: key.clone(), uid, ports, access };
        if wants.get(&key) != Some(&workload) {
            wants.insert(key, workload);
            self.queue_plan();
        }
    }

    /// Records who may connect to a ZeroScaler from now on. Its ports stay the same.
    pub(crate) fn restrict(&self, key: &Key, uid: &str, access: Access) {
        let ports = {
            let PortState { wants, given, .. } = &*self.state.lock();
            let wanted = wants.get(key).filter(|workload| *workload.uid == *uid);
            let of_given = |given: &AllocatedPorts| {
                let of =
                    |(port, _): &(PortId, PortOutcome)| Wanted { port: port.clone(), in_slices: None, in_status: None };
                given.ports.iter().map(of).collect()
            };
            let planned = given.get(key).filter(|given| *given.uid == *uid);
            wanted.map(|workload| workload.ports.clone()).or_else(|| planned.map(of_given))
        };
        if let Some(ports) = ports {
            self.set_wanted(key, uid, ports, access);
        }
    }

    /// Returns the ports given to an object, or `None` if no plan has covered it yet.
    pub(crate) fn given(&self, key: &Key, uid: &str) -> Option<AllocatedPorts> {
        self.state.lock().given.get(key).filter(|given| *given.uid == *uid).cloned()
    }

    /// Records that a slice was changed or deleted.
    pub(crate) fn slice(&self, key: &Key, slice: Option<&Arc<EndpointSlice>>) {
        let now = Instant::now().into_std();
        if self.state.lock().slice(&self.system_namespace, key, slice.map(|slice| &**slice), now) {
            self.queue_plan();
        }
    }

    /// Returns the addresses to which the slices of an object may lead now, for each of its ports. `need` is the number
    /// of activators that can bear its load. With a priority, queues queries to activators whose confirmation is
    /// missing; their responses queue the object with it.
    pub(crate) fn endpoints(
        &self,
        key: &Key,
        ports: &[Port<'_>],
        need: Option<NonZeroUsize>,
        query_priority: Option<Priority>,
    ) -> Vec<Endpoints> {
        let mut state = self.state.lock();
        let (activators, now) = (state.activators(), Instant::now().into_std());
        let found = endpoints_among(ports, &activators, need, key.name(), &state.proofs, now);
        if let Some(priority) = query_priority {
            for query in found.iter().flat_map(|endpoints| &endpoints.to_probe) {
                state.queries.entry(*query).or_default().path = Some((key.clone(), priority));
                self.query_signal.notify_one();
            }
        }
        found
    }

    /// Returns the state of the activator that clients of an object reach at `at`, or `None` if they do not reach one.
    pub(crate) fn reached(&self, uid: &str, at: &Listed) -> Option<Serving> {
        let state = self.state.lock();
        reached(at, uid, &state.activators(), &state.proofs, Instant::now().into_std())
    }

    /// Reports whether all of these addresses and numbers are proven to lead an object's clients to activators.
    pub(crate) fn proof(&self, uid: &str, leads: &[(IpAddr, u16)]) -> ProbeResult {
        let (state, now) = (self.state.lock(), Instant::now().into_std());
        let proven =
            |(address, number): &(IpAddr, u16)| state.proofs.verdict(*address, *number, uid, now) == Verdict::Proven;
        if leads.iter().all(proven) { ProbeResult::InPath } else { ProbeResult::NotProbed }
    }

    /// Queries activators for the evidence that [`PortAllocator::proof`] lacks. A response queues the object's scale.
    pub(crate) fn query_for_proof(&self, key: &Key, uid: &str, leads: &[(IpAddr, u16)]) {
        let (mut state, now) = (self.state.lock(), Instant::now().into_std());
        for (address, number) in leads {
            if state.proofs.verdict(*address, *number, uid, now) != Verdict::Proven {
                state.queries.entry((*address, *number)).or_default().decision = Some(key.clone());
            }
        }
        drop(state);
        self.query_signal.notify_one();
    }

    /// Records that an activator listens on these numbers, each for the object with that uid.
    #[cfg(test)]
    pub(crate) fn report_listening(&self, address: IpAddr, numbers: &[(u16, &str)]) {
        use common::ports::Listening;
        let ours = |uid: &str| Listening { instance: "i".into(), uid: uid.into(), is_held: true };
        let responses = numbers.iter().map(|(number, uid)| (*number, NumberResponse::Ours(ours(uid)))).collect();
        self.record_responses(address, responses, Instant::now());
    }

    /// Records the responses of one activator to a query that was sent at `sent`, and queues the workloads that wait
    /// for them.
    fn record_responses(&self, address: IpAddr, responses: Vec<(u16, NumberResponse)>, sent: Instant) {
        let sent = sent.into_std();
        let PortState { maps, proofs, queries, .. } = &mut *self.state.lock();
        let before = proofs.instance(address).map(str::to_owned);
        for (number, response) in responses {
            let line = maps.lines.get(&number);
            let uid = line.map(|line| &*line.uid).unwrap_or_default();
            let (is_ours, is_foreign) =
                (matches!(response, NumberResponse::Ours(_)), response == NumberResponse::Foreign);
            let known = proofs.verdict(address, number, uid, sent);
            proofs.record(address, number, response, sent);
            let verdict = proofs.verdict(address, number, uid, sent);
            if is_foreign {
                self.queue_plan(); // If another process occupies a number, each response counts.
            }
            let is_waited_for = |query: &PendingQuery| query.path.is_some() || query.decision.is_some();
            let waits = queries.get(&(address, number)).is_some_and(is_waited_for);
            let waiting = match is_ours && (verdict == Verdict::Proven || !waits) {
                true => queries.remove(&(address, number)),
                // Without a proof the reconcile keeps waiting, and is queued only if the verdict changed.
                false => queries.get(&(address, number)).filter(|_| verdict != known).cloned(),
            };
            let PendingQuery { path, decision, .. } = waiting.unwrap_or_default();
            if let Some(key) = decision {
                self.decisions.add(key, Priority::Normal);
            }
            if let Some((key, priority)) = path {
                self.paths.add(key, priority);
            }
            if let Some(line) = line.filter(|_| verdict == Verdict::Denied && known != Verdict::Denied) {
                self.paths.add(line.key.clone(), Priority::Normal);
            }
        }
        if before.is_some() && before.as_deref() != proofs.instance(address) {
            // A replacement process must confirm each number anew.
            let held = maps.lines.iter().filter(|(_, line)| line.state == NumberState::Held);
            for (number, _) in held {
                queries.entry((address, *number)).or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an event soon after a plan waits nine times the planning time, at most a second. A later event waits only
    /// for the merge interval.
    #[tokio::test(start_paused = true)]
    async fn only_an_event_soon_after_a_long_plan_waits() {
        let ms = Duration::from_millis;
        for (took, later, waits) in [
            (ms(100), ms(0), ms(900)),
            (ms(100), ms(600), ms(300)),
            (ms(100), ms(2000), MERGED_WITHIN),
            (ms(500), ms(0), PAUSE_MAX),
            (ms(1), ms(0), MERGED_WITHIN),
        ] {
            let port_allocator = PortAllocator::new("system", WorkQueue::new(), Clock::system());
            port_allocator.planned_within(took);
            tokio::time::sleep(later).await;
            port_allocator.queue_plan();
            let begun = Instant::now();
            drop(port_allocator.queue.next().await);
            assert_eq!(begun.elapsed(), waits, "a plan of {took:?}, {later:?} ago");
        }
    }
}
