//! Disruptions of a cluster: pods are killed, workloads and configuration are edited, workloads roll out.

use crate::space::Space;
use common_api::ZeroScaler;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use local::up::system;
use serde_json::json;
use std::time::Duration;

/// Time between two disruptions.
pub(super) const PAUSE: Duration = Duration::from_secs(7);

/// Interval of disruptions at which a workload rolls out.
const ROLL_EVERY: u64 = 12;

/// Causes disruption number `n` at one of `workloads`.
pub(super) async fn make(space: &Space, workloads: &[&str], n: u64) -> anyhow::Result<()> {
    let workload = |n: u64| workloads[usize::try_from(n).unwrap_or_default() % workloads.len()];
    let (turn, name) = (n / 4, workload(n / 4));
    if n % ROLL_EVERY == ROLL_EVERY - 1 {
        let template = json!({"spec": {"template": {"metadata": {"annotations": {"soak": n.to_string()}}}}});
        return space.patch::<Deployment>(workload(n / ROLL_EVERY), template).await.map(drop);
    }
    match n % 4 {
        0 => kill(space, name, DeleteParams::default().grace_period(0)).await,
        1 => {
            let utilization = json!({"spec": {"scale": {"load": {"utilization": 70 + turn % 2}}}});
            space.patch::<ZeroScaler>(name, utilization).await.map(drop)
        }
        2 => kill(space, name, DeleteParams::default()).await,
        _ => {
            let maps: Api<ConfigMap> = Api::namespaced(space.client.clone(), system::NAMESPACE);
            let data = json!({"data": {"max-scale-up-rate": (900 + turn % 2).to_string()}});
            maps.patch("config-autoscaler", &PatchParams::default(), &Patch::Merge(data)).await?;
            Ok(())
        }
    }
}

/// Kills a pod of the workload `name`, if it has one.
async fn kill(space: &Space, name: &str, how: DeleteParams) -> anyhow::Result<()> {
    let pods = space.pods(name).await?;
    let Some(pod) = pods.iter().find(|pod| pod.metadata.deletion_timestamp.is_none()) else { return Ok(()) };
    match space.api::<Pod>().delete(&pod.name_any(), &how).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()), // It ended by itself.
        other => other.map(|_| ()).map_err(Into::into),
    }
}
