//! Tests of target watches, with an API server that counts them, in paused time.

use super::*;
use common_api::ObjectReference;
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
    looks: Arc<Mutex<Vec<(Instant, String)>>>,
    lists: Arc<Mutex<Vec<(Instant, String)>>>,
    open: Arc<AtomicUsize>,
    /// Resources that exist.
    exist: Arc<Mutex<HashSet<&'static str>>>,
    /// Existing resources without a scale.
    unscalable: Arc<Mutex<HashSet<&'static str>>>,
    /// Resources that can be listed but not watched.
    unwatchable: Arc<Mutex<HashSet<&'static str>>>,
    /// Failures of discovery, by path: this status, or [`SILENCE`].
    troubles: Arc<Mutex<HashMap<&'static str, u16>>>,
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
        let trouble = self.troubles.lock().get(path.as_str()).copied();
        let body = if let Some(code) = trouble {
            self.looks.lock().push((Instant::now(), path));
            if code == SILENCE {
                std::future::pending::<()>().await;
            }
            refusal(code)
        } else if let Some(found) = self.discovered(&path) {
            self.looks.lock().push((Instant::now(), path));
            (200, found)
        } else if path.matches('/').count() == 3 {
            self.looks.lock().push((Instant::now(), path));
            refusal(404)
        } else if !self.exist.lock().contains(resource) {
            self.lists.lock().push((Instant::now(), path));
            refusal(404)
        } else if watches && self.unwatchable.lock().contains(resource) {
            refusal(405)
        } else if watches {
            self.open.fetch_add(1, Ordering::Relaxed);
            let _open = Open(self.open.clone());
            std::future::pending::<()>().await;
            unreachable!("pending")
        } else {
            self.lists.lock().push((Instant::now(), path));
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []}))
        };
        let response = Response::builder().status(body.0).body(Body::from(body.1.to_string().into_bytes()));
        Ok(response.expect("a response"))
    }

    fn discovered(&self, path: &str) -> Option<Value> {
        match path {
            APPS => {
                let (exist, unscalable) = (self.exist.lock(), self.unscalable.lock());
                let scales = exist.difference(&unscalable).map(|name| format!("{name}/scale"));
                let names = exist.iter().map(|name| (*name).to_owned()).chain(scales);
                let resources: Vec<Value> = names.map(|name| json!({"name": name, "namespaced": true})).collect();
                Some(json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": resources}))
            }
            _ => None,
        }
    }

    fn exists(&self, resource: &'static str) {
        self.exist.lock().insert(resource);
    }

    fn looks(&self, path: &str) -> Vec<Instant> {
        self.looks.lock().iter().filter(|(_, of)| of == path).map(|(at, _)| *at).collect()
    }

    fn lists(&self) -> Vec<String> {
        self.lists.lock().iter().map(|(_, path)| path.clone()).collect()
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

fn refusal(code: u16) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": ""}))
}

/// TargetListener with a configurable set of named resources, which records the listed ones.
#[derive(Default)]
struct Users {
    named: Mutex<HashSet<TargetResource>>,
    listed: Mutex<Vec<String>>,
}

impl TargetListener for Users {
    fn is_named(&self, resource: &TargetResource) -> bool {
        self.named.lock().contains(resource)
    }
    fn on_event(&self, news: TargetEvent<'_>) {
        if let TargetEvent::Listed(resource) = news {
            self.listed.lock().push(resource.to_string());
        }
    }
}

fn key(kind: &str) -> TargetKey {
    let some = |s: &str| Some(s.to_owned());
    let reference = ObjectReference { api_version: some("apps/v1"), kind: some(kind), name: some("a") };
    TargetKey::from_reference("ns", &reference).expect("usable")
}

fn targets(server: &Server) -> (Arc<Targets>, Arc<Users>) {
    let users = Arc::<Users>::default();
    let targets = Targets::new(server.client(), Namespaces::default(), CancellationToken::new(), users.clone());
    (Arc::new(targets), users)
}

/// Goal: regardless of spelling and number of reads, a kind is listed and watched once, while a workload names it and
/// little longer. A later user starts a new watch.
#[tokio::test(start_paused = true)]
async fn spellings_share_a_watch_which_ends_with_the_last_user() {
    let server = Server::default();
    server.exists("deployments");
    let (targets, users) = targets(&server);
    users.named.lock().insert(key("Deployment").resource);
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
    assert_eq!(server.open(), 0, "nobody names it");
    assert!(targets.watched.lock().is_empty());
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(server.lists().len(), 1);

    users.named.lock().insert(key("Deployment").resource);
    assert!(matches!(targets.get(&key("Deployment")), Err(TargetError::NotListed(_))));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.lists().len(), server.open()), (2, 1));
}

/// Goal: while a target is read, it stays watched, even if its PodAutoscaler already names another target.
#[tokio::test(start_paused = true)]
async fn a_look_keeps_a_watch_too() {
    let server = Server::default();
    server.exists("deployments");
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
async fn what_does_not_exist_is_looked_for_ever_more_seldom() {
    let server = Server::default();
    let (targets, users) = targets(&server);
    users.named.lock().insert(key("Widget").resource);
    assert!(matches!(targets.get(&key("Widget")), Err(TargetError::NotListed(_))));
    sleep(Duration::from_secs(3600)).await;
    let error = targets.get(&key("Widget")).expect_err("not there");
    assert!(matches!(&error, TargetError::Unwatchable { .. }), "{error}");
    let times = || server.looks(APPS);
    let pauses: Vec<_> = times().windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(pauses[..7], [1, 2, 4, 8, 16, 32, 60], "{pauses:?}");
    assert!(pauses.len() < 70, "{} in an hour", pauses.len());
    assert_eq!(server.lists(), [""; 0]);

    server.exists("widgets");
    sleep(PAUSE_MAX + Duration::from_secs(2)).await;
    assert_eq!(*users.listed.lock(), ["widgets.apps"]);
    assert_eq!(targets.get(&key("Widget")), Err(TargetError::Missing(key("Widget"))));
    let looked = times().len();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(times().len(), looked, "nothing is left to look for");

    let _ = targets.get(&key("Gadget"));
    sleep(Duration::from_secs(600)).await;
    let again = times().len() - looked;
    assert!((1..=5).contains(&again), "nobody names it: {again}");
    assert!(!targets.watched.lock().contains_key(&key("Gadget").resource));
}

/// Goal: a resource that cannot be scaled is neither listed nor watched, and invented kinds cost few requests.
#[tokio::test(start_paused = true)]
async fn only_what_can_be_scaled_is_listed() {
    let server = Server::default();
    server.exists("configs");
    server.unscalable.lock().insert("configs");
    let (targets, _) = targets(&server);
    let made_up = |n: usize| {
        let version = format!("g{n}.example.com/v1");
        TargetKey { resource: TargetResource::for_kind(&version, "Thing"), object: Key::new("ns", "a") }
    };
    for target in (0..1000).map(made_up).chain([key("Config")]) {
        assert!(matches!(targets.get(&target), Err(TargetError::NotListed(_))));
    }
    sleep(Duration::from_secs(2)).await;
    let refused = |target: &TargetKey| targets.get(target).expect_err("a refusal").to_string();
    assert_eq!(refused(&key("Config")), "configs.apps of apps/v1 cannot be watched: it has no scale subresource");
    let expected = "things.g7.example.com of g7.example.com/v1 cannot be watched: the API server does not serve it";
    assert_eq!(refused(&made_up(7)), expected);
    assert_eq!(server.lists(), [""; 0]);
    let looks = server.looks.lock().len();
    assert!(looks <= 3 * 1001, "{looks}");
}

/// Goal: a version without a response delays no other version, and only that version is requested more often.
#[tokio::test(start_paused = true)]
async fn what_is_not_answered_holds_up_nothing_else() {
    let server = Server::default();
    server.exists("widgets");
    server.troubles.lock().insert(OTHER, SILENCE);
    let (targets, users) = targets(&server);
    let silent =
        TargetKey { resource: TargetResource::for_kind("other.example.com/v1", "Thing"), object: Key::new("ns", "a") };
    for target in [&silent, &key("Widget"), &key("Gadget")] {
        users.named.lock().insert(target.resource.clone());
        assert!(matches!(targets.get(target), Err(TargetError::NotListed(_))));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*users.listed.lock(), ["widgets.apps"]);
    assert!(matches!(targets.get(&key("Gadget")), Err(TargetError::Unwatchable { .. })));
    sleep(Duration::from_secs(3600)).await;
    assert!(matches!(targets.get(&silent), Err(TargetError::NotListed(_))), "nobody has said that it is not there");
    let (known, unknown) = (server.looks(APPS).len(), server.looks(OTHER).len());
    assert!((50..75).contains(&known), "{known} in an hour");
    assert!((300..600).contains(&unknown), "{unknown} in an hour");
}

/// Goal: if discovery is forbidden, targets are watched all the same.
#[tokio::test(start_paused = true)]
async fn what_may_not_be_asked_about_is_watched() {
    let server = Server::default();
    server.exists("widgets");
    server.troubles.lock().insert(APPS, 403);
    let (targets, users) = targets(&server);
    assert!(matches!(targets.get(&key("Widget")), Err(TargetError::NotListed(_))));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.lists().len(), server.open()), (1, 1));
    assert_eq!(*users.listed.lock(), ["widgets.apps"]);
}

/// Goal: a failed discovery is not a refusal, and after a failure of any length, existing resources are found soon.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_asked_about_is_found_soon_after() {
    for (path, code) in [(APPS, 500), (APPS, SILENCE)] {
        for outage in [Duration::from_millis(500), Duration::from_secs(3600)] {
            let server = Server::default();
            server.exists("widgets");
            server.troubles.lock().insert(path, code);
            let (targets, users) = targets(&server);
            users.named.lock().insert(key("Widget").resource);
            let _ = targets.get(&key("Widget"));
            sleep(outage).await;
            assert!(matches!(targets.get(&key("Widget")), Err(TargetError::NotListed(_))), "{path} {code}");
            assert!(!server.looks(path).is_empty(), "{path} {code}");
            server.troubles.lock().clear();
            sleep(PAUSE_UNANSWERED + Duration::from_secs(1)).await;
            assert_eq!(*users.listed.lock(), ["widgets.apps"], "{path} {code} after {outage:?}");
        }
    }
}

/// Goal: a resource that can be listed but not watched is listed at growing intervals.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_watched_is_listed_ever_more_seldom() {
    let server = Server::default();
    server.exists("metrics");
    server.unwatchable.lock().insert("metrics");
    let (targets, users) = targets(&server);
    users.named.lock().insert(key("Metric").resource);
    let _ = targets.get(&key("Metric"));
    sleep(Duration::from_secs(3600)).await;
    assert!((1..70).contains(&server.lists().len()), "{} in an hour", server.lists().len());
}
