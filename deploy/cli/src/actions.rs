//! The commands `pause`, `resume`, `wake` and `sleep`: each edits one field of the ZeroScaler and reports the result.
//!
//! They need only the right to edit ZeroScalers. The autoscaler reports the result of `wake` and `sleep` in the status.
//! It is an error if no report appears within some seconds, since no autoscaler will act on the edit. It is also an
//! error if the API server dropped the field: it still returns success if the installed definition is older than the
//! field.

use crate::cluster::{Cluster, ClusterArgs, keys, zeroscaler_error};
use crate::text::seconds;
use anyhow::{anyhow, bail};
use clap::Args;
use common::RevisionKey;
use common::golang::parse_duration;
use common_api::ZeroScaler;
use common_api::zeroscaler::{Fault, RequestResult, SleepState, request};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

/// Field manager in `managedFields`.
const MANAGER: &str = "kubectl-zeroscale";
/// Maximum wait for the first report of an autoscaler.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two reads of the object.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Arguments of `pause` and `resume`.
#[derive(Args, Clone, Debug)]
pub struct PauseArgs {
    /// Workloads: NAME of their ZeroScaler, or NAMESPACE/NAME.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// Arguments of `wake` and `sleep`.
#[derive(Args, Clone, Debug)]
pub struct RequestArgs {
    /// Workloads: NAME of their ZeroScaler, or NAMESPACE/NAME.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Wait until done and print how long it took.
    #[arg(long)]
    pub wait: bool,
    /// Maximum wait, such as 90s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is expected, such as 90s or 5m".to_owned();
    let read = parse_duration(text).map_err(|_| wrong())?.to_std();
    if read.is_zero() { Err(wrong()) } else { Ok(read) }
}

/// Pauses or resumes workloads. Fails if a workload is unknown, may not be edited, or does not keep the written value.
pub async fn pause(place: &ClusterArgs, args: &PauseArgs, paused: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let cluster = place.cluster().await?;
    for key in keys(&args.names, &cluster.namespace)? {
        let before = cluster.get(&key).await?;
        let result = match (before.spec.paused, paused) {
            (true, true) => "is already paused",
            (false, false) => "is not paused",
            (_, true) => "paused",
            (_, false) => "resumed",
        };
        if before.spec.paused != paused {
            // `false` is the default, so the field is removed.
            let value = if paused { json!(true) } else { Value::Null };
            let written = edit(&cluster, &key, json!({"paused": value})).await?;
            if written.spec.paused != paused {
                return Err(not_kept(&key, "spec.paused", paused));
            }
        }
        writeln!(out, "zeroscaler.zeroscale.dev/{} {result}", key.name())?;
    }
    Ok(())
}

/// Requests a wake or a sleep and prints the result of each workload. Fails if a workload is unknown, may not be
/// edited, does not keep the written value, or stays in its state. The error names all of them, after all workloads
/// have been requested.
pub async fn request(
    place: &ClusterArgs,
    args: &RequestArgs,
    state: &'static str,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let cluster = place.cluster().await?;
    let mut wrong = Vec::new();
    for key in keys(&args.names, &cluster.namespace)? {
        match request_one(&cluster, &key, args, state).await {
            Ok(result) => writeln!(out, "zeroscaler.zeroscale.dev/{} {result}", key.name())?,
            Err(error) => wrong.push(format!("{key}: {error:#}")),
        }
        out.flush()?;
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n       "));
    }
    Ok(())
}

/// Requests the state for one workload, and waits for the first report, or with `--wait` until the request is done.
/// Returns the result in words.
async fn request_one(
    cluster: &Cluster,
    key: &RevisionKey,
    args: &RequestArgs,
    state: &'static str,
) -> anyhow::Result<String> {
    let (at, begun) = (Timestamp::now(), Instant::now());
    let took = || seconds(begun.elapsed().as_secs_f64());
    let is_awake = state == request::AWAKE;
    let written = edit(cluster, key, json!({"request": {"state": state, "at": at.to_string()}})).await?;
    // Compare as an instant: the object may use another notation. The status repeats that notation.
    let Some(request) = written.spec.request.filter(|request| request.at() == Some(at)) else {
        return Err(not_kept(key, "spec.request", state));
    };
    loop {
        let object = cluster.get(key).await?;
        if let Some(fault) = wake_fault(&object).filter(|_| args.wait && is_awake) {
            bail!("the workload cannot serve: {fault}");
        }
        match reported(&object, state, &request.at).map_err(|why| anyhow!("the request is not carried out: {why}"))? {
            Some(RequestResult::Done) if !is_awake => return Ok(format!("asleep after {}", took())),
            Some(_) if args.wait && is_awake && serves(&object) => return Ok(format!("awake after {}", took())),
            Some(_) if args.wait && is_awake => {}
            Some(RequestResult::Pending) if args.wait => {}
            Some(_) => return Ok(described_result(&object, is_awake).to_owned()),
            None if begun.elapsed() > REPORT_TIMEOUT.min(args.timeout) => {
                bail!("no autoscaler has responded within {}: run `kubectl zeroscale check`", took())
            }
            None => {}
        }
        if begun.elapsed() > args.timeout {
            let fault = object.status.and_then(|status| status.fault).map(|fault| fault.to_string());
            let why = fault.unwrap_or_else(|| format!("run `kubectl zeroscale status {key}`"));
            bail!("the workload is not {state} after {}: {why}", took());
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

async fn edit(cluster: &Cluster, key: &RevisionKey, spec: Value) -> anyhow::Result<ZeroScaler> {
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": spec}));
    let written = cluster.api(Some(key.namespace())).patch(key.name(), &parameters, &patch).await;
    written.map_err(|error| zeroscaler_error(error, key))
}

/// Returns the error for an edit that the API server accepted and dropped. It drops unknown fields and returns 200.
fn not_kept(key: &RevisionKey, field: &str, value: impl Display) -> anyhow::Error {
    anyhow!(
        "ZeroScaler {key}: the API server dropped {field} = {value}: the definition in this cluster probably has no \
         {field}; run `kubectl zeroscale check`"
    )
}

/// Reports whether the workload is awake without a fault and has a ready pod. The target's own status would report that
/// earlier, but counts pods that restart or do not listen.
fn serves(object: &ZeroScaler) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| {
        status.state == SleepState::Awake && status.fault.is_none() && status.pods.is_some_and(|pods| pods.ready > 0)
    })
}

/// Returns the fault if the wake has failed: held requests fail with it, or the pods were given up.
fn wake_fault(object: &ZeroScaler) -> Option<&Fault> {
    let status = object.status.as_ref().filter(|status| status.observed_generation == object.metadata.generation)?;
    let is_failing = status.backend.as_ref().is_some_and(|backend| backend.failing.is_some());
    let is_over = matches!(status.state, SleepState::Asleep | SleepState::FallingAsleep);
    status.fault.as_ref().filter(|_| is_failing || is_over)
}

/// Returns the result in words for a command without `--wait`.
fn described_result(object: &ZeroScaler, is_awake: bool) -> &'static str {
    let state = object.status.as_ref().map(|status| status.state).unwrap_or_default();
    match (is_awake, state) {
        (true, SleepState::Awake) => "is awake",
        (true, _) => "wakes",
        (false, _) => "falls asleep",
    }
}

/// Returns the result of a request from the object's status, or `None` if there is no report yet. Fails with the reason
/// if the request is not carried out.
fn reported(object: &ZeroScaler, state: &str, at: &str) -> Result<Option<RequestResult>, String> {
    if let Some(newer) = object.spec.request.as_ref().filter(|request| request.at != at) {
        return Err(format!("a newer request, of {}, asks for {}", newer.at, newer.state));
    }
    let is_current = object.status.as_ref().and_then(|status| status.observed_generation) == object.metadata.generation;
    let ready = object.condition(common_api::zeroscaler::conditions::READY);
    let report = object.status.as_ref().and_then(|status| status.request.as_ref());
    match report.filter(|report| report.at == at && report.state == state) {
        Some(report) if report.result == RequestResult::Kept => Err(report.message.clone()),
        Some(report) => Ok(Some(report.result)),
        None => match ready.filter(|ready| is_current && ready.status == "False") {
            Some(ready) => Err(format!("the ZeroScaler is not Ready ({}): {}", ready.reason, ready.message)),
            None => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_request_is_read_from_the_status() {
        let object = |request: Value, status: Value| -> ZeroScaler {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "generation": 2}, "spec": {"target": {"name": "a"}, "request": request}, "status": status,
            }))
            .expect("a ZeroScaler")
        };
        let request = || json!({"state": "Awake", "at": "2026-01-01T00:00:00Z"});
        let report = |at: &str, result: &str, message: &str| json!({"request": {"state": "Awake", "at": at, "result": result, "message": message}});
        let at = "2026-01-01T00:00:00Z";
        let not_ready = |generation: i64| {
            json!({"observedGeneration": generation, "conditions": [{"type": "Ready", "status": "False", "reason": "TargetNotFound",
                "message": "gone", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let rows = [
            (json!({}), Ok(None)),
            (report("2025-01-01T00:00:00Z", "Done", ""), Ok(None)),
            (report(at, "Pending", ""), Ok(Some(RequestResult::Pending))),
            (report(at, "Done", ""), Ok(Some(RequestResult::Done))),
            (report(at, "Kept", "paused"), Err("paused".to_owned())),
            (not_ready(1), Ok(None)),
            (not_ready(2), Err("the ZeroScaler is not Ready (TargetNotFound): gone".to_owned())),
        ];
        for (status, expected) in rows {
            assert_eq!(reported(&object(request(), status.clone()), "Awake", at), expected, "{status}");
        }
        let newer = json!({"state": "Asleep", "at": "2026-01-02T00:00:00Z"});
        assert!(reported(&object(newer, json!({})), "Awake", at).is_err_and(|why| why.contains("Asleep")));
    }

    /// Goal: a waiting client gets the fault of a failed wake once requests fail with it or the pods are given up.
    #[test]
    fn a_failed_wake_has_its_fault() {
        let fault = json!({"reason": "CrashLoop", "message": "m", "remedy": "r", "since": "2026-01-01T00:00:00Z"});
        let rows = [
            (2, "Waking", Value::Null, None),
            (2, "Waking", json!("CrashLoop: m; r"), Some("CrashLoop: m; r")),
            (2, "Asleep", Value::Null, Some("CrashLoop: m; r")),
            (1, "Asleep", Value::Null, None),
        ];
        for (generation, state, failing, expected) in rows {
            let object: ZeroScaler = serde_json::from_value(json!({
                "metadata": {"name": "a", "generation": 2}, "spec": {"target": {"name": "a"}},
                "status": {"observedGeneration": generation, "state": state, "fault": fault, "pods": {"ready": 1},
                    "backend": {"timeoutMs": 1, "maxHeld": 1, "failing": failing}},
            }))
            .expect("a ZeroScaler");
            assert_eq!(wake_fault(&object).map(ToString::to_string).as_deref(), expected, "{state} {failing}");
            assert!(!serves(&object));
        }
    }

    #[test]
    fn a_timeout_is_a_duration() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "0s", "-1s", "soon"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
