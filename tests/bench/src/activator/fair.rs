//! Several activators before five pods that run one request at a time, each for 50 ms. The load is 80 requests per
//! second in total: four fifths of the pods' capacity. Activators are processes; pods and clients are tasks of this
//! one.
//!
//! - *even*: two activators, with requests at equal intervals.
//! - *poisson*: one, two or five activators, with random arrivals. For comparison, one ideal queue before the same pods
//!   is simulated with the actual send times; its service time is that of a single request sent directly to a pod.
//! - *killed*: one of two activators is killed halfway through the run, and its clients switch to the other one, as if
//!   the Service no longer listed it. The requests in the killed activator are lost; no others may be.

use crate::process::{self, Process};
use crate::report::{Figures, GREATEST, LEAST, MEDIAN, Measurement, Row};
use crate::settings::{Settings, quantile};
use anyhow::ensure;
use common_runtime::environment::Mode;
use e2e::{CountingPods, Load, MultiActivatorCluster};
use futures::FutureExt;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const PODS: u32 = 5;
const WORK: Duration = Duration::from_millis(50);
/// Requests per second, of all activators together.
const RATE: f64 = 80.0;
/// Seed of random arrivals.
const SEED: u64 = 7;
/// Number of single requests, whose median is the base.
const ALONE: usize = 20;

const fn ratio(name: &'static str, what: &'static str) -> Row {
    Row::at_most(name, what, "", 1.5, 1.2)
}

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

const POISSON_ROWS: [(&str, usize); 3] = [("fair-poisson-1", 1), ("fair-poisson-2", 2), ("fair-poisson-5", 5)];

pub(super) const POISSON: Measurement = Measurement {
    rows: &[
        ratio(POISSON_ROWS[0].0, "80 requests/s at random times on 1 activator: p99 ÷ that of one ideal queue"),
        ratio(POISSON_ROWS[1].0, "the same on 2 activators"),
        ratio(POISSON_ROWS[2].0, "the same on 5 activators"),
    ],
    run: |settings| poisson(settings).boxed_local(),
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
    let setup = Setup::start(2).await?;
    let base = setup.alone().await?;
    let (before, per) = (setup.pods.served(), RATE / 2.0);
    let start = Instant::now();
    let loads = (0..2).map(|n| setup.drive(start, even_arrivals(per, settings.steady, n as f64 / RATE), move || n));
    let all = join_all(loads).await;
    let p99s = all.iter().map(|sent| p99(sent)).collect::<anyhow::Result<Vec<f64>>>()?;
    let each: Vec<f64> = setup.pods.served().iter().zip(&before).map(|(now, before)| (now - before) as f64).collect();
    let shares: Vec<f64> = each.iter().map(|served| 100.0 * served / each.iter().sum::<f64>()).collect();
    let mut figures = Figures::default();
    figures.row("fair-even", p99s);
    figures.row("fair-even-least", shares.clone());
    figures.row("fair-even-most", shares);
    base.add_to("", &mut figures);
    figures.add_context("s under load", vec![settings.steady.as_secs_f64()]);
    figures.add_context("first activator: ms", millis(&all[0]));
    figures.add_context("second activator: ms", millis(&all[1]));
    figures.add_context("most concurrent requests at a pod", vec![setup.pods.most() as f64]);
    Ok(figures)
}

async fn poisson(settings: &Settings) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    figures.add_context("s under load", vec![settings.steady.as_secs_f64()]);
    for (row, activators) in POISSON_ROWS {
        let setup = Setup::start(activators).await?;
        let base = setup.alone().await?;
        let mut rng = StdRng::seed_from_u64(SEED);
        let start = Instant::now();
        let loads: Vec<_> = (0..activators)
            .map(|n| {
                let arrivals = poisson_arrivals(RATE / activators as f64, settings.steady, &mut rng);
                setup.drive(start, arrivals, move || n)
            })
            .collect();
        let all: Vec<Sent> = join_all(loads).await.into_iter().flatten().collect();
        let ours = p99(&all)?;
        let mut arrivals: Vec<f64> = all.iter().map(|sent| sent.at).collect();
        arrivals.sort_by(f64::total_cmp);
        let ideal = quantile(&ideal_queue(&arrivals, PODS as usize, base.direct()), 0.99);
        figures.row(row, vec![ours / ideal]);
        let suffix = format!(", of {activators}");
        base.add_to(&suffix, &mut figures);
        figures.add_context(format!("activators{suffix}: ms, p99"), vec![ours]);
        figures.add_context(format!("ideal queue{suffix}: ms, p99"), vec![ideal]);
        figures.add_context(format!("most concurrent requests at a pod{suffix}"), vec![setup.pods.most() as f64]);
    }
    Ok(figures)
}

async fn killed(settings: &Settings) -> anyhow::Result<Figures> {
    let mut setup = Setup::start(2).await?;
    let victim = setup.activators.remove(0);
    let is_gone = Cell::new(false);
    let start = Instant::now();
    let load = |n: usize| {
        let is_gone = &is_gone;
        let arrivals = even_arrivals(RATE / 2.0, settings.steady, n as f64 / RATE);
        setup.drive(start, arrivals, move || if is_gone.get() { 1 } else { n })
    };
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
    /// Time at which the request was sent, in ms from the start of the load.
    at: f64,
    /// Duration of the request, in ms.
    ms: f64,
    is_answered: bool,
}

impl Setup {
    async fn start(activators: usize) -> anyhow::Result<Self> {
        let cluster = MultiActivatorCluster::start(Mode::Standalone).await?;
        let pods = CountingPods::start(&cluster.pod_addresses(PODS)?, WORK).await?;
        let mut running = Vec::new();
        for n in 0..activators {
            let mut env = cluster.environment(n);
            env.push(("RUST_LOG", std::env::var("RUST_LOG").unwrap_or("warn".to_owned())));
            running.push(Process::start(process::program("activator")?, [] as [&str; 0], &env)?);
        }
        for n in 0..activators {
            cluster.until_serving(n).await?;
        }
        cluster.publish(&(0..activators).map(|n| (n, true)).collect::<Vec<_>>()).await?;
        cluster.set_pods(&pods.addresses()).await?;
        let loads: Vec<Load> = (0..activators).map(|n| cluster.load(n)).collect();
        for (n, load) in loads.iter().enumerate() {
            cluster.until_sharing(n, if activators == 1 { "alone" } else { "shared" }).await?;
            // The activator holds this request until it knows the pods.
            ensure!(load.get("/").await?.status == 200, "activator {n}");
        }
        Ok(Self { cluster, pods, activators: running, loads })
    }

    /// Sends requests one after the other, directly to a pod and through an activator in turn.
    async fn alone(&self) -> anyhow::Result<Alone> {
        let direct = Load::new(self.pods.addresses()[0], "app.ns");
        let mut alone = Alone { direct: Vec::new(), through: Vec::new() };
        for _ in 0..ALONE {
            for (load, took) in [(&direct, &mut alone.direct), (&self.loads[0], &mut alone.through)] {
                took.push(load.get("/").await?.took.as_secs_f64() * 1e3);
            }
        }
        Ok(alone)
    }

    /// Sends requests at `arrivals`, each to the activator that `to` returns at that time, regardless of earlier
    /// responses.
    async fn drive(&self, start: Instant, arrivals: Vec<Duration>, to: impl Fn() -> usize) -> Vec<Sent> {
        let mut running = JoinSet::new();
        for arrival in arrivals {
            tokio::time::sleep_until(start + arrival).await;
            let activator = to();
            let load = self.loads[activator].clone();
            running.spawn(async move {
                let sent = Instant::now();
                let is_answered = load.get("/").await.is_ok_and(|answer| answer.status == 200);
                let (at, ms) = ((sent - start).as_secs_f64() * 1e3, sent.elapsed().as_secs_f64() * 1e3);
                Sent { activator, at, ms, is_answered }
            });
        }
        running.join_all().await
    }
}

/// Durations of requests without concurrent requests, in ms.
struct Alone {
    direct: Vec<f64>,
    through: Vec<f64>,
}

impl Alone {
    fn direct(&self) -> f64 {
        quantile(&self.direct, MEDIAN)
    }

    /// Adds the durations as context figures. `suffix` ends the name of each target.
    fn add_to(self, suffix: &str, figures: &mut Figures) {
        figures.add_context(format!("straight to a pod{suffix}: ms of one request alone"), self.direct);
        figures.add_context(format!("through an activator{suffix}: ms of one request alone"), self.through);
    }
}

/// Returns arrivals at equal intervals: `per_second` during `span`, from `offset` seconds on.
fn even_arrivals(per_second: f64, span: Duration, offset: f64) -> Vec<Duration> {
    let count = (span.as_secs_f64() * per_second) as u32;
    (0..count).map(|n| Duration::from_secs_f64(offset + f64::from(n) / per_second)).collect()
}

/// Returns the arrivals of a Poisson process with rate `per_second` during `span`.
fn poisson_arrivals(per_second: f64, span: Duration, rng: &mut StdRng) -> Vec<Duration> {
    let mut at = 0.0;
    let next = std::iter::from_fn(|| {
        at += -(1.0 - rng.random::<f64>()).ln() / per_second;
        Some(Duration::from_secs_f64(at))
    });
    next.take_while(|at| *at < span).collect()
}

/// Returns the durations of requests in ms, in one queue before `servers` that take `work` ms for each. `arrivals` are
/// ordered, in ms.
fn ideal_queue(arrivals: &[f64], servers: usize, work: f64) -> Vec<f64> {
    let micros = |ms: f64| (ms * 1e3) as u64;
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
    let took = arrivals.iter().map(|at| {
        let arrived = micros(*at);
        let begun = free.pop().map_or(arrived, |Reverse(free)| free.max(arrived));
        let done = begun + micros(work);
        free.push(Reverse(done));
        (done - arrived) as f64 / 1e3
    });
    took.collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ideal_queue_serves_in_order_of_arrival() {
        assert_eq!(ideal_queue(&[0.0, 10.0, 20.0, 70.0, 200.0], 2, 50.0), [50.0, 50.0, 80.0, 50.0, 50.0]);
        assert_eq!(ideal_queue(&[0.0, 0.0, 0.0], 1, 50.0), [50.0, 100.0, 150.0]);
    }

    #[test]
    fn arrivals_have_their_rate() {
        assert_eq!(even_arrivals(40.0, Duration::from_secs(2), 0.0).len(), 80);
        let random = poisson_arrivals(40.0, Duration::from_secs(1000), &mut StdRng::seed_from_u64(SEED));
        assert!((39_000..41_000).contains(&random.len()), "{}", random.len());
        assert!(random.windows(2).all(|two| two[0] <= two[1]));
    }
}
