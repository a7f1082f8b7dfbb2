//! Values that differ between the two kinds of install. [`crate::knative`] and [`crate::standalone`] provide one set
//! each.

use common::config::{ConfigError, LeaderElectionConfig};
use common::write_rate::Rate;
use common_runtime::lease::Timing;
use std::collections::BTreeMap;
use std::time::Duration;

/// Values that differ for the whole process. A value that is off means upstream's behaviour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    /// Kind of the objects that request a scale.
    pub(crate) kind: &'static str,
    /// Write rate to the API server, unless the settings override it.
    pub(crate) api_rate: Rate,
    /// ServiceAccount of the autoscalers, which may forward stats of every workload.
    pub(crate) account: &'static str,
    /// Lease timing and number of leases, unless `config-leader-election` overrides them; none: upstream's.
    pub(crate) leases: Option<(Timing, u32)>,
    /// Replicas with more leases than others release some.
    pub(crate) balances_leases: bool,
    /// Services lead to the holders of buckets. Replicas use them if they cannot dial a holder's address, as in a mesh.
    pub(crate) has_bucket_services: bool,
    /// The process starts with defaults if a ConfigMap breaks a rule, and a deleted ConfigMap means defaults.
    pub(crate) defaults_replace_maps: bool,
    /// All activators are ours. An activator that has never attested is not yet connected, so its missing reports do
    /// not mean zero load.
    pub(crate) owns_activators: bool,
    /// An edited scale-down delay applies to existing workloads, and requests in flight need at least one pod if the
    /// load is measured in requests per second.
    pub(crate) has_own_rules: bool,
    /// Workloads have their own port numbers, within the range of `config-ports`.
    pub(crate) numbers_ports: bool,
    /// Spans are recorded from a stat to a patch.
    pub(crate) traces: bool,
    /// A dashboard may be served.
    pub(crate) has_page: bool,
}

impl Profile {
    /// Reads `config-leader-election`, over the defaults.
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
