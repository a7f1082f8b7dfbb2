//! Queries to the other replicas for the workloads that they own, so that any replica can show all workloads.
//!
//! They are GETs on the stat port ([`crate::ingest::queries`]) with JSON responses: the rows that changed within a
//! given number of milliseconds, by their keys, or the details of one workload.

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
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest time in milliseconds that a query may take. The period of its rows is extended by this time.
const LATENCY_MS: i64 = 2_000;

/// Returns the user-facing name of a replica.
pub(super) fn name(instance: &Instance) -> String {
    match instance {
        Instance::Leased(holder) => holder.pod_name.clone(),
        Instance::Member(url) => url.clone(),
    }
}

impl LocalReplica {
    /// Queries the other replicas that own workloads for the rows that changed within the last `within` milliseconds;
    /// none: for all rows.
    pub(super) async fn rows_of_others(
        &self,
        within: Option<i64>,
    ) -> Vec<(Instance, Result<BTreeMap<String, Value>, String>)> {
        let mut others = self.parts.shares.others();
        others.sort_by_key(name);
        let query = format!("rows?within={}", within.map(|within| within.to_string()).unwrap_or_default());
        let answers = others.iter().map(async |instance| match self.query(instance, &query).await? {
            (StatusCode::OK, body) => {
                serde_json::from_slice(&body).map_err(|error| format!("its response cannot be parsed: {error}"))
            }
            (status, _) => Err(format!("it responds with {status}")),
        });
        let answers = join_all(answers).await;
        others.into_iter().zip(answers).collect()
    }

    /// Sends a query to another replica.
    pub(super) async fn query(&self, instance: &Instance, what: &str) -> Result<(StatusCode, Bytes), String> {
        let answer = self.parts.peers.query(instance, &format!("{QUERY_PREFIX}dashboard/{what}")).await;
        answer.map_err(|error| error.to_string())
    }
}

/// Returns the responder to the other replicas' queries.
pub(super) fn responder(own: Arc<LocalReplica>) -> Responder {
    Arc::new(move |path| {
        let own = own.clone();
        async move { answer(&own, &path).await }.boxed()
    })
}

async fn answer(own: &Arc<LocalReplica>, path: &str) -> Response<Full<Bytes>> {
    let query = path.strip_prefix(QUERY_PREFIX).and_then(|path| path.strip_prefix("dashboard/")).unwrap_or_default();
    if let Some(within) = query.strip_prefix("rows?within=") {
        let within: Option<i64> = within.parse().ok();
        let rows = own.compute(move |own| {
            let (_, changes) = own.changes(within.map(|within| own.records.now_ms() - within - LATENCY_MS));
            json!(own.rows(changes.changed.iter(), changes.is_full)).to_string()
        });
        return json(StatusCode::OK, rows.await);
    }
    let Some((namespace, name)) = query.strip_prefix("workloads/").and_then(|key| key.split_once('/')) else {
        return text(StatusCode::NOT_FOUND, "a query is for `rows` or for `workloads/NAMESPACE/NAME`\n");
    };
    own.own_detail(&RevisionKey::new(namespace, name), None)
}
