//! Counts the messages and writes that very many workloads cause between processes, with the real rules and encoders.
//! The only fault is one activator that ends and returns. The counts depend on no seed and no clock.
//!
//! ```text
//! activators ── stats of busy workloads ──▶ the autoscaler that each is connected to ── forwarded stats ──▶ owners
//!     ▲                                          │ leases, slices
//!     └──────── watches ──── API server ◀────────┘ ───▶ watches of all autoscalers, activators and nodes
//! ```
//!
//! # Real parts
//!
//! [`common::wire`] for the bytes; [`RevisionStats`] to decide which workloads have a report; [`common::ownership`] for
//! the bucket of a workload; [`route`] to forward stats; [`endpoints_among`] to select, prove and replace activators;
//! [`plan`] to allocate numbers; [`Election`] to renew leases.
//!
//! # Modeled parts
//!
//! Parts of the shells: one frame per second, with an attestation and an entry for each workload that has a report;
//! frames between autoscalers with the entries of one received frame, at most [`BATCH_MAX`] each; attestations sent to
//! every other autoscaler under two names; slices that are written at once or after a second. A change of these must be
//! made in both places.
//!
//! # Not here
//!
//! The bytes of WebSocket and TCP themselves, bytes of objects, CPU and memory: those are measured.
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
pub use numbers::{Allocation, allocate};
pub use slices::{Changes, changes};
pub use streams::{BATCH_MAX, Streams, Traffic, streams};
pub use table::table;

use autoscaler_core::num_activators::num_activators;
use common::RevisionKey;
use common::config::AutoscalerConfig;
use common::scaling::BurstCapacity;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;

/// Size of a cluster.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Size {
    /// Number of all workloads.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub workloads: usize,
    /// Number of workloads that always have requests in flight, at each activator that carries them.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub busy: usize,
    /// Number of workloads whose requests have ended.
    #[arg(skip)]
    pub ended: usize,
    /// Number of activators.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub activators: usize,
    /// Number of autoscalers; each has one bucket.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub autoscalers: usize,
}

/// Returns the key of a workload: a name of usual length, in one of a hundred namespaces.
fn key(workload: usize) -> RevisionKey {
    RevisionKey::new(format!("team-{:02}", workload % 100), format!("some-service-{workload:06}"))
}

/// Returns the pod name of an activator.
fn pod_name(activator: usize) -> String {
    format!("activator-6b8f9c7d54-{activator:05}")
}

fn address(activator: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0001_u32 + u32::try_from(activator).unwrap_or(0)))
}

/// Returns the number of activators that a workload with one pod needs by default.
fn needed_activators() -> Option<NonZeroUsize> {
    let config = AutoscalerConfig::default();
    let total = config.container_concurrency_target_default;
    // Workloads with port numbers have no queue-proxies, so activators always stay in the path.
    usize::try_from(num_activators(1, total, BurstCapacity::Always, config.activator_capacity))
        .ok()
        .and_then(NonZeroUsize::new)
}
