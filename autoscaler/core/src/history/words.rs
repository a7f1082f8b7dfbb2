//! Renders a document about one revision as text: a few lines on the current state, then a row for each change, latest
//! first.
//!
//! The document is the report of an autoscaler: the current state, and a [`History`](super::History) as JSON. It may
//! come from a process of another version, so no field is assumed to exist.

use super::Cause;
use crate::decider::{Rule, Unknown};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write;

/// Renders the document.
pub fn table(document: &Value) -> String {
    let number = |value: &Value| {
        value.as_f64().map_or_else(|| "-".to_owned(), |n| format!("{:.2}", if n.abs() < 0.005 { 0.0 } else { n }))
    };
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
        writeln!(out, "{}: no decision yet", text(&document["revision"]))
    };
    let _ = writeln!(
        out,
        "{:<20} {:>7} {:>7} {:>5} {:>9} {:>9} {:>7}  WHY",
        "SINCE (UTC)", "FOR", "DESIRED", "READY", "STABLE", "PANIC", "SPARE"
    );
    for entry in document["history"].as_array().into_iter().flatten().rev() {
        let since = jiff::Timestamp::from_second(entry["since"].as_i64().unwrap_or(0));
        let cell = |key: &str| entry.get(key).map_or_else(|| "-".to_owned(), text);
        let (desired, why) = match entry.get("because") {
            Some(_) => ("-".to_owned(), action(entry)),
            None => (cell("desired"), reason(entry)),
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

/// Returns the reason of one history entry, such as `load over the stable window`.
pub fn reason(entry: &Value) -> String {
    match entry.get("because") {
        Some(because) => explain_word(because, |cause: Cause| cause.explain().to_owned()),
        None if entry.get("metric").is_some() => blended(entry),
        None => decision(entry),
    }
}

/// Explains a word. An unknown word of another version's autoscaler stays as it is.
fn explain_word<T: DeserializeOwned>(word: &Value, explain: impl Fn(T) -> String) -> String {
    serde_json::from_value(word.clone()).map_or_else(|_| text(word), explain)
}

/// Renders the reason of a decision.
fn decision(entry: &Value) -> String {
    let unknown = &entry["unknown"];
    if unknown.is_string() {
        return format!("unknown: {}", explain_word(unknown, |unknown: Unknown| unknown.to_string()));
    }
    let rule = explain_word(&entry["rule"], |rule: Rule| rule.explain().to_owned());
    if entry["panicking"] == true { format!("{rule} (panicking)") } else { rule }
}

/// Renders a combined result, such as `cpu resource requires 5, ScaleUpLimit`.
fn blended(entry: &Value) -> String {
    let mut why = format!("{} requires {}", text(&entry["metric"]), entry["asked"]);
    for (key, nothing) in [("stabilization", "ReadyForNewScale"), ("limit", "DesiredWithinRange")] {
        if entry[key] != nothing {
            why = format!("{why}, {}", text(&entry[key]));
        }
    }
    if entry["failing"] != 0 {
        why = format!("{why}; {} of the metrics fail", entry["failing"]);
    }
    if entry["held"] == true {
        why.push_str(", so the replicas are not reduced");
    }
    why
}

/// Renders an action, such as `replicas 0 -> 1, bounds 0..9: the load requires it`.
fn action(entry: &Value) -> String {
    let why = reason(entry);
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
