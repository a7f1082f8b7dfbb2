//! The ports reveal nothing about the cluster to clients that can reach them.

use anyhow::{Context, ensure};
use e2e::load::raw_exchange;
use e2e::{Load, TestEnv, Workload};
use local::up::PlaneId;
use std::net::SocketAddr;

/// Goal: our own responses name nothing of the cluster, neither software nor version. Method: every error that a
/// client without rights can cause at a public port, read byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn our_responses_reveal_nothing_about_the_cluster() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.deploy(&Workload::new("crash").env("HELLO_START_MS", 60_000).env("HELLO_EXIT_AFTER_MS", 1)).await?;
    env.deploy(&Workload::new("never").env("HELLO_NEVER_READY", 1).set("wake.timeout", "2s")).await?;
    let (activator, autoscaler) =
        (env.cluster.address(PlaneId::Activator(0)), env.cluster.address(PlaneId::Autoscaler(0)));
    let h2c = SocketAddr::new(activator.ip(), 8013);
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}");
    let (crash, never) = (format!("crash.{}", env.namespace), format!("never.{}", env.namespace));
    let upgrade = "\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let rows = [
        (activator, get("nobody.example.com"), "404"),
        (h2c, get("nobody.example.com"), "404"),
        // The name of a workload whose namespace the caller did not give.
        (activator, get("crash"), "404"),
        (activator, get("activator-service.zeroscale-system.svc.cluster.local"), "404"),
        (activator, get("a") + "\r\nHost: b", "400"),
        (activator, "CONNECT a:1 HTTP/1.1\r\nHost: a:1".to_owned(), "400"),
        (activator, get(&crash), "503"),
        (activator, get(&never), "504"),
        (autoscaler, get("a") + "\r\nUser-Agent: curl", "400"),
        (autoscaler, get("a") + upgrade, "401"),
    ];
    let words = ["zeroscale-system", "cluster.local", env!("CARGO_PKG_VERSION"), "hyper", "Server:"];
    let mut secrets = vec![env.namespace.clone(), activator.ip().to_string(), autoscaler.ip().to_string()];
    secrets.extend(words.map(str::to_owned));
    let mut answers = Vec::new();
    for (at, request, status) in &rows {
        let sent = format!("{request}\r\nConnection: close\r\n\r\n");
        let answer = raw_exchange(*at, &sent).await.with_context(|| request.clone())?;
        ensure!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        answers.push((request, answer));
    }
    for name in ["crash", "never"] {
        for pod in env.pods(name).await? {
            secrets.extend(pod.metadata.name);
            secrets.extend(pod.status.and_then(|status| status.pod_ip));
        }
    }
    ensure!(secrets.len() > 8, "no pods were created");
    for (request, answer) in answers {
        for secret in &secrets {
            // Bytes that the client itself has sent are not secret.
            let is_revealed =
                answer.to_lowercase().contains(&secret.to_lowercase()) && !request.contains(secret.as_str());
            ensure!(!is_revealed, "{request:?} reveals {secret:?}: {answer}");
        }
    }
    // Paths that do not exist.
    let admin = env.cluster.admin(PlaneId::Activator(0));
    for path in ["/", "/debug/pprof/", "/nothing"] {
        let answer = Load::new(admin, "admin").get(path).await?;
        ensure!(answer.status == 404 && !answer.headers.contains_key("server"), "{path}: {}", answer.status);
    }
    env.end().await
}
