//! `request_stats`: time-weighted concurrency, and arrivals. As in a queue-proxy, requests that came through an
//! activator are also counted separately, here by a second [`RequestStats`] at the same time.

use activator_core::accounting::RequestStats;
use common::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{close, nanos, parse};

#[derive(Deserialize)]
struct Case {
    #[serde(deserialize_with = "nanos")]
    start: i64,
    ops: Vec<Op>,
}

#[derive(Deserialize)]
struct Op {
    op: OpKind,
    #[serde(deserialize_with = "nanos")]
    at: i64,
    want: Option<Want>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OpKind {
    In,
    Out,
    ProxiedIn,
    ProxiedOut,
    Report,
}

#[derive(Deserialize)]
struct Want {
    average_concurrency: f64,
    average_proxied_concurrency: f64,
    request_count: f64,
    proxied_request_count: f64,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let start = Timestamp::from_nanos(case.start);
    let (mut stats, mut proxied, mut latest) = (RequestStats::new(start), RequestStats::new(start), start);
    for (i, op) in case.ops.iter().enumerate() {
        let at = Timestamp::from_nanos(op.at);
        latest = latest.max(at);
        match op.op {
            OpKind::In => stats.enter(at),
            OpKind::Out => stats.leave(at),
            OpKind::ProxiedIn => {
                stats.enter(at);
                proxied.enter(latest);
            }
            OpKind::ProxiedOut => {
                stats.leave(at);
                proxied.leave(latest);
            }
            OpKind::Report => {
                let (got, got_proxied) = (stats.report(at), proxied.report(latest));
                let Some(want) = &op.want else {
                    return Err(Mismatch::Broken(format!("ops[{i}]: a report without an expectation")));
                };
                let field = |name: &str| format!("ops[{i}].want.{name}");
                close(&field("average_concurrency"), want.average_concurrency, got.average_concurrency)?;
                close(
                    &field("average_proxied_concurrency"),
                    want.average_proxied_concurrency,
                    got_proxied.average_concurrency,
                )?;
                close(&field("request_count"), want.request_count, got.request_count)?;
                close(&field("proxied_request_count"), want.proxied_request_count, got_proxied.request_count)?;
            }
        }
    }
    Ok(())
}
