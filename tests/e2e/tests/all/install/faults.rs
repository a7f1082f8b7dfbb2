//! Log messages for an operator when an installation lacks something: one message with the fault and its remedy. No
//! restart is needed after the fix.

use crate::install::site::{ACTIVATOR, AUTOSCALER, HPA, Plane, Running, SYSTEM, Site, free_address, run};
use anyhow::{Context, ensure};
use common_api::ZeroScaler;
use e2e::bare;
use e2e::relay::Relay;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Parts of log messages: about a fault, its end, and the affected thing.
const FAILING: &str = "keeps failing";
const RECOVERED: &str = "succeeds again";
const CONNECTION: &str = "the connection to the API server";
/// A fault is reported at the next attempt after it has lasted for 5 s; watches retry at least every 10 s.
const REPORTED_WITHIN: Duration = Duration::from_secs(90);

async fn until(what: &str, mut state: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + REPORTED_WITHIN;
    while !state().await? {
        ensure!(Instant::now() < deadline, "waited {REPORTED_WITHIN:?} in vain for {what}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn wait_for_line(plane: &Running, parts: &[&str]) -> anyhow::Result<()> {
    let what = format!("{} to log {parts:?}", plane.plane.binary);
    let found = until(&what, async || Ok(!plane.log.with(parts).is_empty())).await;
    found.map_err(|error| anyhow::anyhow!("{error}; its log is {:#?}", plane.log.with(&[])))
}

async fn until_works(plane: &Running, site: &Site) -> anyhow::Result<()> {
    let worked = until("the plane to work", async || plane.works(site).await).await;
    worked.with_context(|| format!("{}: {:#?}", plane.plane.binary, plane.log.with(&[])))
}

/// Checks that a fault was reported `times` times, and that nothing else was.
fn reported_times(plane: &Running, thing: &str, times: usize) -> anyhow::Result<()> {
    let lines = plane.log.with(&[FAILING, thing]);
    ensure!(lines.len() == times, "{}: reported {} times: {lines:#?}", plane.plane.binary, lines.len());
    let surplus = plane.surplus(&[thing]);
    ensure!(surplus.is_empty(), "{} logs more: {surplus:#?}", plane.plane.binary);
    Ok(())
}

/// Goal: a missing permission is reported with account, verb and resource, and the plane continues when it is granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_reported_once_with_its_remedy() -> anyhow::Result<()> {
    let site = Site::install().await?;
    let roles: Api<ClusterRole> = Api::all(site.client.clone());
    let rows: [(Plane, &str, &str, &str); 3] = [
        (ACTIVATOR, "zeroscale-activator", "services", "list services"),
        (AUTOSCALER, "zeroscale-autoscaler", "zeroscalers", "list zeroscalers.zeroscale.dev"),
        (HPA, "zeroscale-autoscaler-hpa", "horizontalpodautoscalers", "list horizontalpodautoscalers.autoscaling"),
    ];
    let mut planes = Vec::new();
    for (plane, role, resource, thing) in rows {
        let whole = roles.get(role).await?;
        let mut lacking = whole.clone();
        for rule in lacking.rules.iter_mut().flatten() {
            rule.resources.iter_mut().flatten().filter(|named| *named == resource).for_each(|named| named.push('x'));
        }
        roles.replace(role, &PostParams::default(), &lacking).await?;
        planes.push((site.start(plane, site.address()?, false).await?, whole, thing));
    }
    for (plane, whole, thing) in &planes {
        let account = format!("system:serviceaccount:{SYSTEM}:{}", plane.plane.binary);
        let reported = format!("\"operation\":\"{thing}\"");
        wait_for_line(plane, &[FAILING, &reported, &account, "deploy/kubernetes/base/roles.yaml"]).await?;
        ensure!(!plane.works(&site).await? || plane.plane.binary == "activator", "{thing}: works without it");
        let mut restored = whole.clone();
        restored.metadata.resource_version = None;
        restored.metadata.managed_fields = None;
        roles.replace(&whole.name_any(), &PostParams::default(), &restored).await?;
    }
    for (plane, _, thing) in &planes {
        wait_for_line(plane, &[RECOVERED, thing]).await?;
        until_works(plane, &site).await?;
        reported_times(plane, thing, 1)?;
    }
    Ok(())
}

/// Goal: without the custom resources the autoscaler reports which kustomization contains them, once for each, and
/// continues when they exist.
#[tokio::test(flavor = "multi_thread")]
async fn missing_definitions_are_reported_once_with_their_remedy() -> anyhow::Result<()> {
    let site = Site::install().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(site.client.clone());
    let names: Vec<String> = common_api::crds().iter().map(ResourceExt::name_any).collect();
    for name in &names {
        definitions.delete(name, &DeleteParams::default()).await?;
    }
    let anything: Api<ZeroScaler> = Api::all(site.client.clone());
    until("the resources to go", async || Ok(anything.list(&Default::default()).await.is_err())).await?;
    let autoscaler = site.start(AUTOSCALER, site.address()?, false).await?;
    for name in &names {
        wait_for_line(&autoscaler, &[FAILING, name, "kubectl apply --server-side -k deploy/kubernetes/crds"]).await?;
    }
    bare::define_resources(&site.client).await?;
    for name in &names {
        wait_for_line(&autoscaler, &[RECOVERED, name]).await?;
        ensure!(autoscaler.log.with(&[FAILING, name]).len() == 1, "{name}");
    }
    until_works(&autoscaler, &site).await?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    ensure!(autoscaler.surplus(&names).is_empty(), "{:#?}", autoscaler.surplus(&names));
    Ok(())
}

/// Starts these planes during an outage of the API server `at`, and ends the outage by `repair`. Each plane must report
/// the fault once, with these parts, and continue by itself.
async fn recover_from_outage(
    site: &Site,
    planes: &[Plane],
    (at, trusts, parts): (SocketAddr, bool, &[&str]),
    repair: impl AsyncFnOnce() -> anyhow::Result<Relay>,
) -> anyhow::Result<(Vec<Running>, Relay)> {
    let mut running = Vec::new();
    for plane in planes {
        running.push(site.start(*plane, at, trusts).await?);
    }
    for plane in &running {
        wait_for_line(plane, &[&[FAILING, CONNECTION, "remedy"], parts].concat()).await?;
    }
    let relay = repair().await?;
    for plane in &running {
        wait_for_line(plane, &[RECOVERED, CONNECTION]).await?;
        until_works(plane, site).await?;
        reported_times(plane, CONNECTION, 1)?;
    }
    Ok((running, relay))
}

/// Goal: each plane reports once that no API server listens, and once more when the connection is lost later.
#[tokio::test(flavor = "multi_thread")]
async fn planes_wait_for_an_api_server_that_refuses_connections() -> anyhow::Result<()> {
    let site = Site::install().await?;
    // No other test uses the port, because the address is ours alone.
    let at = SocketAddr::new(free_address()?, 6443);
    let outage: (_, _, &[&str]) = (at, true, &["no process listens at"]);
    let (planes, relay) = recover_from_outage(&site, &[ACTIVATOR, AUTOSCALER, HPA], outage, async || {
        let relay = Relay::bind(at, false).await?;
        relay.join(site.address()?);
        Ok(relay)
    })
    .await?;
    relay.cut();
    for plane in &planes {
        let what = format!("{} to report it again", plane.plane.binary);
        until(&what, async || Ok(plane.log.with(&[FAILING, CONNECTION]).len() == 2)).await?;
    }
    relay.join(site.address()?);
    for plane in &planes {
        until("the second end", async || Ok(plane.log.with(&[RECOVERED, CONNECTION]).len() == 2)).await?;
        reported_times(plane, CONNECTION, 2)?;
    }
    Ok(())
}

/// Goal: other causes are recognized: an API server that hangs, and another server's certificate or accounts.
/// Method: one plane for each, since all planes connect in the same way.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_and_wrong_api_servers_are_recognized() -> anyhow::Result<()> {
    let (site, other) = (Site::install().await?, Site::install().await?);
    let hangs = Relay::bind(SocketAddr::new(free_address()?, 6443), true).await?;
    let outage: (_, _, &[&str]) = (hangs.address, true, &["no response within"]);
    recover_from_outage(&site, &[ACTIVATOR], outage, async || {
        hangs.join(site.address()?);
        Ok(hangs)
    })
    .await?;
    for (plane, trusts, part) in [(AUTOSCALER, false, "certificate-authority-data"), (HPA, true, "401 Unauthorized")] {
        // The right server's certificate is for 127.0.0.1.
        let relay = Relay::start().await?;
        relay.join(other.address()?);
        let outage: (_, _, &[&str]) = (relay.address, trusts, &[part]);
        recover_from_outage(&site, &[plane], outage, async || {
            relay.cut();
            relay.join(site.address()?);
            Ok(relay)
        })
        .await?;
    }
    Ok(())
}

/// Goal: an invalid value and an unknown key are reported once each, and take effect as soon as they are fixed.
#[tokio::test(flavor = "multi_thread")]
async fn configuration_errors_are_reported_once() -> anyhow::Result<()> {
    let site = Site::install().await?;
    let maps: Api<ConfigMap> = Api::namespaced(site.client.clone(), SYSTEM);
    let write = async |data: serde_json::Value| {
        maps.patch("config-autoscaler", &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await
    };
    write(json!({"stable-window": "5parsecs", "max-scale-up-rat": "10"})).await?;
    let autoscaler = site.start(AUTOSCALER, site.address()?, false).await?;
    wait_for_line(&autoscaler, &["ERROR", "config-autoscaler", "stable-window = 5parsecs", "remedy"]).await?;
    wait_for_line(&autoscaler, &["WARN", "config-autoscaler", "max-scale-up-rat", "write max-scale-up-rate"]).await?;
    // Another version with the same faults is not reported again.
    write(json!({"min-scale": "0"})).await?;
    write(json!({"stable-window": "6s", "max-scale-up-rat": null})).await?;
    wait_for_line(&autoscaler, &["config-autoscaler", "valid again"]).await?;
    until_works(&autoscaler, &site).await?;
    for part in ["5parsecs", "max-scale-up-rat\\\"", "\"key\":\"max-scale-up-rat\""] {
        ensure!(autoscaler.log.with(&[part]).len() <= 1, "{:#?}", autoscaler.log.with(&[part]));
    }
    ensure!(autoscaler.surplus(&["config-autoscaler"]).is_empty());
    Ok(())
}

/// Goal: a process without a usable kubeconfig ends with an error that names the file and the expected content.
#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_kubeconfig_ends_the_process() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> anyhow::Result<String> {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let missing = folder.path().join("missing").display().to_string();
    let (nonsense, empty) = (file("nonsense", "what: [is this")?, file("empty", "")?);
    let rows = [
        (Some(&missing), "must be the path of a kubeconfig"),
        (Some(&nonsense), "must be the path of a kubeconfig"),
        (Some(&empty), "must be the path of a kubeconfig"),
        (None, "automountServiceAccountToken"),
    ];
    for plane in [ACTIVATOR, AUTOSCALER, HPA] {
        // All planes read a kubeconfig in the same way.
        let rows = if plane.binary == ACTIVATOR.binary { &rows[..] } else { &rows[2..] };
        for (kubeconfig, remedy) in rows.iter().copied() {
            let mut env = vec![("HOME", folder.path().display().to_string())];
            env.extend(kubeconfig.map(|path| ("KUBECONFIG", path.clone())));
            let (process, log) = run(plane, free_address()?, &env)?;
            let code = process.ended().await?.code();
            ensure!(code == Some(1), "{plane:?} {kubeconfig:?}: {code:?}");
            until("its last line", async || Ok(!log.with(&[remedy]).is_empty())).await?;
            let lines = log.with(&[remedy]);
            ensure!(lines.len() == 1, "{plane:?} {kubeconfig:?}: {:#?}", log.with(&[]));
            ensure!(kubeconfig.is_none_or(|path| lines[0].contains(path)), "{lines:#?}");
        }
    }
    Ok(())
}
