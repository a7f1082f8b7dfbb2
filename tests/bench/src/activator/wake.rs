//! Time from a pod's first accept to the first byte of a held request's response, for plain pods with various start
//! times.
//!
//! The activator knows the pod's address from the start, but the pod's program listens only after T. The activator
//! learns this only by probing. Its probe interval is proportional to the time waited, so the bound grows with T.
//!
//! A wake during a stall of the machine itself is discarded and repeated. The context figures show all wakes.

use crate::client::Connection;
use crate::cluster::{self, TestActivator};
use crate::report::{Figures, Measurement, P99, Row};
use crate::role::http1_backend::{answer, serve};
use crate::settings::Settings;
use crate::stalls::StallDetector;
use anyhow::ensure;
use common::backend::Protocol;
use futures::FutureExt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

const fn row(name: &'static str, what: &'static str, must: f64, aim: f64) -> Row {
    Row::at_most(name, what, "ms", must, aim).judged_by(P99)
}

/// Names of the rows, with the time that the pod's program takes to start.
const CASES: [(&str, Duration); 3] = [
    ("wake-20ms", Duration::from_millis(20)),
    ("wake-200ms", Duration::from_millis(200)),
    ("wake-2s", Duration::from_secs(2)),
];

/// Maximum number of attempts per wake that counts.
const ATTEMPTS: usize = 4;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        row(
            CASES[0].0,
            "pod accepts connections → first byte of the response to a held request, p99; the pod took 20 ms to start",
            5.0,
            2.0,
        ),
        row(CASES[1].0, "the same, 200 ms", 5.0, 2.0),
        row(CASES[2].0, "the same, 2 s", 40.0, 20.0),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let activator = TestActivator::start(settings).await?;
    let pod = SocketAddr::new(settings.ip(), 8080);
    let stalls = StallDetector::new();
    let mut figures = Figures::default();
    for (row, start) in CASES {
        let rounds = settings.repetitions * if start > Duration::from_secs(1) { 2 } else { 6 };
        let (mut delays, mut all) = (Vec::new(), Vec::new());
        while delays.len() < rounds {
            ensure!(all.len() < rounds * ATTEMPTS, "{row}: the machine stalled during most of {} wakes", all.len());
            let name = format!("{row}-{}", all.len());
            // The start time grows slightly with each wake, so that the phase between start and probing varies.
            let wake = measure_one(&activator, &name, pod, start + start * delays.len() as u32 / 100).await?;
            all.push(wake.millis());
            if !stalls.stalled_between(wake.accepting, wake.first).await {
                delays.push(wake.millis());
            }
        }
        let discarded = all.len() - delays.len();
        figures.row(row, delays);
        let reason = if stalls.is_active() { "because of stalls" } else { "(stalls are not detected)" };
        figures.add_context(format!("ms: {row}, {discarded} wakes discarded {reason}"), all);
    }
    Ok(figures)
}

struct Wake {
    /// Time at which the pod accepts connections.
    accepting: Instant,
    /// Time at which the response to the held request begins.
    first: Instant,
}

impl Wake {
    fn millis(&self) -> f64 {
        self.first.saturating_duration_since(self.accepting).as_secs_f64() * 1e3
    }
}

async fn measure_one(activator: &TestActivator, name: &str, pod: SocketAddr, start: Duration) -> anyhow::Result<Wake> {
    activator.create_revision(name, Protocol::Http1).await?;
    activator.until_known(name).await?;
    let mut client = Connection::open(activator.http1).await?;
    client.send(&cluster::host(name)).await?;
    activator.until_held(name, 1).await?;
    activator.set_pods(name, Protocol::Http1, &[pod]).await?;
    let starting = tokio::spawn(async move {
        tokio::time::sleep(start).await;
        let listener = TcpListener::bind(pod).await?;
        let accepting = Instant::now();
        anyhow::Ok((accepting, tokio::spawn(serve_pod(listener))))
    });
    let first = client.answer().await?;
    let (accepting, pod) = starting.await??;
    // The next wake's pod needs the address.
    pod.abort();
    let _ = pod.await;
    activator.set_pods(name, Protocol::Http1, &[]).await?;
    Ok(Wake { accepting, first })
}

/// Serves as a pod's program. If it is aborted, its port and all connections close.
async fn serve_pod(listener: TcpListener) {
    let mut serving = JoinSet::new();
    let answer = answer();
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.clone();
        serving.spawn(async move { serve(stream, || &answer).await });
    }
}
