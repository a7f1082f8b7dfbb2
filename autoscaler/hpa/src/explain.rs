//! Explains the scale of a HorizontalPodAutoscaler: its latest reconcile, and the history of changes.
//!
//! A reconcile with the same result (replicas, desired replicas and reasons, whatever was measured) extends the last
//! entry. The entry keeps the measurements of its first reconcile, which explain the change. Each object has at most
//! [`ENTRIES_MAX`] entries; the oldest are dropped first.

use common::RevisionKey as Key;
use common::time::Timestamp;
use common_runtime::admin::{EXPLAIN, Page, json};
use hpa_core::reconcile::{Action, Conclusion};
use http::StatusCode;
use k8s_openapi::api::autoscaling::v2::{ContainerResourceMetricStatus, HorizontalPodAutoscalerStatus, MetricStatus};
use parking_lot::RwLock;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

/// Maximum number of entries of an object.
const ENTRIES_MAX: usize = 20;
/// Maximum length of a text in an entry.
const TEXT_MAX: usize = 400;
/// Field with the name of the object. It distinguishes this document from a document about a revision.
pub const SUBJECT: &str = "horizontalPodAutoscaler";

/// Explanations of all objects.
#[derive(Debug, Default)]
pub struct Explanations(RwLock<HashMap<Key, Explained>>);

#[derive(Debug, Default)]
struct Explained {
    latest: Value,
    history: VecDeque<Entry>,
}

/// Series of reconciles with the same result.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    /// Time of the first reconcile, in seconds.
    since: i64,
    /// Time from the first to the last reconcile, in seconds.
    lasted_secs: i64,
    passes: u32,
    replicas: Option<i32>,
    wanted: Option<i32>,
    scaled: bool,
    why: String,
    measured: String,
}

impl Explanations {
    /// Records a completed reconcile. `current` are the replicas that the target had.
    pub(crate) fn record_reconcile(
        &self,
        key: &Key,
        (min, max): (i32, i32),
        current: Option<i32>,
        status: &HorizontalPodAutoscalerStatus,
        conclusion: &Conclusion,
        now: Timestamp,
    ) {
        let measured: Vec<_> = status.current_metrics.iter().flatten().map(displayed).collect();
        let runs = conclusion.metrics.iter().enumerate();
        let metrics =
            runs.map(|(i, run)| json!({"type": run.kind, "measured": measured.get(i), "proposed": run.proposed}));
        let conditions = status.conditions.iter().flatten().map(|condition| {
            json!({"type": condition.type_, "status": condition.status == "True", "reason": condition.reason,
                   "message": condition.message})
        });
        let latest = json!({
            "replicas": current, "desired": status.desired_replicas, "minReplicas": min, "maxReplicas": max,
            "metrics": metrics.collect::<Vec<_>>(), "conditions": conditions.collect::<Vec<_>>(),
            "error": conclusion.error,
        });
        let (wanted, scaled) = (conclusion.desired_replicas, conclusion.action != Action::None);
        let (why, measured) = (shortened(&reason(status, conclusion)), shortened(&measured.join(", ")));
        let entry = Entry { replicas: current, wanted, scaled, why, measured, ..Entry::default() };
        self.record(key, latest, entry, now);
    }

    /// Records why the controller does not act on an object.
    pub(crate) fn record_blocked(&self, key: &Key, why: &str, now: Timestamp) {
        self.record(key, json!({"error": why}), Entry { why: shortened(why), ..Entry::default() }, now);
    }

    /// Removes an object that was deleted, or that another process leads.
    pub(crate) fn remove(&self, key: &Key) {
        self.0.write().remove(key);
    }

    fn record(&self, key: &Key, latest: Value, new: Entry, now: Timestamp) {
        let mut objects = self.0.write();
        let explained = objects.entry(key.clone()).or_default();
        explained.latest = latest;
        match explained.history.back_mut() {
            Some(last) if last.has_same_result(&new) => {
                last.lasted_secs = now.as_secs() - last.since;
                last.passes = last.passes.saturating_add(1);
            }
            _ => explained.history.push_back(Entry { since: now.as_secs(), passes: 1, ..new }),
        }
        if explained.history.len() > ENTRIES_MAX {
            explained.history.pop_front();
        }
    }

    /// Returns the latest reconcile and the history of an object, oldest first.
    pub fn document(&self, key: &Key) -> Option<Value> {
        let objects = self.0.read();
        let explained = objects.get(key)?;
        let mut document = explained.latest.clone();
        document[SUBJECT] = json!(key.to_string());
        document["history"] = json!(explained.history);
        Some(document)
    }
}

impl Entry {
    /// Reports whether both have the same result, whatever was measured. Changes of the scale are always different.
    fn has_same_result(&self, new: &Self) -> bool {
        !new.scaled && !self.scaled && (self.replicas, self.wanted, &self.why) == (new.replicas, new.wanted, &new.why)
    }
}

/// Returns the event of a change or the error, or else the reasons of the conditions.
fn reason(status: &HorizontalPodAutoscalerStatus, conclusion: &Conclusion) -> String {
    if conclusion.action != Action::None {
        let event = conclusion.events.iter().find(|event| event.reason == "SuccessfulRescale");
        return event.map(|event| event.message.clone()).unwrap_or_default();
    }
    if let Some(error) = &conclusion.error {
        return error.clone();
    }
    let reasons = status.conditions.iter().flatten().filter_map(|condition| condition.reason.as_deref());
    reasons.collect::<Vec<_>>().join(", ")
}

/// Formats a measurement for users: `cpu 45% 90m a pod`.
fn displayed(status: &MetricStatus) -> String {
    let MetricStatus { resource, container_resource, pods, object, external, .. } = status;
    let resource = resource.as_ref().map(|source| (source.name.clone(), &source.current));
    let of_container = |source: &ContainerResourceMetricStatus| format!("{}/{}", source.container, source.name);
    let container = container_resource.as_ref().map(|source| (of_container(source), &source.current));
    let pods = pods.as_ref().map(|source| (source.metric.name.clone(), &source.current));
    let object = object.as_ref().map(|source| (source.metric.name.clone(), &source.current));
    let external = external.as_ref().map(|source| (source.metric.name.clone(), &source.current));
    let Some((mut text, current)) = resource.or(container).or(pods).or(object).or(external) else {
        return "failed".to_owned();
    };
    text.extend(current.average_utilization.map(|percent| format!(" {percent}%")));
    text.extend(current.value.as_ref().map(|value| format!(" {}", value.0)));
    text.extend(current.average_value.as_ref().map(|average| format!(" {} a pod", average.0)));
    text
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

/// Returns the page with explanations: `GET /explain/NAMESPACE/NAME`.
pub fn page(explanations: Arc<Explanations>) -> Page {
    Arc::new(move |path| {
        let (namespace, name) = path.strip_prefix(EXPLAIN)?.split_once('/')?;
        let key = Key::new(namespace, name);
        let Some(document) = explanations.document(&key) else {
            let error = "this process has not evaluated a HorizontalPodAutoscaler of that name";
            let document = json!({SUBJECT: key.to_string(), "error": error});
            return Some(json(StatusCode::NOT_FOUND, document.to_string()));
        };
        Some(json(StatusCode::OK, document.to_string()))
    })
}

/// Formats a document as a summary of the present and a table of changes, latest first.
pub fn table(document: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut out = String::new();
    let [subject, replicas, desired, min, max] =
        [SUBJECT, "replicas", "desired", "minReplicas", "maxReplicas"].map(|field| text(&document[field]));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{subject}: replicas {replicas}, wants {desired}, bounds {min}..{max}");
    for metric in document["metrics"].as_array().into_iter().flatten() {
        let [kind, measured, proposed] = ["type", "measured", "proposed"].map(|field| text(&metric[field]));
        let _ = writeln!(out, "  {kind} {measured} proposes {proposed}");
    }
    for condition in document["conditions"].as_array().into_iter().flatten() {
        let sign = if condition["status"] == true { '+' } else { '-' };
        let [kind, reason, message] = ["type", "reason", "message"].map(|field| text(&condition[field]));
        let _ = writeln!(out, "  {sign}{kind} {reason}: {message}");
    }
    let _ = writeln!(out, "{:<20} {:>7} {:>8} {:>6}  WHY", "SINCE (UTC)", "FOR", "REPLICAS", "WANTED");
    for entry in document["history"].as_array().into_iter().flatten().rev() {
        let since = jiff::Timestamp::from_second(entry["since"].as_i64().unwrap_or(0));
        let since = since.map_or_else(|_| "-".to_owned(), |since| since.strftime("%Y-%m-%d %H:%M:%S").to_string());
        let [lasted, replicas, wanted, why, measured] =
            ["lastedSecs", "replicas", "wanted", "why", "measured"].map(|field| text(&entry[field]));
        let measured = if measured.is_empty() { measured } else { format!(" [{measured}]") };
        let _ = writeln!(out, "{since:<20} {lasted:>6}s {replicas:>8} {wanted:>6}  {why}{measured}");
    }
    out
}

#[cfg(test)]
mod tests;
