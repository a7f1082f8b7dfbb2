//! `active_condition`: the conditions Active and ScaleTargetInitialized.

use autoscaler_core::active::{Input, decide};
use autoscaler_core::bounds::min_ready;
use common::annotations::initial_scale;
use serde::Deserialize;
use serde_json::Value;

use super::reconcile::{Map, Reachability, Status, bounds, config};
use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    annotations: Map,
    config: Map,
    reachability: Reachability,
    active: Status,
    active_for_seconds: f64,
    initialized: bool,
    ready: u32,
    /// −1 if unknown.
    scale: i32,
    service_name: String,
    want_active: String,
    want_reason: String,
    want_message: String,
    want_initialized: bool,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let config = config(&case.config)?;
    let bounds = bounds(&case.annotations, &config, case.reachability);
    let outcome = decide(&Input {
        wanted_scale: (case.scale >= 0).then_some(case.scale),
        ready: case.ready,
        min_ready: min_ready(bounds, initial_scale(&case.annotations, &config), case.initialized),
        service_known: !case.service_name.is_empty(),
        active: case.active.active(case.active_for_seconds),
    });
    let (active, reason, message) = match outcome.active {
        Some(verdict) => {
            let (status, reason, message) = verdict.parts();
            (status_text(status), reason, message)
        }
        None => (stored_text(case.active), "", ""),
    };
    equal("want_active", case.want_active.as_str(), active)?;
    equal("want_reason", case.want_reason.as_str(), reason)?;
    equal("want_message", case.want_message.as_str(), message)?;
    equal("want_initialized", &case.want_initialized, &(case.initialized || outcome.initialized))
}

fn status_text(status: Option<bool>) -> &'static str {
    status.map_or("Unknown", |s| if s { "True" } else { "False" })
}

fn stored_text(status: Status) -> &'static str {
    match status {
        Status::True => "True",
        Status::False => "False",
        Status::Unknown => "Unknown",
    }
}
