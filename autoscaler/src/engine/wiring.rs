//! What the reconcilers need of the process.

use crate::scale::{OnScale, Ports};
use common::config::{AutoscalerConfig, DeploymentConfig, PortsConfig};
use common_controller::WriteLimiter;
use common_runtime::clock::Clock;
use common_runtime::credential::TokenFile;
use common_runtime::resolve::Resolve;
use kube::Client;
use std::sync::Arc;
use tokio::sync::watch;

/// What the reconcilers are made of.
pub(crate) struct Wiring {
    /// Where the activators live.
    pub(crate) system_namespace: String,
    /// Shown to activators that are asked for all their ports.
    pub(crate) port_token: Option<TokenFile>,
    /// The cluster's DNS domain.
    pub(crate) cluster_domain: String,
    /// How fast the API server is written to.
    pub(crate) limiter: WriteLimiter,
    /// Told of every replicas patch that was answered.
    pub(crate) on_scale: Option<OnScale>,
    /// The API server.
    pub(crate) client: Client,
    /// From names to addresses.
    pub(crate) resolver: Arc<dyn Resolve>,
    /// Decisions, measurements, pods, leadership, and the feed.
    pub(crate) ports: Ports,
    /// Wall-clock time.
    pub(crate) clock: Clock,
    /// `config-autoscaler`, live.
    pub(crate) autoscaler_config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// `config-deployment`, live.
    pub(crate) deployment_config: watch::Receiver<Arc<DeploymentConfig>>,
    /// `config-ports`, live; the default beside Knative, where nothing has a port of its own.
    pub(crate) ports_config: watch::Receiver<Arc<PortsConfig>>,
}
