//! A pod far away: how long does it take to wake it?
//!
//! Upstream's probes give up after 300 ms, and a pod whose network takes longer never wakes (upstream issue 14202).
//! Here one sleeping revision has one request, whose pod appears at the other end of a [long cable](crate::wire).

use crate::load::Clients;
use crate::netns::{self, Namespace};
use crate::pod::PodServer;
use crate::rig::Rig;
use crate::wire;
use anyhow::{Context, ensure};
use common::backend::{Probe, Protocol};
use http::Method;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// To the pod and back.
    pub round_trip: Duration,
    /// What the pod speaks.
    pub protocol: Protocol,
    /// How it is probed.
    pub probe: Probe,
}

/// What it came to, counted from when the pod's address was told.
#[derive(Debug)]
pub struct Figures {
    plan: Plan,
    /// Until the pod was believed.
    pub believed: Duration,
    /// Until the held request had its answer.
    pub answered: Duration,
    /// What a request took after that.
    pub warm: Duration,
}

/// Runs `plan` in a network of its own, on threads of its own.
///
/// # Errors
/// Namespaces are not permitted, something does not start, or the pod does not wake.
pub fn run(plan: Plan) -> anyhow::Result<Figures> {
    // The calling thread's namespace is left alone.
    let thread = std::thread::spawn(move || {
        netns::enter_new()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(wake(plan))
    });
    thread.join().ok().context("the run panicked")?
}

async fn wake(plan: Plan) -> anyhow::Result<Figures> {
    let namespace = Namespace::start()?;
    let ip = wire::lay(&namespace, plan.round_trip / 2)?;
    let pod = namespace.within(move || PodServer::start(ip))?;
    let rig = Rig::start(|backend| {
        backend.protocol = plan.protocol;
        backend.probe = plan.probe.clone();
    })
    .await?;
    let clients = Clients::of(rig.activator.http1);
    let held = tokio::spawn({
        let clients = clients.clone();
        async move { clients.send(Method::GET, "").await }
    });
    rig.until("the request is held", |load| load.queued == 1).await?;
    let listed = Instant::now();
    rig.serve(&[pod.address]).await?;
    let believed = listed.elapsed();
    let sample = held.await?;
    let answered = listed.elapsed();
    ensure!(sample.is_good(), "the held request came to {:?}", sample.status);
    let sample = clients.send(Method::GET, "").await;
    ensure!(sample.is_good(), "a request after it came to {:?}", sample.status);
    Ok(Figures { plan, believed, answered, warm: sample.took })
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |length: Duration| length.as_secs_f64() * 1e3;
        write!(
            f,
            "{:>5.0} ms away, {:<5} by {:<10} believed after {:.0} ms, answered after {:.0} ms; a request later {:.0} ms",
            ms(self.plan.round_trip),
            format!("{:?}", self.plan.protocol),
            match self.plan.probe {
                Probe::Tcp { .. } => "TCP:",
                Probe::Http(_) => "HTTP:",
                _ => "another:",
            },
            ms(self.believed),
            ms(self.answered),
            ms(self.warm),
        )
    }
}
