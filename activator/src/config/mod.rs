//! Configuration from ConfigMaps of the system namespace that may change while the activator runs.
//!
//! A version that breaks a rule is rejected with its key and value, and the former version stays in force.
//!
//! `system-internal-tls` of `config-network` is read only at start, because listeners and connections to pods depend on
//! it. The certificates behind it are live ([`crate::InternalTls`]).
//!
//! | map | key | effect |
//! |---|---|---|
//! | `config-network` | `mesh-compatibility-mode`, `enable-mesh-pod-addressability` | addressing of pods, in knative mode |
//! | `config-logging` | `loglevel.activator`, `zap-logger-config` | log level |
//! | `config-observability` | `logging.enable-request-log`, `logging.request-log-template` | request log |
//! | `config-page` | `html` | page of workloads without their own, in standalone mode |
//!
//! `metrics-*` and `tracing-*` of `config-observability` are read only at start, too ([`common_runtime::observe`],
//! [`common_runtime::telemetry::traces`]).
//!
//! # Better than Knative
//!
//! Knative's activator reads the first two maps only at start.
//!
//! # Not here
//!
//! Request logs of probes (`logging.enable-probe-request-log`): Knative's activator ignores that key too.

pub(crate) mod certificates;
pub(crate) mod clients;
pub(crate) mod options;

use crate::answers::page::Page;
use crate::layers::request_log::Observability;
use certificates::InternalTls;
use common::config::{LogLevel, NETWORK, NetworkConfig, ObservabilityConfig, PAGE};
use common_runtime::config_map::{ConfigMaps, Refusals};
use common_runtime::process::ProcessOptions;
use kube::Client;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Longest wait for permission to read the maps. Without permission the activator serves with defaults.
const ALLOWED_WITHIN: Duration = Duration::from_secs(5);

/// Live configuration.
#[derive(Clone, Debug)]
pub struct Configs {
    /// `config-network`.
    pub network: watch::Receiver<Arc<NetworkConfig>>,
    /// `config-observability`.
    pub observability: watch::Receiver<Arc<Observability>>,
    /// Keys of `config-observability` that activator and autoscaler share.
    pub telemetry: watch::Receiver<Arc<ObservabilityConfig>>,
    /// Page of the cluster.
    pub page: watch::Receiver<Arc<Page>>,
    /// System-internal TLS; `None` if disabled.
    pub tls: Option<InternalTls>,
    /// Maps that break a rule.
    pub refusals: Refusals,
}

impl Configs {
    /// Watches the maps of `namespace` until `shutdown`. Returns once they have been read, or if permission is denied
    /// for a while. If the API server is unreachable, it waits: values that are read only at start would stay at their
    /// defaults. `keeps_deleted`: see [`ConfigMaps::keep_deleted`].
    pub(crate) async fn watch(
        client: Client,
        namespace: &str,
        process: &ProcessOptions,
        keeps_deleted: bool,
        shutdown: CancellationToken,
    ) -> Self {
        let names = &process.config_maps;
        let mut maps = ConfigMaps::default();
        maps.keep_deleted(keeps_deleted);
        let network = maps.subscribe(NETWORK, NetworkConfig::default(), NetworkConfig::from_map);
        let observability = maps.subscribe(&names.observability, Observability::default(), Observability::from_map);
        let telemetry =
            maps.subscribe(&names.observability, ObservabilityConfig::default(), ObservabilityConfig::from_map);
        if let Some(logs) = &process.logs {
            let level = |data: &BTreeMap<String, String>| LogLevel::from_map(data, "activator");
            logs.clone().follow(maps.subscribe(&names.logging, LogLevel::default(), level));
        }
        let page =
            |data: &BTreeMap<String, String>| Ok::<_, Infallible>(Page::new(data.get("html").map(String::as_str)));
        let page = maps.subscribe(PAGE, Page::new(None), page);
        let refusals = maps.refusals();
        if !maps.start_if_allowed(client, namespace, ALLOWED_WITHIN, shutdown).await {
            let remedy =
                "grant list and watch of configmaps there, then restart the activator: it reads some only at start";
            tracing::warn!(namespace, remedy, "the activator may not read ConfigMaps, and uses defaults until it may");
        }
        Self { network, observability, telemetry, page, tls: None, refusals }
    }
}

impl Default for Configs {
    fn default() -> Self {
        Self {
            network: watch::channel(Arc::default()).1,
            observability: watch::channel(Arc::default()).1,
            telemetry: watch::channel(Arc::default()).1,
            page: watch::channel(Arc::new(Page::new(None))).1,
            tls: None,
            refusals: Refusals::default(),
        }
    }
}
