//! Queries to the other replicas for the workloads that they own, so that any replica can show all.
//!
//! They use the stat port ([`crate::ingest::asking`]), and ask for all rows later than a position, or for the details
//! of one workload. Rows are passed on in their written form, without parsing.
//!
//! # Response format
//!
//! Lines: the position for the next query, then for each workload its key, a tab, and its summary as JSON. A deleted
//! workload has its key alone.

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

/// Maximum number of concurrent responses; further queries wait.
const ANSWERED_AT_ONCE: usize = 4;

/// Returns the user-facing name of a replica.
pub(super) fn name(instance: &Instance) -> String {
    match instance {
        Instance::Leased(holder) => holder.pod_name.clone(),
        Instance::Member(url) => url.clone(),
    }
}

/// Result of querying a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) answered: bool,
    /// Reason for a missing response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Rows of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    /// Position for the next query.
    pub(super) position: String,
    /// Key and summary of each.
    pub(super) rows: Vec<(RevisionKey, Arc<str>)>,
    /// Deleted workloads.
    pub(super) gone: Vec<RevisionKey>,
}

impl Rows {
    /// Parses a response; none: it is damaged.
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

/// Client of the other replicas.
#[derive(Clone)]
pub(super) struct Replicas {
    pub(super) peers: Peers,
    pub(super) shares: Shares,
}

impl Replicas {
    /// Returns the other replicas that own a share, in order.
    pub(super) fn others(&self) -> Vec<Instance> {
        let mut others = self.shares.others();
        others.sort_by_key(name);
        others
    }

    /// Queries each replica for rows later than its position; none: for all rows.
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

    /// Queries the details of one workload.
    pub(super) async fn detail(&self, instance: &Instance, key: &RevisionKey) -> Result<(StatusCode, Bytes), String> {
        self.ask(instance, &format!("workloads/{key}")).await
    }

    async fn ask(&self, instance: &Instance, what: &str) -> Result<(StatusCode, Bytes), String> {
        let answer = self.peers.ask(instance, &format!("{ASKED}dashboard/{what}")).await;
        answer.map_err(|error| error.to_string())
    }
}

/// Responder to the other replicas.
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

/// Returns the error for a workload that does not exist.
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
