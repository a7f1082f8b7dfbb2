//! A tool that restores a workload's replicas from its manifest, while the autoscaler wakes it.

use e2e::{Entry, TestEnv, Workload};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use local::up::UpOptions;
use serde_json::json;
use std::time::Duration;

/// Field manager of the tool.
const TOOL: &str = "argocd-controller";

/// Applies `replicas: 0` whenever the target has had another number for the time `after`.
async fn self_heal(deployments: Api<Deployment>, name: &str, after: Duration) -> anyhow::Result<()> {
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = watcher(deployments.clone(), only).applied_objects().boxed();
    while let Some(found) = changes.try_next().await? {
        if found.spec.and_then(|spec| spec.replicas) != Some(0) {
            tokio::time::sleep(after).await;
            let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {"replicas": 0}});
            deployments.patch(name, &PatchParams::apply(TOOL).force(), &Patch::Apply(manifest)).await?;
        }
    }
    Ok(())
}

/// Goal: requests get a response although a tool removes the pods sooner or later after each write, if a pod starts in
/// time; the condition and the event name the tool. Method: the requests start at zero and continue until the condition
/// exists; three more follow.
#[tokio::test(flavor = "multi_thread")]
async fn requests_succeed_although_a_tool_restores_zero_replicas() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    for (name, after) in [("often", 200), ("each-second", 1000), ("seldom", 5000)] {
        let workload = Workload::new(name).set("wake.timeout", "60s");
        env.deploy(&workload).await?;
        let load = env.load(Entry::Activator, name);
        let requests = async {
            loop {
                load.get_ok("/").await?;
                if let Some((.., message)) = env.condition(name, "ScaledBy").await? {
                    anyhow::ensure!(message.contains(TOOL) && message.contains("gitops.md"), "{message}");
                    break;
                }
            }
            // Later requests meet a conflict that already exists.
            for _ in 0..3 {
                let answer = load.get("/").await?;
                anyhow::ensure!(answer.status == 200 && answer.took < Duration::from_secs(5), "{name}: {answer:?}");
            }
            Ok(())
        };
        tokio::select! {
            done = requests => done?,
            ended = self_heal(env.api(), name, Duration::from_millis(after)) => anyhow::bail!("the tool: {ended:?}"),
        }
    }
    env.end().await
}
