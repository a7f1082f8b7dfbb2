//! What very many workloads cost beyond one process: who sends what to whom, and how much of it, by the real rules and
//! encoders. Nothing goes wrong here but one activator that ends and comes back; nothing depends on chance or on a clock.
//!
//! ```text
//! activators ── stats of busy workloads ──▶ the autoscaler that each is connected to ── what is not its own ──▶ owners
//!     ▲                                          │ leases, slices
//!     └──────── watches ──── API server ◀────────┘ ───▶ watches of all autoscalers, activators and nodes
//! ```
//!
//! # What is real
//!
//! [`common::wire`]'s bytes; [`RevisionStats`], which say who has something to report; [`common::ownership`], which says
//! whose bucket a workload is in; [`route`], by which a stat goes on; [`endpoints_among`], by which activators are chosen,
//! proven and replaced; [`plan`], which gives out numbers; [`Election`], which renews leases.
//!
//! # What is written down again
//!
//! From the shells: one frame each second, with an attestation and an entry for each workload that has a report; frames
//! between autoscalers that carry what one frame has brought, at most [`BATCH_MAX`] entries of it; attestations that
//! are told to every other autoscaler under two names; which slices are written at once and which wait for a second.
//! A change of these must be made in both places.
//!
//! # Not here
//!
//! WebSocket's and TCP's own bytes, bytes of objects, CPU and memory: those are measured.
//!
//! [`RevisionStats`]: activator_core::accounting::RevisionStats
//! [`route`]: autoscaler_core::forwarding::route
//! [`endpoints_among`]: autoscaler_core::ports::carriers::endpoints_among
//! [`plan`]: autoscaler_core::ports::plan()
//! [`Election`]: common::election::Election

mod leases;
mod numbers;
mod slices;
mod streams;
mod table;

pub use leases::lease_writes;
pub use numbers::{Given, numbers};
pub use slices::{Changes, changes};
pub use streams::{BATCH_MAX, Streams, Traffic, streams};
pub use table::table;

use autoscaler_core::num_activators::num_activators;
use common::RevisionKey;
use common::config::AutoscalerConfig;
use common::scaling::BurstCapacity;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;

/// A cluster.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// All of them.
    pub workloads: usize,
    /// Those that have requests in flight all the time, at each activator that carries them.
    pub busy: usize,
    /// Those that have had a request, which has ended.
    pub ended: usize,
    /// How many.
    pub activators: usize,
    /// How many; each has one bucket.
    pub autoscalers: usize,
}

impl Size {
    /// 100 000 workloads, ten autoscalers, twenty activators; one workload of ten is busy.
    pub const LARGE: Self = Self { workloads: 100_000, busy: 10_000, ended: 10_000, activators: 20, autoscalers: 10 };
}

/// A workload's name: as long as names are, in one of a hundred namespaces.
fn key(workload: usize) -> RevisionKey {
    RevisionKey::new(format!("team-{:02}", workload % 100), format!("some-service-{workload:06}"))
}

/// An activator's pod, as it names itself.
fn pod(activator: usize) -> String {
    format!("activator-6b8f9c7d54-{activator:05}")
}

fn address(activator: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0001_u32 + u32::try_from(activator).unwrap_or(0)))
}

/// How many activators a workload with one pod needs, by the defaults.
fn need() -> Option<NonZeroUsize> {
    let config = AutoscalerConfig::default();
    let total = config.container_concurrency_target_default;
    // Numbers are of workloads whose pods have no queue-proxy.
    usize::try_from(num_activators(1, total, BurstCapacity::Always, config.activator_capacity))
        .ok()
        .and_then(NonZeroUsize::new)
}
