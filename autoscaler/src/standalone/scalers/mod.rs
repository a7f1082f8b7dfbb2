//! ZeroScalers: what is known of each, and what is written of it.
//!
//! ```text
//! watch ─▶ ZeroScaler ─▶ admission ─▶ Workload ─▶ the passes of both front ends
//!               ▲                                        │
//!               └── publication ◀── status ◀── findings ◀┘
//! ```
//!
//! What the passes find out is held in memory at once ([`findings`]), and written down as the status of the ZeroScaler when
//! there is time ([`publication`]): a wake waits for no status.
//!
//! # Whose word counts
//!
//! Who leads an object knows its status better than the API server: what was written last may be older. Who does not
//! lead it reads what the leader has written, and goes on from there when it becomes the leader.

mod allocation;
mod creation;
pub(crate) mod enabled;
mod events;
pub(crate) mod fault;
pub(crate) mod findings;
pub(crate) mod publication;
pub(crate) mod status;
pub(crate) mod translation;
mod untold;

use super::ports::Numbers;
use crate::engine::scaler::Scaled;
use common::RevisionKey as Key;
use common::backend::Backend;
use common_api::ZeroScaler;
use common_controller::{Leadership, Priority, Store, WorkQueue, key_of, version_of};
use dashmap::DashMap;
use enabled::Enabled;
use findings::Findings;
use kube::ResourceExt;
use parking_lot::Mutex;
use std::sync::Arc;

/// Name under which events of ZeroScalers are written.
pub(crate) const COMPONENT: &str = "zeroscaler-controller";

/// Told of a ZeroScaler as it was, and as it is now; none: it is not there.
pub(super) type Listener<'a> = dyn Fn(&Key, Option<&Arc<ZeroScaler>>, Option<&Arc<ZeroScaler>>) + Sync + 'a;

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
    pub(crate) objects: Arc<Store<ZeroScaler>>,
    leadership: Arc<dyn Leadership>,
    numbers: Arc<Numbers>,
    /// Held while a version is taken in, and while something is noted of an object that is there.
    turn: Mutex<()>,
    /// Whose status may have to be written.
    publications: WorkQueue<Key>,
    /// How activators reach the pods of each, as last resolved.
    backends: DashMap<Key, Box<Backend>>,
    /// Findings of the passes about each that is led here, and the uid that it has.
    findings: DashMap<Key, (String, Box<Findings>)>,
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
            objects: Arc::new(Store::packing(|_, _, _| {})),
            leadership,
            turn: Mutex::new(()),
            publications: numbers.statuses(),
            numbers,
            backends: DashMap::new(),
            findings: DashMap::new(),
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

    /// Takes in one, as the API server has it now.
    pub(crate) fn take(&self, object: ZeroScaler, listener: &Listener<'_>) {
        let _turn = self.turn.lock();
        self.take_in_turn(object, listener);
    }

    fn take_in_turn(&self, mut object: ZeroScaler, listener: &Listener<'_>) {
        object.metadata.managed_fields = None;
        let (key, version) = (key_of(&object), object.resource_version().unwrap_or_default());
        if self.objects.version(&key) == Some(version_of(&object)) {
            return; // A watch that broke lists all again.
        }
        let have = self.objects.get(&key);
        match &have {
            Some(have) if is_newer(have, &object) => return, // The answer to a write of ours was here before.
            Some(have) if have.metadata.uid != object.metadata.uid => self.forget_notes(&key),
            _ if !self.leadership.owns(&key) => drop(self.findings.remove(&key)),
            _ => {}
        }
        self.enabled.take(&key, Some(&object));
        self.numbers.exists(&key, object.metadata.uid.as_deref());
        let priority = if self.objects.holds(&key) { Priority::Normal } else { Priority::New };
        self.objects.apply(&key, &version, Some(object.clone()));
        listener(&key, have.as_ref(), Some(&Arc::new(object)));
        self.publications.add(key, priority);
    }

    /// The same of the answer to a write of ours, unless the object has gone since: nobody would tell of its end again.
    pub(super) fn answered(&self, object: ZeroScaler, listener: &Listener<'_>) {
        let _turn = self.turn.lock();
        let key = key_of(&object);
        if self.has(&key) && self.get(&key).is_some_and(|have| have.metadata.uid == object.metadata.uid) {
            self.take_in_turn(object, listener);
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
    pub(crate) fn gone(&self, key: &Key, listener: &Listener<'_>) {
        let _turn = self.turn.lock();
        let have = self.objects.get(key);
        self.objects.apply(key, "", None);
        self.numbers.exists(key, None);
        self.forget_notes(key);
        listener(key, have.as_ref(), None);
        self.enabled.take(key, None);
    }

    fn forget_notes(&self, key: &Key) {
        self.forget_findings(key);
        self.kept.remove(key);
    }

    /// Forgets what was found out about one that is not led here any more: it may be old when it is again.
    pub(super) fn forget_findings(&self, key: &Key) {
        self.backends.remove(key);
        self.findings.remove(key);
        self.scaled.remove(key);
        self.led.remove(key);
    }

    /// Returns what is known of one: what the passes of this process have found out, else what its status reports; none:
    /// nothing is.
    pub(crate) fn findings(&self, object: &ZeroScaler) -> Option<Findings> {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let held = self.findings.get(&key_of(object)).filter(|held| held.0 == uid);
        held.map(|held| Findings::clone(&held.1)).or_else(|| object.status.as_ref().map(Findings::read))
    }

    /// Holds what a pass has found out about the object that it has read, and calls `listener`, if that is something else than
    /// before and the object is still there.
    pub(super) fn found(&self, read: &ZeroScaler, findings: Findings, listener: impl FnOnce(&Key, &Findings)) {
        let (key, _turn) = (key_of(read), self.turn.lock());
        let is_there = self.get(&key).is_some_and(|have| have.metadata.uid == read.metadata.uid);
        if is_there && self.findings(read).as_ref() != Some(&findings) {
            listener(&key, &findings);
            self.findings.insert(key.clone(), (read.metadata.uid.clone().unwrap_or_default(), Box::new(findings)));
        }
        self.publications.add(key, Priority::Normal);
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
    pub(super) fn scaled(&self, key: &Key, scaled: Scaled) {
        self.note(key, || {
            let scaled = scaled.after(self.scaled.get(key).as_deref());
            self.scaled.insert(key.clone(), scaled);
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
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

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
            scalers.take(zeroscaler(namespace, "1"), &|_, _, _| {});
        }
        while scalers.queue().try_next().is_some() {}
        scalers.look_in("ns");
        let looked: Vec<Key> = std::iter::from_fn(|| Some(scalers.queue().try_next()?.key().clone())).collect();
        assert_eq!(looked, [Key::new("ns", "a")]);
    }

    /// Goal: a list that shows what is known leads to no look at it; what has changed does.
    #[test]
    fn what_is_listed_again_is_not_looked_at_again() {
        let scalers = Scalers::new(Arc::new(Alone), Numbers::new("system", WorkQueue::new()));
        for (version, is_news) in [("1", true), ("1", false), ("2", true)] {
            scalers.take(zeroscaler("ns", version), &|_, _, _| {});
            assert_eq!(scalers.queue().try_next().is_some(), is_news, "{version}");
        }
    }

    /// Goal: an object that is gone stays so, whoever is late: the answer to the write that let it go, or a note of it.
    /// Method: the watch and a pass at the same moment, on threads of their own, again and again.
    #[test]
    fn what_is_gone_stays_so() {
        let scalers = Scalers::new(Arc::new(Alone), Numbers::new("system", WorkQueue::new()));
        let key = Key::new("ns", "a");
        let version = |version: &str| zeroscaler("ns", version);
        let (together, is_told) = (Barrier::new(2), AtomicBool::new(false));
        let listener =
            |_: &Key, _: Option<&Arc<ZeroScaler>>, new: Option<&Arc<ZeroScaler>>| is_told.store(new.is_some(), Relaxed);
        for _ in 0..2000 {
            scalers.take(version("1"), &listener);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    together.wait();
                    scalers.gone(&key, &listener);
                });
                together.wait();
                scalers.led(&key, vec!["a".to_owned()]);
                scalers.answered(version("2"), &listener);
                scalers.keep(&key, Some(Arc::new(version("1"))));
            });
            assert!(!scalers.has(&key) && !is_told.load(Relaxed));
            assert!(!scalers.are_led(&key, ["a"].into_iter()) && scalers.kept(&key).is_none());
        }
    }
}
