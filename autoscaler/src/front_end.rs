//! The two ways to be installed, each one object of decisions.
//!
//! [`crate::knative`] takes the place of Knative Serving's own autoscaler; [`crate::standalone`] serves ordinary
//! Deployments. A process chooses one of them once, when it reads its settings. Whoever must know something that
//! depends on the choice asks the object; nobody asks which object it is.
//!
//! What concerns the whole process is asked of [`Decisions`]. The reconcilers ask two objects that it makes: what is
//! watched and whom events concern of [`crate::reconcile::world::watches`], what happens to a PodAutoscaler from its
//! birth to its end of [`crate::reconcile::kpa::lifecycle`].

use crate::ingest::stat_server::StatServer;
use crate::knative::Knative;
use crate::pods::PodScope;
use crate::reconcile::{Reconcilers, Wiring};
use crate::standalone::{Hpa, Standalone};
use common::config::{ConfigError, LeaderElectionConfig};
use common::write_rate::Rate;
use common_controller::shares::Shares;
use common_runtime::config_map::{Refusals, RefusedMap};
use common_runtime::environment::{EnvironmentError, Mode};
use futures::future::BoxFuture;
use kube::Client;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How the autoscaler is installed. Cheap to clone.
#[derive(Clone)]
pub struct FrontEnd(Arc<dyn Decisions>);

impl FrontEnd {
    /// In place of Knative Serving's own autoscaler.
    pub fn knative() -> Self {
        Self(Arc::new(Knative))
    }

    /// Beside ordinary Deployments; `hpa` says who looks at the metrics that PodAutoscalers ask for.
    pub fn standalone(hpa: Hpa) -> Self {
        Self(Arc::new(Standalone { hpa }))
    }

    /// Reads `ZEROSCALE_MODE` (`knative`, the default, or `standalone`) and `ZEROSCALE_HPA` (`engine` or `off`).
    ///
    /// # Errors
    /// One of them has another value, or the second does not fit the first.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        const HPA: &str = "ZEROSCALE_HPA";
        let hpa = get(HPA).unwrap_or_default();
        let read = match get("ZEROSCALE_MODE").unwrap_or_default().parse()? {
            Mode::Knative => crate::knative::check_hpa(&hpa).map(|()| Self::knative()),
            Mode::Standalone => hpa.parse().map(Self::standalone),
        };
        read.map_err(|rule| EnvironmentError::new(HPA, hpa, rule))
    }

    /// What it decides.
    pub(crate) fn decides(&self) -> &dyn Decisions {
        &*self.0
    }
}

impl fmt::Debug for FrontEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a front end decides for the whole process.
pub(crate) trait Decisions: fmt::Debug + Send + Sync + 'static {
    /// How fast the API server may be written to, unless the settings say otherwise.
    fn api_rate(&self) -> Rate;

    /// The ServiceAccount of the autoscalers, which may forward anybody's stats.
    fn account(&self) -> &'static str;

    /// Returns once nothing stands against a start. Until then `server` answers 503 with the reason.
    fn may_start<'a>(&'a self, client: &'a Client, server: &'a StatServer) -> BoxFuture<'a, ()>;

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

    /// Whether an edited scale-down delay takes effect on a revision that lives.
    fn delay_is_live(&self) -> bool;

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn election(front_end: &FrontEnd, data: &[(&str, &str)]) -> LeaderElectionConfig {
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        front_end.decides().election(&data).expect("valid")
    }

    #[test]
    fn each_front_end_has_its_own_lease_defaults_and_the_map_beats_both() {
        assert_eq!(election(&FrontEnd::knative(), &[]), LeaderElectionConfig::default());
        let standalone = FrontEnd::standalone(Hpa::Engine);
        let defaults = election(&standalone, &[]);
        assert_eq!((defaults.buckets, defaults.lease_duration), (4, Duration::from_secs(15)));
        let edited = election(&standalone, &[("buckets", "2"), ("leaseDuration", "20s")]);
        assert_eq!((edited.buckets, edited.lease_duration), (2, Duration::from_secs(20)));
        assert_eq!(edited.renew_deadline, Duration::from_secs(10));
    }

    #[test]
    fn metrics_are_looked_at_in_standalone_unless_it_says_off() {
        let read = |mode: &str, hpa: &str| {
            let get = |name: &str| Some(if name == "ZEROSCALE_MODE" { mode } else { hpa }.to_owned());
            FrontEnd::from_env(&get).map(|front_end| format!("{front_end:?}")).map_err(|error| error.to_string())
        };
        let debug = |front_end: FrontEnd| Ok(format!("{front_end:?}"));
        for value in ["", "engine"] {
            assert_eq!(read("standalone", value), debug(FrontEnd::standalone(Hpa::Engine)));
        }
        assert_eq!(read("standalone", "off"), debug(FrontEnd::standalone(Hpa::Off)));
        for (mode, value) in [("", ""), ("knative", ""), ("knative", "off")] {
            assert_eq!(read(mode, value), debug(FrontEnd::knative()));
        }
        for (mode, value) in [("knative", "engine"), ("standalone", "delegate"), ("knative", "delegate")] {
            assert!(read(mode, value).is_err_and(|error| error.contains("ZEROSCALE_HPA")), "{mode} {value}");
        }
    }
}
