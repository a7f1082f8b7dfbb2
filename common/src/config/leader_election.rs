//! `config-leader-election`: timing of the leases, and the number of buckets that share the revisions.
//!
//! A Lease stores its duration in whole seconds, and other processes use the stored value. So a fraction of
//! `lease-duration` is dropped here as well as on writing. Otherwise a holder could rely on a lease that has ended for
//! all other processes.
//!
//! `map-lease-prefix.PREFIX` renames the leases of a controller ([`LeaderElectionConfig::lease_names`]), but not those
//! of the autoscaler, whose names are fixed.

use super::{ConfigError, Reader, ensure};
use crate::election::Timing;
use crate::golang::{self, GoDuration};
use std::collections::BTreeMap;
use std::time::Duration;

const BUCKETS_MAX: u32 = 10;
/// Longest lease that a Lease can store.
const LEASE_SECONDS_MAX: u64 = i32::MAX as u64;
/// Largest factor by which jitter lengthens a retry period. The longest period must end before the renew deadline.
const RETRY_JITTER: f64 = 1.2;

/// Content of `config-leader-election`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// `buckets`, from 1 to 10, default 1.
    pub buckets: u32,
    /// `lease-duration`, `renew-deadline` and `retry-period`.
    pub timing: Timing,
    /// `map-lease-prefix.PREFIX`: replacements of lease name prefixes.
    pub lease_prefixes: BTreeMap<String, String>,
}

impl Default for LeaderElectionConfig {
    fn default() -> Self {
        Self { buckets: 1, timing: Timing::KNATIVE, lease_prefixes: BTreeMap::new() }
    }
}

impl LeaderElectionConfig {
    /// Reads and checks the map's data. Each duration has an alias in camelCase; the kebab-case key wins. Fails with
    /// the first value that cannot be parsed or breaks a rule.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let read = Reader(data);
        let default = Timing::KNATIVE;
        let lease_duration = read.duration(&["lease-duration", "leaseDuration"], default.lease_duration.into())?;
        let seconds = lease_duration.to_std().as_secs();
        let rule = format!("must be from 1 s to {LEASE_SECONDS_MAX} s");
        ensure((1..=LEASE_SECONDS_MAX).contains(&seconds), "lease-duration", lease_duration, rule)?;
        let lease = GoDuration::from(Duration::from_secs(seconds));
        let renew = read.duration(&["renew-deadline", "renewDeadline"], default.renew_deadline.into())?;
        let retry = read.duration(&["retry-period", "retryPeriod"], default.retry_period.into())?;
        let buckets = read.parse(&["buckets"], 1, golang::parse_integer::<i64>)?;

        let rule = format!("must be from 1 to {BUCKETS_MAX}");
        let count = u32::try_from(buckets).unwrap_or(0);
        ensure((1..=BUCKETS_MAX).contains(&count), "buckets", buckets, rule)?;
        ensure(retry > GoDuration::ZERO, "retry-period", retry, "must be positive")?;
        let rule = format!("must be less than lease-duration ({lease})");
        ensure(renew < lease, "renew-deadline", renew, rule)?;
        let rule = format!("times {RETRY_JITTER} must be less than renew-deadline ({renew})");
        ensure(retry.as_secs_f64() * RETRY_JITTER < renew.as_secs_f64(), "retry-period", retry, rule)?;
        let (lease_duration, renew_deadline, retry_period) = (lease.to_std(), renew.to_std(), retry.to_std());
        let timing = Timing { lease_duration, renew_deadline, retry_period };
        let prefix = |key: &String| key.strip_prefix("map-lease-prefix.").map(str::to_owned);
        let lease_prefixes = data.iter().filter_map(|(key, value)| Some((prefix(key)?, value.clone()))).collect();
        Ok(Self { buckets: count, timing, lease_prefixes })
    }

    /// Returns the names of a controller's leases, one for each bucket: `COMPONENT.QUEUE.00-of-01`, in lower case.
    pub fn lease_names(&self, component: &str, queue: &str) -> Vec<String> {
        let own = format!("{component}.{queue}");
        let prefix = self.lease_prefixes.get(&own).filter(|prefix| !prefix.is_empty()).unwrap_or(&own);
        let name = |bucket| format!("{prefix}.{bucket:02}-of-{:02}", self.buckets).to_lowercase();
        (0..self.buckets).map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    #[test]
    fn leases_are_named_after_component_and_queue_unless_they_are_renamed() {
        let queue = "knative.dev.serving.pkg.reconciler.autoscaling.hpa.Reconciler";
        let config = LeaderElectionConfig::default();
        let name = "hpaautoscaler.knative.dev.serving.pkg.reconciler.autoscaling.hpa.reconciler.00-of-01";
        assert_eq!(config.lease_names("hpaautoscaler", queue), [name]);
        let key = format!("map-lease-prefix.hpaautoscaler.{queue}");
        let config = LeaderElectionConfig::from_map(&map(&[(key.as_str(), "Mine"), ("buckets", "2")])).expect("valid");
        assert_eq!(config.lease_names("hpaautoscaler", queue), ["mine.00-of-02", "mine.01-of-02"]);
        assert_eq!(config.lease_names("other", "queue"), ["other.queue.00-of-02", "other.queue.01-of-02"]);
    }

    fn read(entries: &[(&str, &str)]) -> Result<LeaderElectionConfig, String> {
        LeaderElectionConfig::from_map(&map(entries)).map_err(|error| error.key)
    }

    /// Goal: a process assumes the same duration for its lease that other processes read in it.
    #[test]
    fn a_lease_lasts_for_whole_seconds() {
        let leased = |text: &str| {
            let config = read(&[("lease-duration", text), ("renew-deadline", "500ms"), ("retry-period", "100ms")]);
            config.map(|config| config.timing.lease_duration)
        };
        let longest = ("2147483647s", i32::MAX as u64);
        for (text, seconds) in [("15500ms", 15), ("15.999999999s", 15), ("1.5s", 1), ("20m", 1200), longest] {
            assert_eq!(leased(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["999ms", "0s", "-1s", "2147483648s"] {
            assert_eq!(leased(text), Err("lease-duration".into()), "{text}");
        }
        let fraction = [("lease-duration", "15.9s"), ("renew-deadline", "15.5s")];
        assert_eq!(read(&fraction), Err("renew-deadline".into()), "it would outlast the lease");
    }

    #[test]
    fn kebab_case_beats_camel_case_and_values_have_bounds() {
        let config = read(&[("leaseDuration", "90s"), ("lease-duration", "70s"), ("renewDeadline", "50s")]);
        let timing = config.expect("valid").timing;
        assert_eq!((timing.lease_duration.as_secs(), timing.renew_deadline.as_secs()), (70, 50));
        assert_eq!(read(&[]), Ok(LeaderElectionConfig::default()));
        assert_eq!(read(&[("renew-deadline", "60s")]), Err("renew-deadline".into()));
        assert_eq!(read(&[("retry-period", "34s")]), Err("retry-period".into()));
        assert_eq!(read(&[("retry-period", "0s")]), Err("retry-period".into()));
        assert!(read(&[("retry-period", "33s")]).is_ok());
        for (buckets, good) in [("0", false), ("1", true), ("10", true), ("11", false), ("-1", false), ("x", false)] {
            assert_eq!(read(&[("buckets", buckets)]).is_ok(), good, "{buckets}");
        }
    }
}
