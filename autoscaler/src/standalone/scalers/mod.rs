//! ZeroScalers: the findings about each, and its status.
//!
//! ```text
//! watch ─▶ ZeroScaler ─▶ admission ─▶ Workload ─▶ the reconciles of both front ends
//!               ▲                                        │
//!               └── publication ◀── status ◀── findings ◀┘
//! ```
//!
//! The findings of a reconcile are in memory at once ([`findings`]). They are written as the status of the ZeroScaler
//! later ([`publication`]), so a wake waits for no status.
//!
//! # Authority
//!
//! The leader of an object knows its status better than the API server, whose copy may be older. Other processes read
//! the status that the leader wrote, and continue from it when they become the leader.

mod allocation;
mod display;
pub(crate) mod enabled;
mod events;
pub(crate) mod fault;
pub(crate) mod findings;
mod pod_creation;
pub(crate) mod publication;
pub(crate) mod status;

use crate::engine::scaler::Scaled;
use crate::standalone::ports::PortAllocator;
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

/// Component name in events about ZeroScalers.
pub(crate) const COMPONENT: &str = "zeroscaler-controller";

/// Callback that receives a ZeroScaler before and after a change; `None`: it does not exist.
pub(super) type Listener<'a> = dyn Fn(&Key, Option<&Arc<ZeroScaler>>, Option<&Arc<ZeroScaler>>) + Sync + 'a;

/// Former version that is in force.
pub(super) struct FormerVersion {
    version: Arc<ZeroScaler>,
    /// Set if the target of the version is being given back; otherwise the newest version is refused.
    is_releasing: bool,
}

/// All ZeroScalers.
pub(crate) struct Scalers {
    /// Objects as the API server has them.
    pub(crate) objects: Arc<Store<ZeroScaler>>,
    leadership: Arc<dyn Leadership>,
    pub(super) port_allocator: Arc<PortAllocator>,
    /// Held while a version is applied, and while a note about an existing object is recorded.
    turn: Mutex<()>,
    /// Queue of statuses that may have to be written.
    pub(crate) queue: WorkQueue<Key>,
    /// Backends of the workloads, as last resolved.
    pub(super) backends: DashMap<Key, Box<Backend>>,
    /// Findings about the objects that this process leads, each with the uid of the object.
    findings: DashMap<Key, (String, Box<Findings>)>,
    /// Changes of replicas since the last written status.
    scaled: DashMap<Key, Scaled>,
    /// Former versions that are in force.
    pub(super) former: DashMap<Key, FormerVersion>,
    /// Services of each workload that lead clients to a ready endpoint, as far as this process knows.
    ready_services: DashMap<Key, Vec<String>>,
    /// Workloads that request a ZeroScaler by a label.
    pub(crate) enabled: Arc<Enabled>,
}

impl Scalers {
    /// Returns an empty collection.
    pub(crate) fn new(leadership: Arc<dyn Leadership>, port_allocator: Arc<PortAllocator>) -> Arc<Self> {
        Arc::new(Self {
            objects: Arc::new(Store::packing(|_, _, _| {})),
            leadership,
            turn: Mutex::new(()),
            queue: port_allocator.statuses.clone(),
            port_allocator,
            backends: DashMap::new(),
            findings: DashMap::new(),
            scaled: DashMap::new(),
            former: DashMap::new(),
            ready_services: DashMap::new(),
            enabled: Arc::default(),
        })
    }

    /// Applies a ZeroScaler as the API server has it now.
    pub(crate) fn apply(&self, object: ZeroScaler, listener: &Listener<'_>) {
        let _turn = self.turn.lock();
        self.apply_in_turn(object, listener);
    }

    fn apply_in_turn(&self, mut object: ZeroScaler, listener: &Listener<'_>) {
        object.metadata.managed_fields = None;
        let (key, version) = (key_of(&object), object.resource_version().unwrap_or_default());
        if self.objects.version(&key) == Some(version_of(&object)) {
            return; // A broken watch lists all objects again.
        }
        let have = self.objects.get(&key);
        match &have {
            // The response to our write arrived before the watch event.
            Some(have) if have.metadata.uid == object.metadata.uid && version_of(&**have) > version_of(&object) => {
                return;
            }
            Some(have) if have.metadata.uid != object.metadata.uid => self.forget_notes(&key),
            _ if !self.leadership.owns(&key) => drop(self.findings.remove(&key)),
            _ => {}
        }
        self.enabled.take(&key, Some(&object));
        self.port_allocator.exists(&key, object.metadata.uid.as_deref());
        let priority = if self.objects.holds(&key) { Priority::Normal } else { Priority::New };
        self.objects.apply(&key, &version, Some(object.clone()));
        listener(&key, have.as_ref(), Some(&Arc::new(object)));
        self.queue.add(key, priority);
    }

    /// Applies the response to one of our writes, unless the object was deleted meanwhile: no event would report its
    /// deletion again.
    pub(super) fn apply_response(&self, object: ZeroScaler, listener: &Listener<'_>) {
        let _turn = self.turn.lock();
        let key = key_of(&object);
        if self.objects.get(&key).is_some_and(|have| have.metadata.uid == object.metadata.uid) {
            self.apply_in_turn(object, listener);
        }
    }

    /// Records a note about a ZeroScaler and queues its status if the note is new. Records nothing if the ZeroScaler
    /// was deleted: the deletion removes all notes, once.
    fn note<T: PartialEq>(&self, notes: &DashMap<Key, T>, key: &Key, note: T) {
        if notes.get(key).is_none_or(|have| *have != note) {
            let _turn = self.turn.lock();
            if self.objects.holds(key) {
                notes.insert(key.clone(), note);
                self.queue.add(key.clone(), Priority::Normal);
            }
        }
    }

    pub(crate) fn delete(&self, key: &Key, listener: &Listener<'_>) {
        let _turn = self.turn.lock();
        let have = self.objects.get(key);
        self.objects.apply(key, "", None);
        self.port_allocator.exists(key, None);
        self.forget_notes(key);
        listener(key, have.as_ref(), None);
        self.enabled.take(key, None);
    }

    fn forget_notes(&self, key: &Key) {
        self.forget_findings(key);
        self.former.remove(key);
    }

    /// Forgets the findings about a workload that is no longer led here. They may be stale when it is led here again.
    pub(super) fn forget_findings(&self, key: &Key) {
        self.backends.remove(key);
        self.findings.remove(key);
        self.scaled.remove(key);
        self.ready_services.remove(key);
    }

    /// Returns the findings of this process, or else those in the status. Returns `None` if there are none.
    pub(crate) fn findings(&self, object: &ZeroScaler) -> Option<Findings> {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let held = self.findings.get(&key_of(object)).filter(|held| held.0 == uid);
        held.map(|held| Findings::clone(&held.1)).or_else(|| object.status.as_ref().map(Findings::read))
    }

    /// Reports whether a workload is known to be awake.
    pub(super) fn is_awake(&self, key: &Key) -> bool {
        let held = self.findings.get(key).map(|held| held.1.is_awake());
        held.unwrap_or_else(|| {
            self.objects.get(key).is_some_and(|object| self.findings(&object).is_some_and(|f| f.is_awake()))
        })
    }

    /// Records the findings of a reconcile about the object version that it read. Calls `listener` if they have changed
    /// and the object still exists.
    pub(super) fn record_findings(&self, read: &ZeroScaler, findings: Findings, listener: impl FnOnce(&Key)) {
        let (key, _turn) = (key_of(read), self.turn.lock());
        let is_there = self.objects.get(&key).is_some_and(|have| have.metadata.uid == read.metadata.uid);
        if is_there && self.findings(read).as_ref() != Some(&findings) {
            listener(&key);
            self.findings.insert(key.clone(), (read.metadata.uid.clone().unwrap_or_default(), Box::new(findings)));
        }
        self.queue.add(key, Priority::Normal);
    }

    /// Records that a former version is in force. `is_releasing`: its target is being given back, before another one is
    /// adopted.
    pub(super) fn keep_former_version(&self, key: &Key, version: Arc<ZeroScaler>, is_releasing: bool) {
        let _turn = self.turn.lock();
        if self.objects.holds(key) {
            self.former.insert(key.clone(), FormerVersion { version, is_releasing });
        }
    }

    /// Reports whether the target of a former version is being given back.
    pub(super) fn is_releasing(&self, key: &Key) -> bool {
        self.former.get(key).is_some_and(|former| former.is_releasing)
    }

    /// Returns the former version that is in force, or `None` if the newest version is.
    pub(super) fn former_version(&self, key: &Key) -> Option<Arc<ZeroScaler>> {
        self.former.get(key).map(|former| former.version.clone())
    }

    /// Returns the ZeroScalers with a former version in force that names this Service.
    pub(super) fn with_former_service(&self, service: &Key) -> Vec<Key> {
        let names = |key: &Key, version: &ZeroScaler| {
            key.namespace() == service.namespace() && version.spec.names_service(service.name())
        };
        let naming = self.former.iter().filter(|former| names(former.key(), &former.version));
        naming.map(|former| former.key().clone()).collect()
    }

    /// Records how activators reach the pods of a workload.
    pub(crate) fn set_backend(&self, key: &Key, backend: Backend) {
        self.note(&self.backends, key, Box::new(backend));
    }

    /// Records a change of replicas. Successive changes are merged into one.
    pub(super) fn scaled(&self, key: &Key, scaled: Scaled) {
        let scaled = scaled.after(self.scaled.get(key).as_deref());
        self.note(&self.scaled, key, scaled);
    }

    /// Records the Services of a workload that lead clients to a ready endpoint.
    pub(crate) fn set_ready_services(&self, key: &Key, services: Vec<String>) {
        self.note(&self.ready_services, key, services);
    }

    /// Reports whether all these Services are known to lead clients to a ready endpoint.
    pub(crate) fn has_ready_services<'a>(&self, key: &Key, mut services: impl Iterator<Item = &'a str>) -> bool {
        self.ready_services.get(key).is_some_and(|led| services.all(|service| led.iter().any(|led| led == service)))
    }

    /// Returns the backend of a workload, or `None` if it is not known yet.
    pub(crate) fn backend(&self, key: &Key) -> Option<Backend> {
        self.backends.get(key).map(|backend| Backend::clone(&backend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_controller::Alone;
    use common_runtime::clock::Clock;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    fn zeroscaler(namespace: &str, version: &str) -> ZeroScaler {
        let mut object = ZeroScaler::new("a", common_api::ZeroScalerSpec::default());
        object.metadata.namespace = Some(namespace.to_owned());
        (object.metadata.uid, object.metadata.resource_version) = (Some("u".to_owned()), Some(version.to_owned()));
        object
    }

    #[test]
    fn an_unchanged_object_in_a_repeated_list_is_not_queued() {
        let scalers = Scalers::new(Arc::new(Alone), PortAllocator::new("system", WorkQueue::new(), Clock::system()));
        for (version, is_news) in [("1", true), ("1", false), ("2", true)] {
            scalers.apply(zeroscaler("ns", version), &|_, _, _| {});
            assert_eq!(scalers.queue.try_next().is_some(), is_news, "{version}");
        }
    }

    /// Goal: a deleted object stays deleted, although the response to the write that released it, or a note about it,
    /// arrives late. Method: watch and reconcile at the same moment on separate threads, repeatedly.
    #[test]
    fn a_deleted_object_stays_deleted() {
        let scalers = Scalers::new(Arc::new(Alone), PortAllocator::new("system", WorkQueue::new(), Clock::system()));
        let key = Key::new("ns", "a");
        let version = |version: &str| zeroscaler("ns", version);
        let (together, is_reported) = (Barrier::new(2), AtomicBool::new(false));
        let listener = |_: &Key, _: Option<&Arc<ZeroScaler>>, new: Option<&Arc<ZeroScaler>>| {
            is_reported.store(new.is_some(), Relaxed)
        };
        for _ in 0..2000 {
            scalers.apply(version("1"), &listener);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    together.wait();
                    scalers.delete(&key, &listener);
                });
                together.wait();
                scalers.set_ready_services(&key, vec!["a".to_owned()]);
                scalers.apply_response(version("2"), &listener);
                scalers.keep_former_version(&key, Arc::new(version("1")), false);
            });
            assert!(!scalers.objects.holds(&key) && !is_reported.load(Relaxed));
            assert!(!scalers.has_ready_services(&key, ["a"].into_iter()) && scalers.former_version(&key).is_none());
        }
    }
}
