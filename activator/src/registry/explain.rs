//! State of all revisions for operators: `GET /revisions` on the admin port.
//!
//! Each entry shows held and running requests, capacity, and for each pod its requests and whether it may get more. If
//! a hard limit is shared with other activators, it also shows how many of the workload's sixteen shards this one
//! holds, and how many requests of others still run on its pods. The page reads the live state and stores nothing.

use crate::discovery::Spec;
use crate::registry::Registry;
use crate::registry::revision::Revision;
use activator_core::breaker::Capacity;
use common_runtime::admin::{self, Page};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn page(registry: Arc<Registry>) -> Page {
    Arc::new(move |path| (path == "/revisions").then(|| admin::json(StatusCode::OK, revisions(&registry).to_string())))
}

fn revisions(registry: &Registry) -> Value {
    registry.known().iter().map(|(spec, workload)| row(spec, workload.revision().as_deref())).collect()
}

/// Returns the entry of a revision; a sleeping one has no load.
fn row(spec: &Spec, revision: Option<&Revision>) -> Value {
    let load = revision.map(|revision| revision.throttler.load());
    let not_admitted = revision.map(|revision| revision.throttler.not_admitted()).unwrap_or_default();
    let pod = |pod: activator_core::throttler::PodLoad| json!({"address": pod.destination.as_str(), "inFlight": pod.in_flight, "usable": pod.usable});
    let pods = revision.map(|revision| revision.throttler.pods()).unwrap_or_default();
    let held = revision.and_then(|revision| revision.link().as_ref()?.sharing());
    let held =
        held.map(|(shards, taken)| json!({"lots": shards.bits().count_ones(), "taken": taken.values().sum::<u32>()}));
    json!({
        "namespace": spec.key.namespace(),
        "name": spec.key.name(),
        "inFlight": load.map_or(0, |load| load.in_flight),
        "held": load.map_or(0, |load| load.queued),
        "capacity": match load.map_or(Capacity::CLOSED, |load| load.capacity) {
            Capacity::Unlimited => json!("unlimited"),
            Capacity::Limited(places) => json!(places),
        },
        "refused": not_admitted.refused,
        "abandoned": not_admitted.abandoned,
        "timeoutMs": spec.backend.timeout_ms.max(spec.backend.wake_timeout_ms),
        "pods": pods.into_iter().map(pod).collect::<Vec<_>>(),
        "holder": held,
    })
}
