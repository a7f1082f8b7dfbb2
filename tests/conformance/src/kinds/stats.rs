//! `request_stats`: time-weighted concurrency, and arrivals. As in a queue-proxy, requests that came through an
//! activator are also counted separately, here by a second [`RequestStats`] at the same time. `sample_size`: the number
//! of a revision's pods that are scraped.

use activator_core::accounting::RequestStats;
use autoscaler_core::sample;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{Time, close, equal, parse};

#[derive(Deserialize)]
struct Case {
    start: Time,
    ops: Vec<Op>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    In { at: Time },
    Out { at: Time },
    ProxiedIn { at: Time },
    ProxiedOut { at: Time },
    Report { at: Time, want: Want },
}

#[derive(Deserialize)]
struct Want {
    average_concurrency: f64,
    average_proxied_concurrency: f64,
    request_count: f64,
    proxied_request_count: f64,
}

pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let Case { start: Time(start), ops } = parse(case)?;
    let (mut stats, mut proxied, mut latest) = (RequestStats::new(start), RequestStats::new(start), start);
    for (i, op) in ops.iter().enumerate() {
        let (Op::In { at } | Op::Out { at } | Op::ProxiedIn { at } | Op::ProxiedOut { at } | Op::Report { at, .. }) =
            op;
        latest = latest.max(at.0);
        match op {
            Op::In { .. } | Op::ProxiedIn { .. } => stats.enter(at.0),
            Op::Out { .. } | Op::ProxiedOut { .. } => stats.leave(at.0),
            Op::Report { .. } => {}
        }
        match op {
            Op::ProxiedIn { .. } => proxied.enter(latest),
            Op::ProxiedOut { .. } => proxied.leave(latest),
            Op::In { .. } | Op::Out { .. } => {}
            Op::Report { want, .. } => {
                let (got, through) = (stats.report(at.0), proxied.report(latest));
                for (name, wanted, got) in [
                    ("average_concurrency", want.average_concurrency, got.average_concurrency),
                    ("average_proxied_concurrency", want.average_proxied_concurrency, through.average_concurrency),
                    ("request_count", want.request_count, got.request_count),
                    ("proxied_request_count", want.proxied_request_count, through.request_count),
                ] {
                    close(&format!("ops[{i}].want.{name}"), wanted, got)?;
                }
            }
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct SampleCase {
    /// −1 stands for an unknown count.
    population: i64,
    want: usize,
}

pub(super) fn check_sample(case: &Value) -> Result<(), Mismatch> {
    let SampleCase { population, want } = parse(case)?;
    equal("want", &want, &sample::sample_size(usize::try_from(population).unwrap_or(0)))
}
