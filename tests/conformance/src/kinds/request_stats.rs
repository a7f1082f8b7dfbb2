//! `request_stats`: time-weighted concurrency, and arrivals.

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
    op: What,
    #[serde(deserialize_with = "nanos")]
    at: i64,
    want: Option<Want>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
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
    let mut stats = RequestStats::new(Timestamp::from_nanos(case.start));
    for (i, op) in case.ops.iter().enumerate() {
        let at = Timestamp::from_nanos(op.at);
        match op.op {
            What::In => stats.enter(at),
            What::Out => stats.leave(at),
            What::ProxiedIn => stats.enter_proxied(at),
            What::ProxiedOut => stats.leave_proxied(at),
            What::Report => {
                let got = stats.report(at);
                let Some(want) = &op.want else {
                    return Err(Mismatch::Broken(format!("ops[{i}]: a report without an expectation")));
                };
                let field = |name: &str| format!("ops[{i}].want.{name}");
                close(&field("average_concurrency"), want.average_concurrency, got.average_concurrency)?;
                close(
                    &field("average_proxied_concurrency"),
                    want.average_proxied_concurrency,
                    got.average_proxied_concurrency,
                )?;
                close(&field("request_count"), want.request_count, got.request_count)?;
                close(&field("proxied_request_count"), want.proxied_request_count, got.proxied_request_count)?;
            }
        }
    }
    Ok(())
}
