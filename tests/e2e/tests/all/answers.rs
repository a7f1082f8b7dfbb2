//! Responses without a pod, and schedules, with `local up` as a user runs it. `page/` tests the page itself in a
//! browser.

use common_api::ZeroScaler;
use e2e::space::SOON;
use e2e::up::Up;
use e2e::{Load, Workload};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::DeleteParams;
use local::up::system::NAMESPACE;
use serde_json::{Value, json};
use std::time::Duration;

/// Condition about fallbacks.
const RESOLVED: &str = "AnswersResolved";

#[tokio::test(flavor = "multi_thread")]
async fn responses_without_a_pod_and_schedules() -> anyhow::Result<()> {
    let up = Up::start().await?;
    tokio::try_join!(
        placeholders_wake_workloads_and_static_responses_do_not(&up),
        workloads_without_a_page_use_the_clusters(&up),
        a_fallback_responds_for_a_workload_that_does_not_wake(&up),
        pods_exist_by_schedule(&up),
    )?;
    up.end().await
}

/// Goal: a static response leaves the workload at zero, a placeholder wakes it, and then its pod responds to both
/// requests.
async fn placeholders_wake_workloads_and_static_responses_do_not(up: &Up) -> anyhow::Result<()> {
    let space = &up.space;
    let fixed = json!([{"match": {"paths": ["/healthz"]}, "response": {"body": "fine"}}]);
    let placeholder = json!({"match": {"paths": ["/jobs/*"]}, "response": {"status": 202, "body": "later"}});
    let shop = Workload::new("static").env("HELLO_TEXT", "awake");
    space.deploy(&shop.set("wake.static", fixed).set("wake.placeholder", placeholder)).await?;
    let load = up.load("static");
    let fine = load.get("/healthz").await?;
    assert_eq!((fine.status.as_u16(), &fine.body[..], fine.pod()), (200, &b"fine"[..], None));
    assert_eq!(fine.headers["x-zeroscale-reason"], "static");
    assert!(space.is_asleep("static").await?, "a static response woke it");
    let later = load.get("/jobs/1").await?;
    assert_eq!((later.status.as_u16(), &later.body[..]), (202, &b"later"[..]));
    space.until(SOON, "a pod, since a request has arrived", async || Ok(space.ready_pods("static").await? > 0)).await?;
    space.until(SOON, "the pod's own answer", async || Ok(load.get("/jobs/1").await?.pod().is_some())).await?;
    let own = load.get("/healthz").await?;
    assert!(own.pod().is_some(), "awake, the pod itself responds: {own:?}");
    Ok(())
}

/// Goal: workloads without their own page share the cluster's page, which applies as soon as it exists and until it is
/// deleted.
async fn workloads_without_a_page_use_the_clusters(up: &Up) -> anyhow::Result<()> {
    let space = &up.space;
    for (name, page) in [("plain", json!({})), ("own", json!({"html": "{{workload}} has its own"}))] {
        space.deploy(&Workload::new(name).env("HELLO_NEVER_READY", 1).set("wake.page", page)).await?;
    }
    let shows = async |name: &str, text: &str| -> anyhow::Result<bool> {
        let page = up.load(name).with("accept", "text/html").get("/").await?;
        anyhow::ensure!(page.headers["x-zeroscale-reason"] == "page", "{page:?}");
        Ok(page.text().contains(text))
    };
    anyhow::ensure!(shows("plain", "plain is waking up").await? && shows("own", "own has its own").await?);
    let maps = Api::<ConfigMap>::namespaced(space.api::<ConfigMap>().into_client(), NAMESPACE);
    space.configure("config-page", json!({"html": "the cluster's {{workload}}"})).await?;
    space.until(SOON, "the cluster's page", async || shows("plain", "the cluster's plain").await).await?;
    anyhow::ensure!(shows("own", "own has its own").await?);
    maps.delete("config-page", &DeleteParams::default()).await?;
    space.until(SOON, "our page again", async || shows("plain", "plain is waking up").await).await
}

/// Goal: another Service responds for a workload that does not wake in time, whether that Service is at zero or not. A
/// fallback that does not exist or leads back is reported with field, value and rule, and takes effect as soon as it is
/// correct.
async fn a_fallback_responds_for_a_workload_that_does_not_wake(up: &Up) -> anyhow::Result<()> {
    let space = &up.space;
    let sorry = Workload::new("sorry").env("HELLO_TEXT", "sorry");
    let shop = Workload::new("shop").env("HELLO_NEVER_READY", 1);
    let shop = shop.set("wake.fallback", json!({"service": "apology", "port": 80, "after": "300ms"}));
    space.deploy(&sorry).await?;
    space.deploy(&shop).await?;
    let message = space.until_condition("shop", RESOLVED, Some(("False", "FallbackNotFound"))).await?;
    assert!(message.starts_with("spec.wake.fallback.service: Service \"apology\" does not exist"), "{message}");

    space.patch::<ZeroScaler>("shop", json!({"spec": {"wake": {"fallback": {"service": "sorry"}}}})).await?;
    space.until_condition("shop", RESOLVED, Some(("True", "Resolved"))).await?;
    let load = up.load("shop");
    space
        .until(SOON, "the fallback's answer", async || {
            // A request that arrives before the activator knows the fallback keeps waiting.
            let Ok(answer) = tokio::time::timeout(Duration::from_secs(5), load.get("/")).await else {
                return Ok(false);
            };
            let answer = answer?;
            Ok(answer.headers.get("x-zeroscale-fallback").is_some_and(|name| name == "sorry")
                && &answer.body[..] == b"sorry")
        })
        .await?;
    // The request woke it: an activator finds its pod ready before the kubelet reports that.
    space.until(SOON, "a pod of sorry", async || Ok(space.ready_pods("sorry").await? > 0)).await?;

    space.patch::<ZeroScaler>("sorry", json!({"spec": {"wake": {"fallback": {"service": "shop"}}}})).await?;
    for (name, circle) in [("sorry", "sorry -> shop -> sorry"), ("shop", "shop -> sorry -> shop")] {
        let message = space.until_condition(name, RESOLVED, Some(("False", "FallbackCircle"))).await?;
        assert!(message.starts_with("spec.wake.fallback.service: ") && message.contains(circle), "{message}");
    }
    space.patch::<ZeroScaler>("sorry", json!({"spec": {"wake": {"fallback": null}}})).await?;
    space.until_condition("shop", RESOLVED, Some(("True", "Resolved"))).await?;
    let itself = json!({"spec": {"wake": {"fallback": {"service": "shop"}}}});
    let refused = space.patch::<ZeroScaler>("shop", itself).await.expect_err("refused at once").to_string();
    assert!(refused.contains("wake.fallback.service shop is a Service of this workload"), "{refused}");
    assert!(space.api::<Service>().get_opt("apology").await?.is_none());
    Ok(())
}

/// Goal: pods exist by the schedule, without a request, and end when the schedule does not require them any more.
async fn pods_exist_by_schedule(up: &Up) -> anyhow::Result<()> {
    let space = &up.space;
    let schedules = json!([{"cron": "* * * * *", "duration": "2m", "min": 2}]);
    space.deploy(&Workload::new("clock").set("schedules", schedules)).await?;
    space.until(SOON, "two pods without a request", async || Ok(space.ready_pods("clock").await? == 2)).await?;
    let status = space.scaler("clock").await?.status.unwrap_or_default();
    assert_eq!(status.min, Some(2), "{status:?}");
    space.patch::<ZeroScaler>("clock", json!({"spec": {"schedules": null}})).await?;
    space.until_asleep("clock").await
}

/// Goal: each wake, by one request for a waiting page or by twelve requests at once, is one line in the terminal and
/// one entry in the dashboard, whose phases add up.
#[tokio::test(flavor = "multi_thread")]
async fn each_wake_is_recorded_once() -> anyhow::Result<()> {
    let mut up = Up::start().await?;
    up.space.deploy(&Workload::new("shop").env("HELLO_START_MS", 300).set("wake.page", json!({}))).await?;
    let dashboard = Load::new(up.dashboard.trim_start_matches("http://").parse()?, "localhost");
    let path = format!("/api/v1/workloads/{}/shop", up.space.namespace);
    let wakes = async || {
        let detail: Value = serde_json::from_slice(&dashboard.get(&path).await?.body)?;
        Ok::<_, anyhow::Error>(detail["wakes"].as_array().cloned().unwrap_or_default())
    };
    let load = up.load("shop");
    let page = up.load("shop").with("accept", "text/html").get("/").await?;
    anyhow::ensure!(page.status == 503 && page.headers["x-zeroscale-reason"] == "page", "{page:?}");
    up.space.until(SOON, "the wake of the page", async || Ok(wakes().await?.len() == 1)).await?;
    up.space.until_asleep("shop").await?;
    load.burst(12, "/").await.none_lost()?;
    up.space.until(SOON, "the wake of the twelve", async || Ok(wakes().await?.len() == 2)).await?;
    up.space.until_asleep("shop").await?;
    let all = wakes().await?;
    anyhow::ensure!(all.len() == 2, "{all:?}");
    for wake in &all {
        let phases = wake["phases"].as_array().cloned().unwrap_or_default();
        let sum: f64 = phases.iter().filter_map(|phase| phase["seconds"].as_f64()).sum();
        let seconds = wake["seconds"].as_f64().unwrap_or_default();
        anyhow::ensure!(wake["outcome"] == "answered" && seconds > 0.3 && (sum - seconds).abs() < 0.01, "{wake}");
    }
    // Each is one line of the terminal, between the lines of its scaling.
    let (mut lines, mut asleep) = (0, 0);
    while asleep < 2 {
        let line = up.line().await?;
        lines += usize::from(line.contains("cold start"));
        asleep += usize::from(line.contains("-> 0 "));
    }
    anyhow::ensure!(lines == 2, "{lines} lines of two wakes");
    up.end().await
}
