//! Queries to the other replicas for the workloads that they own, so that any replica can show all.
//!
//! They use the stat port ([`crate::ingest::queries`]), and ask for all rows that changed within the last milliseconds,
//! or for the details of one workload. Rows are passed on in their written form, without parsing.
//!
//! # Response format
//!
//! A line for each workload: its key, a tab, and its summary as JSON.

use super::local::LocalReplica;
use crate::ingest::queries::{QUERY_PREFIX, Responder};
use bytes::Bytes;
use common::RevisionKey;
use common_controller::shares::Instance;
use common_runtime::admin::{json, text};
use futures::FutureExt;
use futures::future::join_all;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of concurrent responses; further queries wait.
const ANSWERED_AT_ONCE: usize = 4;
/// Longest time in milliseconds that a query may take, by which the period of its rows is extended.
const LATENCY_MS: i64 = 2_000;

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

/// Key and summary of each workload of one replica.
type Rows = Vec<(RevisionKey, String)>;

/// Parses the response to a query for rows; none: it is damaged.
fn parse_rows(answer: &str) -> Option<Rows> {
    let row = |line: &str| {
        let (key, summary) = line.split_once('\t')?;
        let (namespace, name) = key.split_once('/')?;
        Some((RevisionKey::new(namespace, name), summary.to_owned()))
    };
    answer.lines().map(row).collect()
}

impl LocalReplica {
    /// Returns the other replicas that own a share, in order.
    pub(super) fn other_replicas(&self) -> Vec<Instance> {
        let mut others = self.parts.shares.others();
        others.sort_by_key(name);
        others
    }

    /// Queries each replica for the rows that changed within the last milliseconds; none: for all rows.
    pub(super) async fn rows_of(&self, others: &[Instance], within: Option<i64>) -> Vec<Result<Rows, String>> {
        let within = within.map(|within| within.to_string()).unwrap_or_default();
        let queries = others.iter().map(async |instance| {
            let (status, body) = self.query(instance, &format!("rows?within={within}")).await?;
            if status != StatusCode::OK {
                return Err(format!("it answers {status}"));
            }
            let rows = std::str::from_utf8(&body).ok().and_then(parse_rows);
            rows.ok_or_else(|| "its answer cannot be read".to_owned())
        });
        join_all(queries).await
    }

    /// Queries the details of one workload.
    pub(super) async fn detail_of(
        &self,
        instance: &Instance,
        key: &RevisionKey,
    ) -> Result<(StatusCode, Bytes), String> {
        self.query(instance, &format!("workloads/{key}")).await
    }

    async fn query(&self, instance: &Instance, what: &str) -> Result<(StatusCode, Bytes), String> {
        let answer = self.parts.peers.query(instance, &format!("{QUERY_PREFIX}dashboard/{what}")).await;
        answer.map_err(|error| error.to_string())
    }
}

/// Returns the responder to the other replicas' queries.
pub(super) fn responder(own: Arc<LocalReplica>) -> Responder {
    let turns = Arc::new(Semaphore::new(ANSWERED_AT_ONCE));
    Arc::new(move |path| {
        let (own, turns) = (own.clone(), turns.clone());
        async move {
            let _turn = turns.acquire_owned().await;
            answer(&own, &path).await
        }
        .boxed()
    })
}

async fn answer(own: &LocalReplica, path: &str) -> Response<Full<Bytes>> {
    let asked = path.strip_prefix(QUERY_PREFIX).and_then(|path| path.strip_prefix("dashboard/")).unwrap_or_default();
    if let Some(within) = asked.strip_prefix("rows?within=") {
        return text(StatusCode::OK, rows(own, within.parse().ok()).await);
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

/// Returns the error for a workload that does not exist.
pub(super) fn no_such(key: &RevisionKey) -> Value {
    json!({"error": format!("there is no ZeroScaler {} in namespace {}", key.name(), key.namespace())})
}

async fn rows(own: &LocalReplica, within: Option<i64>) -> String {
    let changes = {
        let table = own.pass().await;
        table.since(within.map(|within| table.position() - within - LATENCY_MS))
    };
    let rows = own.rows(changes.changed.iter(), changes.is_full).await;
    rows.iter().map(|(key, row)| format!("{key}\t{row}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_parsed_whole_or_not_at_all() {
        let rows = parse_rows("ns/a\t{\"name\":\"a\"}\nns/b\t{}\n").expect("whole");
        let rows: Vec<_> = rows.iter().map(|(key, row)| (key.as_str(), row.as_str())).collect();
        assert_eq!(rows, [("ns/a", "{\"name\":\"a\"}"), ("ns/b", "{}")]);
        assert_eq!(parse_rows(""), Some(Vec::new()));
        for damaged in ["ns/a", "a\t{}", "ns/a\t{}\nns/b"] {
            assert_eq!(parse_rows(damaged), None, "{damaged:?}");
        }
    }
}
