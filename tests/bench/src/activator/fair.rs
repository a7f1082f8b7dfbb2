//! Two activators before five pods that run one request at a time, each for 50 ms. The load is 80 requests per
//! second in total: four fifths of the pods' capacity. Activators are processes; pods and clients are tasks of this
//! one.
//!
//! - *even*: requests at equal intervals. (`tests/sim` compares random arrivals with one ideal queue.)
//! - *killed*: one of the activators is killed halfway through the run, and its clients switch to the other one, as if
//!   the Service no longer listed it. The requests in the killed activator are lost; no others may be.

use crate::process::Process;
use crate::report::{Figures, GREATEST, LEAST, Measurement, Row};
use crate::settings::{Settings, quantile};
use anyhow::ensure;
use common_runtime::environment::Mode;
use e2e::{CountingPods, Load, MultiActivatorCluster};
use futures::FutureExt;
use futures::future::join_all;
use std::cell::Cell;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const PODS: u32 = 5;
const WORK: Duration = Duration::from_millis(50);
const ACTIVATORS: usize = 2;
/// Requests per second, of both activators together.
const RATE: u32 = 80;

pub(super) const EVEN: Measurement = Measurement {
    rows: &[
        Row::at_most(
            "fair-even",
            "2 activators, 5 pods, limit 1, 50 ms, 40 requests/s on each: p99 of the slower activator",
            "ms",
            60.0,
            57.0,
        )
        .judged_by(GREATEST),
        Row::at_least("fair-even-least", "smallest share of a pod", "%", 18.0, 19.0).judged_by(LEAST),
        Row::at_most("fair-even-most", "largest share of a pod", "%", 22.0, 21.0).judged_by(GREATEST),
    ],
    run: |settings| even(settings).boxed_local(),
};

pub(super) const KILLED: Measurement = Measurement {
    rows: &[
        Row::at_most("fair-killed", "1 of 2 activators killed: lost requests of the other one", "requests", 0.0, 0.0)
            .judged_by(GREATEST),
        Row::at_most(
            "fair-killed-most",
            "the same: most concurrent requests at a pod with limit 1",
            "requests",
            1.0,
            1.0,
        )
        .judged_by(GREATEST),
    ],
    run: |settings| killed(settings).boxed_local(),
};

async fn even(settings: &Settings) -> anyhow::Result<Figures> {
    let setup = Setup::start().await?;
    let (before, start) = (setup.pods.served(), Instant::now());
    let all = join_all((0..ACTIVATORS).map(|n| setup.drive(start, settings.steady, n, move || n))).await;
    let p99s = all.iter().map(|sent| p99(sent)).collect::<anyhow::Result<Vec<f64>>>()?;
    let each: Vec<f64> = setup.pods.served().iter().zip(&before).map(|(now, before)| (now - before) as f64).collect();
    let shares: Vec<f64> = each.iter().map(|served| 100.0 * served / each.iter().sum::<f64>()).collect();
    let mut figures = Figures::default();
    figures.row("fair-even", p99s);
    figures.row("fair-even-least", shares.clone());
    figures.row("fair-even-most", shares);
    figures.add_context("s under load", vec![settings.steady.as_secs_f64()]);
    figures.add_context("first activator: ms", millis(&all[0]));
    figures.add_context("second activator: ms", millis(&all[1]));
    figures.add_context("most concurrent requests at a pod", vec![setup.pods.most() as f64]);
    Ok(figures)
}

async fn killed(settings: &Settings) -> anyhow::Result<Figures> {
    let mut setup = Setup::start().await?;
    let victim = setup.activators.remove(0);
    let (is_gone, start) = (&Cell::new(false), Instant::now());
    let load = |n: usize| setup.drive(start, settings.steady, n, move || if is_gone.get() { 1 } else { n });
    let killing = async {
        tokio::time::sleep(settings.steady / 2).await;
        is_gone.set(true);
        drop(victim);
        setup.cluster.publish(&[(1, true)]).await
    };
    let (of_first, of_second, listed) = tokio::join!(load(0), load(1), killing);
    listed?;
    let all: Vec<Sent> = of_first.into_iter().chain(of_second).collect();
    let lost =
        |activator: usize| all.iter().filter(|sent| sent.activator == activator && !sent.is_answered).count() as f64;
    let mut figures = Figures::default();
    figures.row("fair-killed", vec![lost(1)]);
    figures.row("fair-killed-most", vec![setup.pods.most() as f64]);
    figures.add_context("lost requests of the killed activator", vec![lost(0)]);
    figures.add_context("s under load", vec![settings.steady.as_secs_f64()]);
    figures.add_context("requests", vec![all.len() as f64]);
    let by_other = all.iter().filter(|sent| sent.activator == 1 && sent.is_answered);
    figures.add_context("the other one: ms", by_other.map(|sent| sent.ms).collect());
    Ok(figures)
}

/// Pods, and the activators that share the pods' hard limit.
struct Setup {
    cluster: MultiActivatorCluster,
    pods: CountingPods,
    activators: Vec<Process>,
    loads: Vec<Load>,
}

/// Result of a request.
struct Sent {
    /// Activator to which the request was sent.
    activator: usize,
    /// Duration of the request, in ms.
    ms: f64,
    is_answered: bool,
}

impl Setup {
    async fn start() -> anyhow::Result<Self> {
        let cluster = MultiActivatorCluster::start(Mode::Standalone).await?;
        let pods = CountingPods::start(&cluster.pod_addresses(PODS)?, WORK).await?;
        let mut activators = Vec::new();
        for n in 0..ACTIVATORS {
            let mut env = cluster.environment(n);
            env.push(("RUST_LOG", std::env::var("RUST_LOG").unwrap_or("warn".to_owned())));
            activators.push(Process::start(e2e::process::program("activator")?, [] as [&str; 0], &env)?);
        }
        for n in 0..ACTIVATORS {
            cluster.until_serving(n).await?;
        }
        cluster.publish(&[(0, true), (1, true)]).await?;
        cluster.set_pods(&pods.addresses()).await?;
        let loads: Vec<Load> = (0..ACTIVATORS).map(|n| cluster.load(n)).collect();
        for (n, load) in loads.iter().enumerate() {
            cluster.until_sharing(n, "shared").await?;
            // The activator holds this request until it knows the pods.
            ensure!(load.get("/").await?.status == 200, "activator {n}");
        }
        Ok(Self { cluster, pods, activators, loads })
    }

    /// Sends half of all requests at equal intervals during `span`, regardless of earlier responses: each to the
    /// activator that `to` returns at that time. The requests of load `n` fall between those of the other one.
    async fn drive(&self, start: Instant, span: Duration, n: usize, to: impl Fn() -> usize) -> Vec<Sent> {
        let mut running = JoinSet::new();
        let count = (span * RATE).as_secs() as usize;
        for turn in (n..count).step_by(ACTIVATORS) {
            tokio::time::sleep_until(start + Duration::from_secs(turn as u64) / RATE).await;
            let activator = to();
            let load = self.loads[activator].clone();
            running.spawn(async move {
                let sent = Instant::now();
                let is_answered = load.get("/").await.is_ok_and(|answer| answer.status == 200);
                Sent { activator, ms: sent.elapsed().as_secs_f64() * 1e3, is_answered }
            });
        }
        running.join_all().await
    }
}

fn millis(all: &[Sent]) -> Vec<f64> {
    all.iter().map(|sent| sent.ms).collect()
}

/// Returns the 99th percentile. Fails if a request was lost.
fn p99(all: &[Sent]) -> anyhow::Result<f64> {
    let lost = all.iter().filter(|sent| !sent.is_answered).count();
    ensure!(lost == 0, "{lost} of {} requests were lost", all.len());
    Ok(quantile(&millis(all), 0.99))
}
