//! What the activator knows of its revisions, for people: `GET /revisions` on the admin port.
//!
//! Each entry says what is held and what runs, how much may run, and for each pod how many requests it has and whether
//! it may get more. Read from the live state; nothing is kept for it.

use crate::registry::Registry;
use activator_core::breaker::Capacity;
use common_runtime::admin::{self, Page};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn page(registry: Arc<Registry>) -> Page {
    Arc::new(move |path| (path == "/revisions").then(|| admin::json(StatusCode::OK, revisions(&registry).to_string())))
}

fn revisions(registry: &Registry) -> Value {
    let mut all = registry.all();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all.iter()
        .map(|revision| {
            let load = revision.throttler.load();
            let turned_away = revision.throttler.turned_away();
            let live = revision.live();
            let pod = |pod: activator_core::throttler::PodLoad| {
                json!({"address": pod.destination.as_str(), "inFlight": pod.in_flight, "usable": pod.usable})
            };
            json!({
                "namespace": revision.key.namespace(),
                "name": revision.key.name(),
                "inFlight": load.in_flight,
                "held": load.queued,
                "capacity": match load.capacity {
                    Capacity::Unlimited => json!("unlimited"),
                    Capacity::Limited(places) => json!(places),
                },
                "refused": turned_away.refused,
                "abandoned": turned_away.abandoned,
                "timeoutMs": u64::try_from(live.bounds.total.as_millis()).unwrap_or(u64::MAX),
                "pods": revision.throttler.pods().into_iter().map(pod).collect::<Vec<_>>(),
            })
        })
        .collect()
}
