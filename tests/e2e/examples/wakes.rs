//! Measures how long workloads take to scale from zero when all are called at once, compared with the time that the
//! control plane alone needs to scale as many Deployments: `cargo build --release -p e2e --bins --example wakes`, then
//! `target/release/examples/wakes [N] [ROUNDS]`.
//!
//! Each round first patches N Deployments from 0 to 1 (all patches at once) and waits for a ready address of each in
//! the EndpointSlices. Then it sends one request to each of N workloads at zero and waits for the responses. Both run
//! the same program in the same embedded cluster, alternately.

use anyhow::Context;
use e2e::load::quantile;
use e2e::{Entry, TestEnv, Workload};
use futures::{StreamExt, TryStreamExt, future};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use local::up::UpOptions;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let count = arguments.next().transpose()?.unwrap_or(50);
    let rounds = arguments.next().transpose()?.unwrap_or(3);
    let config = tempfile::NamedTempFile::new()?;
    std::fs::write(config.path(), "scale-to-zero-grace-period: 6s\n")?;
    let options = UpOptions { config_autoscaler: Some(config.path().to_owned()), ..UpOptions::default() };
    let env = TestEnv::with(options).await?;

    let services: Vec<_> = (0..count).map(|n| format!("wakes-{n}")).collect();
    let plain: Vec<_> = (0..count).map(|n| format!("plain-{n}")).collect();
    for (service, plain) in services.iter().zip(&plain) {
        env.deploy(&Workload::new(service)).await?;
        let plain = Workload::new(plain);
        env.create::<Deployment>(plain.deployment(&e2e::test_env::program()?)).await?;
        env.create::<Service>(plain.service()).await?;
    }
    for round in 1..=rounds {
        let baseline = control_plane(&env, &plain).await?;
        let woken = wake(&env, &services).await?;
        let line = |name: &str, times: &[Duration]| {
            let ms = |share| quantile(times, share).as_secs_f64() * 1e3;
            println!("round {round} {name}: p50 {:.0} p95 {:.0} max {:.0} ms", ms(0.5), ms(0.95), ms(1.0));
        };
        line("control plane alone", &baseline);
        line("requests answered  ", &woken);
        let ratio = |share| quantile(&woken, share).as_secs_f64() / quantile(&baseline, share).as_secs_f64();
        println!("round {round} ratio: p50 {:.2} p95 {:.2}", ratio(0.5), ratio(0.95));
    }
    env.end().await
}

/// Scales all Deployments from 0 to 1 and returns the time until each had a ready address. Then scales them to 0.
async fn control_plane(env: &TestEnv, names: &[String]) -> anyhow::Result<Vec<Duration>> {
    let mut events = watcher(env.api::<EndpointSlice>(), watcher::Config::default()).touched_objects().boxed();
    let start = Instant::now();
    let watched = async {
        let mut ready = BTreeMap::new();
        while ready.len() < names.len() {
            let slice = events.try_next().await?.context("the watch ended")?;
            let mut endpoints = slice.endpoints.iter().flatten();
            let is_ready = endpoints.any(|e| e.conditions.as_ref().is_some_and(|c| c.ready == Some(true)));
            let service = slice.labels().get("kubernetes.io/service-name");
            if let Some(name) = service.filter(|name| is_ready && names.contains(name)) {
                ready.entry(name.clone()).or_insert_with(|| start.elapsed());
            }
        }
        anyhow::Ok(ready.into_values().collect())
    };
    let (times, ()) = future::try_join(watched, scale(env, names, 1)).await?;
    scale(env, names, 0).await?;
    for name in names {
        env.until_asleep(name).await?;
    }
    Ok(times)
}

async fn scale(env: &TestEnv, names: &[String], replicas: i32) -> anyhow::Result<()> {
    let deployments = env.api::<Deployment>();
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let params = PatchParams::default();
    let patches = names.iter().map(|name| deployments.patch_scale(name, &params, &patch));
    Ok(future::try_join_all(patches).await.map(|_| ())?)
}

/// Calls all workloads at once and returns the response time of each. Then waits until all are at zero.
async fn wake(env: &TestEnv, names: &[String]) -> anyhow::Result<Vec<Duration>> {
    let calls = names.iter().map(|name| {
        let load = env.load(Entry::Activator, name);
        async move { anyhow::Ok(load.get_ok("/").await?.took) }
    });
    let times = future::try_join_all(calls).await?;
    for name in names {
        env.until_asleep(name).await?;
    }
    Ok(times)
}
