//! The HorizontalPodAutoscaler controller: the one of this project, in place of Kubernetes' own. Plain
//! HorizontalPodAutoscalers work without any PodAutoscaler.
//!
//! Metrics come from wherever the API server has them: the embedded one serves `metrics.k8s.io` if a node measures.

use hpa::native::{self, Wiring};
use hpa::options::ControllerOptions;
use kube::Client;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Evaluates each HorizontalPodAutoscaler once a `sync_period`, until `shutdown`.
///
/// # Errors
/// None at present; a cluster that cannot be reached is waited for.
pub async fn run(client: Client, sync_period: Duration, shutdown: CancellationToken) -> anyhow::Result<()> {
    let options = ControllerOptions { sync_period, ..ControllerOptions::default() };
    native::run(Wiring::alone(client, options), shutdown).await;
    Ok(())
}
