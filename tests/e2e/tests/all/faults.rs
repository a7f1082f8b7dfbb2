//! Reports of pods' faults: each fault appears on each surface in the same words. Prints the acceptance table.
//!
//! The test simulates components that the embedded cluster lacks. No node runs a pod with an unknown scheduler, so the
//! test writes its status like a kubelet or a scheduler. No controller creates pods of a StatefulSet, so the test
//! writes the event with which a controller reports the API server's error.

use crate::zeroscaler::command_line;
use anyhow::Context;
use common_api::ZeroScaler;
use common_api::zeroscaler::Fault;
use e2e::space::{ASLEEP, SOON, program};
use e2e::{Entry, TestEnv, Workload};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

const SURFACES: [&str; 9] =
    ["Ready", "event", "why", "status", "check", "wake --wait", "dashboard", "waiting page", "held request"];

const WRITE_INTERVAL: Duration = Duration::from_secs(1);

enum FaultCause {
    /// Fields of the workload's container in addition to the usual ones.
    Container(Value),
    /// Status of a pod that no node runs.
    Pod(Value),
    /// Error of the API server for each pod.
    Refused(&'static str),
}

fn causes() -> Vec<(&'static str, FaultCause)> {
    let env = |kind: &str| json!({"env": [{"name": "A", "valueFrom": {kind: {"name": "absent", "key": "a"}}}]});
    let never = json!([{"name": "HELLO_NEVER_READY", "value": "1"}]);
    // It exits before it listens: a late timer would give it time to answer.
    let exits = json!([{"name": "HELLO_EXIT_AFTER_MS", "value": "1"}, {"name": "HELLO_START_MS", "value": "60000"}]);
    let waiting = |reason: &str, message: &str| {
        json!({"phase": "Pending", "containerStatuses": [{"name": "app", "image": "a", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}]})
    };
    let unscheduled = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}]});
    let quota = "pods \"a-0\" is forbidden: exceeded quota: q, used: pods=1, limited: pods=1";
    vec![
        ("CrashLoop", FaultCause::Container(json!({"env": exits}))),
        ("ProgramMissing", FaultCause::Container(json!({"command": ["nosuchprogram"]}))),
        ("ImagePull", FaultCause::Pod(waiting("ImagePullBackOff", "Back-off pulling image \"registry.example/a:1\""))),
        ("SecretMissing", FaultCause::Container(env("secretKeyRef"))),
        ("ConfigMapMissing", FaultCause::Container(env("configMapKeyRef"))),
        ("VolumeFailed", FaultCause::Container(json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}))),
        ("Unschedulable", FaultCause::Pod(unscheduled)),
        ("ProbeFailing", FaultCause::Container(json!({"env": never, "readinessProbe": {"tcpSocket": {"port": 8080}}}))),
        ("PortClosed", FaultCause::Container(json!({"env": never}))),
        ("QuotaExceeded", FaultCause::Refused(quota)),
        ("AdmissionDenied", FaultCause::Refused("admission webhook \"w.example\" denied the request: no")),
    ]
}

/// Returns the output and the error of `kubectl-zeroscale`.
async fn terminal(env: &TestEnv, words: &[&str]) -> String {
    let (printed, outcome) = command_line(env, words).await;
    let failed = outcome.err().map(|error| format!("failed: {error:#}")).unwrap_or_default();
    printed + &failed
}

struct Failing<'a> {
    env: &'a TestEnv,
    name: String,
    reason: &'static str,
    cause: FaultCause,
}

impl Failing<'_> {
    async fn deploy(&self) -> anyhow::Result<()> {
        let (env, name) = (self.env, self.name.as_str());
        let workload = Workload::new(name).set("wake.page", json!({})).set("wake.timeout", "40s");
        let mut target = workload.deployment(&program()?);
        let template = &mut target["spec"]["template"]["spec"];
        if let FaultCause::Container(container) = &self.cause {
            let fields = container.as_object().into_iter().flatten();
            fields.for_each(|(field, value)| template["containers"][0][field] = value.clone());
            template["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        } else {
            template["schedulerName"] = json!("absent");
        }
        let mut scaler = workload.scaler();
        if let FaultCause::Refused(_) = self.cause {
            target["kind"] = json!("StatefulSet");
            target["spec"]["serviceName"] = json!(name);
            scaler["spec"]["target"]["kind"] = json!("StatefulSet");
            env.create::<StatefulSet>(target).await?;
        } else {
            env.create::<Deployment>(target).await?;
        }
        env.create::<Service>(workload.service()).await?;
        env.create::<ZeroScaler>(scaler).await?;
        env.until_served(name).await
    }

    /// Writes what a kubelet, a scheduler or a controller would report, once the object exists.
    async fn simulate(&self) -> anyhow::Result<()> {
        let parameters = PatchParams::default();
        match &self.cause {
            FaultCause::Container(_) => Ok(()),
            FaultCause::Pod(status) => {
                let pods = self.env.api::<Pod>();
                let selected = ListParams::default().labels(&format!("app={}", self.name));
                self.env.until(SOON, "a pod", async || Ok(!pods.list(&selected).await?.items.is_empty())).await?;
                for pod in pods.list(&selected).await?.items {
                    let patch = Patch::Merge(json!({"status": status}));
                    // The pod may be gone.
                    let _ = pods.patch_status(&pod.name_any(), &parameters, &patch).await;
                }
                Ok(())
            }
            FaultCause::Refused(words) => {
                let name = &self.name;
                let target = self.env.api::<StatefulSet>().get(name).await?;
                let event = json!({
                    "metadata": {"generateName": format!("{name}.")}, "type": "Warning", "reason": "FailedCreate",
                    "involvedObject": {"kind": "StatefulSet", "namespace": self.env.namespace, "name": name,
                        "uid": target.uid()},
                    "message": format!("create Pod {name}-0 in StatefulSet {name} failed error: {words}"),
                    "lastTimestamp": Time(k8s_openapi::jiff::Timestamp::now()),
                });
                self.env.create::<Event>(event).await?;
                Ok(())
            }
        }
    }

    /// Writes the same for each new pod.
    async fn keep_simulating(&self) -> anyhow::Result<()> {
        loop {
            self.simulate().await?;
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
    }

    async fn fault(&self) -> anyhow::Result<Fault> {
        let mut found = None;
        let is_found = async || {
            let status = self.env.scaler(&self.name).await?.status.unwrap_or_default();
            found = status.fault.filter(|fault| fault.reason == self.reason);
            Ok(found.is_some())
        };
        self.env.until(SOON, &format!("the fault {} of {}", self.reason, self.name), is_found).await?;
        found.context("just found")
    }

    /// Reports for each surface whether it shows the fault's message and remedy.
    async fn check(self) -> anyhow::Result<(&'static str, [bool; SURFACES.len()])> {
        self.deploy().await?;
        let (env, name) = (self.env, self.name.as_str());
        let load = env.load(Entry::Service, name);
        let held = load.spawn_get("/");
        self.simulate().await?;
        let fault = self.fault().await?;
        let explains = |text: &str| text.contains(&fault.message) && text.contains(&fault.remedy);
        let ready = env.condition(name, "Ready").await?.context("Ready")?;
        let is_event = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some(self.reason)
                && event.message.as_deref().is_some_and(explains)
        };
        let events = env.api::<Event>();
        env.until(SOON, &format!("the event {}", self.reason), async || {
            Ok(events.list(&ListParams::default()).await?.items.iter().any(is_event))
        })
        .await?;
        let browser = load.clone().with("accept", "text/html");
        env.until(SOON, &format!("{} on the waiting page", self.reason), async || {
            let page = browser.get("/").await?.text();
            Ok(explains(&page.replace("&quot;", "\"").replace("&#39;", "'").replace("&gt;", ">").replace("&amp;", "&")))
        })
        .await?;
        let why = terminal(env, &["why", name]).await;
        let status = terminal(env, &["status", name]).await;
        let checked = terminal(env, &["check"]).await;
        let detail = terminal(env, &["why", name, "-o", "json"]).await;
        let detail: Value = serde_json::from_str(&detail).with_context(|| detail.clone())?;
        let row = detail["why"].as_str().unwrap_or_default();
        let answer = held.await??;
        let answer = (answer.status.as_u16(), answer.text());
        let wake = ["wake", name, "--wait", "--timeout", "30s"];
        let woken = tokio::select! {
            woken = terminal(env, &wake) => woken,
            ended = self.keep_simulating() => return ended.map(|()| (self.reason, [false; SURFACES.len()])),
        };
        let results = [
            ready.0 == "False" && ready.1 == self.reason && explains(&ready.2),
            true,
            explains(&why),
            explains(&status),
            explains(&checked),
            woken.starts_with("failed: ") && explains(&woken),
            explains(row),
            true,
            [503, 504].contains(&answer.0) && explains(&answer.1),
        ];
        if results.contains(&false) {
            eprintln!("{}: {fault:?}\n{ready:?}\n{why}\n{status}\n{checked}\n{row}\n{woken}\n{answer:?}", self.reason);
        }
        Ok((self.reason, results))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_pods_are_reported_until_they_end() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    tokio::try_join!(
        each_fault_is_reported_on_each_surface(&env),
        a_crash_loop_without_a_probe_scales_back_to_zero(&env),
        a_secret_that_is_created_late_fails_no_request(&env),
    )?;
    env.end().await
}

/// Goal: every fault of pods is reported on each surface with its remedy. Method: a workload for each fault, a held
/// request, a waiting browser.
async fn each_fault_is_reported_on_each_surface(env: &TestEnv) -> anyhow::Result<()> {
    let failing = |(reason, cause)| Failing { env, name: str::to_lowercase(reason), reason, cause };
    let rows = try_join_all(causes().into_iter().map(|row| failing(row).check())).await?;
    println!("| cause | {} |\n|---|{}", SURFACES.join(" | "), "---|".repeat(SURFACES.len()));
    for (reason, results) in &rows {
        println!("| {reason} | {} |", results.map(|explains| if explains { "yes" } else { "NO" }).join(" | "));
    }
    assert!(rows.iter().all(|(_, results)| !results.contains(&false)));
    Ok(())
}

/// Goal: a crash loop without a readiness probe scales back to zero, and is reported at zero until it is fixed.
async fn a_crash_loop_without_a_probe_scales_back_to_zero(env: &TestEnv) -> anyhow::Result<()> {
    let name = "crash";
    env.deploy(&Workload::new(name).env("HELLO_EXIT_AFTER_MS", 200)).await?;
    let _first = env.load(Entry::Service, name).get("/").await?;
    let is_ready = async |status: &str| Ok(env.condition(name, "Ready").await?.is_some_and(|(is, ..)| is == status));
    env.until(SOON, "Ready to be False", async || is_ready("False").await).await?;
    env.until(ASLEEP, "no replicas", async || Ok(env.replicas(name).await? == 0)).await?;
    assert_eq!(env.condition(name, "Ready").await?.map(|(_, reason, _)| reason).as_deref(), Some("CrashLoop"));
    let mended = json!({"spec": {"template": {"metadata": {"annotations": {"mended": "yes"}}}}});
    env.patch::<Deployment>(name, mended).await?;
    env.until(SOON, "Ready, since the target has changed", async || is_ready("True").await).await
}

async fn a_secret_that_is_created_late_fails_no_request(env: &TestEnv) -> anyhow::Result<()> {
    let late = json!({"env": [{"name": "HELLO_TEXT", "valueFrom": {"secretKeyRef": {"name": "later", "key": "a"}}}]});
    let failing = Failing { env, name: "late".into(), reason: "SecretMissing", cause: FaultCause::Container(late) };
    failing.deploy().await?;
    let held = env.load(Entry::Service, "late").spawn_get("/");
    failing.fault().await?;
    let secret = json!({"metadata": {"name": "later"}, "stringData": {"a": "healed"}});
    env.create::<k8s_openapi::api::core::v1::Secret>(secret).await?;
    let answer = held.await??;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"healed"[..]));
    env.until_served("late").await
}
