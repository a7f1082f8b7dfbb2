//! Pods are loopback addresses of their own with one port, as in a cluster.

use super::*;
use crate::clock::Clock;
use crate::pods::PodState;
use crate::scale::{Attention, CollectSpec, Collection, PodSet, Pods};
use autoscaler_core::pod_counts::{Phase, Pod};
use common::scaling::{Aggregation, ScalingMetric};
use common::time::Timestamp;
use http::Response;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use prost::Message;
use std::convert::Infallible;
use tokio::net::TcpListener;

/// How a pod answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Concurrency(f64),
    Status(u16),
    WrongType,
    TooLong,
}

struct Fixture {
    scraper: Scraper,
    collector: Arc<Collector>,
    pods: Arc<PodIndex>,
    key: RevisionKey,
    clock: Clock,
}

impl Fixture {
    /// A revision whose pods answer like this; pods beyond the first need the first's port on addresses of their own.
    async fn new(answers: &[Answer]) -> Self {
        let (clock, key) = (Clock::starting_at(Timestamp::from_secs(1_000_000)), RevisionKey::new("ns", "a"));
        let collector = Arc::new(Collector::new(clock.clone(), Attention::new()));
        let pods = Arc::new(PodIndex::new(Attention::new()));
        let how = CollectSpec {
            stable_window: Duration::from_secs(60),
            panic_window: Duration::from_secs(6),
            aggregation: Aggregation::Linear,
            scrape_target: Some("a-private".into()),
        };
        collector.ensure(&key, how);
        pods.track(&key, PodSet::Revision("a".into()));
        pods.end_list();
        let mut scraper = Scraper::new(collector.clone(), pods.clone(), Histogram::new([1.0]));
        let mut port = 0;
        for (pod, answer) in (1..).zip(answers) {
            let address = IpAddr::from([127, 1, 0, pod]);
            let listener = TcpListener::bind((address, port)).await.expect("bind");
            port = listener.local_addr().expect("address").port();
            tokio::spawn(serve(listener, *answer));
            let state = PodState {
                labels: [(common::names::REVISION.to_owned(), "a".to_owned())].into(),
                state: Pod { phase: Phase::Running, deleting: false, ready: true },
                address: Some(address),
                started: Some(Timestamp::from_secs(0)),
                trouble: None,
            };
            pods.apply("ns", &pod.to_string(), state);
        }
        scraper.port = port;
        Self { scraper, collector, pods, key, clock }
    }

    async fn scrape(&self) {
        let window = self.collector.begin_scrape(&self.key).expect("nothing under way");
        self.scraper.scrape(&self.key, self.pods.scrape_targets(&self.key), window).await;
    }

    fn stable(&self) -> Option<f64> {
        let load = self.collector.load(&self.key, ScalingMetric::Concurrency, self.clock.now(), true);
        load.ok().map(|load| load.stable)
    }
}

async fn serve(listener: TcpListener, answer: Answer) {
    while let Ok((stream, _)) = listener.accept().await {
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| async move {
            assert_eq!(request.uri().path(), "/metrics");
            assert_eq!(request.headers()[header::ACCEPT], PROTOBUF);
            let (status, media_type, concurrency, name) = match answer {
                Answer::Concurrency(concurrency) => (200, PROTOBUF, concurrency, "pod".to_owned()),
                Answer::Status(status) => (status, PROTOBUF, 0.0, String::new()),
                Answer::WrongType => (200, "text/html", 0.0, String::new()),
                Answer::TooLong => (200, PROTOBUF, 0.0, "x".repeat(600)),
            };
            let stat = Stat { average_concurrent_requests: concurrency, pod_name: name, ..Stat::default() };
            let body = Full::new(Bytes::from(stat.encode_to_vec()));
            let response = Response::builder().status(status).header(header::CONTENT_TYPE, media_type).body(body);
            Ok::<_, Infallible>(response.expect("valid"))
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Goal: what the pods report counts as a total of the revision, and a pod that fails takes nothing from the others.
#[tokio::test]
async fn partial_failures_are_tolerated() {
    use Answer::{Concurrency, Status, TooLong, WrongType};
    let rows: [(&[Answer], Option<f64>); 5] = [
        (&[Concurrency(3.0), Concurrency(5.0), Concurrency(4.0)], Some(12.0)),
        (&[Concurrency(3.0), Concurrency(5.0), Status(503)], Some(12.0)), // The mean of two, for three.
        (&[Concurrency(2.0), WrongType, TooLong], Some(6.0)),
        (&[Status(403)], None),
        (&[Concurrency(0.0)], Some(0.0)), // Zero is a measurement.
    ];
    for (answers, expected) in rows {
        let fixture = Fixture::new(answers).await;
        fixture.scrape().await;
        assert_eq!(fixture.stable(), expected, "{answers:?}");
    }
}

/// Goal: a failure is told with its reason, and forgotten with the next success.
#[tokio::test]
async fn health_says_what_went_wrong() {
    for (answer, part) in [
        (Answer::Status(403), "HTTP status 403"),
        (Answer::WrongType, "unsupported metric type \"text/html\""),
        (Answer::TooLong, "length limit"),
    ] {
        let fixture = Fixture::new(&[answer]).await;
        fixture.scrape().await;
        let health = fixture.collector.health(&fixture.key);
        assert!(matches!(&health, Some(CollectionHealth::Failed(reason)) if reason.contains(part)), "{health:?}");
    }
    let fixture = Fixture::new(&[Answer::Concurrency(1.0)]).await;
    fixture.scrape().await;
    assert_eq!(fixture.collector.health(&fixture.key), Some(CollectionHealth::Healthy));
}

/// Goal: the wheel scrapes a revision with ready pods once a second, and leaves a sleeping one alone.
#[tokio::test]
async fn only_awake_revisions_are_scraped() {
    let fixture = Fixture::new(&[Answer::Concurrency(7.0)]).await;
    let asleep = RevisionKey::new("ns", "asleep");
    let how = fixture.collector.get(&fixture.key).expect("collected").lock().spec.clone();
    fixture.collector.ensure(&asleep, how);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(fixture.scraper.clone().run(shutdown.clone()));
    let seen = async {
        while fixture.stable().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await; // A scrape sends no event.
        }
    };
    timeout(Duration::from_secs(20), seen).await.expect("scraped");
    assert_eq!(fixture.stable(), Some(7.0));
    assert_eq!(fixture.collector.health(&asleep), Some(CollectionHealth::Healthy));
    shutdown.cancel();
    running.await.expect("ends");
}
