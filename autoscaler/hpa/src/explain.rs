//! Explains the scale of a HorizontalPodAutoscaler: its latest reconcile, and the history of changes.
//!
//! A reconcile with the same result (replicas, desired replicas and reasons, whatever was measured) extends the last
//! entry. The entry keeps the measurements of its first reconcile, which explain the change. Each object has at most
//! [`ENTRIES_MAX`] entries and [`BYTES_MAX`] bytes; the oldest are dropped first.

use super::object::Measurement;
use bytes::Bytes;
use common::RevisionKey as Key;
use common::time::Timestamp;
use common_runtime::admin::{EXPLAIN, Page, json};
use hpa_core::reconcile::{Action, Conclusion};
use hpa_core::status::Status;
use http::{Response, StatusCode};
use http_body_util::Full;
use parking_lot::RwLock;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

/// Maximum number of entries of an object.
const ENTRIES_MAX: usize = 64;
/// Maximum size in bytes of an object's entries.
const BYTES_MAX: usize = 4096;
/// Maximum length of a text in an entry.
const TEXT_MAX: usize = 400;
/// Field that names the subject of a document, and distinguishes it from a document about a revision.
pub const SUBJECT: &str = "horizontalPodAutoscaler";

/// Explanations of all objects.
#[derive(Debug, Default)]
pub struct Explanations(RwLock<HashMap<Key, Explained>>);

#[derive(Debug, Default)]
struct Explained {
    latest: Value,
    history: VecDeque<Entry>,
    bytes: usize,
}

/// Series of reconciles with the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    since: Timestamp,
    until: Timestamp,
    passes: u32,
    summary: PassSummary,
    measured: Box<str>,
}

/// Result of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PassSummary {
    replicas: Option<i32>,
    wanted: Option<i32>,
    scaled: bool,
    why: Box<str>,
}

impl Explanations {
    /// Records a completed reconcile. `current` are the replicas that the target had.
    pub(crate) fn passed(
        &self,
        key: &Key,
        (min, max): (i32, i32),
        current: Option<i32>,
        status: &Status,
        conclusion: &Conclusion,
        now: Timestamp,
    ) {
        let measured: Vec<_> = status.current_metrics.iter().map(|metric| Measurement(metric).to_string()).collect();
        let metric = |(i, run): (usize, &hpa_core::reconcile::MetricRun)| json!({"type": run.kind, "measured": measured.get(i), "proposed": run.proposed});
        let conditions = status.conditions.iter().map(|condition| {
            json!({"type": condition.kind.as_str(), "status": condition.status, "reason": condition.reason,
                   "message": condition.message})
        });
        let latest = json!({
            "replicas": current, "desired": status.desired_replicas, "minReplicas": min, "maxReplicas": max,
            "metrics": conclusion.metrics.iter().enumerate().map(metric).collect::<Vec<_>>(),
            "conditions": conditions.collect::<Vec<_>>(), "error": conclusion.error,
        });
        let scaled = conclusion.action != Action::None;
        let summary = PassSummary {
            replicas: current,
            wanted: conclusion.desired_replicas,
            scaled,
            why: shortened(&why(status, conclusion)),
        };
        self.record(key, latest, summary, shortened(&measured.join(", ")), now);
    }

    /// Records that an object is not acted upon.
    pub(crate) fn refused(&self, key: &Key, why: &str, now: Timestamp) {
        let summary = PassSummary { replicas: None, wanted: None, scaled: false, why: shortened(why) };
        self.record(key, json!({"error": why}), summary, "".into(), now);
    }

    /// Forgets an object that is deleted, or moved to another process.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.write().remove(key);
    }

    fn record(&self, key: &Key, latest: Value, summary: PassSummary, measured: Box<str>, now: Timestamp) {
        let mut all = self.0.write();
        let explained = all.entry(key.clone()).or_default();
        explained.latest = latest;
        match explained.history.back_mut() {
            Some(last) if last.summary == summary && !summary.scaled => {
                (last.until, last.passes) = (now, last.passes.saturating_add(1));
            }
            _ => {
                let entry = Entry { since: now, until: now, passes: 1, summary, measured };
                explained.bytes += entry.bytes();
                explained.history.push_back(entry);
            }
        }
        while explained.history.len() > ENTRIES_MAX || explained.bytes > BYTES_MAX {
            let Some(oldest) = explained.history.pop_front() else { break };
            explained.bytes -= oldest.bytes();
        }
    }

    /// Returns the latest reconcile and the history of an object, oldest first.
    pub fn document(&self, key: &Key) -> Option<Value> {
        let all = self.0.read();
        let explained = all.get(key)?;
        let mut document = explained.latest.clone();
        document[SUBJECT] = json!(key.to_string());
        document["history"] = explained.history.iter().map(Entry::document).collect();
        Some(document)
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.summary.why.len() + self.measured.len()
    }

    fn document(&self) -> Value {
        let PassSummary { replicas, wanted, scaled, why } = &self.summary;
        json!({
            "since": self.since.as_secs(), "lastedSecs": self.until.saturating_since(self.since).as_secs(),
            "passes": self.passes, "replicas": replicas, "wanted": wanted, "scaled": scaled, "why": why,
            "measured": self.measured,
        })
    }
}

/// Returns the event of a change or the error, or else the reasons of the conditions.
fn why(status: &Status, conclusion: &Conclusion) -> String {
    if conclusion.action != Action::None {
        let event = conclusion.events.iter().find(|event| event.reason == "SuccessfulRescale");
        return event.map(|event| event.message.clone()).unwrap_or_default();
    }
    if let Some(error) = &conclusion.error {
        return error.clone();
    }
    status.conditions.iter().map(|condition| condition.reason.as_str()).collect::<Vec<_>>().join(", ")
}

fn shortened(text: &str) -> Box<str> {
    text.chars().take(TEXT_MAX).collect::<String>().into()
}

/// Returns the page with explanations: `GET /explain/NAMESPACE/NAME`.
pub fn page(explanations: Arc<Explanations>) -> Page {
    Arc::new(move |path| {
        let (namespace, name) = path.strip_prefix(EXPLAIN)?.split_once('/')?;
        Some(answer(&explanations, &Key::new(namespace, name)))
    })
}

fn answer(explanations: &Explanations, key: &Key) -> Response<Full<Bytes>> {
    match explanations.document(key) {
        Some(document) => json(StatusCode::OK, document.to_string()),
        None => {
            let error = "no HorizontalPodAutoscaler of that name has been evaluated here";
            json(StatusCode::NOT_FOUND, json!({SUBJECT: key.to_string(), "error": error}).to_string())
        }
    }
}

/// Formats a document as a summary of the present and a table of changes, latest first.
pub fn table(document: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}: replicas {}, wants {}, bounds {}..{}",
        text(&document[SUBJECT]),
        text(&document["replicas"]),
        text(&document["desired"]),
        text(&document["minReplicas"]),
        text(&document["maxReplicas"]),
    );
    for metric in document["metrics"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "  {} {} asks for {}",
            text(&metric["type"]),
            text(&metric["measured"]),
            text(&metric["proposed"])
        );
    }
    for condition in document["conditions"].as_array().into_iter().flatten() {
        let sign = if condition["status"] == true { '+' } else { '-' };
        let (kind, reason, message) = (&condition["type"], &condition["reason"], &condition["message"]);
        let _ = writeln!(out, "  {sign}{} {}: {}", text(kind), text(reason), text(message));
    }
    let _ = writeln!(out, "{:<20} {:>7} {:>8} {:>6}  WHY", "SINCE (UTC)", "FOR", "REPLICAS", "WANTED");
    for entry in document["history"].as_array().into_iter().flatten().rev() {
        let since = jiff::Timestamp::from_second(entry["since"].as_i64().unwrap_or(0));
        let measured = text(&entry["measured"]);
        let _ = writeln!(
            out,
            "{:<20} {:>6}s {:>8} {:>6}  {}{}",
            since.map_or_else(|_| "-".to_owned(), |since| since.strftime("%Y-%m-%d %H:%M:%S").to_string()),
            text(&entry["lastedSecs"]),
            text(&entry["replicas"]),
            text(&entry["wanted"]),
            text(&entry["why"]),
            if measured.is_empty() { measured } else { format!(" [{measured}]") },
        );
    }
    out
}

#[cfg(test)]
mod tests;
