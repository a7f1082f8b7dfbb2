//! Cost of an incoming stat: WebSocket, decoding, lookup of the owner, windows of the revision, and the check whether
//! the stat wakes it.
//!
//! There is one connection, so one core works at a time. Frames contain 100 stats, each for a different one of 1 000
//! awake revisions. The peer is a [floor](crate::role::Role::StatFloor) that only reads and decodes the same frames.
//! The pong for a ping after the last frame shows that all frames have been read.

use super::wake::{send_all, stat_socket};
use crate::fleet::{self, Fleet, NAMESPACE, RevisionKind};
use crate::process::Process;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use bytes::Bytes;
use common::stat::{Stat, WireStatMessage, WireStatMessages};
use common_runtime::environment::Mode;
use futures::FutureExt;
use std::net::SocketAddr;
use tokio::time::Instant;

const REVISIONS: u32 = 1_000;
const STATS_IN_FRAME: u32 = 100;
/// Stats of one repetition.
const STATS: u32 = 500_000;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[Row::at_most("ingest-cpu", "CPU per stat ÷ that of a bare WebSocket server that decodes it", "", 8.0, 4.0)],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let mut fleet = Fleet::start(settings, Mode::Knative).await?;
    let autoscaler = fleet.start_filled("busy", RevisionKind::Unscraped, REVISIONS as usize).await?;
    let (floor, floor_address) = Process::server(&["stat-floor"])?;
    let (mut ours, mut least) = (Series::default(), Series::default());
    for _ in 0..settings.repetitions {
        ours.measure(&autoscaler.process, autoscaler.stats).await?;
        least.measure(&floor, floor_address).await?;
    }
    let mut figures = Figures::default();
    figures.row("ingest-cpu", ours.cpu.iter().zip(&least.cpu).map(|(ours, least)| ours / least).collect());
    figures.add_context("autoscaler: seconds of CPU for a million stats", ours.cpu);
    figures.add_context("floor: seconds of CPU for a million stats", least.cpu);
    figures.add_context("autoscaler: thousands of stats/s on one connection", ours.rate);
    figures.add_context("floor: thousands of stats/s on one connection", least.rate);
    Ok(figures)
}

/// Repetitions of one reader.
#[derive(Default)]
struct Series {
    /// Seconds of CPU per million stats.
    cpu: Vec<f64>,
    /// Thousands of stats per second.
    rate: Vec<f64>,
}

impl Series {
    async fn measure(&mut self, reader: &Process, address: SocketAddr) -> anyhow::Result<()> {
        let frames = frames();
        let mut socket = stat_socket(address).await?;
        send_all(&mut socket, frames.iter().cloned()).await?; // Warm-up: each revision gets its window.
        let (cpu, begin) = (reader.cpu()?, Instant::now());
        let all = frames.iter().cycle().take((STATS / STATS_IN_FRAME) as usize);
        send_all(&mut socket, all.cloned()).await?;
        let took = begin.elapsed();
        self.cpu.push(reader.cpu()?.saturating_sub(cpu).as_secs_f64() * 1e6 / f64::from(STATS));
        self.rate.push(f64::from(STATS) / took.as_secs_f64() / 1e3);
        Ok(())
    }
}

fn frames() -> Vec<Bytes> {
    let entry = |n: u32| {
        let stat = Stat {
            pod_name: "activator-5c6d7f8b9-x2x4z".to_owned(),
            average_concurrent_requests: 2.5,
            request_count: 10.0,
            ..Stat::default()
        };
        WireStatMessage {
            namespace: NAMESPACE.to_owned(),
            name: fleet::name("busy", n),
            stat: Some(stat),
            ..Default::default()
        }
    };
    let numbers: Vec<u32> = (0..REVISIONS).collect();
    let frame = |chunk: &[u32]| WireStatMessages { messages: chunk.iter().copied().map(entry).collect() };
    numbers.chunks(STATS_IN_FRAME as usize).map(|chunk| common::wire::encode(&frame(chunk)).into()).collect()
}
