//! Tests of the keys that events queue.

use super::*;
use crate::cluster::Stores;
use crate::cluster::target_key::TargetResource;
use crate::engine::workload::Path;
use crate::standalone::hosts::MERGED_WITHIN;
use autoscaler_core::path_mode::PathMode;
use common::backend::Backend;
use common_api::zeroscaler;
use common_controller::Alone;
use common_runtime::clock::Clock;
use kube::Client;
use kube::runtime::watcher;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;

struct Fixture {
    stores: Stores,
    queue: WorkQueue<Key>,
    cluster: Arc<Cluster>,
    versions: AtomicU64,
}

impl Fixture {
    fn new() -> Self {
        let queue = WorkQueue::new();
        let port_allocator = PortAllocator::new("system", queue.clone(), Clock::system());
        let scalers = Scalers::new(Arc::new(Alone), port_allocator);
        let config = watch::channel(Arc::default()).1;
        let cluster = Cluster::new("system", "cluster.local", Namespaces::ALL, queue.clone(), scalers, config);
        let (service, _handle) =
            tower_test::mock::pair::<http::Request<kube::client::Body>, http::Response<kube::client::Body>>();
        let (client, front_end_queues) =
            (Client::new(service, "default"), (cluster.clone() as Arc<dyn FrontEndQueues>, Namespaces::ALL));
        let stores = Stores::new(client, queue.clone(), front_end_queues, CancellationToken::new());
        Self { stores, queue, cluster, versions: AtomicU64::new(1) }
    }

    /// Drains the queues of scale and path, each in order.
    async fn drain(&self) -> (Vec<String>, Vec<String>) {
        (drain(&self.queue).await, drain(&self.cluster.path_queue).await)
    }

    /// Returns the ledger reconciles that are due after the merge interval. Time is paused.
    async fn host_passes(&self) -> Vec<String> {
        tokio::time::advance(MERGED_WITHIN).await;
        let queue = &self.cluster.hosts.queue;
        std::iter::from_fn(|| Some(queue.try_next()?.key().to_string())).collect()
    }

    fn scaler(&self, name: &str, created: &str, spec: Value) {
        let mut value = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created},
            "spec": {"target": {"name": name}},
        });
        json_patch::merge(&mut value["spec"], &spec);
        self.take(value);
    }

    /// Delivers a ZeroScaler as the watch would, as its next version.
    fn take(&self, value: Value) {
        let mut object: ZeroScaler = serde_json::from_value(value).expect("a ZeroScaler");
        object.metadata.resource_version = Some(self.versions.fetch_add(1, Ordering::Relaxed).to_string());
        self.cluster.apply(&self.stores.index, object);
    }

    fn slice(&self, key: &Key, service: &str, labels: Value) {
        let mut metadata = json!({"name": key.name(), "namespace": key.namespace(), "labels": labels});
        metadata["labels"][SERVICE_NAME] = json!(service);
        let slice = serde_json::from_value(json!({"metadata": metadata, "addressType": "IPv4"})).expect("a slice");
        self.cluster.slices.apply(key, "1", Some(slice));
    }

    fn service(&self, name: &str, version: &str) {
        let service = serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}})).expect("ok");
        self.cluster.services.apply(&Key::new("ns", name), version, Some(service));
    }
}

async fn drain(queue: &WorkQueue<Key>) -> Vec<String> {
    let mut keys = vec![];
    while queue.depth() > 0 {
        keys.push(queue.next().await.key().to_string());
    }
    keys.sort_unstable();
    keys
}

fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("ns/{name}")).collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_queues_the_keys_that_depend_on_it() {
    let f = Fixture::new();
    f.scaler("young", "2026-01-02T00:00:00Z", json!({"hosts": ["a.example.com"]}));
    assert_eq!(f.drain().await, (keys(&["young"]), keys(&["young"])));
    f.scaler("young", "2026-01-02T00:00:00Z", json!({"hosts": ["a.example.com"]}));
    assert_eq!(f.drain().await, (keys(&["young"]), vec![]), "only its version or status has changed");
    let old = json!({"hosts": ["a.example.com"], "services": [{"name": "web"}]});
    f.scaler("old", "2026-01-01T00:00:00Z", old);
    assert_eq!(f.drain().await, (keys(&["old"]), keys(&["old"])));
    assert!(f.cluster.hosts.queue.try_next().is_none(), "more events may follow");
    assert_eq!(f.host_passes().await, ["system/hosts"], "two events, one pass");

    f.service("web", "1");
    assert_eq!(f.drain().await, (keys(&["old"]), keys(&["old"])), "a Service of the public name");

    let left_behind = Key::new("ns", "left-behind");
    f.slice(&left_behind, "web", json!({}));
    assert_eq!(f.drain().await, (vec![], keys(&["old"])), "a slice about the public Service");
    f.slice(&Key::new("ns", "private"), "young-private", json!({names::WORKLOAD: "young"}));
    assert_eq!(f.drain().await, (vec![], keys(&["young"])), "a private slice, by its label");
    assert_eq!(f.cluster.slices_of(&Key::new("ns", "web")).len(), 1);
    f.slice(&left_behind, "elsewhere", json!({}));
    assert_eq!(f.drain().await.1, keys(&["old"]), "a slice that was moved to another Service");
    assert!(f.cluster.slices_of(&Key::new("ns", "web")).is_empty());

    let target =
        TargetKey { resource: TargetResource::for_kind("apps/v1", "Deployment"), object: Key::new("ns", "young") };
    f.stores.index.on_event(TargetEvent::Changed(&target));
    assert_eq!(f.drain().await, (keys(&["young"]), keys(&["young"])));

    f.stores.index.reconcile_now(&Key::new("ns", "old"));
    f.stores.index.reconcile_all();
    assert_eq!(f.drain().await, (keys(&["old", "young"]), keys(&["old", "young"])));
    f.cluster.delete(&f.stores.index, &Key::new("ns", "old"));
    assert_eq!(f.drain().await, (keys(&["old"]), keys(&["old"])));
    assert_eq!(f.host_passes().await, ["system/hosts"], "its host may get another owner");
}

/// Goal: in a mass creation the first workload has its slices before the last one has its Services, whatever else is
/// written about the others meanwhile. Workloads that are awake, or being deleted, go first even without an earlier
/// reconcile.
#[tokio::test]
async fn a_reconciled_path_goes_before_those_of_new_workloads() {
    let f = Fixture::new();
    for name in ["first", "second", "third"] {
        f.scaler(name, "2026-01-01T00:00:00Z", json!({}));
    }
    let (queue, key) = (f.cluster.path_queue.clone(), |name| Key::new("ns", name));
    let next = || queue.try_next().expect("one waits").key().name().to_owned();
    f.stores.index.reconcile_now(&key("third"));
    assert_eq!(next(), "first");
    f.cluster.scalers.set_backend(&key("first"), Backend::plain("web"));
    f.stores.index.reconcile_now(&key("first"));
    assert_eq!([next(), next()], ["first", "second"]);
    f.stores.index.reconcile_now(&key("second"));
    let awake = json!({
        "type": "Active", "status": "True", "reason": "Awake", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    f.take(json!({
        "metadata": {"name": "fourth", "namespace": "ns", "uid": "fourth"},
        "spec": {"target": {"name": "fourth"}}, "status": {"conditions": [awake]},
    }));
    assert_eq!([next(), next(), next()], ["fourth", "third", "second"]);

    f.stores.index.reconcile_now(&key("third"));
    let leaving = json!({
        "metadata": {
            "name": "second", "namespace": "ns", "uid": "second", "deletionTimestamp": "2026-01-02T00:00:00Z",
        },
        "spec": {"target": {"name": "second"}},
    });
    f.take(leaving);
    assert_eq!([next(), next()], ["second", "third"], "another object may wait for its end");
}

/// Goal: a reconcile that runs before the watch delivers a slice does not create the slice again. Method: the response
/// to the write reaches only the store.
#[tokio::test]
async fn a_created_slice_belongs_to_its_service_at_once() {
    let f = Fixture::new();
    let metadata = json!({
        "name": "ours", "namespace": "ns", "resourceVersion": "7", "labels": {"kubernetes.io/service-name": "web"},
    });
    let slice: EndpointSlice =
        serde_json::from_value(json!({"metadata": metadata, "addressType": "IPv4"})).expect("a slice");
    f.cluster.slices.offer_object(&slice);
    f.cluster.record_new_slice(&slice);
    let names = || -> Vec<_> { f.cluster.slices_of(&Key::new("ns", "web")).iter().map(|s| s.name_any()).collect() };
    assert_eq!(names(), ["ours"]);
    f.cluster.slices.take(watcher::Event::Apply(slice.clone()), |slice| slice);
    assert_eq!(names(), ["ours"], "the watch reports it again");
    f.cluster.slices.take(watcher::Event::Delete(slice), |slice| slice);
    assert_eq!(names(), [""; 0]);
}

/// Goal: borrowed Services are found by the uid of their ZeroScaler after each kind of watch event: changes, deletions,
/// and lists without a Service. The annotation of a Service in another namespace is ignored.
#[tokio::test]
async fn borrowed_services_are_found_by_their_zeroscaler() {
    let f = Fixture::new();
    let service = |namespace: &str, name: &str, version: &str, by: Option<&str>| -> Service {
        let annotations = by.map(|by| json!({ADOPTED_BY: by}));
        let metadata = json!({
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": version, "annotations": annotations,
        });
        serde_json::from_value(json!({"metadata": metadata})).expect("a Service")
    };
    let take = |event: watcher::Event<Service>| f.cluster.services.take(event, |service| service);
    let borrowed = |uid: &str| -> Vec<String> {
        f.cluster.borrowed_by("ns", uid).iter().map(|service| service.name_any()).collect()
    };
    let (none, nobody) = (Vec::<String>::new(), service("ns", "b", "4", None));
    take(watcher::Event::Init);
    take(watcher::Event::InitApply(service("ns", "b", "1", Some("u"))));
    take(watcher::Event::InitApply(service("ns", "a", "2", Some("u"))));
    take(watcher::Event::InitApply(service("other", "c", "3", Some("u"))));
    take(watcher::Event::InitDone);
    assert_eq!((borrowed("u"), borrowed("v")), (vec!["a".to_owned(), "b".to_owned()], none.clone()));
    take(watcher::Event::Apply(nobody.clone()));
    assert_eq!(borrowed("u"), ["a"], "given back");
    take(watcher::Event::Apply(service("ns", "a", "5", Some("v"))));
    assert_eq!((borrowed("u"), borrowed("v")), (none.clone(), vec!["a".to_owned()]), "another ZeroScaler borrowed it");
    take(watcher::Event::Apply(service("ns", "d", "6", Some("v"))));
    take(watcher::Event::Delete(service("ns", "a", "7", Some("v"))));
    assert_eq!(borrowed("v"), ["d"], "deleted");
    take(watcher::Event::Init);
    take(watcher::Event::InitApply(nobody));
    take(watcher::Event::InitDone);
    assert_eq!(borrowed("v"), none, "absent from the list");
    assert!(f.cluster.borrowed.read().is_empty(), "no entry of a deleted Service");
}

#[tokio::test]
async fn events_of_a_service_of_the_version_in_force_queue_its_zeroscaler() {
    let f = Fixture::new();
    let created = "2026-01-02T00:00:00Z";
    f.scaler("a", created, json!({"services": [{"name": "served"}]}));
    let former = f.cluster.scalers.objects.get(&Key::new("ns", "a")).expect("there");
    f.scaler("a", created, json!({"services": [{"name": "nobodys"}]}));
    f.cluster.scalers.keep_former_version(&Key::new("ns", "a"), former, false);
    f.drain().await;
    for name in ["served", "nobodys"] {
        f.service(name, "1");
        assert_eq!(f.drain().await, (keys(&["a"]), keys(&["a"])), "{name}");
        f.slice(&Key::new("ns", name), name, json!({}));
        assert_eq!(f.drain().await, (vec![], keys(&["a"])), "{name}");
    }
    f.cluster.scalers.former.remove(&Key::new("ns", "a"));
    f.service("served", "2");
    assert_eq!(f.drain().await, (vec![], vec![]), "not in force any more");
}

#[tokio::test]
async fn claimed_hosts_are_those_of_the_version_in_force() {
    let f = Fixture::new();
    let versions = |generation: i64, in_force: i64, hosts: [&str; 2]| {
        json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "a", "generation": generation},
            "spec": {"target": {"name": "a"}, "hosts": [hosts[0]]},
            "status": {"inForce": {"generation": in_force, "spec": {"target": {"name": "a"}, "hosts": [hosts[1]]}}},
        })
    };
    let (old, new) = ("old.example.com", "new.example.com");
    for (generation, in_force, hosts, claimed) in
        [(1, 1, [old, old], old), (2, 1, [new, old], old), (2, 2, [new, new], new)]
    {
        f.take(versions(generation, in_force, hosts));
        for host in [old, new] {
            let expected = if host == claimed { vec![Key::new("ns", "a")] } else { vec![] };
            assert_eq!(f.cluster.claims.of_host(host), expected, "{host}, {generation}, {in_force}");
        }
    }
}

#[tokio::test]
async fn a_change_of_activators_queues_every_path() {
    let f = Fixture::new();
    for name in ["a", "b", "without"] {
        f.scaler(name, "2026-01-02T00:00:00Z", json!({}));
    }
    f.drain().await;
    for name in ["a", "b"] {
        let object = f.cluster.scalers.objects.get(&Key::new("ns", name)).expect("there");
        let path = Path { mode: PathMode::Proxy, activators: 2 };
        f.cluster.request_path(&object, PathRequest { path, target: zeroscaler::Target::default() });
    }
    assert_eq!(f.drain().await, (keys(&["a", "b"]), keys(&["a", "b"])));
    f.slice(&Key::new("system", "x"), "activator-service", json!({}));
    assert_eq!(f.drain().await, (vec![], keys(&["a", "b"])));
    assert_eq!(f.cluster.activators().len(), 1);
}
