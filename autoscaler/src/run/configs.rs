//! ConfigMaps, read at the start and watched from then on.

use crate::options::Options;
use common::config::{
    self, AutoscalerConfig, ConfigError, DeploymentConfig, LeaderElectionConfig, LogLevel, NetworkConfig,
    ObservabilityConfig, PortsConfig,
};
use common_runtime::config_map::{ConfigMaps, Refusals};
use kube::Client;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) struct Configs {
    pub(super) autoscaler: watch::Receiver<Arc<AutoscalerConfig>>,
    pub(super) deployment: watch::Receiver<Arc<DeploymentConfig>>,
    pub(super) ports: watch::Receiver<Arc<PortsConfig>>,
    /// Read once at the start. If replicas used different leases, a revision could have two owners.
    pub(super) election: watch::Receiver<Arc<Result<LeaderElectionConfig, ConfigError>>>,
    pub(super) network: watch::Receiver<Arc<NetworkConfig>>,
    pub(super) observability: watch::Receiver<Arc<ObservabilityConfig>>,
    /// Maps that break a rule.
    pub(super) refusals: Refusals,
}

impl Configs {
    /// Reads all of them, and follows them until `until`.
    pub(super) async fn read(client: &Client, options: &Options, until: &CancellationToken) -> Self {
        let mut maps = ConfigMaps::default();
        maps.keep_deleted(!options.install.profile().defaults_replace_maps);
        let autoscaler = maps.subscribe(config::AUTOSCALER, AutoscalerConfig::default(), AutoscalerConfig::from_map);
        maps.expect(config::AUTOSCALER, AutoscalerConfig::KEYS);
        let deployment = maps.subscribe(config::DEPLOYMENT, DeploymentConfig::default(), DeploymentConfig::from_map);
        let ports = match options.install.profile().numbers_ports {
            true => maps.subscribe(config::PORTS, PortsConfig::default(), PortsConfig::from_map),
            false => watch::channel(Arc::default()).1,
        };
        let network = maps.subscribe(config::NETWORK, NetworkConfig::default(), NetworkConfig::from_map);
        let names = &options.process.config_maps;
        let observability =
            maps.subscribe(&names.observability, ObservabilityConfig::default(), ObservabilityConfig::from_map);
        let level = |data: &BTreeMap<String, String>| LogLevel::from_map(data, "autoscaler");
        if let Some(logs) = &options.process.logs {
            logs.clone().follow(maps.subscribe(&names.logging, LogLevel::default(), level));
        }
        let profile = options.install.profile();
        let default = profile.election(&BTreeMap::new());
        let parse = |data: &BTreeMap<String, String>| Ok::<_, ConfigError>(profile.election(data));
        let election = maps.subscribe(&names.leader_election, default, parse);
        let refusals = maps.refusals();
        maps.start(client.clone(), &options.system_namespace, until.clone()).await;
        Self { autoscaler, deployment, ports, election, network, observability, refusals }
    }
}
