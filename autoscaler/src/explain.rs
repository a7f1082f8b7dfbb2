//! Why a workload has the scale it has: as JSON on the admin port, as a table for people.
//!
//! `GET /explain/NAMESPACE/NAME` answers with the latest decision, what it was made from, and the decisions before it
//! as changes, oldest first, each voice in its turn: what the decider wished, what came of load and metrics together,
//! and what the reconciler made of it (bounds, grace period, awaited proof, refusals). `autoscaler why NAMESPACE/NAME`
//! asks for that and prints a table, latest first.
//!
//! `NAMESPACE/NAME` is that of the object that asks for the scale: a ZeroScaler, or in a Knative install a PodAutoscaler.
//! HorizontalPodAutoscalers are explained under the same path by the process that evaluates them ([`hpa::explain`]).
//!
//! Only the instance that owns a revision decides about it; another one answers 404 and names the owner.

#[cfg(test)]
mod tests;

use crate::scale::multiscaler::{Explanation, Multiscaler, Present};
use anyhow::bail;
use autoscaler_core::history::Cause;
use bytes::Bytes;
use common::RevisionKey;
use common_controller::shares::{Owner, Shares};
use common_runtime::admin::{self, EXPLAIN, Page, json};
use common_runtime::tls::Trust;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

/// The page that explains objects of this kind.
pub fn page(kind: &'static str, multiscaler: Arc<Multiscaler>, shares: Shares) -> Page {
    Arc::new(move |path| {
        let (namespace, name) = path.strip_prefix(EXPLAIN)?.split_once('/')?;
        Some(answer(kind, &multiscaler, &shares, &RevisionKey::new(namespace, name)))
    })
}

fn answer(kind: &str, multiscaler: &Multiscaler, shares: &Shares, key: &RevisionKey) -> Response<Full<Bytes>> {
    match multiscaler.explain(key) {
        Some(explanation) => json(StatusCode::OK, document(key, &explanation).to_string()),
        None => {
            let reason = match shares.owner(key) {
                Owner::Us => format!("no {kind} of that name is decided on"),
                Owner::Other(instance) => format!("decided by {instance}"),
                Owner::Nobody => "nobody decides at the moment: its lease is between two holders".to_owned(),
            };
            json(StatusCode::NOT_FOUND, json!({"revision": key.to_string(), "error": reason}).to_string())
        }
    }
}

pub(crate) fn document(key: &RevisionKey, explanation: &Explanation) -> Value {
    let Explanation { present, history } = explanation;
    let Some(Present { status, subject, surroundings, panicking }) = present else {
        return json!({"revision": key.to_string(), "history": history});
    };
    let spec = &subject.spec;
    json!({
        "revision": key.to_string(),
        "desired": status.desired,
        "excessBurstCapacity": status.excess_burst_capacity,
        "warmInSeconds": status.warm_in.map(|left| left.as_secs_f64()),
        "activatorUnheard": status.unheard,
        "panicking": panicking,
        "activatorsInPath": surroundings.activators_in_path,
        "replicas": surroundings.replicas,
        "spec": {
            "metric": format!("{:?}", spec.metric).to_lowercase(),
            "target": spec.target_value,
            "total": spec.total_value,
            "targetBurstCapacity": spec.target_burst_capacity.to_number(),
            "stableWindowSeconds": spec.stable_window.as_secs(),
            "panicWindowSeconds": spec.panic_window.as_secs(),
            "panicThreshold": spec.panic_threshold,
            "maxScaleUpRate": spec.max_scale_up_rate,
            "maxScaleDownRate": spec.max_scale_down_rate,
            "scaleDownDelaySeconds": spec.scale_down_delay.as_secs(),
            "activationScale": spec.activation_scale,
            "reachable": spec.reachable,
        },
        "history": history,
    })
}

/// Asks the admin port at `admin` about `revision` (`NAMESPACE/NAME`), and lays the answer out as a table. The port
/// speaks TLS if `trust` says what its certificate must prove.
///
/// # Errors
/// The name has another form, nobody listens there, the certificate proves something else, or the revision is not
/// decided on there.
pub async fn why(admin: SocketAddr, trust: Option<&Trust>, revision: &str) -> anyhow::Result<String> {
    if revision.split('/').filter(|part| !part.is_empty()).count() != 2 || revision.matches('/').count() != 1 {
        bail!("{revision:?} must have the form NAMESPACE/NAME");
    }
    let (status, document) = admin::get(admin, trust, &format!("{EXPLAIN}{revision}")).await?;
    if status != StatusCode::OK {
        bail!("{revision}: {}", document["error"].as_str().unwrap_or("the admin port does not explain it"));
    }
    if document.get(hpa::explain::SUBJECT).is_some() {
        return Ok(hpa::explain::table(&document));
    }
    Ok(table(&document))
}

/// A few lines on the present, then a row for each change, latest first.
fn table(document: &Value) -> String {
    let number = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = if document.get("spec").is_some() {
        writeln!(
            out,
            "{}: wants {} (replicas {}), {} {} a pod, {}{}",
            text(&document["revision"]),
            text(&document["desired"]),
            text(&document["replicas"]),
            number(&document["spec"]["target"]),
            text(&document["spec"]["metric"]),
            if document["activatorsInPath"] == true { "activators in the path" } else { "traffic goes to the pods" },
            if document["panicking"] == true { ", panicking" } else { "" },
        )
    } else {
        writeln!(out, "{}: nothing is decided", text(&document["revision"]))
    };
    let _ = writeln!(
        out,
        "{:<20} {:>7} {:>7} {:>5} {:>9} {:>9} {:>7}  WHY",
        "SINCE (UTC)", "FOR", "DESIRED", "READY", "STABLE", "PANIC", "EBC"
    );
    for entry in document["history"].as_array().into_iter().flatten().rev() {
        let since = jiff::Timestamp::from_second(entry["since"].as_i64().unwrap_or(0));
        let cell = |key: &str| entry.get(key).map_or_else(|| "-".to_owned(), text);
        let (desired, why) = match entry.get("because") {
            Some(because) => ("-".to_owned(), action(entry, because)),
            None if entry.get("metric").is_some() => (cell("desired"), blended(entry)),
            None => (cell("desired"), decision(entry)),
        };
        let _ = writeln!(
            out,
            "{:<20} {:>6}s {desired:>7} {:>5} {:>9} {:>9} {:>7}  {why}",
            since.map_or_else(|_| "-".to_owned(), |since| since.strftime("%Y-%m-%d %H:%M:%S").to_string()),
            text(&entry["lastedSecs"]),
            cell("ready"),
            number(&entry["stable"]),
            number(&entry["panic"]),
            cell("excessBurstCapacity"),
        );
    }
    out
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What the decider says.
fn decision(entry: &Value) -> String {
    match (&entry["unknown"], entry["panicking"] == true) {
        (Value::String(unknown), _) => format!("unknown: {unknown}"),
        (_, true) => format!("{} (panicking)", text(&entry["rule"])),
        (_, false) => text(&entry["rule"]),
    }
}

/// What became of load and metrics, such as `cpu resource asks for 5, ScaleUpLimit`.
fn blended(entry: &Value) -> String {
    let mut why = format!("{} asks for {}", text(&entry["metric"]), entry["asked"]);
    for (key, nothing) in [("stabilization", "ReadyForNewScale"), ("limit", "DesiredWithinRange")] {
        if entry[key] != nothing {
            why = format!("{why}, {}", text(&entry[key]));
        }
    }
    if entry["failing"] != 0 {
        why = format!("{why}; {} of the metrics fail", entry["failing"]);
    }
    if entry["held"] == true {
        why.push_str(", so nothing is taken away");
    }
    why
}

/// What the reconciler says, such as `replicas 0 -> 1, bounds 0..9: the load asks for it`.
fn action(entry: &Value, because: &Value) -> String {
    // An autoscaler of another version may have a word of its own for it.
    let cause = serde_json::from_value::<Cause>(because.clone());
    let why = cause.map_or_else(|_| text(because), |cause| cause.explain().to_owned());
    let (replicas, wanted) = (&entry["replicas"], &entry["wanted"]);
    if replicas.is_null() {
        return why;
    }
    let max = if entry["max"].is_null() { String::new() } else { text(&entry["max"]) };
    let change = if entry["patched"] == true {
        format!("replicas {replicas} -> {wanted}")
    } else {
        format!("replicas {replicas} kept, wanted {}", text(wanted))
    };
    format!("{change}, bounds {}..{max}: {why}", entry["min"])
}
