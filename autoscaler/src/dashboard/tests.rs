//! Tests of the dashboard over sockets: with one replica, and with two that query each other.

mod contrast;

use super::records::Records;
use super::ring::Scale;
use super::*;
use crate::ingest::counters::{Counters, IngestCounters};
use crate::ingest::peers::{LinkSettings, LocalSink};
use crate::ingest::stat_server::{Origin, Sink, StatServer};
use crate::reconcile::ObjectView;
use crate::scale::fixture::{sources, subject};
use crate::scale::multiscaler::Sources;
use crate::scale::{Deciders, Initial, LoadObserver, PodSet, Pods};
use bytes::Bytes;
use common::RevisionKey;
use common::stat::{Observations, ObservedWake, Stat};
use common::time::Timestamp;
use common_api::zeroscaler::conditions::{self, ACTIVE, ConditionStatus, ConditionValue, READY};
use common_api::zeroscaler::{PodCounts, SleepState, ZeroScalerStatus};
use common_api::{ZeroScaler, ZeroScalerSpec};
use common_controller::Leadership;
use common_runtime::credential::TokenFile;
use common_runtime::resolve::Dns;
use common_runtime::telemetry::Metrics;
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::ready;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout far beyond any expected duration, so that a bug fails a test and does not hang it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Objects in memory, common to all replicas.
#[derive(Clone, Default)]
struct StoredObjects(Arc<Mutex<Versions>>);

/// Latest version of each object.
type Versions = BTreeMap<RevisionKey, (u64, Arc<ZeroScaler>)>;

impl StoredObjects {
    fn put(&self, name: &str, state: SleepState) {
        let mut object = ZeroScaler::new(name, ZeroScalerSpec::deployment(name));
        object.metadata.namespace = Some("ns".into());
        let awake = state == SleepState::Awake;
        let count = i32::from(awake);
        let mut status = ZeroScalerStatus {
            state,
            desired: Some(count),
            pods: Some(PodCounts { ready: count, actual: count }),
            min: Some(0),
            ..ZeroScalerStatus::default()
        };
        let condition = |is, reason| ConditionValue { status: is, reason, message: "" };
        let active = if awake { ConditionStatus::True } else { ConditionStatus::False };
        let at = Timestamp::from_secs(1_000_000);
        conditions::set(&mut status.conditions, READY, condition(ConditionStatus::True, "Served"), None, at);
        conditions::set(&mut status.conditions, ACTIVE, condition(active, "Asleep"), None, at);
        object.status = Some(status);
        let mut all = self.0.lock();
        let entry = all.entry(RevisionKey::new("ns", name)).or_insert_with(|| (0, Arc::new(object.clone())));
        *entry = (entry.0 + 1, Arc::new(object));
    }

    fn delete(&self, name: &str) {
        self.0.lock().remove(&RevisionKey::new("ns", name));
    }
}

impl Objects for StoredObjects {
    fn keys(&self) -> Vec<RevisionKey> {
        self.0.lock().keys().cloned().collect()
    }

    fn version(&self, key: &RevisionKey) -> Option<u64> {
        self.0.lock().get(key).map(|(version, _)| *version)
    }

    fn view(&self, key: &RevisionKey) -> Option<ObjectView> {
        let object = self.0.lock().get(key)?.1.clone();
        let status = object.status.clone().unwrap_or_default();
        Some(ObjectView { object, status, since: Some("1970-01-12T13:46:40Z".into()) })
    }
}

struct IgnoreStats;

impl Sink for IgnoreStats {
    fn frame(&self, _: Bytes, _: &Origin) -> bool {
        false
    }

    fn owns_bucket(&self, _: &str) -> bool {
        false
    }
}

struct Replica {
    address: SocketAddr,
    shares: Shares,
    records: Arc<Records>,
    multiscaler: Arc<Multiscaler>,
    pods: Arc<PodIndex>,
    stop: CancellationToken,
}

impl Replica {
    /// Creates a replica that owns everything.
    async fn alone(objects: &StoredObjects, token: Option<TokenFile>) -> Self {
        let stats = StatServer::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
        Self::start(objects, stats, Shares::members(vec!["only".into()], 0), token)
    }

    /// Creates two replicas with these objects. Each owns a share of the workloads.
    async fn two(objects: [&StoredObjects; 2]) -> [Self; 2] {
        let mut servers = [(); 2].map(|()| {
            let server = StatServer::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
            (format!("http://{}", server.local_addr().expect("bound")), server)
        });
        servers.sort_by(|a, b| a.0.cmp(&b.0));
        let names: Vec<_> = servers.iter().map(|(name, _)| name.clone()).collect();
        let shares = |ordinal| Shares::members(names.clone(), ordinal);
        let [first, second] = servers.map(|(_, server)| server);
        [Self::start(objects[0], first, shares(0), None), Self::start(objects[1], second, shares(1), None)]
    }

    fn start(objects: &StoredObjects, mut stats: StatServer, shares: Shares, token: Option<TokenFile>) -> Self {
        let sources = sources(Clock::system(), &Metrics::default());
        let multiscaler = Arc::new(Multiscaler::new(sources.clone(), true));
        let (Sources { collector, pods, clock, .. }, stop) = (sources, CancellationToken::new());
        pods.end_list();
        let port = stats.local_addr().expect("bound").port();
        let settings = LinkSettings { port, ..LinkSettings::default() };
        let local: LocalSink = Box::new(|_| ());
        let peers = Peers::new(shares.clone(), Arc::new(Dns), settings, local, IngestCounters::default(), stop.clone());
        let price = Some(Price { amount: 0.012, currency: "EUR".into() });
        let settings = Settings { token, price, ..Settings::local((Ipv4Addr::LOCALHOST, 0).into()) };
        let parts = Parts {
            objects: Arc::new(objects.clone()),
            client: client(),
            multiscaler: multiscaler.clone(),
            collector,
            pods: pods.clone(),
            shares: shares.clone(),
            peers,
            clock,
            me: "as-0".into(),
        };
        let (listener, own) = (settings.bind().expect("a port"), LocalReplica::new(settings, parts));
        let (address, records) = (listener.local_addr().expect("bound"), own.records.clone());
        stats.access.responder = Some(replicas::responder(own.clone()));
        tokio::spawn(stats.serve(Arc::new(IgnoreStats), Counters::default(), stop.clone()));
        tokio::spawn(own.clone().record(stop.clone()));
        tokio::spawn(own.serve(listener, stop.clone()));
        Self { address, shares, records, multiscaler, pods, stop }
    }

    /// Records an activator's observations of a workload.
    fn observe(&self, name: &str, held: u32, wakes: Vec<ObservedWake>) {
        self.records.record_observations(&key(name), &Observations { held, wakes, ..Observations::default() });
    }

    /// Starts to decide about a workload.
    fn decide_about(&self, name: &str) {
        let key = RevisionKey::new("ns", name);
        self.pods.track(&key, PodSet::Revision(name.into()), None);
        self.multiscaler.ensure(&key, subject(), Initial::Adopted(0));
    }

    /// Sends a request. Returns status, headers, body.
    async fn get(&self, method: &str, target: &str, headers: &str) -> (StatusCode, HeaderMap, String) {
        self.send(method, target, headers, "").await
    }

    /// Submits the form. Returns the response.
    async fn submit(&self, token: &str) -> (StatusCode, HeaderMap, String) {
        let form = format!("token={token}");
        let kind = "content-type: application/x-www-form-urlencoded";
        let headers = format!("accept: text/html\r\n{kind}\r\ncontent-length: {}\r\n", form.len());
        self.send("POST", "/", &headers, &form).await
    }

    async fn send(&self, method: &str, target: &str, headers: &str, body: &str) -> (StatusCode, HeaderMap, String) {
        let response = async {
            let mut stream = TcpStream::connect(self.address).await.expect("a listener");
            let host = if headers.contains("host:") { String::new() } else { format!("host: {}\r\n", self.address) };
            let request = format!("{method} {target} HTTP/1.1\r\n{host}{headers}connection: close\r\n\r\n{body}");
            stream.write_all(request.as_bytes()).await.expect("written");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("UTF-8");
            answer
        };
        let answer = timeout(PATIENCE, response).await.expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
        let fields = lines.filter_map(|line| line.split_once(": "));
        let headers = fields.map(|(n, v)| (n.parse().expect("a name"), v.parse().expect("a value"))).collect();
        (status, headers, body.to_owned())
    }

    async fn json(&self, target: &str) -> (StatusCode, Value) {
        let (status, _, body) = self.get("GET", target, "").await;
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// Returns the changes since the position, and updates it.
    async fn after(&self, position: &mut String) -> Value {
        let (status, list) = self.json(&format!("/api/v1/workloads?after={position}")).await;
        assert_eq!(status, StatusCode::OK, "{list}");
        list["position"].as_str().expect("a position").clone_into(position);
        list
    }

    /// Polls until the row of a workload satisfies the condition.
    async fn until_row(&self, position: &mut String, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually("a row", async || {
            let list = self.after(position).await;
            let rows = list["workloads"].as_array().cloned().unwrap_or_default();
            rows.into_iter().find(|row| row["name"] == name && holds(row))
        })
        .await
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Repeats an attempt until it returns a value.
async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let attempts = async {
        loop {
            if let Some(value) = attempt().await {
                return value;
            }
        }
    };
    timeout(PATIENCE, attempts).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// Returns a client of an API server with two pods: a restarted one of Deployment a, and one that only has its labels.
fn client() -> Client {
    let pod = |name: &str, owner: &str| {
        serde_json::json!({
            "metadata": {"name": name, "labels": {"pod-template-hash": "x1"}, "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "u", "controller": true}]},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
            }]},
        })
    };
    let list = serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {},
        "items": [pod("a-x1-1", "a-x1"), pod("other-1", "a-b-x1")]});
    let service = move |request: http::Request<kube::client::Body>| {
        let log = request.uri().path().ends_with("/log");
        let body = if log { "one\ntwo\n".to_owned() } else { list.to_string() };
        ready(Ok::<_, std::convert::Infallible>(Response::new(kube::client::Body::from(body.into_bytes()))))
    };
    Client::new(tower::service_fn(service), "ns")
}

/// Returns names in order, so many that every replica owns some of them.
fn workloads() -> Vec<String> {
    (0..64).map(|n| format!("w{n:02}")).collect()
}

fn names(list: &Value) -> Vec<&str> {
    list["workloads"].as_array().into_iter().flatten().filter_map(|row| row["name"].as_str()).collect()
}

fn key(name: &str) -> RevisionKey {
    RevisionKey::new("ns", name)
}

/// Goal: a list and one workload are served, with activators' observations. Unknown paths get clear errors, and every
/// response carries the security headers. A page can compute further savings without new rows.
#[tokio::test(flavor = "multi_thread")]
async fn lists_details_and_errors_are_served() {
    let objects = StoredObjects::default();
    objects.put("a", SleepState::Asleep);
    objects.put("b", SleepState::Awake);
    let replica = Replica::alone(&objects, None).await;
    ["a", "b"].iter().for_each(|name| replica.decide_about(name));
    let wake = ObservedWake { start_us: 2_000_000, probe_us: 500_000, ..ObservedWake::default() };
    replica.observe("a", 4, vec![wake]);
    replica.records.measured(&key("b"), &Stat { average_concurrent_requests: 3.0, ..Stat::default() });

    let (status, list) = replica.json("/api/v1/workloads").await;
    assert_eq!((status, names(&list)), (StatusCode::OK, vec!["a", "b"]));
    assert_eq!(list["replicas"], serde_json::json!([{"name": "as-0", "answered": true}]));
    let a = &list["workloads"][0];
    assert_eq!((&a["state"], &a["held"], &a["target"]), (&"Asleep".into(), &4.into(), &"Deployment/a".into()));
    assert!(a["why"].as_str().is_some_and(|why| why.starts_with("asleep for ")), "{a}");
    assert_eq!((&a["lastWake"]["seconds"], &a["ready"]["status"]), (&2.5.into(), &"True".into()));
    assert_eq!(names(&replica.json("/api/v1/workloads?namespace=other").await.1), Vec::<&str>::new());

    let (status, a) = replica.json("/api/v1/workloads/ns/a").await;
    assert_eq!((status, &a["wakes"][0]["outcome"]), (StatusCode::OK, &"answered".into()));
    assert_eq!(a["wakes"][0]["phases"][2], serde_json::json!({"name": "pod", "seconds": 2.0}));
    assert!(a["conditions"].as_array().is_some_and(|all| all.len() == 2) && a["decision"]["spec"].is_object(), "{a}");

    let pods = replica.json("/api/v1/workloads/ns/a/pods").await;
    let main = serde_json::json!({
        "name": "main", "restarts": 3, "state": "CrashLoopBackOff: back-off 40s", "log": "one\ntwo"});
    let expected = serde_json::json!({"pods": [{
        "name": "a-x1-1", "phase": "Running", "ready": false, "reason": null, "since": "2026-01-01T00:00:00Z",
        "containers": [main]}]});
    assert_eq!(pods, (StatusCode::OK, expected), "the pods of its target only");

    for (target, expected, part) in [
        ("/api/v1/workloads/ns/c/pods", 404, "there is no ZeroScaler c in namespace ns"),
        ("/api/v1/workloads/ns/c", 404, "there is no ZeroScaler c in namespace ns"),
        ("/api/v1/workloads?namespace=Ä", 400, ""),
    ] {
        let (status, _, body) = replica.get("GET", target, "").await;
        assert!(status == expected && body.contains(part), "{target}: {status} {body}");
    }
    for (method, target, headers, expected) in [
        ("POST", "/", "", 405),
        ("GET", "/api/v1/workloads", "host: evil.example\r\n", 421),
        ("GET", "/", "", 200),
        ("HEAD", "/api/v1/workloads", "", 200),
        ("GET", "/api/v1/stream", "", 404),
    ] {
        let (status, headers, _) = replica.get(method, target, headers).await;
        assert_eq!(status, expected, "{method} {target}");
        let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        assert!(value("content-security-policy").starts_with("default-src 'none'; script-src 'self'"));
        assert_eq!((value("x-content-type-options"), value("cache-control")), ("nosniff", "no-store"));
        assert_eq!((value("x-frame-options"), value("referrer-policy")), ("DENY", "no-referrer"));
    }

    // The row of a workload that falls asleep is sent only once. So it contains the price per hour, even if the
    // workload has saved nothing yet.
    let saved = eventually("savings", async || {
        replica.records.sample(&key("a"), Scale::default(), 1, || Some(1), replica.records.now());
        let list = replica.json("/api/v1/workloads").await.1;
        Some(list["workloads"][0]["saved"].clone()).filter(Value::is_object)
    })
    .await;
    let money = &saved["money"];
    assert_eq!((&money["perHour"], &money["currency"]), (&0.012.into(), &"EUR".into()), "{saved}");
}

/// Goal: with a token every access needs it, and a changed token takes effect at once.
#[tokio::test(flavor = "multi_thread")]
async fn access_requires_the_current_token() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "first\n").expect("written");
    let replica = Replica::alone(&StoredObjects::default(), Some(TokenFile::new(file.path()))).await;
    let status = async |target: &str, headers: &str| replica.get("GET", target, headers).await.0.as_u16();
    for target in ["/", "/app.js", "/api/v1/workloads", "/api/v1/workloads?after="] {
        assert_eq!(status(target, "").await, 401, "{target}");
    }
    assert_eq!(status("/api/v1/workloads", "authorization: Bearer first\r\n").await, 200);
    let (entered, headers, _) = replica.get("GET", "/?token=first", "").await;
    assert_eq!((entered.as_u16(), headers["location"].to_str().ok()), (303, Some("/")));
    let cookie = headers["set-cookie"].to_str().expect("a cookie").split(';').next().expect("its value").to_owned();
    assert_eq!(status("/", &format!("cookie: {cookie}\r\n")).await, 200);

    // The sign-in form is all that a client without the token sees.
    let (unauthorized, headers, form) = replica.get("GET", "/", "accept: text/html,*/*;q=0.8\r\n").await;
    assert!(unauthorized.as_u16() == 401 && form.contains("<form") && !form.contains("is wrong"), "{form}");
    assert!(headers["content-type"] == "text/html; charset=utf-8" && !headers.contains_key("www-authenticate"));
    assert_eq!((status("/style.css", "").await, status("/icon.svg", "").await), (200, 200));
    let (wrong, _, form) = replica.submit("second").await;
    assert!(wrong.as_u16() == 401 && form.contains("The token is wrong."), "{form}");
    let (entered, headers, _) = replica.submit("first").await;
    assert_eq!(
        (entered.as_u16(), headers["set-cookie"].to_str().ok()),
        (303, Some("zeroscale-dashboard=first; HttpOnly; SameSite=Lax; Path=/"))
    );
    // A token with non-ASCII letters works like any other.
    std::fs::write(file.path(), "geheëm").expect("written");
    assert_eq!(status("/?token=", "").await, 401);
    assert_eq!(status("/", "cookie: zeroscale-dashboard=\r\n").await, 401);
    assert_eq!(status("/", "authorization: Bearer geheëm\r\n").await, 200);
    assert_eq!(replica.submit("geheëm").await.0.as_u16(), 303);

    std::fs::write(file.path(), "second").expect("written");
    assert_eq!(status("/", &format!("cookie: {cookie}\r\n")).await, 401);
    std::fs::remove_file(file.path()).expect("removed");
    assert_eq!(status("/", "authorization: Bearer second\r\n").await, 503, "the token cannot be read");
}

/// Goal: a client gets everything, and then the changes and deletions, but nothing of another namespace.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_everything_and_then_changes() {
    let objects = StoredObjects::default();
    objects.put("a", SleepState::Asleep);
    objects.put("b", SleepState::Asleep);
    let replica = Replica::alone(&objects, None).await;
    let (mut position, mut stale) = (String::new(), "0:1.1".to_owned());
    for position in [&mut position, &mut stale] {
        let first = replica.after(position).await;
        assert_eq!((&first["full"], names(&first)), (&true.into(), vec!["a", "b"]));
    }
    let other = replica.json(&format!("/api/v1/workloads?namespace=other&after={position}")).await.1;
    assert_eq!((&other["full"], names(&other)), (&false.into(), vec![]));

    objects.put("b", SleepState::Awake);
    assert_eq!(replica.until_row(&mut position, "b", |row| row["state"] == "Awake").await["pods"]["ready"], 1);
    let next = replica.after(&mut position).await;
    assert!(next["full"] == false && !names(&next).contains(&"a"), "{next}");
    replica.observe("a", 2, Vec::new());
    replica.until_row(&mut position, "a", |row| row["held"] == 2).await;
    replica.until_row(&mut position, "a", |row| row["held"] == 0).await;
    objects.delete("a");
    let gone = async { while replica.after(&mut position).await["removed"] != serde_json::json!(["ns/a"]) {} };
    timeout(PATIENCE, gone).await.expect("the deletion");
    assert_eq!(names(&replica.after(&mut stale).await), ["b"]);
}

/// Goal: a deleted workload is in no list, even if another replica does not know of the deletion yet. Otherwise the
/// page would never remove it.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_workload_is_not_listed_for_a_lagging_replica() {
    let (here, there) = (StoredObjects::default(), StoredObjects::default());
    let all = workloads();
    all.iter().for_each(|name| [&here, &there].iter().for_each(|objects| objects.put(name, SleepState::Asleep)));
    let [first, second] = Replica::two([&here, &there]).await;
    let theirs = all.iter().find(|name| second.shares.owns(&key(name))).expect("some of them");
    here.delete(theirs);
    let list = first.json("/api/v1/workloads").await.1;
    assert!(names(&list).len() == all.len() - 1 && !names(&list).contains(&theirs.as_str()), "{theirs}: {list}");
}

/// Goal: a client that does not read its list occupies one permit, for a limited time.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_occupies_one_permit() {
    let objects = StoredObjects::default();
    let long = "x".repeat(200);
    (0..10_000).for_each(|n| objects.put(&format!("{long}{n}"), SleepState::Asleep));
    let replica = Replica::alone(&objects, None).await;
    let mut unread = TcpStream::connect(replica.address).await.expect("a listener");
    let request = format!("GET /api/v1/workloads HTTP/1.1\r\nhost: {}\r\n\r\n", replica.address);
    unread.write_all(request.as_bytes()).await.expect("written");
    unread.readable().await.expect("a response begins");
    assert_eq!(names(&replica.json("/api/v1/workloads").await.1).len(), 10_000);
}

/// Goal: each of two replicas serves all workloads, in lists, changes and details. If a replica is gone, it is named,
/// and its workloads are shown from their objects.
#[tokio::test(flavor = "multi_thread")]
async fn each_replica_serves_all_workloads() {
    let objects = StoredObjects::default();
    let all = workloads();
    all.iter().for_each(|name| objects.put(name, SleepState::Asleep));
    let [first, second] = Replica::two([&objects, &objects]).await;
    let owned =
        |replica: &Replica| all.iter().filter(|name| replica.shares.owns(&key(name))).cloned().collect::<Vec<_>>();
    let counts = [&first, &second].map(|replica| owned(replica).len());
    assert!(!counts.contains(&0) && counts.iter().sum::<usize>() == all.len());
    for replica in [&first, &second] {
        owned(replica).iter().for_each(|name| replica.decide_about(name));
    }
    let name = owned(&second)[0].clone();
    let target = format!("/api/v1/workloads/ns/{name}");
    second.observe(&name, 0, vec![ObservedWake::default()]);

    let row_of_second = |list: &Value| {
        let rows = list["workloads"].as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["name"] == name.as_str()).expect("a row")
    };
    let both_answered = |list: &Value| {
        list["replicas"].as_array().is_some_and(|all| all.len() == 2 && all.iter().all(|r| r["answered"] == true))
    };
    // The wait for a replica's response is short, and held requests are shown for some seconds.
    let list = eventually("a list with the second replica's rows", async || {
        second.observe(&name, 7, Vec::new());
        let list = first.json("/api/v1/workloads").await.1;
        if both_answered(&list) && row_of_second(&list)["held"] == 7 {
            return Some(list);
        }
        tokio::time::sleep(Duration::from_secs(1)).await; // Observations within one second add up.
        None
    })
    .await;
    assert_eq!(names(&list), all);
    let mut position = list["position"].as_str().expect("a position").to_owned();
    let (status, detail) = eventually("the second replica's details", async || {
        Some(first.json(&target).await).filter(|(_, detail)| !detail["error"].is_string())
    })
    .await;
    assert_eq!((status, detail["wakes"].as_array().map(Vec::len)), (StatusCode::OK, Some(1)));
    objects.put(&name, SleepState::Awake);
    first.until_row(&mut position, &name, |row| row["state"] == "Awake").await;
    // A replica knows the positions since its first pass, which the first query of the other one has started.
    let known = async {
        while second.after(&mut position.clone()).await["full"] != false {
            first.after(&mut position).await;
        }
    };
    timeout(PATIENCE, known).await.expect("each replica knows the position");

    second.stop.cancel();
    let list = eventually("a list without a response of the second replica", async || {
        Some(first.after(&mut position).await).filter(|list| list["replicas"][1]["answered"] == false)
    })
    .await;
    assert!(names(&list).contains(&name.as_str()), "from its object: {list}");
    assert!(list["replicas"][1]["error"].as_str().is_some_and(|error| !error.is_empty()), "{list}");
    let list = first.json("/api/v1/workloads").await.1;
    assert_eq!(names(&list).len(), all.len());
    assert_eq!((&row_of_second(&list)["state"], &row_of_second(&list)["held"]), (&"Awake".into(), &0.into()));
    let (status, detail) = first.json(&target).await;
    let error = detail["error"].as_str().unwrap_or_default();
    assert!(status == StatusCode::OK && error.contains("cannot be queried"), "{detail}");
}
