//! The two kinds of install.
//!
//! [`crate::knative`] replaces Knative Serving's own autoscaler; [`crate::standalone`] serves ordinary Deployments.
//! The process chooses one when it reads its settings. Code that depends on the choice reads a value of the
//! [`Profile`] and never tests the kind itself.
//!
//! The reconcilers use two traits that each front end implements. [`crate::cluster::FrontEndQueues`] routes events to the
//! workloads concerned; [`crate::engine::front_end`] covers the life of a workload, from its creation to its deletion.

use crate::engine::Wiring;
use crate::pods::PodScope;
use crate::profile::Profile;
use crate::reconcile::Reconcilers;
use crate::standalone::Hpa;
use crate::{knative, standalone};
use common_runtime::environment::{EnvironmentError, Mode};
use common_runtime::namespaces::Namespaces;
use tokio_util::sync::CancellationToken;

/// Kind of install of the autoscaler. Cheap to clone.
#[derive(Clone, Debug)]
pub enum InstallKind {
    /// Replaces Knative Serving's own autoscaler.
    Knative,
    /// Serves ordinary Deployments.
    Standalone {
        /// Evaluator of the metrics that ZeroScalers request.
        hpa: Hpa,
        /// Namespaces to watch for workloads.
        namespaces: Namespaces,
    },
}

impl InstallKind {
    /// Returns the kind of install for ordinary Deployments in all namespaces.
    pub fn standalone(hpa: Hpa) -> Self {
        Self::Standalone { hpa, namespaces: Namespaces::ALL }
    }

    /// Reads `ZEROSCALE_MODE` (`knative`, the default, or `standalone`), `ZEROSCALE_HPA` (`engine` or `off`) and
    /// `ZEROSCALE_NAMESPACES`.
    ///
    /// # Errors
    /// One of them has an unknown value, or one of the latter two does not fit the mode.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        const HPA: &str = "ZEROSCALE_HPA";
        let hpa = get(HPA).unwrap_or_default();
        let mode = get("ZEROSCALE_MODE").unwrap_or_default().parse()?;
        let namespaces = Namespaces::from_env(mode, get)?;
        let read = match mode {
            Mode::Knative => knative::check_hpa(&hpa).map(|()| Self::Knative),
            Mode::Standalone => hpa.parse().map(|hpa| Self::Standalone { hpa, namespaces }),
        };
        read.map_err(|rule| EnvironmentError::new(HPA, hpa, rule))
    }

    /// Returns the values of this install.
    pub(crate) fn profile(&self) -> &'static Profile {
        match self {
            Self::Knative => &knative::PROFILE,
            Self::Standalone { .. } => &standalone::PROFILE,
        }
    }

    /// Returns the scope of pods to watch.
    pub(crate) fn pods(&self) -> PodScope {
        match self {
            Self::Knative => knative::pods(),
            Self::Standalone { namespaces, .. } => standalone::pods(namespaces),
        }
    }

    /// Builds the reconcilers, which end with `shutdown`.
    pub(crate) fn reconcilers(&self, wiring: Wiring, shutdown: &CancellationToken) -> Reconcilers {
        match self {
            Self::Knative => knative::reconcilers(wiring, shutdown),
            Self::Standalone { hpa, namespaces } => standalone::reconcilers(*hpa, namespaces, wiring, shutdown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::config::LeaderElectionConfig;
    use std::time::Duration;

    fn election(install: &InstallKind, data: &[(&str, &str)]) -> LeaderElectionConfig {
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        install.profile().election(&data).expect("valid")
    }

    #[test]
    fn lease_defaults_depend_on_the_install_and_the_map_overrides_them() {
        assert_eq!(election(&InstallKind::Knative, &[]), LeaderElectionConfig::default());
        let standalone = InstallKind::standalone(Hpa::Engine);
        let defaults = election(&standalone, &[]);
        assert_eq!((defaults.buckets, defaults.timing.lease_duration), (4, Duration::from_secs(15)));
        let edited = election(&standalone, &[("buckets", "2"), ("leaseDuration", "20s")]);
        assert_eq!((edited.buckets, edited.timing.lease_duration), (2, Duration::from_secs(20)));
        assert_eq!(edited.timing.renew_deadline, Duration::from_secs(10));
    }

    #[test]
    fn metrics_are_evaluated_in_standalone_unless_off() {
        let read = |mode: &str, hpa: &str| {
            let variables = [("ZEROSCALE_MODE", mode), ("ZEROSCALE_HPA", hpa)];
            let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            InstallKind::from_env(&get).map(|install| format!("{install:?}")).map_err(|error| error.to_string())
        };
        let debug = |install: InstallKind| Ok(format!("{install:?}"));
        for value in ["", "engine"] {
            assert_eq!(read("standalone", value), debug(InstallKind::standalone(Hpa::Engine)));
        }
        assert_eq!(read("standalone", "off"), debug(InstallKind::standalone(Hpa::Off)));
        for (mode, value) in [("", ""), ("knative", ""), ("knative", "off")] {
            assert_eq!(read(mode, value), debug(InstallKind::Knative));
        }
        for (mode, value) in [("knative", "engine"), ("standalone", "delegate"), ("knative", "delegate")] {
            assert!(read(mode, value).is_err_and(|error| error.contains("ZEROSCALE_HPA")), "{mode} {value}");
        }
    }
}
