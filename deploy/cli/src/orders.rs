//! `pause`, `resume`, `wake` and `sleep`: a field of the ZeroScaler each, and what the autoscaler says to it.
//!
//! Nothing but the right to edit ZeroScalers is needed. The autoscaler answers in the status; where none does within some
//! seconds, that is an error, since nothing will come of what was written. Neither will it where the API server has dropped
//! the field: it answers as if all were well if its definition is older than the field.

use crate::cluster::{Cluster, Name, Where, missing};
use crate::text::seconds;
use anyhow::{anyhow, bail};
use clap::Args;
use common::golang::parse_duration;
use common_api::ZeroScaler;
use common_api::zeroscaler::{Fault, RequestResult, RequestStatus, State, request};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

/// Who writes, for `managedFields`.
const MANAGER: &str = "kubectl-zeroscale";
/// Longest time until an autoscaler has said something.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// Time between two looks at an object that is waited for.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// What is asked of `pause` and `resume`.
#[derive(Args, Clone, Debug)]
pub struct PauseArgs {
    /// Workloads, by the NAME of their ZeroScaler, or NAMESPACE/NAME.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// What is asked of `wake` and `sleep`.
#[derive(Args, Clone, Debug)]
pub struct RequestArgs {
    /// Workloads, by the NAME of their ZeroScaler, or NAMESPACE/NAME.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Wait until it is so, and say how long that took.
    #[arg(long)]
    pub wait: bool,
    /// Longest wait, such as 90s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is expected, such as 90s or 5m".to_owned();
    let read = parse_duration(text).map_err(|_| wrong())?.to_std();
    if read.is_zero() { Err(wrong()) } else { Ok(read) }
}

/// Pauses workloads, or ends that.
///
/// # Errors
/// One is unknown, may not be edited, or does not keep what was written.
pub async fn pause(place: &Where, args: &PauseArgs, paused: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let cluster = place.cluster().await?;
    for name in names(&args.names, &cluster)? {
        let before = cluster.get(&name).await?;
        let done = if paused { "paused" } else { "resumed" };
        if before.spec.paused == paused {
            let already = if paused { "is paused already" } else { "is not paused" };
            writeln!(out, "zeroscaler.zeroscale.dev/{} {already}", name.name)?;
            continue;
        }
        // The default is not written down.
        let value = if paused { json!(true) } else { Value::Null };
        let written = edit(&cluster, &name, json!({"paused": value})).await?;
        if written.spec.paused != paused {
            return Err(not_kept(&name, "spec.paused", paused));
        }
        writeln!(out, "zeroscaler.zeroscale.dev/{} {done}", name.name)?;
    }
    Ok(())
}

/// Asks for a wake or a sleep, and says what becomes of it.
///
/// # Errors
/// One is unknown, may not be edited, does not keep what was written, or is kept as it is: whichever these are, and after
/// all have been asked.
pub async fn ask(place: &Where, args: &RequestArgs, state: &'static str, out: &mut impl Write) -> anyhow::Result<()> {
    let cluster = place.cluster().await?;
    let mut wrong = Vec::new();
    for name in names(&args.names, &cluster)? {
        match asked(&cluster, &name, args, state).await {
            Ok(said) => writeln!(out, "zeroscaler.zeroscale.dev/{} {said}", name.name)?,
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
        out.flush()?;
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n       "));
    }
    Ok(())
}

/// Asks for it at one workload. What becomes of it.
async fn asked(cluster: &Cluster, name: &Name, args: &RequestArgs, state: &'static str) -> anyhow::Result<String> {
    let (at, begun) = (Timestamp::now(), Instant::now());
    let written = edit(cluster, name, json!({"request": {"state": state, "at": at.to_string()}})).await?;
    // The same instant, in whatever notation it was kept: that is what the status repeats.
    let Some(request) = written.spec.request.filter(|request| request.at() == Some(at)) else {
        return Err(not_kept(name, "spec.request", state));
    };
    let wait = Wait { cluster, name, state, at: &request.at, begun };
    wait.told(args).await
}

fn names(texts: &[String], cluster: &Cluster) -> anyhow::Result<Vec<Name>> {
    texts.iter().map(|text| Name::read(text, &cluster.namespace)).collect()
}

async fn edit(cluster: &Cluster, name: &Name, spec: Value) -> anyhow::Result<ZeroScaler> {
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": spec}));
    let written = cluster.scalers(Some(&name.namespace)).patch(&name.name, &parameters, &patch).await;
    written.map_err(|error| missing(error, name))
}

/// The API server has taken an edit, and the object is without it: unknown fields are dropped, and answered with 200.
fn not_kept(name: &Name, field: &str, value: impl Display) -> anyhow::Error {
    anyhow!(
        "ZeroScaler {name}: {field} = {value} was written but not kept: the definition in this cluster seems not to know \
         {field}; see `kubectl zeroscale check`"
    )
}

/// A request that was made.
struct Wait<'a> {
    cluster: &'a Cluster,
    name: &'a Name,
    state: &'static str,
    at: &'a str,
    begun: Instant,
}

/// What an object says of a request.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Nothing yet.
    Nothing,
    /// It is carried out.
    Begun,
    /// It is so.
    Done,
    /// It stays as it is, and why.
    Kept(String),
}

impl Wait<'_> {
    /// Waits for what is said, and with `--wait` until it is so.
    async fn told(&self, args: &RequestArgs) -> anyhow::Result<String> {
        loop {
            let object = self.cluster.get(self.name).await?;
            let is_awake = self.state == request::AWAKE;
            if let Some(fault) = fails(&object).filter(|_| args.wait && is_awake) {
                bail!("cannot serve: {fault}");
            }
            match said(&object, self.state, self.at) {
                Said::Kept(why) => bail!("stays as it is: {why}"),
                Said::Done if !is_awake => return Ok(format!("asleep after {}", self.took())),
                Said::Begun | Said::Done if args.wait && is_awake => {
                    if serves(&object) {
                        return Ok(format!("awake after {}", self.took()));
                    }
                }
                Said::Begun if args.wait => {}
                Said::Begun | Said::Done => return Ok(words(&object, is_awake).to_owned()),
                Said::Nothing if self.begun.elapsed() > HEARD_WITHIN.min(args.timeout) => {
                    bail!("no autoscaler has said anything within {}: see `kubectl zeroscale check`", self.took())
                }
                Said::Nothing => {}
            }
            if self.begun.elapsed() > args.timeout {
                let fault = object.status.and_then(|status| status.fault).map(|fault| fault.to_string());
                let why = fault.unwrap_or_else(|| format!("see `kubectl zeroscale status {}`", self.name));
                bail!("it is not so after {}: {why}", self.took());
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
    }

    fn took(&self) -> String {
        seconds(self.begun.elapsed().as_secs_f64())
    }
}

/// Returns whether a pod is ready. The target's own word would come earlier, and count pods that restart or do not listen.
fn serves(object: &ZeroScaler) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| {
        status.state == State::Awake && status.fault.is_none() && status.pods.is_some_and(|pods| pods.ready > 0)
    })
}

/// Why this wake fails: requests that are held are answered so, or its pods were given up.
fn fails(object: &ZeroScaler) -> Option<&Fault> {
    let status = object.status.as_ref().filter(|status| status.observed_generation == object.metadata.generation)?;
    let is_told = status.backend.as_ref().is_some_and(|backend| backend.failing.is_some());
    let is_over = matches!(status.state, State::Asleep | State::FallingAsleep);
    status.fault.as_ref().filter(|_| is_told || is_over)
}

/// What is said where nobody waits for the end.
fn words(object: &ZeroScaler, is_awake: bool) -> &'static str {
    let state = object.status.as_ref().map(|status| status.state).unwrap_or_default();
    match (is_awake, state) {
        (true, State::Awake) => "is awake",
        (true, _) => "wakes",
        (false, _) => "falls asleep",
    }
}

/// What an object says of a request.
fn said(object: &ZeroScaler, state: &str, at: &str) -> Said {
    if let Some(newer) = object.spec.request.as_ref().filter(|request| request.at != at) {
        return Said::Kept(format!("somebody has asked for {} at {}", newer.state, newer.at));
    }
    let ready = object.condition(common_api::zeroscaler::conditions::READY);
    let is_seen = object.status.as_ref().and_then(|status| status.observed_generation) == object.metadata.generation;
    let about = |told: &&RequestStatus| told.at == at && told.state == state;
    match object.status.as_ref().and_then(|status| status.request.as_ref()).filter(about) {
        Some(told) => match told.result {
            RequestResult::Pending => Said::Begun,
            RequestResult::Done => Said::Done,
            RequestResult::Kept => Said::Kept(told.message.clone()),
        },
        None => match ready.filter(|ready| is_seen && ready.status == "False") {
            Some(ready) => Said::Kept(format!("it is not Ready ({}): {}", ready.reason, ready.message)),
            None => Said::Nothing,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_what_becomes_of_a_request() {
        let object = |request: Value, status: Value| -> ZeroScaler {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "generation": 2}, "spec": {"target": {"name": "a"}, "request": request}, "status": status,
            }))
            .expect("a ZeroScaler")
        };
        let asked = || json!({"state": "Awake", "at": "2026-01-01T00:00:00Z"});
        let told = |at: &str, result: &str, message: &str| json!({"request": {"state": "Awake", "at": at, "result": result, "message": message}});
        let at = "2026-01-01T00:00:00Z";
        let not_ready = |generation: i64| {
            json!({"observedGeneration": generation, "conditions": [{"type": "Ready", "status": "False", "reason": "TargetNotFound",
                "message": "gone", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let rows = [
            (json!({}), Said::Nothing),
            (told("2025-01-01T00:00:00Z", "Done", ""), Said::Nothing),
            (told(at, "Pending", ""), Said::Begun),
            (told(at, "Done", ""), Said::Done),
            (told(at, "Kept", "paused"), Said::Kept("paused".into())),
            (not_ready(1), Said::Nothing),
            (not_ready(2), Said::Kept("it is not Ready (TargetNotFound): gone".into())),
        ];
        for (status, expected) in rows {
            assert_eq!(said(&object(asked(), status.clone()), "Awake", at), expected, "{status}");
        }
        let newer = json!({"state": "Asleep", "at": "2026-01-02T00:00:00Z"});
        assert!(matches!(said(&object(newer, json!({})), "Awake", at), Said::Kept(why) if why.contains("Asleep")));
    }

    /// Goal: who waits for a wake hears of its failure once requests fail with it, or its pods are given up.
    #[test]
    fn a_wake_that_fails_says_why() {
        let fault = json!({"reason": "CrashLoop", "message": "m", "remedy": "r", "since": "2026-01-01T00:00:00Z"});
        let rows = [
            (2, "Waking", Value::Null, None),
            (2, "Waking", json!("CrashLoop: m; r"), Some("CrashLoop: m; r")),
            (2, "Asleep", Value::Null, Some("CrashLoop: m; r")),
            (1, "Asleep", Value::Null, None),
        ];
        for (seen, state, failing, expected) in rows {
            let object: ZeroScaler = serde_json::from_value(json!({
                "metadata": {"name": "a", "generation": 2}, "spec": {"target": {"name": "a"}},
                "status": {"observedGeneration": seen, "state": state, "fault": fault, "pods": {"ready": 1},
                    "backend": {"timeoutMs": 1, "maxHeld": 1, "failing": failing}},
            }))
            .expect("a ZeroScaler");
            assert_eq!(fails(&object).map(ToString::to_string).as_deref(), expected, "{state} {failing}");
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
