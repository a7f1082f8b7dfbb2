//! Differences between the two ways to be installed: values ([`Profile`]), and the parts that each makes ([`Decisions`]).
//! [`crate::knative`] and [`crate::standalone`] have one of each; [`crate::front_end`] chooses between them.

use crate::engine::Wiring;
use crate::pods::PodScope;
use crate::reconcile::Reconcilers;
use common::config::{ConfigError, LeaderElectionConfig};
use common::write_rate::Rate;
use common_runtime::lease::Timing;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What differs for the whole process. Values that are off are upstream's behaviour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    /// Kind of the objects that ask for a scale.
    pub(crate) kind: &'static str,
    /// Pace of writes to the API server, unless the settings say otherwise.
    pub(crate) api_rate: Rate,
    /// ServiceAccount of the autoscalers, which may forward stats of every workload.
    pub(crate) account: &'static str,
    /// Times of a lease and number of leases, unless `config-leader-election` says otherwise; none: upstream's.
    pub(crate) leases: Option<(Timing, u32)>,
    /// Replicas with more leases than others give some away.
    pub(crate) balances_leases: bool,
    /// Services lead to the owners of buckets: replicas try them when they cannot dial a holder's address, as in a mesh.
    pub(crate) has_bucket_services: bool,
    /// The process starts with defaults although a ConfigMap breaks a rule, and a deleted ConfigMap means defaults.
    pub(crate) defaults_replace_maps: bool,
    /// All activators are ours: one that has never attested has not been heard yet, and its silence is no lack of load.
    pub(crate) owns_activators: bool,
    /// An edited scale-down delay takes effect on a workload that lives, and requests in flight ask for a pod where the load
    /// is requests a second.
    pub(crate) has_own_rules: bool,
    /// Workloads have port numbers of their own, within the range of `config-ports`.
    pub(crate) numbers_ports: bool,
    /// There are spans from a stat to a patch.
    pub(crate) traces: bool,
    /// There may be a page that shows the objects.
    pub(crate) has_page: bool,
}

impl Profile {
    /// Reads `config-leader-election`, over the defaults.
    ///
    /// # Errors
    /// The map breaks a rule.
    pub(crate) fn election(&self, map: &BTreeMap<String, String>) -> Result<LeaderElectionConfig, ConfigError> {
        let Some((timing, buckets)) = self.leases else { return LeaderElectionConfig::from_map(map) };
        let secs = |duration: Duration| format!("{}s", duration.as_secs());
        let defaults = [
            ("lease-duration", "leaseDuration", secs(timing.lease_duration)),
            ("renew-deadline", "renewDeadline", secs(timing.renew_deadline)),
            ("retry-period", "retryPeriod", secs(timing.retry_period)),
            ("buckets", "buckets", buckets.to_string()),
        ];
        let mut map = map.clone();
        for (key, alias, value) in defaults {
            if !map.contains_key(alias) {
                map.entry(key.to_owned()).or_insert(value);
            }
        }
        LeaderElectionConfig::from_map(&map)
    }
}

/// One way to be installed.
pub(crate) trait Decisions: fmt::Debug + Send + Sync + 'static {
    /// Returns its values.
    fn profile(&self) -> &'static Profile;

    /// Returns which pods are watched.
    fn pods(&self) -> PodScope;

    /// Makes the reconcilers, which end with `shutdown`.
    fn reconcilers(&self, wiring: Wiring, shutdown: &CancellationToken) -> Reconcilers;
}
