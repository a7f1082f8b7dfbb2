//! Runs this project's controller of HorizontalPodAutoscalers instead of Kubernetes' own. It serves all of them, also
//! those without a PodAutoscaler.
//!
//! Metrics come from the API server: the embedded one serves `metrics.k8s.io` if a node measures.

use hpa::native::{self, Wiring};
use hpa::options::ControllerOptions;
use kube::Client;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Evaluates each HorizontalPodAutoscaler once per `sync_period`, until `shutdown`. Waits for an unreachable cluster.
pub async fn run(client: Client, sync_period: Duration, shutdown: CancellationToken) {
    let options = ControllerOptions { sync_period, ..ControllerOptions::default() };
    native::run(Wiring::alone(client, options), shutdown).await;
}
