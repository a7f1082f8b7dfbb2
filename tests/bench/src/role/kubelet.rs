//! A node that reports every pod as running, but runs none: a kubelet from the perspective of a control plane.
//!
//! It binds each pod and reports it as ready at once, with its own address, at which no program listens. It removes
//! deleted pods at once. On the embedded API server, which runs no controllers, this process also runs ours.

use super::announce::print;
use super::queue_proxies::address;
use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

const NODE: &str = "bench";

/// Maximum number of pods that are written concurrently.
const WRITING: usize = 32;

/// Last state that the node has reported for a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Started,
    Ended,
}

pub(super) async fn run(kubeconfig: &Path, first: Ipv4Addr, controllers: bool) -> anyhow::Result<()> {
    let client = e2e::space::client(kubeconfig).await?;
    if controllers {
        tokio::spawn(local::controllers::run(client.clone(), CancellationToken::new()));
    }
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &node).await?;
    let mut events = watch(Api::<Pod>::all(client.clone()), Config::default());
    let (mut stages, mut count) = (HashMap::new(), 0);
    let writing = Arc::new(Semaphore::new(WRITING));
    print("ready")?;
    while let Some(event) = events.next().await {
        let pod = match event {
            Event::Apply(pod) | Event::InitApply(pod) => pod,
            Event::Delete(pod) => {
                stages.remove(&pod.uid());
                continue;
            }
            Event::Init | Event::InitDone => continue,
        };
        let stage = if pod.metadata.deletion_timestamp.is_some() { Stage::Ended } else { Stage::Started };
        if stages.insert(pod.uid(), stage) == Some(stage) {
            continue;
        }
        let at = address(first, count);
        count += u32::from(stage == Stage::Started);
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let writing = writing.clone();
        tokio::spawn(async move {
            let Ok(_permit) = writing.acquire().await else { return };
            let done = match stage {
                Stage::Started => start(&pods, &pod, at).await,
                Stage::Ended => end(&pods, &pod).await,
            };
            match done {
                // The pod has been deleted or replaced in the meantime.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => eprintln!("pod {}: {error}", pod.name_any()),
                Ok(()) => {}
            }
        });
    }
    Ok(())
}

async fn start(pods: &Api<Pod>, pod: &Pod, address: Ipv4Addr) -> kube::Result<()> {
    let name = pod.name_any();
    if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
        let mut binding = Binding::default();
        binding.metadata.name = Some(name.clone());
        (binding.target.kind, binding.target.name) = (Some("Node".to_owned()), Some(NODE.to_owned()));
        let _: serde_json::Value = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
    }
    let since = pod.metadata.creation_timestamp.clone();
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": since}));
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        json!({
            "name": container.name, "image": container.image, "imageID": "bench", "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": since}},
        })
    });
    let containers: Vec<_> = containers.collect();
    let status = json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": since,
        "conditions": conditions, "containerStatuses": containers,
    }});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

async fn end(pods: &Api<Pod>, pod: &Pod) -> kube::Result<()> {
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete(&pod.name_any(), &now).await?;
    Ok(())
}
