//! The autoscaler's reconcilers against the embedded API server and its controllers. The test plays the kubelet (pods
//! become ready as soon as they exist) and the activator (it attests, and reports that it listens on all numbers of the
//! ledger). There are no other processes.

use autoscaler::{FrontEnd, Hpa};
use common::bound_ports::{BoundPort, BoundPorts};
use common::ports::ledger::{self, Block, Entry, NumberState as Line};
use common::stat::Stat;
use common_api::ZeroScaler;
use common_api::zeroscaler::SleepState;
use common_runtime::resolve::Dns;
use common_runtime::websocket::{Config, DurableSender};
use e2e::bare::{self, SYSTEM, deployment, frame, scaler};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Event, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use local::api::ApiServer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Upper bound, far beyond the duration of anything here, so that a bug fails a test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(60);
const ACTIVATOR: &str = "127.0.0.1";

struct Cluster {
    client: Client,
    link: DurableSender,
    _server: ApiServer,
    _stop: DropGuard,
}

impl Cluster {
    async fn start(range: &str) -> Self {
        let (server, client) = bare::start(range).await.expect("an API server");
        let stop = CancellationToken::new();
        bare::define_resources(&client).await.expect("the CRDs");
        let asked = TcpListener::bind((ACTIVATOR, 0)).await.expect("a free port");
        let activators = bare::activators(asked.local_addr().expect("bound"));
        bare::create(&client, Some(SYSTEM), activators).await.expect("created");
        tokio::spawn(answer_questions(asked, client.clone()));
        let (controlled, ended) = (client.clone(), stop.clone());
        tokio::spawn(async move {
            local::controllers::run(controlled, ended).await;
        });
        tokio::spawn(kubelet(client.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let listen = listener.local_addr().expect("bound");
        drop(listener);
        let options = autoscaler::Options {
            system_namespace: SYSTEM.into(),
            stat_listen: listen,
            ..autoscaler::Options::new("as-0", listen.ip(), FrontEnd::standalone(Hpa::Engine))
        };
        tokio::spawn(autoscaler::run(options, client.clone(), Arc::new(Dns), stop.clone()));
        let urls = vec![format!("ws://{listen}")];
        let link = DurableSender::start(urls, Arc::new(Dns), Config::default(), stop.clone()).expect("URL");
        timeout(PATIENCE, link.connected().wait_for(|up| *up)).await.expect("connected").expect("alive");
        let (attesting, ended) = (link.clone(), stop.clone());
        tokio::spawn(async move {
            while timeout(Duration::from_secs(1), ended.cancelled()).await.is_err() {
                let _ = attesting.send(frame(SYSTEM, "activator-0", None)).await;
            }
        });
        Self { client, link, _server: server, _stop: stop.drop_guard() }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn get<K>(&self, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().get_opt(name).await.expect("an answer")
    }

    async fn create(&self, object: Value) {
        bare::create(&self.client, Some("default"), object).await.expect("created");
    }

    async fn poke(&self) {
        let stat = Stat { average_concurrent_requests: 1.0, request_count: 1.0, ..Stat::default() };
        self.link.send(frame("default", "hello", Some(stat))).await.expect("connected");
    }

    /// Merges into the spec of the ZeroScaler.
    async fn edit(&self, spec: Value) -> kube::Result<ZeroScaler> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<ZeroScaler>().patch("hello", &PatchParams::default(), &patch).await
    }

    async fn replicas(&self) -> i32 {
        let deployment: Deployment = self.get("hello").await.expect("a Deployment");
        deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1)
    }

    /// Returns the slices of a Service: their writers and addresses.
    async fn slices(&self, service: &str) -> Vec<(String, Vec<String>)> {
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        let list = self.api::<EndpointSlice>().list(&of_service).await.expect("a list");
        let told = list.items.iter().map(|slice| {
            let manager = slice.labels().get("endpointslice.kubernetes.io/managed-by").cloned().unwrap_or_default();
            let endpoints = slice.endpoints.iter().flatten();
            (manager, endpoints.flat_map(|endpoint| endpoint.addresses.clone()).collect())
        });
        told.collect()
    }

    async fn ready(&self) -> (String, String) {
        let object: Option<ZeroScaler> = self.get("hello").await;
        let ready = object.as_ref().and_then(|object| object.condition("Ready"));
        ready.map(|ready| (ready.reason.clone(), ready.message.clone())).unwrap_or_default()
    }
}

async fn eventually(what: &str, test: impl AsyncFn() -> bool) {
    let reached = async {
        while !test().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Plays the kubelet: pods are ready once they exist, and gone once they are deleted.
async fn kubelet(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let mut next_address = 0;
    loop {
        sleep(Duration::from_millis(20)).await;
        let Ok(list) = pods.list(&ListParams::default()).await else { continue };
        for pod in list {
            let name = pod.name_any();
            if pod.metadata.deletion_timestamp.is_some() {
                let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
            } else if pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()).is_none() {
                next_address += 1;
                let address = format!("10.0.0.{next_address}");
                let status = json!({"status": {
                    "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                }});
                let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
            }
        }
    }
}

/// Responds to queries that each number of the ledger is bound, for the object that owns it.
async fn answer_questions(listener: TcpListener, client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client, SYSTEM);
    while let Ok((mut stream, _)) = listener.accept().await {
        let _ = stream.read(&mut [0; 4096]).await;
        let mut ports = Vec::new();
        let Ok(list) = maps.list(&ListParams::default().labels("zeroscale.dev/ledger=ports")).await else { continue };
        for map in list {
            let Some(block) = Block::of_map(&map.name_any()) else { continue };
            let page = ledger::read(block, map.data.as_ref());
            ports.extend(page.entries.into_iter().map(|(number, Entry { uid, state, .. })| {
                let closing = state != Line::Held;
                BoundPort { number, uid: uid.to_string(), closing, in_use: false, error: None }
            }));
        }
        let answer = BoundPorts { instance: "i".into(), pod: "activator-0".into(), ports };
        let body = serde_json::to_string(&answer).expect("serialisable");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all((head + &body).as_bytes()).await;
    }
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "hello", "labels": {"team": "a"}, "annotations": {"keep": "me"}},
        "spec": {"selector": {"app": "hello"}, "ports": [{"name": "web", "port": 80, "targetPort": 8080}]},
    })
}

/// Returns an object without the fields that every write changes.
fn lasting(service: &Service) -> Value {
    let mut value = serde_json::to_value(service).expect("serialisable");
    let metadata = value["metadata"].as_object_mut().expect("metadata");
    metadata.remove("resourceVersion");
    metadata.remove("managedFields");
    value
}

const KUBERNETES: &str = "endpointslice-controller.k8s.io";
const OURS: &str = "zeroscale.dev";

/// Goal: a Service is taken over completely, with nothing of Kubernetes' left beside our slices, and restored byte for
/// byte when its ZeroScaler is deleted; the Deployment keeps its replicas.
#[tokio::test]
async fn a_service_is_adopted_and_given_back_byte_for_byte() {
    let cluster = Cluster::start("127.201.128.0/17").await;
    cluster.create(deployment(1)).await;
    cluster.create(service()).await;
    eventually("Kubernetes serves the pod", async || {
        matches!(&cluster.slices("hello").await[..], [(manager, pods)] if manager == KUBERNETES && pods.len() == 1)
    })
    .await;
    let original: Service = cluster.get("hello").await.expect("a Service");
    // Kubernetes keeps these besides its slices.
    cluster.create(json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "hello"}})).await;
    cluster.create(scaler(json!({}))).await;
    eventually("only the activators serve", async || {
        cluster.slices("hello").await == [(OURS.to_owned(), vec![ACTIVATOR.to_owned()])]
            && cluster.get::<Endpoints>("hello").await.is_none()
    })
    .await;
    let adopted: Service = cluster.get("hello").await.expect("a Service");
    assert_eq!(adopted.spec.and_then(|spec| spec.selector), None);

    cluster.api::<ZeroScaler>().delete("hello", &DeleteParams::default()).await.expect("accepted");
    eventually("gone", async || cluster.get::<ZeroScaler>("hello").await.is_none()).await;
    let returned: Service = cluster.get("hello").await.expect("a Service");
    assert_eq!(lasting(&returned), lasting(&original));
    eventually("Kubernetes serves the pod again, and alone", async || {
        matches!(&cluster.slices("hello").await[..], [(manager, pods)] if manager == KUBERNETES && pods.len() == 1)
    })
    .await;
    eventually("nothing of ours is left", async || cluster.get::<Service>("hello-private").await.is_none()).await;
    assert_eq!(cluster.replicas().await, 1);
}

/// Goal: a Service is restored byte for byte when another one is named, and the workload stays under our control.
#[tokio::test]
async fn another_service_that_is_named_gives_the_former_one_back() {
    let cluster = Cluster::start("127.202.128.0/17").await;
    cluster.create(deployment(2)).await;
    cluster.create(service()).await;
    let original: Service = cluster.get("hello").await.expect("a Service");
    cluster.create(scaler(json!({}))).await;
    eventually("adopted", async || {
        let service: Service = cluster.get("hello").await.expect("a Service");
        service.spec.and_then(|spec| spec.selector).is_none()
    })
    .await;
    cluster.edit(json!({"services": [{"name": "another", "create": true}]})).await.expect("accepted");
    eventually("given back", async || {
        let returned: Service = cluster.get("hello").await.expect("a Service");
        lasting(&returned) == lasting(&original)
    })
    .await;
    eventually("the other leads to the activators", async || {
        cluster.slices("another").await == [(OURS.to_owned(), vec![ACTIVATOR.to_owned()])]
    })
    .await;
    assert_eq!(cluster.replicas().await, 2);
}

/// Goal: a Service that one ZeroScaler has taken over stays with it. The target of another ZeroScaler that claims it is
/// left unchanged.
#[tokio::test]
async fn a_service_that_is_taken_stays_its_owners_and_replicas_stay_too() {
    let cluster = Cluster::start("127.203.128.0/17").await;
    let mut first = deployment(1);
    first["metadata"]["name"] = json!("first");
    cluster.create(first).await;
    cluster.create(service()).await;
    let mut owner = scaler(json!({}));
    owner["metadata"]["name"] = json!("first");
    owner["spec"]["target"]["name"] = json!("first");
    owner["spec"]["services"] = json!([{"name": "hello"}]);
    cluster.create(owner).await;
    eventually("taken", async || cluster.get::<ZeroScaler>("first").await.is_some_and(|first| first.is_ready())).await;
    let taken: Service = cluster.get("hello").await.expect("a Service");

    cluster.create(deployment(0)).await;
    cluster.create(scaler(json!({}))).await;
    eventually("told", async || cluster.ready().await.0 == "ServiceNotOwned").await;
    cluster.poke().await;
    sleep(Duration::from_secs(3)).await; // Longer than a tick: nothing may happen.
    assert_eq!(cluster.replicas().await, 0);
    let now: Service = cluster.get("hello").await.expect("a Service");
    assert_eq!(now, taken);
}

/// Goal: a workload at zero is woken by one stat, stays awake while stats arrive, and is scaled to zero again by the
/// whole state machine. If it is deleted at zero, the Deployment gets its one pod back.
#[tokio::test]
async fn a_revision_wakes_falls_asleep_and_is_given_back() {
    let cluster = Cluster::start("127.204.128.0/17").await;
    cluster.create(deployment(0)).await;
    cluster.create(scaler(json!({"window": "6s"}))).await;
    eventually("asleep", async || {
        let object = cluster.get::<ZeroScaler>("hello").await.and_then(|object| object.status);
        object.is_some_and(|status| status.state == SleepState::Asleep)
    })
    .await;
    eventually("the public Service leads to the activators", async || {
        cluster.slices("hello").await == [(OURS.to_owned(), vec![ACTIVATOR.to_owned()])]
    })
    .await;
    for _ in 0..2 {
        cluster.poke().await;
        eventually("awake", async || {
            cluster.replicas().await == 1
                && matches!(&cluster.slices("hello-private").await[..], [(_, pods)] if pods.len() == 1)
        })
        .await;
        let of_ours = cluster.slices("hello").await;
        assert_eq!(of_ours, [(OURS.to_owned(), vec![ACTIVATOR.to_owned()])], "plain pods keep the activators");
        eventually("asleep again", async || cluster.replicas().await == 0).await;
    }
    let events = cluster.api::<Event>().list(&ListParams::default()).await.expect("a list");
    assert!(events.iter().any(|event| event.reason.as_deref() == Some("Scaled")), "a scale is told in an Event");

    cluster.api::<ZeroScaler>().delete("hello", &DeleteParams::default()).await.expect("accepted");
    eventually("gone", async || cluster.get::<ZeroScaler>("hello").await.is_none()).await;
    assert_eq!(cluster.replicas().await, 1);
    eventually("nothing of ours is left", async || {
        cluster.get::<Service>("hello").await.is_none() && cluster.slices("hello").await.is_empty()
    })
    .await;
}

/// Goal: replicas that were changed by hand or by an old manifest are corrected once, and an invalid edit is rejected
/// by name.
#[tokio::test]
async fn edits_are_put_right_or_refused() {
    let cluster = Cluster::start("127.205.128.0/17").await;
    cluster.create(deployment(3)).await;
    cluster.create(scaler(json!({"min": 2, "max": 3}))).await;
    eventually("active", async || {
        let object: Option<ZeroScaler> = cluster.get("hello").await;
        object.and_then(|object| object.status?.pods).is_some_and(|pods| pods.ready == 3)
    })
    .await;
    let deployments = cluster.api::<Deployment>();
    let by_hand = json!({"spec": {"replicas": 9}});
    deployments.patch("hello", &PatchParams::default(), &Patch::Merge(&by_hand)).await.expect("accepted");
    eventually("within bounds again", async || cluster.replicas().await <= 3).await;
    let refused = cluster.edit(json!({"scale": {"max": "lots"}})).await.expect_err("no number").to_string();
    assert!(refused.contains("spec.scale.max"), "{refused}");
    // Errors that are not visible in the object.
    let limit = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config-autoscaler"},
        "data": {"max-scale": "3", "max-scale-limit": "3"}});
    bare::create(&cluster.client, Some(SYSTEM), limit).await.expect("created");
    cluster.edit(json!({"scale": {"max": 9}})).await.expect("accepted");
    eventually("refused by name", async || {
        let (reason, message) = cluster.ready().await;
        reason == "Invalid" && message.contains("spec.scale.max") && message.contains('9')
    })
    .await;
    assert!((2..=3).contains(&cluster.replicas().await), "what was valid stays in force");
}
