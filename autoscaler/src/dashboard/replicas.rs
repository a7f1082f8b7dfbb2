//! The other replicas: what each shows of the workloads that it decides on, so that any of them shows all.
//!
//! They are asked over the port that stats come in on ([`crate::ingest::asking`]), for their rows that are younger than a
//! position, or for all that is known of one workload. Their rows are passed on as they are written, and not read.
//!
//! # Form of an answer
//!
//! Lines: the position to ask from next, then for each workload its key, a tab, and its summary as JSON; of one that was
//! deleted the key alone.

use super::own::Own;
use crate::ingest::asking::{ASKED, Questions};
use crate::ingest::peers::Peers;
use bytes::Bytes;
use common::RevisionKey;
use common_controller::shares::{Instance, Shares};
use common_runtime::admin::{json, text};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Questions that are answered at a time; further ones wait.
const ANSWERED_AT_ONCE: usize = 4;

/// The name by which people know a replica.
pub(super) fn name(instance: &Instance) -> String {
    match instance {
        Instance::Leased(holder) => holder.pod_name.clone(),
        Instance::Member(url) => url.clone(),
    }
}

/// Whether a replica has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) answered: bool,
    /// Why it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Rows of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    /// Position to ask from next.
    pub(super) position: String,
    /// Key and summary of each.
    pub(super) rows: Vec<(RevisionKey, Arc<str>)>,
    /// Workloads that were deleted.
    pub(super) gone: Vec<RevisionKey>,
}

impl Rows {
    /// Reads an answer; none: it is damaged.
    fn read(answer: &str) -> Option<Self> {
        let mut lines = answer.lines();
        let position = lines.next().filter(|position| !position.contains(['"', ':', '\\']))?.to_owned();
        let mut read = Self { position, ..Self::default() };
        for line in lines {
            let (key, summary) = line.split_once('\t').map_or((line, None), |(key, summary)| (key, Some(summary)));
            let (namespace, name) = key.split_once('/')?;
            let key = RevisionKey::new(namespace, name);
            match summary {
                Some(summary) => read.rows.push((key, summary.into())),
                None => read.gone.push(key),
            }
        }
        Some(read)
    }
}

/// The others.
#[derive(Clone)]
pub(super) struct Replicas {
    pub(super) peers: Peers,
    pub(super) shares: Shares,
}

impl Replicas {
    /// Returns the other replicas that decide about something, in order.
    pub(super) fn others(&self) -> Vec<Instance> {
        let mut others = self.shares.others();
        others.sort_by_key(name);
        others
    }

    /// Asks each of these for what is younger than a position of its own; none: for everything.
    pub(super) async fn rows<'a>(
        &self,
        asked: impl Iterator<Item = (&'a Instance, Option<&'a str>)>,
    ) -> Vec<Result<Rows, String>> {
        let asking = asked.map(async |(instance, after)| {
            let (status, body) = self.ask(instance, &format!("rows?after={}", after.unwrap_or_default())).await?;
            if status != StatusCode::OK {
                return Err(format!("it answers {status}"));
            }
            let rows = std::str::from_utf8(&body).ok().and_then(Rows::read);
            rows.ok_or_else(|| "its answer cannot be read".to_owned())
        });
        join_all(asking).await
    }

    /// Asks for all that is known of one workload.
    pub(super) async fn detail(&self, instance: &Instance, key: &RevisionKey) -> Result<(StatusCode, Bytes), String> {
        self.ask(instance, &format!("workloads/{key}")).await
    }

    async fn ask(&self, instance: &Instance, what: &str) -> Result<(StatusCode, Bytes), String> {
        let answer = self.peers.ask(instance, &format!("{ASKED}dashboard/{what}")).await;
        answer.map_err(|error| error.to_string())
    }
}

/// Answers the others.
pub(super) struct Answering {
    own: Arc<Own>,
    turns: Arc<Semaphore>,
}

impl Answering {
    pub(super) fn new(own: Arc<Own>) -> Self {
        Self { own, turns: Arc::new(Semaphore::new(ANSWERED_AT_ONCE)) }
    }
}

impl Questions for Answering {
    fn answer(&self, path: String) -> BoxFuture<'static, Response<Full<Bytes>>> {
        let (own, turns) = (self.own.clone(), self.turns.clone());
        async move {
            let _turn = turns.acquire_owned().await;
            let asked = path.strip_prefix(ASKED).and_then(|path| path.strip_prefix("dashboard/")).unwrap_or_default();
            if let Some(after) = asked.strip_prefix("rows?after=") {
                return text(StatusCode::OK, rows(&own, after).await);
            }
            let Some((namespace, name)) = asked.strip_prefix("workloads/").and_then(|key| key.split_once('/')) else {
                return text(StatusCode::NOT_FOUND, "nothing of that name is told here\n");
            };
            let key = RevisionKey::new(namespace, name);
            match own.detail(&key) {
                Some(detail) => json(StatusCode::OK, detail.to_string()),
                None => json(StatusCode::NOT_FOUND, no_such(&key).to_string()),
            }
        }
        .boxed()
    }
}

/// Returns what is said of a workload that does not exist.
pub(super) fn no_such(key: &RevisionKey) -> Value {
    json!({"error": format!("there is no ZeroScaler {} in namespace {}", key.name(), key.namespace())})
}

async fn rows(own: &Own, after: &str) -> String {
    let younger = own.look(after.parse().ok()).await;
    let mut rows = HashMap::new();
    own.rows(younger.changed.iter(), younger.is_full, &mut rows).await;
    let mut lines = format!("{}\n", younger.position);
    for (key, row) in rows {
        let _ = writeln!(lines, "{key}\t{row}"); // Writing to a string does not fail.
    }
    for key in younger.gone {
        let _ = writeln!(lines, "{key}"); // As above.
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        let rows = Rows::read("1f.7\nns/a\t{\"name\":\"a\"}\nns/b\t{}\nns/c\n").expect("whole");
        assert_eq!(rows.gone, [RevisionKey::new("ns", "c")]);
        assert_eq!(rows.position, "1f.7");
        let keys: Vec<_> = rows.rows.iter().map(|(key, row)| (key.to_string(), row.to_string())).collect();
        assert_eq!(keys, [("ns/a".into(), "{\"name\":\"a\"}".into()), ("ns/b".to_owned(), "{}".to_owned())]);
        assert_eq!(Rows::read("1f.7\n").map(|rows| rows.rows.len()), Some(0));
        for damaged in ["", "1f\"7\n", "1f:7", "1f.7\na", "1f.7\na\t{}"] {
            assert_eq!(Rows::read(damaged), None, "{damaged:?}");
        }
    }
}
