//! ZeroScalers, as values that the reconcilers of both front ends understand.
//!
//! ```text
//! watch ─▶ ZeroScaler ─▶ translated ─▶ PodAutoscaler ─┐
//!               ▲                                       ├─▶ the passes of both front ends
//!               │ status: one write, merged      ┌──────┘
//!               └──── publication ◀── statuses of PodAutoscaler and ServerlessService
//! ```
//!
//! PodAutoscaler, ServerlessService and Metric are values in memory here ([`memory`]): nobody reads or writes objects of
//! Knative's groups. What a user asks for becomes the PodAutoscaler's spec and settings ([`translation`]). What the passes say
//! in the three statuses is held at once, and written down as the status of the ZeroScaler when there is time
//! ([`publication`]): a wake waits for no status.
//!
//! # Whose word counts
//!
//! Who leads an object knows its status better than the API server: what was written last may be older. Who does not
//! lead it takes over what the leader has written, and goes on from there when it becomes the leader.

mod allocation;
mod creation;
pub(crate) mod enabled;
mod events;
pub(crate) mod fault;
pub(crate) mod keeper;
mod memory;
pub(crate) mod publication;
pub(crate) mod status;
pub(crate) mod translation;
mod untold;
mod watch;

use super::ports::Numbers;
use crate::reconcile::records::Scaled;
use common::RevisionKey as Key;
use common::backend::Backend;
use common_api::{PodAutoscaler, PodAutoscalerStatus, ZeroScaler};
use common_controller::{Leadership, Priority, Store, WorkQueue, key_of, version_of};
use dashmap::DashMap;
use enabled::Enabled;
use kube::ResourceExt;
use parking_lot::Mutex;
use std::sync::Arc;

/// A former version that is in force.
#[derive(Clone)]
struct Kept {
    version: Arc<ZeroScaler>,
    /// Since its target is being given back; else since the newest is refused.
    is_leaving: bool,
}

/// All ZeroScalers.
pub(crate) struct Scalers {
    /// As the API server has them.
    objects: Store<ZeroScaler>,
    leadership: Arc<dyn Leadership>,
    numbers: Arc<Numbers>,
    /// Held while a PodAutoscaler is read, changed and put back, and while something is noted of an object that is there.
    turn: Mutex<()>,
    /// Whose status may have to be written.
    publications: WorkQueue<Key>,
    /// How activators reach the pods of each, as last resolved.
    backends: DashMap<Key, Box<Backend>>,
    /// How the replicas of each were changed since its status was written.
    scaled: DashMap<Key, Scaled>,
    /// Former versions that are in force.
    kept: DashMap<Key, Kept>,
    /// Services of each whose clients are led to somebody, since this process knows it.
    led: DashMap<Key, Vec<String>>,
    /// Workloads that ask for one by a label.
    pub(crate) enabled: Arc<Enabled>,
}

impl Scalers {
    /// None is known yet.
    pub(crate) fn new(leadership: Arc<dyn Leadership>, numbers: Arc<Numbers>) -> Arc<Self> {
        Arc::new(Self {
            objects: Store::packing(|_, _, _| {}),
            leadership,
            turn: Mutex::new(()),
            publications: numbers.statuses(),
            numbers,
            backends: DashMap::new(),
            scaled: DashMap::new(),
            kept: DashMap::new(),
            led: DashMap::new(),
            enabled: Arc::default(),
        })
    }

    /// Whose status may have to be written.
    pub(crate) fn queue(&self) -> WorkQueue<Key> {
        self.publications.clone()
    }

    /// Looks at the statuses of a namespace again.
    pub(super) fn look_in(&self, namespace: &str) {
        for key in self.objects.keys_within(namespace) {
            self.publications.add(key, Priority::Slow);
        }
    }

    /// All of them.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.objects.keys()
    }

    /// The version that is known of one.
    pub(super) fn version(&self, key: &Key) -> Option<u64> {
        self.objects.version(key)
    }

    /// Whether there is one of this name.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.objects.holds(key)
    }

    /// The one of this name.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<ZeroScaler>> {
        self.objects.get(key)
    }

    /// The one that a PodAutoscaler stands for; none: it has gone since.
    pub(crate) fn behind(&self, object: &PodAutoscaler) -> Option<Arc<ZeroScaler>> {
        self.get(&key_of(object)).filter(|found| found.metadata.uid == object.metadata.uid)
    }

    /// Takes in one, as the API server has it now, and puts what it means into `autoscalers`.
    pub(crate) fn take(&self, autoscalers: &Store<PodAutoscaler>, object: ZeroScaler) {
        let _turn = self.turn.lock();
        self.take_in_turn(autoscalers, object);
    }

    fn take_in_turn(&self, autoscalers: &Store<PodAutoscaler>, mut object: ZeroScaler) {
        object.metadata.managed_fields = None;
        let (key, version) = (key_of(&object), object.resource_version().unwrap_or_default());
        if self.objects.version(&key) == Some(version_of(&object)) {
            return; // A watch that broke lists all again.
        }
        match self.objects.get(&key) {
            Some(have) if is_newer(&have, &object) => return, // The answer to a write of ours was here before.
            Some(have) if have.metadata.uid != object.metadata.uid => self.forget_notes(&key),
            _ => {}
        }
        let have = autoscalers.get(&key).filter(|have| have.metadata.uid == object.metadata.uid);
        let status = match have.filter(|_| self.leadership.owns(&key)) {
            Some(have) => have.status.clone(),
            None => object.status.as_ref().map(|status| status::read(status, key.name())),
        };
        self.enabled.take(&key, Some(&object));
        self.numbers.exists(&key, object.metadata.uid.as_deref());
        let meaning = PodAutoscaler { status, ..translation::autoscaler(&object) };
        let priority = if self.objects.holds(&key) { Priority::Normal } else { Priority::New };
        self.objects.apply(&key, &version, Some(object));
        autoscalers.apply(&key, &version, Some(meaning));
        self.publications.add(key, priority);
    }

    /// Takes in one that means what is known of it already, as another version of it.
    #[cfg(test)]
    pub(crate) fn put(&self, mut object: ZeroScaler) {
        static VERSIONS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let version = VERSIONS.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        object.metadata.resource_version = Some(version.clone());
        self.objects.apply(&key_of(&object), &version, Some(object));
    }

    /// The same of the answer to a write of ours, unless the object has gone since: nobody would tell of its end again.
    fn answered(&self, autoscalers: &Store<PodAutoscaler>, object: ZeroScaler) {
        let _turn = self.turn.lock();
        let key = key_of(&object);
        if self.has(&key) && self.get(&key).is_some_and(|have| have.metadata.uid == object.metadata.uid) {
            self.take_in_turn(autoscalers, object);
        }
    }

    /// Notes something of one, unless it has gone: the end of an object takes all notes of it away, once.
    fn note(&self, key: &Key, note: impl FnOnce()) {
        let _turn = self.turn.lock();
        if self.has(key) {
            note();
        }
    }

    /// One is no more.
    pub(crate) fn gone(&self, autoscalers: &Store<PodAutoscaler>, key: &Key) {
        let _turn = self.turn.lock();
        self.objects.apply(key, "", None);
        self.numbers.exists(key, None);
        self.forget_notes(key);
        autoscalers.apply(key, "", None);
        self.enabled.take(key, None);
    }

    fn forget_notes(&self, key: &Key) {
        self.forget_findings(key);
        self.kept.remove(key);
    }

    /// Forgets what was found out about one that is not led here any more: it may be old when it is again.
    fn forget_findings(&self, key: &Key) {
        self.backends.remove(key);
        self.scaled.remove(key);
        self.led.remove(key);
    }

    /// Holds what a pass says of one: the object that was `read`, if it is still there.
    fn tell(&self, autoscalers: &Store<PodAutoscaler>, read: &PodAutoscaler, status: PodAutoscalerStatus) {
        let key = key_of(read);
        let _turn = self.turn.lock();
        let have = autoscalers.get(&key).filter(|have| have.metadata.uid == read.metadata.uid);
        let Some(have) = have.filter(|have| have.status.as_ref() != Some(&status)) else { return };
        let version = have.resource_version().unwrap_or_default();
        autoscalers.apply(&key, &version, Some(PodAutoscaler { status: Some(status), ..PodAutoscaler::clone(&have) }));
    }

    /// Notes that a former version of one is in force; none: it is served as it is written.
    pub(super) fn keep(&self, key: &Key, former: Option<Arc<ZeroScaler>>) {
        match former {
            Some(version) => {
                self.note(key, || drop(self.kept.insert(key.clone(), Kept { version, is_leaving: false })));
            }
            None => drop(self.kept.remove(key)),
        }
    }

    /// Notes that the target of a former version of one is being given back, before another is taken up.
    pub(super) fn leave(&self, key: &Key, version: Arc<ZeroScaler>) {
        self.note(key, || drop(self.kept.insert(key.clone(), Kept { version, is_leaving: true })));
    }

    /// Whether that is so.
    pub(super) fn is_leaving(&self, key: &Key) -> bool {
        self.kept.get(key).is_some_and(|kept| kept.is_leaving)
    }

    /// The former version of one that is in force; none: it is served as it is written.
    pub(super) fn kept(&self, key: &Key) -> Option<Arc<ZeroScaler>> {
        self.kept.get(key).map(|kept| kept.version.clone())
    }

    /// Those of which a former version is in force, with this Service.
    pub(super) fn kept_with(&self, service: &Key) -> Vec<Key> {
        let names = |key: &Key, version: &ZeroScaler| {
            key.namespace() == service.namespace() && version.spec.names_service(service.name())
        };
        let kept = self.kept.iter().filter(|kept| names(kept.key(), &kept.version));
        kept.map(|kept| kept.key().clone()).collect()
    }

    /// Notes how activators reach the pods of one.
    pub(crate) fn reached(&self, key: &Key, backend: Backend) {
        if self.backends.get(key).is_none_or(|have| **have != backend) {
            self.note(key, || {
                self.backends.insert(key.clone(), Box::new(backend));
                self.publications.add(key.clone(), Priority::Normal);
            });
        }
    }

    /// Notes that the replicas of one were changed: what is said of several changes in a row is said once.
    fn scaled(&self, key: &Key, scaled: Scaled) {
        self.note(key, || {
            let from = self.scaled.get(key).map_or(scaled.from, |earlier| earlier.from);
            self.scaled.insert(key.clone(), Scaled { from, ..scaled });
            self.publications.add(key.clone(), Priority::Normal);
        });
    }

    /// Notes of which Services of one clients are led to somebody who is ready.
    pub(crate) fn led(&self, key: &Key, services: Vec<String>) {
        if self.led.get(key).is_none_or(|led| *led != services) {
            self.note(key, || {
                self.led.insert(key.clone(), services);
                self.publications.add(key.clone(), Priority::Normal);
            });
        }
    }

    /// Returns whether clients of all these Services of one are, as far as it is known.
    pub(crate) fn are_led<'a>(&self, key: &Key, mut services: impl Iterator<Item = &'a str>) -> bool {
        self.led.get(key).is_some_and(|led| services.all(|service| led.iter().any(|led| led == service)))
    }

    /// Whether it is known how activators reach the pods of one.
    pub(crate) fn is_reached(&self, key: &Key) -> bool {
        self.backends.contains_key(key)
    }

    /// How activators reach the pods of one; none: that is not known yet.
    pub(crate) fn backend(&self, key: &Key) -> Option<Backend> {
        self.backends.get(key).map(|backend| Backend::clone(&backend))
    }
}

/// Whether `have` is a newer version of the same object.
fn is_newer(have: &ZeroScaler, than: &ZeroScaler) -> bool {
    have.metadata.uid == than.metadata.uid && version_of(have) > version_of(than)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_controller::Alone;
    use std::sync::Barrier;

    fn zeroscaler(namespace: &str, version: &str) -> ZeroScaler {
        let mut object = ZeroScaler::new("a", common_api::ZeroScalerSpec::default());
        object.metadata.namespace = Some(namespace.to_owned());
        (object.metadata.uid, object.metadata.resource_version) = (Some("u".to_owned()), Some(version.to_owned()));
        object
    }

    /// Goal: what concerns the statuses of one namespace leads to no other's.
    #[test]
    fn the_statuses_of_a_namespace_are_looked_at_alone() {
        let scalers = Scalers::new(Arc::new(Alone), Numbers::new("system", WorkQueue::new()));
        for namespace in ["a", "ns", "ns-2"] {
            scalers.put(zeroscaler(namespace, "1"));
        }
        scalers.look_in("ns");
        let looked: Vec<Key> = std::iter::from_fn(|| Some(scalers.queue().try_next()?.key().clone())).collect();
        assert_eq!(looked, [Key::new("ns", "a")]);
    }

    /// Goal: a list that shows what is known leads to no look at it; what has changed does.
    #[test]
    fn what_is_listed_again_is_not_looked_at_again() {
        let scalers = Scalers::new(Arc::new(Alone), Numbers::new("system", WorkQueue::new()));
        let autoscalers = Store::packing(|_, _, _| {});
        for (version, is_news) in [("1", true), ("1", false), ("2", true)] {
            scalers.take(&autoscalers, zeroscaler("ns", version));
            assert_eq!(scalers.queue().try_next().is_some(), is_news, "{version}");
        }
    }

    /// Goal: an object that is gone stays so, whoever is late: the answer to the write that let it go, or a note of it.
    /// Method: the watch and a pass at the same moment, on threads of their own, again and again.
    #[test]
    fn what_is_gone_stays_so() {
        let scalers = Scalers::new(Arc::new(Alone), Numbers::new("system", WorkQueue::new()));
        let autoscalers = Store::packing(|_, _, _| {});
        let key = Key::new("ns", "a");
        let version = |version: &str| zeroscaler("ns", version);
        let together = Barrier::new(2);
        for _ in 0..2000 {
            scalers.take(&autoscalers, version("1"));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    together.wait();
                    scalers.gone(&autoscalers, &key);
                });
                together.wait();
                scalers.led(&key, vec!["a".to_owned()]);
                scalers.answered(&autoscalers, version("2"));
                scalers.keep(&key, Some(Arc::new(version("1"))));
            });
            assert!(!scalers.has(&key) && autoscalers.get(&key).is_none());
            assert!(!scalers.are_led(&key, ["a"].into_iter()) && scalers.kept(&key).is_none());
        }
    }
}
