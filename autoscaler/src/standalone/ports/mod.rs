//! Port numbers on the activators: what [`autoscaler_core::ports`] decides, carried out.
//!
//! ```text
//! ZeroScalers, Services ─▶ wants ─┐                        ┌─▶ status.ports, EndpointSlices
//! ledger, slices, activators ─────┴─▶ pass (plan, writes) ─┴─▶ ledger
//!                                       ▲ answers
//!                                       └───── questions ◀─── whom passes have to ask
//! ```
//!
//! One queue with one key: a pass plans for all workloads that this process leads, and writes one ConfigMap for each
//! block in which something changes ([`pass`]). Passes of workloads say what each is to have, read what it has been given
//! and where its slices may lead, and leave here whom they have to ask ([`questions`]).
//!
//! # What the rules need of this
//!
//! - A map is written under the version that the plan was made from, or created; who loses plans again.
//! - Nothing is planned before everything has been listed: what is not known yet is not gone. A workload that the watch
//!   knows and that nobody has said the ports of keeps what it has.
//! - The number of a workload that is not known is released only once the API server says that the workload does not exist
//!   ([`super::unread`]).
//! - What is known of activators follows the EndpointSlices of their Service, event by event, so nobody reads an answer of
//!   one that is gone.
//!
//! # Not here
//!
//! Slices: the pass over a workload's Service writes them ([`super::serverless`]).

mod pass;
mod questions;
mod state;

pub(crate) use pass::Controller;
pub(crate) use state::Given;

use autoscaler_core::ports::carriers::endpoints_among;
use autoscaler_core::ports::slices::{Endpoints, Listed, Port, answers, serves};
use autoscaler_core::ports::{Verdict, Wanted, Workload};
use autoscaler_core::scale_to_zero::ProbeResult;
use common::RevisionKey as Key;
use common::names;
use common::ports::ledger::Block;
use common_controller::{Priority, Store, WorkQueue, trimmed};
use common_runtime::clock::Clock;
use common_runtime::credential::TokenFile;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use state::State;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What happens within this time of each other is one plan.
const MERGED_WITHIN: Duration = Duration::from_millis(20);
/// From the end of one plan to the next where planning takes long, as a multiple of how long it took, so that it takes a tenth
/// of a core; and the longest.
const PAUSE_PLANS: u32 = 9;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Who has which number, and what activators have answered.
pub(crate) struct Numbers {
    pub(crate) ledger: Store<ConfigMap>,
    shared: Arc<Shared>,
}

struct Shared {
    system_namespace: String,
    state: Mutex<State>,
    /// Passes over the ledger.
    queue: WorkQueue<Key>,
    /// Passes over Services and slices.
    paths: WorkQueue<Key>,
    /// Passes over statuses.
    statuses: WorkQueue<Key>,
    /// Passes over scales.
    decisions: WorkQueue<Key>,
    /// There is somebody to ask.
    asks: Notify,
    /// When the next plan may be made.
    plan_from: Mutex<Instant>,
    /// Shown to whoever is asked for all its ports.
    token: OnceLock<TokenFile>,
    /// Wall-clock time: when numbers were released stands in the ledger.
    clock: Clock,
}

impl Numbers {
    /// Nothing is known yet. `decisions`: workloads to look at again when their proof is there.
    pub(crate) fn new(system_namespace: &str, decisions: WorkQueue<Key>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            system_namespace: system_namespace.to_owned(),
            state: Mutex::default(),
            queue: WorkQueue::new(),
            paths: WorkQueue::new(),
            statuses: WorkQueue::new(),
            decisions,
            asks: Notify::new(),
            plan_from: Mutex::new(Instant::now()),
            token: OnceLock::new(),
            clock: Clock::system(),
        });
        let looks = shared.clone();
        Arc::new(Self { ledger: Store::new(move |_, _, _| looks.look()), shared })
    }

    /// Shows this token where activators are asked for all their ports. Without one they are asked for some at a time.
    pub(crate) fn present(&self, token: TokenFile) {
        let _ = self.shared.token.set(token); // It stays what it was.
    }

    /// Passes over the ledger.
    pub(crate) fn queue(&self) -> WorkQueue<Key> {
        self.shared.queue.clone()
    }

    /// Workloads whose Services and slices are to be looked at.
    pub(crate) fn paths(&self) -> WorkQueue<Key> {
        self.shared.paths.clone()
    }

    /// Workloads whose status is to be looked at.
    pub(crate) fn statuses(&self) -> WorkQueue<Key> {
        self.shared.statuses.clone()
    }

    /// Follows the ledger and asks activators until `shutdown`, in tasks of its own.
    pub(crate) fn follow(self: &Arc<Self>, client: &Client, shutdown: &CancellationToken) {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &self.shared.system_namespace);
        let labelled = watcher::Config::default().labels(&format!("{}={}", names::LEDGER, names::LEDGER_OF_PORTS));
        let (numbers, shutdown) = (self.clone(), shutdown.clone());
        tokio::spawn(async move {
            let listed = async {
                numbers.ledger.synced().await;
                numbers.look();
                std::future::pending().await
            };
            tokio::select! {
                () = numbers.ledger.follow(maps, labelled, trimmed) => {}
                () = questions::ask_for_ever(&numbers.shared) => {}
                () = listed => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    /// Something has changed that numbers follow from.
    pub(crate) fn look(&self) {
        self.shared.look();
    }

    /// A plan took so long, and is made.
    fn planned_within(&self, time: Duration) {
        *self.shared.plan_from.lock() = Instant::now() + time.saturating_mul(PAUSE_PLANS).min(PAUSE_MAX);
    }

    /// A ZeroScaler is, by its uid, or is no more.
    pub(crate) fn exists(&self, key: &Key, uid: Option<&str>) {
        if self.shared.state.lock().exists(key, uid) {
            self.shared.look();
        }
    }

    /// What a ZeroScaler is to have from now on.
    pub(crate) fn want(&self, key: &Key, uid: &str, ports: Vec<Wanted>) {
        let changed = {
            let State { objects, wants, .. } = &mut *self.shared.state.lock();
            // Its name and uid are held once.
            let known = objects.get_key_value(key).filter(|(_, known)| ***known == *uid);
            let (key, uid) = known.map_or_else(|| (key.clone(), uid.into()), |(key, uid)| (key.clone(), uid.clone()));
            let workload = Workload { key: key.clone(), uid, ports };
            let changed = wants.get(&key) != Some(&workload);
            if changed {
                wants.insert(key, workload);
            }
            changed
        };
        if changed {
            self.shared.look();
        }
    }

    /// What an object has; none: nobody has planned for it yet.
    pub(crate) fn given(&self, key: &Key, uid: &str) -> Option<Given> {
        self.shared.state.lock().given.get(key).filter(|given| *given.uid == *uid).cloned()
    }

    /// A slice has changed, or is gone.
    pub(crate) fn slice(&self, key: &Key, slice: Option<&Arc<EndpointSlice>>) {
        let now = Instant::now().into_std();
        if self.shared.state.lock().slice(&self.shared.system_namespace, key, slice.map(|slice| &**slice), now) {
            self.shared.look();
        }
    }

    /// Where the slices of an object may lead now, for each of its ports. Who has to be asked for more is asked, and the
    /// object looked at again with that priority when the answer is there. `need`: so many activators can bear its load.
    pub(crate) fn endpoints(
        &self,
        key: &Key,
        ports: &[Port<'_>],
        need: Option<NonZeroUsize>,
        priority: Priority,
    ) -> Vec<Endpoints> {
        let mut state = self.shared.state.lock();
        let found = state.endpoints(key, ports, need);
        for asked in found.iter().flat_map(|endpoints| &endpoints.ask) {
            state.asks.of(*asked).path = Some((key.clone(), priority));
        }
        drop(state);
        if found.iter().any(|endpoints| !endpoints.ask.is_empty()) {
            self.shared.asks.notify_one();
        }
        found
    }

    /// The same without a question: for who has waited before a write.
    pub(crate) fn endpoints_still(&self, key: &Key, ports: &[Port<'_>], need: Option<NonZeroUsize>) -> Vec<Endpoints> {
        self.shared.state.lock().endpoints(key, ports, need)
    }

    /// Whether clients of an object who are led there meet it.
    pub(crate) fn serves(&self, uid: &str, at: &Listed) -> bool {
        let state = self.shared.state.lock();
        serves(at, uid, &state.activators(), &state.proofs, Instant::now().into_std())
    }

    /// Whether clients of an object who are led there are answered.
    pub(crate) fn answers(&self, uid: &str, at: &Listed) -> bool {
        let state = self.shared.state.lock();
        answers(at, uid, &state.activators(), &state.proofs, Instant::now().into_std())
    }

    /// Whether all of these addresses and numbers are proven to lead an object's clients to activators.
    pub(crate) fn proof(&self, uid: &str, leads: &[(IpAddr, u16)]) -> ProbeResult {
        let (state, now) = (self.shared.state.lock(), Instant::now().into_std());
        let proven =
            |(address, number): &(IpAddr, u16)| state.proofs.verdict(*address, *number, uid, now) == Verdict::Proven;
        if leads.iter().all(proven) { ProbeResult::InPath } else { ProbeResult::NotAsked }
    }

    /// Asks for what [`Numbers::proof`] lacks; the object's scale is looked at again when it is there.
    pub(crate) fn prove(&self, key: &Key, uid: &str, leads: &[(IpAddr, u16)]) {
        let (mut state, now) = (self.shared.state.lock(), Instant::now().into_std());
        for (address, number) in leads {
            if state.proofs.verdict(*address, *number, uid, now) != Verdict::Proven {
                state.asks.of((*address, *number)).decision = Some(key.clone());
            }
        }
        drop(state);
        self.shared.asks.notify_one();
    }

    /// Takes in what an activator is said to listen on now, each number for the object with that uid.
    #[cfg(test)]
    pub(crate) fn hear(&self, address: IpAddr, numbers: &[(u16, &str)]) {
        use autoscaler_core::ports::Answer;
        use common::ports::answer::Listening;
        let ours = |uid: &str| Listening { instance: "i".into(), uid: uid.into(), is_held: true };
        let answers = numbers.iter().map(|(number, uid)| (*number, Answer::Ours(ours(uid)))).collect();
        self.shared.answered(address, questions::Answers::Of(answers), Instant::now());
    }
}

impl State {
    fn endpoints(&self, key: &Key, ports: &[Port<'_>], need: Option<NonZeroUsize>) -> Vec<Endpoints> {
        let (activators, now) = (self.activators(), Instant::now().into_std());
        endpoints_among(ports, &activators, need, key.name(), &self.proofs, now)
    }
}

impl Shared {
    fn look(&self) {
        // Whatever stands for the ledger will do: there is one.
        let from = *self.plan_from.lock();
        let after = from.saturating_duration_since(Instant::now()).max(MERGED_WITHIN);
        self.queue.add_after(Key::new(self.system_namespace.as_str(), names::LEDGER_OF_PORTS), after);
    }

    fn map_key(&self, block: Block) -> Key {
        Key::new(self.system_namespace.as_str(), block.map_name())
    }

    /// Takes in the answers of one activator, and tells who waits for them.
    fn answered(&self, address: IpAddr, answers: questions::Answers, sent: Instant) {
        let mut state = self.state.lock();
        let told = state.answered(address, answers, sent.into_std());
        drop(state);
        told.paths.into_iter().for_each(|(key, priority)| self.paths.add(key, priority));
        told.decisions.into_iter().for_each(|key| self.decisions.add(key, Priority::Normal));
        if told.ledger {
            self.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whoever comes at once after a plan waits nine times as long as it took, a second at most; whoever comes later
    /// waits for its neighbours alone.
    #[tokio::test(start_paused = true)]
    async fn only_what_comes_soon_after_a_long_plan_waits_for_it() {
        let ms = Duration::from_millis;
        for (took, later, waits) in [
            (ms(100), ms(0), ms(900)),
            (ms(100), ms(600), ms(300)),
            (ms(100), ms(2000), MERGED_WITHIN),
            (ms(500), ms(0), PAUSE_MAX),
            (ms(1), ms(0), MERGED_WITHIN),
        ] {
            let numbers = Numbers::new("system", WorkQueue::new());
            numbers.planned_within(took);
            tokio::time::sleep(later).await;
            numbers.look();
            let begun = Instant::now();
            drop(numbers.queue().next().await);
            assert_eq!(begun.elapsed(), waits, "a plan of {took:?}, {later:?} ago");
        }
    }
}
