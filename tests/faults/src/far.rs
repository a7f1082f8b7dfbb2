//! Time to wake a pod that is far away.
//!
//! Upstream's probes time out after 300 ms, so a pod at a greater network latency never wakes (upstream issue 14202).
//! Here one sleeping revision receives one request, and its pod appears at the other end of a [long
//! cable](crate::wire).

use crate::pod::PodServer;
use crate::rig::{Rig, send};
use crate::wire;
use anyhow::ensure;
use common::backend::{Probe, ProbeKind, Protocol};
use e2e::Load;
use e2e::netns::{self, Namespace};
use http::Method;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Round-trip time to the pod.
    pub round_trip: Duration,
    /// Protocol of the pod.
    pub protocol: Protocol,
    /// Readiness probe of the pod.
    pub probe: Probe,
}

/// Result of a run. All durations count from the moment when the activator received the pod's address.
#[derive(Debug)]
pub struct Figures {
    plan: Plan,
    /// Time until the activator considered the pod ready.
    pub ready: Duration,
    /// Time until the held request had its response.
    pub answered: Duration,
    /// Duration of a request sent after that.
    pub warm: Duration,
}

/// Runs `plan` in its own network and on its own threads.
pub fn run(plan: Plan) -> anyhow::Result<Figures> {
    netns::run_in_new(move || wake(plan))
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
    let clients = Load::new(rig.activator.http1, "app.ns");
    let held = tokio::spawn({
        let clients = clients.clone();
        async move { send(&clients, Method::GET, "").await }
    });
    rig.until("the request is held", |load| load.queued == 1).await?;
    let listed = Instant::now();
    rig.serve(&[pod.address]).await?;
    let ready = listed.elapsed();
    let sample = held.await?;
    let answered = listed.elapsed();
    ensure!(sample.is_good(), "the held request got {:?}", sample.status);
    let sample = send(&clients, Method::GET, "").await;
    ensure!(sample.is_good(), "a request after it got {:?}", sample.status);
    Ok(Figures { plan, ready, answered, warm: sample.took })
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |length: Duration| length.as_secs_f64() * 1e3;
        write!(
            f,
            "{:>5.0} ms away, {:<5} by {:<10} ready after {:.0} ms, answered after {:.0} ms; a request later {:.0} ms",
            ms(self.plan.round_trip),
            format!("{:?}", self.plan.protocol),
            match self.plan.probe.kind {
                ProbeKind::Tcp => "TCP:",
                ProbeKind::Http => "HTTP:",
                _ => "another:",
            },
            ms(self.ready),
            ms(self.answered),
            ms(self.warm),
        )
    }
}
