//! Tests of target watches, with an API server that counts them, in paused time.

use super::*;
use common_runtime::namespaces::Namespaces;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

/// API server that serves some lists of `apps/v1`, refuses the others, and never completes a watch. It records its
/// requests.
#[derive(Clone, Default)]
struct Server {
    /// Times and paths of discovery requests.
    discoveries: Arc<Mutex<Vec<(Instant, String)>>>,
    /// Paths of lists.
    lists: Arc<Mutex<Vec<String>>>,
    /// Number of open watches.
    open: Arc<AtomicUsize>,
    exist: Arc<Mutex<HashSet<&'static str>>>,
    /// Existing resources without a scale.
    unscalable: Arc<Mutex<HashSet<&'static str>>>,
    /// Resources that can be listed but not watched.
    unwatchable: Arc<Mutex<HashSet<&'static str>>>,
    /// Failures of discovery, by path: this status, or [`SILENCE`].
    failures: Arc<Mutex<HashMap<&'static str, u16>>>,
}

/// No response at all.
const SILENCE: u16 = 0;
/// Path of the resources of a version.
const APPS: &str = "/apis/apps/v1";
/// Path of another version, used only for failures.
const OTHER: &str = "/apis/other.example.com/v1";

/// Open watch.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        Client::new(tower::service_fn(move |request| server.clone().answer(request)), "default")
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let path = request.uri().path().to_owned();
        let resource = path.rsplit('/').next().unwrap_or_default();
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let exists = self.exist.lock().contains(resource);
        let (code, body) = if path.matches('/').count() == 3 {
            self.discoveries.lock().push((Instant::now(), path.clone()));
            let failure = self.failures.lock().get(path.as_str()).copied();
            match failure {
                Some(SILENCE) => std::future::pending().await,
                Some(code) => refusal(code),
                None if path == APPS => (200, self.resources()),
                None => refusal(404),
            }
        } else if watches && self.unwatchable.lock().contains(resource) {
            refusal(405)
        } else if watches && exists {
            self.open.fetch_add(1, Ordering::Relaxed);
            let _open = Open(self.open.clone());
            std::future::pending().await
        } else {
            self.lists.lock().push(path.clone());
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []});
            if exists { (200, list) } else { refusal(404) }
        };
        let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        Ok(response.expect("a response"))
    }

    /// Returns the list of resources of `apps/v1`.
    fn resources(&self) -> Value {
        let (exist, unscalable) = (self.exist.lock(), self.unscalable.lock());
        let scales = exist.difference(&unscalable).map(|name| format!("{name}/scale"));
        let names = exist.iter().map(|name| (*name).to_owned()).chain(scales);
        let resources: Vec<Value> = names.map(|name| json!({"name": name, "namespaced": true})).collect();
        json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": resources})
    }

    /// Returns a server on which this resource exists.
    fn with(resource: &'static str) -> Self {
        let server = Self::default();
        server.exists(resource);
        server
    }

    fn exists(&self, resource: &'static str) {
        self.exist.lock().insert(resource);
    }

    /// Returns the times of discovery requests with this path.
    fn discoveries(&self, path: &str) -> Vec<Instant> {
        self.discoveries.lock().iter().filter(|(_, requested)| requested == path).map(|(at, _)| *at).collect()
    }

    fn lists(&self) -> Vec<String> {
        self.lists.lock().clone()
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

fn refusal(code: u16) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": ""}))
}

/// Listener with a configurable set of named resources, which records the listed ones.
#[derive(Default)]
struct Users {
    named: Mutex<HashSet<TargetResource>>,
    listed: Mutex<Vec<String>>,
}

impl Users {
    fn name(&self, kind: &str) {
        self.named.lock().insert(key(kind).resource);
    }
}

impl TargetListener for Users {
    fn is_named(&self, resource: &TargetResource) -> bool {
        self.named.lock().contains(resource)
    }
    fn on_event(&self, event: TargetEvent<'_>) {
        if let TargetEvent::Listed(resource) = event {
            self.listed.lock().push(resource.to_string());
        }
    }
}

fn key(kind: &str) -> TargetKey {
    key_of("apps/v1", kind)
}

fn key_of(api_version: &str, kind: &str) -> TargetKey {
    TargetKey { resource: TargetResource::for_kind(api_version, kind), object: Key::new("ns", "a") }
}

fn targets(server: &Server) -> (Arc<Targets>, Arc<Users>) {
    let users = Arc::<Users>::default();
    let targets = Targets::new(server.client(), Namespaces::default(), CancellationToken::new(), users.clone());
    (Arc::new(targets), users)
}

/// Goal: regardless of spelling and number of reads, a kind is listed and watched once, until shortly after no workload
/// names it any more. A later user starts a new watch.
#[tokio::test(start_paused = true)]
async fn spellings_share_a_watch_which_ends_with_the_last_user() {
    let server = Server::with("deployments");
    let (targets, users) = targets(&server);
    users.name("Deployment");
    for kind in ["Deployment", "deployment", "DEPLOYMENT", "dEpLoYmEnT"].repeat(25) {
        assert!(matches!(targets.get(&key(kind)), Err(TargetError::NotListed(_))));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.lists().len(), server.open()), (1, 1), "{:?}", server.lists());
    assert_eq!(*users.listed.lock(), ["deployments.apps"]);
    assert_eq!(targets.get(&key("deployment")), Err(TargetError::Missing(key("Deployment"))));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((server.lists().len(), server.open()), (1, 1), "it is still named");

    users.named.lock().clear();
    sleep(2 * LINGER + Duration::from_secs(1)).await;
    assert_eq!(server.open(), 0, "no workload names it");
    assert!(targets.watched.lock().is_empty());
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(server.lists().len(), 1);

    users.name("Deployment");
    assert!(matches!(targets.get(&key("Deployment")), Err(TargetError::NotListed(_))));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.lists().len(), server.open()), (2, 1));
}

/// Goal: while a target is read, it stays watched, even if its PodAutoscaler already names another target.
#[tokio::test(start_paused = true)]
async fn reads_keep_a_watch_alive() {
    let server = Server::with("deployments");
    let (targets, _) = targets(&server);
    for _ in 0..100 {
        let _ = targets.get(&key("Deployment"));
        sleep(LINGER / 2).await;
    }
    assert_eq!((server.lists().len(), server.open()), (1, 1));
}

/// Goal: a resource that does not exist is discovered at growing intervals, is found when it is created, and is no
/// longer discovered when no workload names it.
#[tokio::test(start_paused = true)]
async fn a_missing_resource_is_discovered_at_growing_intervals() {
    let server = Server::default();
    let (targets, users) = targets(&server);
    users.name("Widget");
    assert!(matches!(targets.get(&key("Widget")), Err(TargetError::NotListed(_))));
    sleep(Duration::from_secs(3600)).await;
    let error = targets.get(&key("Widget")).expect_err("not served");
    assert!(matches!(&error, TargetError::Unwatchable { .. }), "{error}");
    let times = || server.discoveries(APPS);
    let pauses: Vec<_> = times().windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(pauses[..7], [1, 2, 4, 8, 16, 32, 60], "{pauses:?}");
    assert!(pauses.len() < 70, "{} in an hour", pauses.len());
    assert_eq!(server.lists(), [""; 0]);

    server.exists("widgets");
    sleep(PAUSE_MAX + Duration::from_secs(2)).await;
    assert_eq!(*users.listed.lock(), ["widgets.apps"]);
    assert_eq!(targets.get(&key("Widget")), Err(TargetError::Missing(key("Widget"))));
    let before = times().len();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(times().len(), before, "every resource is found");

    let _ = targets.get(&key("Gadget"));
    sleep(Duration::from_secs(600)).await;
    let again = times().len() - before;
    assert!((1..=5).contains(&again), "no workload names it: {again}");
    assert!(!targets.watched.lock().contains_key(&key("Gadget").resource));
}

/// Goal: a resource that cannot be scaled is neither listed nor watched, and invented kinds cost few requests.
#[tokio::test(start_paused = true)]
async fn only_scalable_resources_are_listed() {
    let server = Server::with("configs");
    server.unscalable.lock().insert("configs");
    let (targets, _) = targets(&server);
    let invented = |n: usize| key_of(&format!("g{n}.example.com/v1"), "Thing");
    for target in (0..1000).map(invented).chain([key("Config")]) {
        assert!(matches!(targets.get(&target), Err(TargetError::NotListed(_))));
    }
    sleep(Duration::from_secs(2)).await;
    let refused = |target: &TargetKey| targets.get(target).expect_err("a refusal").to_string();
    assert_eq!(refused(&key("Config")), "configs.apps of apps/v1 cannot be watched: it has no scale subresource");
    let expected = "things.g7.example.com of g7.example.com/v1 cannot be watched: the API server does not serve it";
    assert_eq!(refused(&invented(7)), expected);
    assert_eq!(server.lists(), [""; 0]);
    let count = server.discoveries.lock().len();
    assert!(count <= 3 * 1001, "{count}");
}

/// Goal: a version without a response delays no other version, and only that version is requested more often.
#[tokio::test(start_paused = true)]
async fn an_unanswered_discovery_delays_no_other_version() {
    let server = Server::with("widgets");
    server.failures.lock().insert(OTHER, SILENCE);
    let (targets, users) = targets(&server);
    let silent = key_of("other.example.com/v1", "Thing");
    for target in [&silent, &key("Widget"), &key("Gadget")] {
        users.named.lock().insert(target.resource.clone());
        assert!(matches!(targets.get(target), Err(TargetError::NotListed(_))));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*users.listed.lock(), ["widgets.apps"]);
    assert!(matches!(targets.get(&key("Gadget")), Err(TargetError::Unwatchable { .. })));
    sleep(Duration::from_secs(3600)).await;
    assert!(matches!(targets.get(&silent), Err(TargetError::NotListed(_))), "no response is no refusal");
    let (known, unknown) = (server.discoveries(APPS).len(), server.discoveries(OTHER).len());
    assert!((50..75).contains(&known), "{known} in an hour");
    assert!((300..600).contains(&unknown), "{unknown} in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_watched_if_discovery_is_forbidden() {
    let server = Server::with("widgets");
    server.failures.lock().insert(APPS, 403);
    let (targets, users) = targets(&server);
    assert!(matches!(targets.get(&key("Widget")), Err(TargetError::NotListed(_))));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.lists().len(), server.open()), (1, 1));
    assert_eq!(*users.listed.lock(), ["widgets.apps"]);
}

/// Goal: a failed discovery is not a refusal, and after an outage of any length, existing resources are found soon.
#[tokio::test(start_paused = true)]
async fn a_resource_is_found_soon_after_discovery_recovers() {
    for code in [500, SILENCE] {
        for outage in [Duration::from_millis(500), Duration::from_secs(3600)] {
            let server = Server::with("widgets");
            server.failures.lock().insert(APPS, code);
            let (targets, users) = targets(&server);
            users.name("Widget");
            let _ = targets.get(&key("Widget"));
            sleep(outage).await;
            assert!(matches!(targets.get(&key("Widget")), Err(TargetError::NotListed(_))), "{code}");
            assert!(!server.discoveries(APPS).is_empty(), "{code}");
            server.failures.lock().clear();
            sleep(PAUSE_UNANSWERED + Duration::from_secs(1)).await;
            assert_eq!(*users.listed.lock(), ["widgets.apps"], "{code} after {outage:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unwatchable_resource_is_listed_at_growing_intervals() {
    let server = Server::with("metrics");
    server.unwatchable.lock().insert("metrics");
    let (targets, users) = targets(&server);
    users.name("Metric");
    let _ = targets.get(&key("Metric"));
    sleep(Duration::from_secs(3600)).await;
    assert!((1..70).contains(&server.lists().len()), "{} in an hour", server.lists().len());
}
