//! Authentication of stats over sockets: a local cluster requires tokens as the manifests do.

use crate::install::site::SYSTEM;
use crate::install::upgrade::{is_late, nothing_is_dropped};
use anyhow::{Context, ensure};
use autoscaler::ingest::forwarded::FORWARDED;
use common::bound_ports::QUESTION;
use common::stat::Stat;
use common_runtime::credential::TokenFile;
use common_runtime::resolve::Dns;
use common_runtime::websocket::{Config, DurableSender};
use e2e::load::{metrics, raw_exchange};
use e2e::space::SOON;
use e2e::{Load, TestEnv, Workload, accounts, bare};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use local::up::{PlaneId, UpOptions};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

const STATS: &str = "zeroscale.dev/stats";

/// Returns the sum of a counter over these autoscalers, of the lines that contain `label`.
pub(crate) async fn total_of(env: &TestEnv, autoscalers: &[usize], name: &str, label: &str) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for n in autoscalers {
        let admin = env.cluster.admin(PlaneId::Autoscaler(*n));
        let page = metrics(admin).await?;
        for line in page.lines().filter(|line| line.starts_with(name) && line.contains(label)) {
            sum += line.rsplit(' ').next().unwrap_or_default().parse::<f64>().with_context(|| line.to_owned())?;
        }
    }
    Ok(sum)
}

/// Requests a token of the account, for the audience, bound to the pod.
async fn token(env: &TestEnv, account: &str, audience: Option<&str>, pod: Option<&str>) -> anyhow::Result<String> {
    accounts::token(&env.client, (SYSTEM, account), audience.as_slice(), pod).await
}

/// Returns the status of the response to a handshake.
async fn handshake(at: SocketAddr, token: Option<&str>, forwards: bool) -> anyhow::Result<u16> {
    let mut stream = TcpStream::connect(at).await?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let mark = if forwards { format!("{FORWARDED}: 1\r\n") } else { String::new() };
    let head = format!(
        "GET / HTTP/1.1\r\nHost: autoscaler\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{token}{mark}\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(std::str::from_utf8(&status[9..])?.parse()?)
}

/// Queries the ports of the activator at `at`; returns status and body.
async fn ports_of(at: SocketAddr, question: &str, token: Option<&str>) -> anyhow::Result<(u16, String)> {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\n{QUESTION}: {question}\r\n{token}Connection: close\r\n\r\n");
    let answer = raw_exchange(at, &head).await?;
    Ok((answer.get(9..12).context("a status")?.parse()?, answer))
}

/// Checks that all ports of an activator, and with them the uids of all namespaces, are shown to planes only.
async fn only_planes_may_list_all_ports(env: &TestEnv) -> anyhow::Result<()> {
    let at = env.cluster.address(PlaneId::Activator(0));
    let own = Some("activator-0");
    let (_, all) = ports_of(at, "all", Some(&token(env, "autoscaler", Some(STATS), None).await?)).await?;
    let number = all.split("\"number\":").nth(1).and_then(|rest| rest.split(',').next()).context(all.clone())?;
    let rows = [
        ("all", None, 401),
        ("all", Some("nonsense".to_owned()), 401),
        ("all", Some(token(env, "activator", Some("vault"), own).await?), 401),
        ("all", Some(token(env, "autoscaler", Some(STATS), None).await?), 200),
        ("all", Some(token(env, "activator", Some(STATS), own).await?), 200),
        (number, None, 200),
        ("none", None, 400),
    ];
    for (question, token, expected) in rows {
        let (status, answer) = ports_of(at, question, token.as_deref()).await?;
        ensure!(status == expected, "{question}: {status} instead of {expected}: {answer}");
        ensure!(answer.contains("\"uid\":") == (status == 200), "{question}: {answer}");
    }
    Ok(())
}

/// Goal: with two replicas of each plane and tokens, stats reach their owners and none is dropped. A client that cannot
/// prove that it is a plane gets no connection, and a plane can report only for itself.
#[tokio::test(flavor = "multi_thread")]
async fn stats_are_accepted_only_from_authenticated_planes() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions { activators: 2, autoscalers: 2, ..UpOptions::default() }).await?;
    let names = ["a", "b", "c", "d"];
    for name in names {
        env.deploy(&Workload::new(name)).await?;
    }
    for n in [0, 1] {
        for name in names {
            let entry = env.cluster.address(PlaneId::Activator(n));
            let load = Load::new(entry, format!("{name}.{}", env.namespace));
            ensure!(load.get("/").await?.status == 200, "{name} by activator {n}");
        }
    }
    // Scaling to zero needs the stats of both activators, without load, at the autoscaler that decides.
    for name in names {
        env.until_asleep(name).await?;
    }
    nothing_is_dropped(&env, &[0, 1]).await?;
    ensure!(total_of(&env, &[0, 1], "zeroscale_stats_recorded_total", "").await? > 0.0);
    ensure!(total_of(&env, &[0, 1], "zeroscale_stats_forwarded_total", "").await? > 0.0);

    unauthenticated_clients_are_rejected(&env).await?;
    only_planes_may_list_all_ports(&env).await?;
    frames_about_other_pods_are_dropped(&env).await?;
    env.end().await
}

async fn unauthenticated_clients_are_rejected(env: &TestEnv) -> anyhow::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(env.client.clone(), SYSTEM);
    let stranger = &format!("stranger-{}", env.namespace);
    let object = serde_json::from_value(json!({"metadata": {"name": stranger}}))?;
    accounts.create(&PostParams::default(), &object).await?;
    let pods: Api<Pod> = Api::namespaced(env.client.clone(), SYSTEM);
    let gone = &format!("gone-{}", env.namespace);
    let object: Value = json!({"metadata": {"name": gone}, "spec": {
        "serviceAccountName": "activator", "schedulerName": "none", "containers": [{"name": "a", "image": "a"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let of_gone = token(env, "activator", Some(STATS), Some(gone)).await?;
    pods.delete(gone, &DeleteParams::default().grace_period(0)).await?;

    let own = Some("activator-0");
    let rows = [
        ("no token", None, false, 401),
        ("invalid", Some("nonsense".to_owned()), false, 401),
        ("for the API server", Some(token(env, "activator", None, own).await?), false, 401),
        ("for another audience", Some(token(env, "activator", Some("vault"), own).await?), false, 401),
        ("of a deleted pod", Some(of_gone), false, 401),
        ("of another account", Some(token(env, stranger, Some(STATS), None).await?), false, 403),
        ("bound to no pod", Some(token(env, "activator", Some(STATS), None).await?), false, 403),
        ("an activator that forwards", Some(token(env, "activator", Some(STATS), own).await?), true, 403),
        ("an autoscaler that forwards", Some(token(env, "autoscaler", Some(STATS), None).await?), true, 101),
        ("an activator", Some(token(env, "activator", Some(STATS), own).await?), false, 101),
    ];
    let at = env.cluster.address(PlaneId::Autoscaler(0));
    for (what, token, forwards, expected) in &rows {
        let status = handshake(at, token.as_deref(), *forwards).await?;
        ensure!(status == *expected, "{what}: {status} instead of {expected}");
    }
    let refused = rows.iter().filter(|(_, _, _, expected)| *expected != 101).count();
    accounts.delete(stranger, &DeleteParams::default()).await?;
    let counted = total_of(env, &[0, 1], "zeroscale_stat_refusals_total", "").await?;
    let expected = f64::from(u32::try_from(refused)?);
    ensure!(counted == expected || counted > expected && is_late(env), "{counted} refusals instead of {expected}");
    Ok(())
}

async fn frames_about_other_pods_are_dropped(env: &TestEnv) -> anyhow::Result<()> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(token(env, "activator", Some(STATS), Some("activator-0")).await?.as_bytes())?;
    let url = format!("ws://{}", env.cluster.address(PlaneId::Autoscaler(0)));
    let config = Config { token: Some(TokenFile::new(file.path())), ..Config::default() };
    let stop = CancellationToken::new();
    let link = DurableSender::start(vec![url], Arc::new(Dns), config, stop.clone())?;
    link.connected().wait_for(|connected| *connected).await?;
    let stat = |pod: &str| Stat { pod_name: pod.into(), average_concurrent_requests: 1.0, ..Stat::default() };
    for pod in ["activator-1", "activator-0"] {
        link.send(bare::frame(&env.namespace, "a", Some(stat(pod)))).await?;
    }
    link.send(bare::frame(SYSTEM, "activator-1", None)).await?; // An attestation for another pod.
    let are_dropped = async || Ok(total_of(env, &[0, 1], "zeroscale_stats_dropped_total", "Impostor").await? == 2.0);
    env.until(SOON, "two dropped frames about another pod", are_dropped).await?;
    env.until(SOON, "the third, which wakes the workload", async || Ok(env.replicas("a").await? == 1)).await?;
    stop.cancel();
    Ok(())
}
