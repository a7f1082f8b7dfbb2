//! What depends on how the autoscaler is installed, as one trait with two implementations: [`crate::knative`] and
//! [`crate::standalone`]. [`crate::front_end`] chooses between them.

use crate::pods::PodScope;
use crate::reconcile::{Reconcilers, Wiring};
use common::config::{ConfigError, LeaderElectionConfig};
use common::write_rate::Rate;
use common_controller::shares::Shares;
use common_runtime::config_map::{Refusals, RefusedMap};
use futures::future::BoxFuture;
use kube::Client;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use tokio_util::sync::CancellationToken;

/// What a front end decides for the whole process.
pub(crate) trait Decisions: fmt::Debug + Send + Sync + 'static {
    /// Kind of the objects that ask for a scale.
    fn kind(&self) -> &'static str;

    /// How fast the API server may be written to, unless the settings say otherwise.
    fn api_rate(&self) -> Rate;

    /// The ServiceAccount of the autoscalers, which may forward anybody's stats.
    fn account(&self) -> &'static str;

    /// Whether the process may start although ConfigMaps break a rule, by their defaults.
    ///
    /// # Errors
    /// It may not, because of this one.
    fn judge(&self, refusals: &Refusals) -> Result<(), RefusedMap>;

    /// `config-leader-election`, over this front end's defaults.
    ///
    /// # Errors
    /// The map breaks a rule.
    fn election(&self, map: &BTreeMap<String, String>) -> Result<LeaderElectionConfig, ConfigError>;

    /// Whether replicas with more leases than others give some away.
    fn balances_leases(&self) -> bool;

    /// Whether an activator that has never attested may be upstream's, whose silence means no load.
    fn has_upstream_activators(&self) -> bool;

    /// Whether our own rules hold where they differ from upstream's: an edited scale-down delay takes effect on a revision
    /// that lives, requests in flight ask for a pod where the load is requests a second, and a ConfigMap that is deleted means
    /// defaults.
    fn has_own_rules(&self) -> bool;

    /// Whether workloads have port numbers of their own, within the range of `config-ports`.
    fn numbers_ports(&self) -> bool {
        false
    }

    /// Whether there are spans from a stat to a patch.
    fn traces(&self) -> bool {
        false
    }

    /// Whether there are objects to be shown on a page.
    fn shows_objects(&self) -> bool {
        false
    }

    /// Which pods are watched.
    fn pods(&self) -> PodScope;

    /// The domain of the Services that lead to the owners of buckets, where buckets have some.
    fn bucket_domain(&self, namespace: &str, cluster_domain: &str) -> Option<String>;

    /// Keeps the Services of the buckets that this process holds, until `shutdown`.
    fn keep_bucket_services(&self, buckets: Buckets, shutdown: CancellationToken) -> BoxFuture<'static, ()>;

    /// The reconcilers, which end with `shutdown`.
    fn reconcilers(&self, wiring: Wiring, shutdown: &CancellationToken) -> Reconcilers;
}

/// What is needed to lead others to the owner of a bucket.
pub(crate) struct Buckets {
    pub(crate) client: Client,
    /// Where the Services stand.
    pub(crate) namespace: String,
    /// This process's own address.
    pub(crate) address: IpAddr,
    pub(crate) shares: Shares,
}
