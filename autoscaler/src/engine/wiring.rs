//! Dependencies of the reconcilers on the process.

use crate::scale::{OnScale, Ports};
use common::config::{AutoscalerConfig, DeploymentConfig, PortsConfig};
use common_controller::WriteLimiter;
use common_runtime::clock::Clock;
use common_runtime::resolve::Resolve;
use kube::Client;
use std::sync::Arc;
use tokio::sync::watch;

/// Dependencies from which the reconcilers are built.
pub(crate) struct Wiring {
    /// Namespace of the activators.
    pub(crate) system_namespace: String,
    /// The cluster's DNS domain.
    pub(crate) cluster_domain: String,
    /// Limit of writes to the API server.
    pub(crate) limiter: WriteLimiter,
    /// Callback for every replicas patch that was accepted.
    pub(crate) on_scale: Option<OnScale>,
    /// The API server.
    pub(crate) client: Client,
    /// Resolver of host names.
    pub(crate) resolver: Arc<dyn Resolve>,
    /// Decisions, measurements, pods, leadership, and the request queue.
    pub(crate) ports: Ports,
    /// Wall-clock time.
    pub(crate) clock: Clock,
    /// `config-autoscaler`, live.
    pub(crate) autoscaler_config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// `config-deployment`, live.
    pub(crate) deployment_config: watch::Receiver<Arc<DeploymentConfig>>,
    /// `config-ports`, live; the default in a Knative install, where workloads have no ports of their own.
    pub(crate) ports_config: watch::Receiver<Arc<PortsConfig>>,
}
