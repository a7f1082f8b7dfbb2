//! Tests whose pods are loopback addresses with one common port, as in a cluster.

mod rows;

use super::client::PROTOBUF;
use super::*;
use crate::pods::PodState;
use crate::scale::fixture::{Names, collect_spec, ready_pod};
use crate::scale::{CollectSpec, Collection, PodSet, Pods, Requests};
use bytes::Bytes;
use common::scaling::ScalingMetric;
use common::stat::Stat;
use common::time::Timestamp;
use common_runtime::clock::Clock;
use http::{HeaderMap, Request, Response, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::time::timeout;

const SERVICE: &str = "a-private.ns.svc.cluster.local";

/// Pod behind a Service: name, seconds of uptime, concurrency.
type ServedPod = (&'static str, f64, f64);

/// Response of a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Concurrency(f64),
    Status(u16),
    WrongType,
    TooLong,
    Hangs,
}

struct Fixture {
    scraper: Scraper,
    collector: Arc<Collector>,
    pods: Arc<PodIndex>,
    key: RevisionKey,
    clock: Clock,
    names: Names,
    network: watch::Sender<Arc<NetworkConfig>>,
    /// Headers of the requests to pods.
    requests: SentHeaders,
}

type SentHeaders = Arc<Mutex<Vec<HeaderMap>>>;

impl Fixture {
    /// Creates a revision whose pods respond like this. Pods beyond the first need the first's port on their own
    /// addresses.
    async fn new(answers: &[Answer]) -> Self {
        let (clock, key) = (Clock::starting_at(Timestamp::from_secs(1_000_000)), RevisionKey::new("ns", "a"));
        let collector = Arc::new(Collector::new(clock.clone(), Requests::new()));
        let pods = Arc::new(PodIndex::new(Requests::new()));
        collector.ensure(&key, CollectSpec { scrape_target: Some("a-private".into()), ..collect_spec() });
        pods.track(&key, PodSet::Revision("a".into()), None);
        pods.end_list();
        let (names, network) = (Names::default(), watch::Sender::new(Arc::default()));
        let (resolver, requests) = (Arc::new(names.clone()), SentHeaders::default());
        let (live, duration): (_, Durations) = (network.subscribe(), Arc::new(|_| None));
        let mut scraper = Scraper::new(collector.clone(), pods.clone(), resolver, "cluster.local", live, duration);
        let mut port = 0;
        for (pod, answer) in (1..).zip(answers) {
            let address = IpAddr::from([127, 1, 0, pod]);
            let listener = TcpListener::bind((address, port)).await.expect("bind");
            port = listener.local_addr().expect("address").port();
            tokio::spawn(serve(listener, *answer, requests.clone()));
            let (address, started) = (Some(address), Some(Timestamp::from_secs(0)));
            let state = PodState { address, started, ..ready_pod(&[(common::names::REVISION, "a")]) };
            pods.apply("ns", &pod.to_string(), state);
        }
        scraper.http.port = port;
        Self { scraper, collector, pods, key, clock, names, network, requests }
    }

    async fn scrape(&self) {
        let parameters = self.collector.begin_scrape(&self.key).expect("no scrape is running");
        self.scraper.scrape(&self.key, self.pods.scrape_targets(&self.key), parameters).await;
    }

    /// Runs the scraper until the condition holds.
    async fn run_until(&self, holds: impl Fn() -> bool) {
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(self.scraper.clone().run(shutdown.clone()));
        let scraped = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(10)).await; // A scrape sends no event.
            }
        };
        timeout(Duration::from_secs(20), scraped).await.expect("scraped");
        shutdown.cancel();
        running.await.expect("ends");
    }

    fn configure(&self, mesh_mode: MeshMode, mesh_pod_addressability: bool) {
        let config = NetworkConfig { mesh_mode, mesh_pod_addressability, ..NetworkConfig::default() };
        self.network.send_replace(Arc::new(config));
    }

    /// Puts a Service before pods of these names, uptimes and loads, which it serves in turn. Counts its requests.
    async fn service(&self, pods: &'static [ServedPod]) -> Arc<AtomicUsize> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        self.names.0.lock().insert(SERVICE.to_owned(), listener.local_addr().expect("address"));
        let (count, port) = (Arc::new(AtomicUsize::new(0)), self.scraper.http.port);
        let counted = count.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let turn = counted.fetch_add(1, Ordering::Relaxed);
                let (pod_name, process_uptime, load) = pods[turn % pods.len()];
                let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| async move {
                    assert_eq!(request.headers()[header::HOST], format!("a-private.ns:{port}"));
                    let pod_name = pod_name.to_owned();
                    let stat = Stat { pod_name, process_uptime, average_concurrent_requests: load, ..Stat::default() };
                    Ok::<_, Infallible>(response(200, PROTOBUF, &stat))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        count
    }

    fn health(&self) -> CollectionHealth {
        self.collector.health(&self.key).expect("collected")
    }

    fn stable(&self) -> Option<f64> {
        self.stable_of(&self.key)
    }

    fn stable_of(&self, key: &RevisionKey) -> Option<f64> {
        let load = self.collector.load(key, ScalingMetric::Concurrency, self.clock.now());
        load.ok().map(|load| load.stable)
    }
}

fn response(status: u16, media_type: &str, stat: &Stat) -> Response<Full<Bytes>> {
    let body = Full::new(Bytes::from(stat.encode_to_vec()));
    Response::builder().status(status).header(header::CONTENT_TYPE, media_type).body(body).expect("valid")
}

async fn serve(listener: TcpListener, answer: Answer, requests: SentHeaders) {
    while let Ok((stream, _)) = listener.accept().await {
        let requests = requests.clone();
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            assert_eq!(request.uri().path(), "/metrics");
            assert_eq!(request.headers()[header::ACCEPT], PROTOBUF);
            requests.lock().push(request.headers().clone());
            async move {
                let (status, media_type, concurrency, name) = match answer {
                    Answer::Concurrency(concurrency) => (200, PROTOBUF, concurrency, "pod".to_owned()),
                    Answer::Status(status) => (status, PROTOBUF, 0.0, String::new()),
                    Answer::WrongType => (200, "text/html", 0.0, String::new()),
                    Answer::TooLong => (200, PROTOBUF, 0.0, "x".repeat(600)),
                    Answer::Hangs => std::future::pending().await,
                };
                let stat = Stat { average_concurrent_requests: concurrency, pod_name: name, ..Stat::default() };
                Ok::<_, Infallible>(response(status, media_type, &stat))
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Goal: the load of the revision is the mean of the reported loads times the number of pods. A pod that fails or hangs
/// affects neither the other pods nor the rate of scrapes.
#[tokio::test]
async fn partial_failures_are_tolerated() {
    use Answer::{Concurrency, Hangs, Status, TooLong, WrongType};
    let rows: [(&[Answer], Option<f64>); 6] = [
        (&[Concurrency(3.0), Concurrency(5.0), Concurrency(4.0)], Some(12.0)),
        (&[Concurrency(3.0), Concurrency(5.0), Status(503)], Some(12.0)), // The mean of two, times three.
        (&[Concurrency(3.0), Concurrency(5.0), Hangs], Some(12.0)),
        (&[Concurrency(2.0), WrongType, TooLong], Some(6.0)),
        (&[Status(403)], None),
        (&[Concurrency(0.0)], Some(0.0)), // Zero is a measurement.
    ];
    for (answers, expected) in rows {
        let fixture = Fixture::new(answers).await;
        timeout(Duration::from_secs(2), fixture.scrape()).await.expect("no pod delays the others");
        assert_eq!(fixture.stable(), expected, "{answers:?}");
    }
}

/// Goal: a failure is reported with its reason, and cleared by the next success.
#[tokio::test]
async fn a_failed_scrape_is_reported_with_its_reason() {
    for (answer, expected) in [
        (Answer::Status(403), Err("HTTP status 403")),
        (Answer::WrongType, Err("unsupported metric type \"text/html\"")),
        (Answer::TooLong, Err("length limit")),
        (Answer::Concurrency(1.0), Ok(())),
    ] {
        let fixture = Fixture::new(&[answer]).await;
        fixture.scrape().await;
        match (fixture.health(), expected) {
            (Ok(()), Ok(())) => {}
            (Err(CollectionError::Other(reason)), Err(part)) if reason.contains(part) => {}
            (health, _) => panic!("{answer:?}: {health:?}"),
        }
    }
}

/// Goal: the wheel scrapes a revision with ready pods once a second, and skips a sleeping one.
#[tokio::test]
async fn only_awake_revisions_are_scraped() {
    let fixture = Fixture::new(&[Answer::Concurrency(7.0)]).await;
    let asleep = RevisionKey::new("ns", "asleep");
    let how = fixture.collector.get(&fixture.key).expect("collected").lock().spec.clone();
    fixture.collector.ensure(&asleep, how);
    fixture.run_until(|| fixture.stable().is_some()).await;
    assert_eq!(fixture.stable(), Some(7.0));
    assert_eq!(fixture.collector.health(&asleep), Some(Ok(())));
}

/// Goal: if a phase has more revisions than permits, every revision is scraped sooner or later.
#[tokio::test]
async fn revisions_without_a_permit_are_scraped_later() {
    let mut fixture = Fixture::new(&[Answer::Concurrency(7.0)]).await;
    fixture.scraper.permits = Arc::new(Semaphore::new(1));
    let how = fixture.collector.get(&fixture.key).expect("collected").lock().spec.clone();
    let same_phase = |key: &RevisionKey| phase_of(key) == phase_of(&fixture.key);
    let names = (0..).map(|n| RevisionKey::new("ns", format!("other-{n}")));
    let others: Vec<RevisionKey> = names.filter(same_phase).take(5).collect();
    for key in &others {
        fixture.collector.ensure(key, how.clone());
        fixture.pods.track(key, PodSet::Revision("a".into()), None);
    }
    fixture.run_until(|| others.iter().chain([&fixture.key]).all(|key| fixture.stable_of(key).is_some())).await;
}

const HIDDEN: &[Answer] = &[Answer::Status(503), Answer::Status(502), Answer::Status(503)];
const THREE: &[ServedPod] = &[("p", 90.0, 2.0), ("q", 60.0, 4.0), ("r", 90.0, 6.0)];

/// Goal: `mesh-compatibility-mode` selects pods or Service, and an edit takes effect with the next scrape.
#[tokio::test]
async fn the_mesh_mode_selects_pods_or_service() {
    let fixture = Fixture::new(HIDDEN).await;
    let count = fixture.service(THREE).await;
    fixture.configure(MeshMode::Disabled, false);
    fixture.scrape().await;
    assert_eq!((fixture.stable(), count.load(Ordering::Relaxed)), (None, 0), "never the Service");
    assert!(matches!(fixture.health(), Err(CollectionError::Other(_))));

    fixture.configure(MeshMode::Enabled, false);
    fixture.requests.lock().clear();
    fixture.scrape().await;
    assert_eq!(fixture.stable(), Some(12.0), "the total of three different pods");
    assert_eq!(fixture.health(), Ok(()));
    assert!(fixture.requests.lock().is_empty(), "never the pods");
}

/// Goal: in `auto`, if all pods respond as if a mesh hid them, their Service is scraped, and next time without trying
/// the pods. Any other failure is no sign of a mesh.
#[tokio::test]
async fn a_mesh_is_detected_by_its_responses() {
    let fixture = Fixture::new(HIDDEN).await;
    fixture.scrape().await;
    assert!(matches!(fixture.health(), Err(CollectionError::Other(_))), "the Service leads nowhere");
    assert!(!fixture.requests.lock().is_empty());

    fixture.service(THREE).await;
    fixture.requests.lock().clear();
    fixture.scrape().await;
    assert_eq!((fixture.stable(), fixture.requests.lock().len()), (Some(12.0), 3), "the pods are tried first");
    fixture.scrape().await;
    assert_eq!((fixture.health(), fixture.requests.lock().len()), (Ok(()), 3), "and then no longer");

    for answers in [[Answer::Status(503), Answer::Status(404)], [Answer::Status(503), Answer::Concurrency(1.0)]] {
        let fixture = Fixture::new(&answers).await;
        let count = fixture.service(THREE).await;
        fixture.scrape().await;
        assert_eq!(count.load(Ordering::Relaxed), 0, "{answers:?}");
    }
}

/// Goal: with addressable pods a request carries the headers that a mesh needs, and `auto` never falls back.
#[tokio::test]
async fn addressable_pods_are_scraped_under_their_services_name() {
    let fixture = Fixture::new(HIDDEN).await;
    let count = fixture.service(THREE).await;
    fixture.configure(MeshMode::Auto, true);
    fixture.scrape().await;
    assert_eq!(count.load(Ordering::Relaxed), 0);
    for headers in std::mem::take(&mut *fixture.requests.lock()) {
        assert_eq!(headers[header::HOST], "a-private.ns");
        assert_eq!(headers[common::headers::DIRECT_LB], "true");
    }
    fixture.configure(MeshMode::Disabled, false);
    fixture.scrape().await;
    for headers in fixture.requests.lock().iter() {
        assert_ne!(headers[header::HOST], "a-private.ns");
        assert!(!headers.contains_key(common::headers::DIRECT_LB));
    }
}

/// Goal: of a Service's pods old ones come first, and each pod counts once; young ones count if there are too few.
#[tokio::test]
async fn a_service_is_scraped_until_enough_pods_have_responded() {
    let rows: [(&'static [ServedPod], usize, f64); 3] = [
        (&[("p", 90.0, 2.0), ("p", 90.0, 2.0), ("q", 60.0, 4.0)], 2, 6.0),
        (&[("young", 59.0, 9.0), ("p", 90.0, 2.0), ("q", 60.0, 4.0)], 2, 6.0),
        (&[("young", 59.0, 9.0), ("p", 90.0, 3.0)], 2, 12.0),
    ];
    for (pods, population, expected) in rows {
        let fixture = Fixture::new(&HIDDEN[..population]).await;
        fixture.configure(MeshMode::Enabled, false);
        fixture.service(pods).await;
        fixture.scrape().await;
        assert_eq!((fixture.stable(), fixture.health()), (Some(expected), Ok(())), "{pods:?}");
    }
}

/// Goal: a Service that keeps leading to one pod yields an estimate and, if that lasts, a reason in the status. The
/// number of requests is bounded.
#[tokio::test]
async fn a_service_that_leads_to_one_pod_only_is_reported() {
    let fixture = Fixture::new(HIDDEN).await;
    fixture.configure(MeshMode::Enabled, false);
    let count = fixture.service(&[("p", 90.0, 2.0)]).await;
    for _ in 0..=crate::collect::TRANSIENT_FAILURES_MAX {
        assert_eq!(fixture.health(), Ok(()));
        fixture.scrape().await;
    }
    let expected = "did not receive stat from an unscraped pod";
    assert_eq!(fixture.health(), Err(CollectionError::DidNotReceiveStat(expected.into())));
    assert!(fixture.stable().is_some_and(|load| load >= 6.0), "one pod's load, times three");
    let each_scrape = count.load(Ordering::Relaxed) / 3;
    assert!((20..=30).contains(&each_scrape), "{each_scrape} requests");
}

/// Goal: pods that cannot be counted are reported as missing endpoints; a sleeping revision is healthy.
#[tokio::test]
async fn missing_endpoints_are_reported_and_sleep_is_healthy() {
    let fixture = Fixture::new(&[]).await;
    let tasks = TaskTracker::new();
    let scrape = async |times| {
        for _ in 0..times {
            fixture.scraper.begin(fixture.key.clone(), Instant::now(), &tasks).await;
        }
    };
    scrape(5).await;
    assert_eq!(fixture.health(), Ok(()));
    fixture.pods.untrack(&fixture.key);
    scrape(3).await;
    assert_eq!(fixture.health(), Err(CollectionError::NoEndpoints("failed to get endpoints".into())));
    fixture.pods.track(&fixture.key, PodSet::Revision("a".into()), None);
    scrape(1).await;
    assert_eq!(fixture.health(), Ok(()));
}

/// Goal: pods that accept connections and never respond do not delay a sample, however many candidates remain. Neither
/// does a Service that leads to such pods. Method: paused time, which advances whenever all tasks wait.
#[tokio::test(start_paused = true)]
async fn hanging_pods_do_not_prolong_a_sample() {
    let hanging = TcpListener::bind("127.1.0.1:0").await.expect("bind");
    let address = hanging.local_addr().expect("address");
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            open.push(hanging.accept().await);
        }
    });
    let names = Names::default();
    names.0.lock().insert(SERVICE.to_owned(), address);
    let mut http = Http::new(Arc::new(names));
    http.port = address.port();
    let start = Instant::now();
    let candidates = sample::Candidates { needed: 3, order: vec![address.ip(); 100] };
    let direct = samples::from_pods(&http, candidates, None).await;
    assert_eq!(start.elapsed(), samples::SAMPLE_TIMEOUT);
    assert!(matches!(direct.error, Some(ScrapeError::Late(_))), "{direct:?}");
    assert!(!direct.hidden && direct.stats.is_empty(), "hanging is no sign of a mesh");

    let service = Service { name: SERVICE.into(), host: "a-private.ns".into() };
    let start = Instant::now();
    let indirect = samples::from_service(&http, &service, 100, Duration::from_secs(60)).await;
    assert_eq!(start.elapsed(), samples::SAMPLE_TIMEOUT);
    assert!(matches!(indirect.error, Some(ScrapeError::Late(_))), "{indirect:?}");
}
