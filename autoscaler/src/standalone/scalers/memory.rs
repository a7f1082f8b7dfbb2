//! ServerlessServices and Metrics that are values of this process, and written nowhere.
//!
//! They come and go as the API server's would: each change is another version, a changed spec another generation, and
//! whoever listens to the store hears of it. All that must outlive the process is in the status of the ZeroScaler
//! ([`super::publication`]), and in the Services and EndpointSlices that follow from them; another owner makes them anew.

use crate::reconcile::error::Error;
use crate::reconcile::records::Children;
use common::RevisionKey as Key;
use common_api::ZeroScaler;
use common_controller::objects::controller;
use common_controller::{Kind, Statuses, Store, WriteError, key_of};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::object::{HasSpec, HasStatus};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Adds something to a new value.
type Born<K> = Box<dyn Fn(&Key, &mut K) + Send + Sync>;

/// Values of one kind.
pub(super) struct Memory<K> {
    store: Arc<Store<K>>,
    /// Those that are ours: the store may hold others. Locked while one is read, changed and put back.
    held: Mutex<HashSet<Key>>,
    version: AtomicU64,
    /// What a new one knows of a former process's.
    born: Born<K>,
}

impl<K: Kind + HasSpec + HasStatus> Memory<K>
where
    K::Spec: PartialEq,
    K::Status: PartialEq + Clone + Send,
{
    /// Shows them to the readers of `store`. `born` adds to a new one what is known of a former process's.
    pub(super) fn new(store: Arc<Store<K>>, born: impl Fn(&Key, &mut K) + Send + Sync + 'static) -> Self {
        Self { store, held: Mutex::default(), version: AtomicU64::new(0), born: Box::new(born) }
    }

    /// Holds `object` as the newest version, and returns it.
    fn hold(&self, held: &mut HashSet<Key>, mut object: K) -> Arc<K> {
        let (key, version) = (key_of(&object), self.version.fetch_add(1, Ordering::Relaxed) + 1);
        object.meta_mut().resource_version = Some(version.to_string());
        held.insert(key.clone());
        self.store.apply(&key, &version.to_string(), Some(object.clone()));
        Arc::new(object)
    }
}

impl<K: Kind + HasSpec + HasStatus> Statuses<K> for Memory<K>
where
    K::Spec: PartialEq,
    K::Status: PartialEq + Clone + Send,
{
    fn write<'a>(&'a self, read: &'a Arc<K>, status: K::Status) -> BoxFuture<'a, Result<(), WriteError>> {
        let mut held = self.held.lock();
        let have = self.store.get(&key_of(&**read)).filter(|have| have.meta().uid == read.meta().uid);
        if let Some(have) = have.filter(|have| have.status() != Some(&status)) {
            let mut next = K::clone(&have);
            *next.status_mut() = Some(status);
            self.hold(&mut held, next);
        }
        ready(Ok(())).boxed()
    }

    /// What goes wrong with a value goes wrong with its ZeroScaler, whose own pass says so.
    fn complain(&self, object: &K, reason: &str, message: String) {
        tracing::debug!(object = %key_of(object), kind = %K::kind(&()), reason, message, "a pass has failed");
    }
}

impl<K: Kind + HasSpec + HasStatus> Children<K> for Memory<K>
where
    K::Spec: PartialEq,
    K::Status: PartialEq + Clone + Send,
{
    /// It has the uid of the ZeroScaler that it stands for.
    fn create<'a>(&'a self, revision: &'a Key, mut object: K, _: &'a str) -> BoxFuture<'a, Result<Arc<K>, Error>> {
        let uid = controller(object.meta()).map(|owner| owner.uid.clone());
        let meta = object.meta_mut();
        (meta.uid, meta.generation) = (uid, Some(1));
        (self.born)(revision, &mut object);
        ready(Ok(self.hold(&mut self.held.lock(), object))).boxed()
    }

    fn replace<'a>(&'a self, revision: &'a Key, mut object: K, _: &'a str) -> BoxFuture<'a, Result<Arc<K>, Error>> {
        let mut held = self.held.lock();
        let Some(have) = self.store.get(revision) else {
            return ready(Ok(Arc::new(object))).boxed(); // It has gone since, and stays so.
        };
        // Its status is another pass's to write.
        *object.status_mut() = have.status().cloned();
        if have.spec() != object.spec() {
            *object.meta_mut().generation.get_or_insert_default() += 1;
        }
        ready(Ok(self.hold(&mut held, object))).boxed()
    }

    fn delete<'a>(&'a self, revision: &'a Key, _: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.forget(revision);
        ready(Ok(())).boxed()
    }

    fn forget(&self, revision: &Key) {
        let mut held = self.held.lock();
        if held.remove(revision) {
            self.store.apply(revision, "", None);
        }
    }

    fn reference(&self, object: &K) -> OwnerReference {
        OwnerReference {
            api_version: ZeroScaler::api_version(&()).into_owned(),
            kind: ZeroScaler::kind(&()).into_owned(),
            name: object.meta().name.clone().unwrap_or_default(),
            uid: object.meta().uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    fn outlives_process(&self, _: &Key) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::{Mode, ServerlessService, ServerlessServiceSpec, ServerlessServiceStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    /// Goal: a value has the life of an object: readers and listeners see each change, a spec that changes is another
    /// generation, a status that says the same is none.
    #[tokio::test]
    async fn a_value_lives_as_an_object_would() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = told.clone();
        let store = Arc::new(Store::packing(
            move |key: &Key, _: Option<&Arc<ServerlessService>>, new: Option<&Arc<ServerlessService>>| {
                listener.lock().push((key.to_string(), new.is_some()));
            },
        ));
        let (memory, key) = (Memory::<ServerlessService>::new(store.clone(), |_, _| {}), Key::new("ns", "hello"));
        let owner = OwnerReference { uid: "u".into(), controller: Some(true), ..OwnerReference::default() };
        let metadata = ObjectMeta {
            name: Some("hello".into()),
            namespace: Some("ns".into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        let spec = ServerlessServiceSpec { mode: Some(Mode::Proxy), ..ServerlessServiceSpec::default() };
        let object = ServerlessService { metadata, spec, status: None };
        let made = memory.create(&key, object, "").await.expect("made");
        assert_eq!((made.metadata.uid.as_deref(), made.metadata.generation), (Some("u"), Some(1)));
        let reference = memory.reference(&made);
        assert_eq!((reference.kind.as_str(), reference.uid.as_str()), ("ZeroScaler", "u"));

        let status = ServerlessServiceStatus { service_name: "hello".into(), ..ServerlessServiceStatus::default() };
        memory.write(&made, status.clone()).await.expect("written");
        memory.write(&made, status.clone()).await.expect("the same again");
        let mut next = ServerlessService::clone(&made);
        next.spec.mode = Some(Mode::Serve);
        let next = memory.replace(&key, next, "").await.expect("replaced");
        assert_eq!((next.metadata.generation, next.status.as_ref()), (Some(2), Some(&status)));
        assert_eq!(store.get(&key), Some(next));

        memory.delete(&key, "").await.expect("deleted");
        memory.forget(&key);
        memory.replace(&key, ServerlessService::clone(&made), "").await.expect("nothing to replace");
        memory.write(&made, ServerlessServiceStatus::default()).await.expect("nothing to write to");
        assert_eq!(store.get(&key), None, "what is gone stays so");
        let told: Vec<bool> = told.lock().iter().map(|(_, there)| *there).collect();
        assert_eq!(told, [true, true, true, false], "made, status, spec, gone");
    }
}
